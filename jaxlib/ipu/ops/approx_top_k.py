"""The custom call of `lax.approx_max_k` and `approx_min_k`: an exact sort that
keeps as many elements as the caller asks for."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops.sort import SORT, Sorting
from jaxlib.mlir import ir


def _read(operation: Any) -> int:
  """The dimension that is searched."""
  attributes = operation.attributes
  portable = "mhlo.backend_config"  # the name in portable artifacts
  name = portable if portable in attributes else "backend_config"
  config = ir.DictAttr(attributes[name])
  return ir.IntegerAttr(config["reduction_dim"]).value


def _decompose(e: Emitter, node: Node) -> list[Value]:
  dimension: int = node.attributes
  # Padding values follow the operands: a sort needs none.
  operands = node.inputs[: len(node.results)]
  sorted_ = e.node(
    SORT,
    operands,
    [(v.shape, v.dtype) for v in operands],
    Sorting(dimension),
    node.regions,
  )
  shape = node.results[0].shape
  return [e.slice(v, [0] * len(shape), shape) for v in sorted_]


define(
  Operation(
    "stablehlo.custom_call @ApproxTopK", read=_read, decompose=_decompose
  )
)
