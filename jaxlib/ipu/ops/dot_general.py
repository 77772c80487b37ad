"""dot_general: batched matrix products, planned by plan/matmul.py."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, NAME, NUMPY, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.lower.view import View, merge
from jaxlib.ipu.ops.concatenate import fill_root
from jaxlib.ipu.plan import matmul
from jaxlib.ipu.plan.layout import Layout, grid, project
from jaxlib.ipu.program import schema
from jaxlib.mlir.dialects import stablehlo


@dataclasses.dataclass(frozen=True)
class DotDimensions:
  """Which dimensions are batched and which are contracted."""

  lhs_batch: tuple[int, ...]
  rhs_batch: tuple[int, ...]
  lhs_contract: tuple[int, ...]
  rhs_contract: tuple[int, ...]


def _read(operation: Any) -> DotDimensions:
  d = stablehlo.DotDimensionNumbers(
    operation.attributes["dot_dimension_numbers"]
  )
  return DotDimensions(
    tuple(d.lhs_batching_dimensions),
    tuple(d.rhs_batching_dimensions),
    tuple(d.lhs_contracting_dimensions),
    tuple(d.rhs_contracting_dimensions),
  )


_ACCUMULATE = {
  DType.F16: DType.F32,
  DType.BF16: DType.F32,
}


def _lower(builder: Builder, node: Node) -> None:
  d: DotDimensions = node.attributes
  value = node.results[0]
  if value.dtype in INTEGERS and any(v.dtype in FLOATS for v in node.inputs):
    of = " and ".join(NAME[v.dtype] for v in node.inputs)
    raise unimplemented(
      f"dot_general of {of} into {NAME[value.dtype]} (convert "
      "the operands, or the result)",
      node.location,
    )
  lhs, rhs = (builder.view(v) for v in node.inputs)
  lhs_free = _free(lhs, d.lhs_batch, d.lhs_contract)
  rhs_free = _free(rhs, d.rhs_batch, d.rhs_contract)
  left = _matrix(builder, lhs, (d.lhs_batch, lhs_free, d.lhs_contract))
  right = _matrix(builder, rhs, (d.rhs_batch, rhs_free, d.rhs_contract))
  b, m, k = left.shape
  n = right.shape[1]
  accumulate = _ACCUMULATE.get(value.dtype, value.dtype)
  shape = (b, m, n, k)
  if k == 0:
    zero = builder.constant(np.zeros((), NUMPY[value.dtype]), value.dtype)
    fill_root(builder, builder.result(node), zero)
    return
  plan = matmul.plan(
    builder.target, b, m, n, k, left.dtype, right.dtype, value.dtype
  )
  partition = grid(shape, plan.parts)
  root = builder.new_root(
    (b, m, n),
    value.dtype,
    _result_layout(builder, partition, shape, plan.parts, value.dtype),
  )
  builder.execute(
    schema.Dot(accumulate),
    shape,
    partition,
    [Operand(left, (0, 1, -1, 2)), Operand(right, (0, -1, 1, 2))],
    [Written(root, (0, 1, 2, -1))],
    extra=plan.combine,
  )
  result = builder.root_view(root).reshape(value.shape)
  assert result is not None
  builder.define(value, result)


def _free(
  view: View, batch: tuple[int, ...], contract: tuple[int, ...]
) -> tuple[int, ...]:
  return tuple(
    d for d in range(len(view.shape)) if d not in batch and d not in contract
  )


def _matrix(
  builder: Builder, view: View, groups: tuple[tuple[int, ...], ...]
) -> View:
  """The operand as (batch, rows, contracted), rearranged if it must be."""
  merged = merge(view, groups)
  if merged is None:
    order = [d for g in groups for d in g]
    dense = builder.materialise(view.transpose(order))
    merged = dense.reshape(
      tuple(math.prod(view.shape[d] for d in g) for g in groups)
    )
    assert merged is not None
  return merged


def _result_layout(
  builder: Builder,
  partition: Layout,
  shape: tuple[int, ...],
  parts: tuple[int, ...],
  dtype: DType,
) -> Layout:
  """Where the products are made, or evenly spread if they are partial."""
  if parts[3] <= 1 and 0 not in shape:
    own = project(partition, shape, (0, 1, 2))
    if own is not None and not own.replicas:
      return own
  return builder.default_layout(shape[:3], dtype)


define(Operation("stablehlo.dot_general", _lower, _read))
