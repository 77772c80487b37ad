"""dot_general: batched matrix products, planned by plan/matmul.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, NAME, NUMPY, DType
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.lower.code import Code
from jaxlib.ipu.lower.view import View, merge
from jaxlib.ipu.ops.concatenate import fill_root
from jaxlib.ipu.ops.elementwise import convert
from jaxlib.ipu.plan import matmul
from jaxlib.ipu.plan.layout import Layout, grid, project
from jaxlib.ipu.program import schema
from jaxlib.mlir.dialects import stablehlo


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


def _lower(builder: Builder, node: Node) -> None:
  d: DotDimensions = node.attributes
  value = node.results[0]
  if value.dtype in INTEGERS and any(v.dtype in FLOATS for v in node.inputs):
    of = " and ".join(NAME[v.dtype] for v in node.inputs)
    raise unimplemented(
      f"dot_general of {of} into {NAME[value.dtype]}",
      node.location,
      "convert the operands before it, or the result after it, with astype",
    )
  lhs, rhs = (builder.view(v) for v in node.inputs)
  lhs_free = _free(lhs, d.lhs_batch, d.lhs_contract)
  rhs_free = _free(rhs, d.rhs_batch, d.rhs_contract)
  left = _matrix(builder, lhs, (d.lhs_batch, lhs_free, d.lhs_contract))
  right = _matrix(builder, rhs, (d.rhs_batch, rhs_free, d.rhs_contract))
  b, m, k = left.shape
  n = right.shape[1]
  if k == 0:
    zero = builder.constant(np.zeros((), NUMPY[value.dtype]), value.dtype)
    fill_root(builder, builder.result(node), zero)
    return
  plan = matmul.plan(
    builder.target, b, m, n, k, left.dtype, right.dtype, value.dtype
  )
  terms = -(-k // plan.steps)
  sums = plan.accumulate_dtype if plan.steps > 1 else value.dtype
  kept = (1, 2) if b == 1 else (0, 1, 2)  # what most products' users ask for
  layout = _result_layout(builder, (b, m, n, terms), plan.parts, kept, sums)
  root = builder.new_root((b, m, n)[-len(kept) :], sums, layout)
  for begin in range(0, k, terms):
    shape = (b, m, n, min(terms, k - begin))
    builder.execute(
      schema.Dot(plan.accumulate_dtype, int(begin > 0)),
      shape,
      grid(shape, plan.parts),
      [
        Operand(_terms(left, begin, shape[3]), (0, 1, -1, 2)),
        Operand(_terms(right, begin, shape[3]), (0, -1, 1, 2)),
      ],
      [Written(root, (-1, 0, 1, -1) if b == 1 else (0, 1, 2, -1))],
      extra=plan.combine,
    )
  if sums is not value.dtype:
    root = _rounded(builder, root, value.dtype)
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


def _terms(matrix: View, begin: int, count: int) -> View:
  """Some of the contracted dimension."""
  end = (*matrix.shape[:2], begin + count)
  return matrix.slice((0, 0, begin), end, (1, 1, 1))


def _rounded(builder: Builder, sums: int, dtype: DType) -> int:
  """A root's values as another type, where they are."""
  info = builder.tensors[sums]
  root = builder.new_root(info.shape, dtype, info.layout)
  code = Code()
  number = convert(code, code.load(0, info.dtype), info.dtype, dtype)
  dims = tuple(range(len(info.shape)))
  builder.execute(
    schema.Map(code.bytes(), [number]),
    info.shape,
    info.layout,
    [Operand(builder.root_view(sums), dims)],
    [Written(root, dims)],
  )
  return root


def _result_layout(
  builder: Builder,
  shape: tuple[int, ...],
  parts: tuple[int, ...],
  kept: tuple[int, ...],
  dtype: DType,
) -> Layout:
  """Where the products are made, or evenly spread if they are partial."""
  if parts[3] <= 1 and 0 not in shape:
    own = project(grid(shape, parts), shape, kept)
    if own is not None and not own.replicas:
      return own
  return builder.default_layout(tuple(shape[d] for d in kept), dtype)


define(Operation("stablehlo.dot_general", _lower, _read))
