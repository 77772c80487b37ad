"""constant and iota, for operations other than register programs, which
generate both themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import MLIR_NAME
from jaxlib.ipu.ir.constants import read_constant
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.program import schema


def _read_constant(operation: Any) -> np.ndarray:
  type_ = operation.results[0].type
  dtype = MLIR_NAME[str(type_.element_type)]
  return read_constant(operation, tuple(type_.shape), dtype)


def _constant(builder: Builder, node: Node) -> None:
  value = node.results[0]
  builder.define(value, builder.constant(node.attributes, value.dtype))


def _iota(builder: Builder, node: Node) -> None:
  value = node.results[0]
  code = Writer()
  number = code.iota(node.attributes, value.dtype)
  root = builder.result(node)
  builder.execute(
    schema.Map(code.finish(), [number]),
    value.shape,
    builder.tensors[root].layout,
    [],
    [Written(root, tuple(range(len(value.shape))))],
  )


define(Operation("stablehlo.constant", _constant, _read_constant))
define(
  Operation(
    "stablehlo.iota",
    _iota,
    lambda operation: operation.attributes["iota_dimension"].value,
  )
)
