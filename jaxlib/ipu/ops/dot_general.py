"""dot_general: batched matrix products, planned by plan/matmul.py.

Each of a product's four groups of dimensions (batch, rows, columns, terms) may
have several without a common stride; so operands never have to be rearranged,
and a convolution is a product with a view of overlapping windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, NAME, NUMPY, DType
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.ops._dot_loops import Access, free, loops_of
from jaxlib.ipu.ops._dot_split import Product, choose, preferred
from jaxlib.ipu.ops._dot_steps import compute
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.tensor import dense_strides
from jaxlib.ipu.tile.view import View
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
    f16_sums=_sums_in_f16(operation),
  )


def _sums_in_f16(operation: Any) -> bool:
  if "algorithm" not in operation.attributes:
    return False
  algorithm = stablehlo.DotAlgorithm(operation.attributes["algorithm"])
  return str(algorithm.accumulation_type) == "f16"


def _lower(builder: Builder, node: Node) -> None:
  value = node.results[0]
  if value.dtype in INTEGERS and any(v.dtype in FLOATS for v in node.inputs):
    of = " and ".join(NAME[v.dtype] for v in node.inputs)
    raise unimplemented(
      f"dot_general of {of} into {NAME[value.dtype]}",
      node.location,
      "convert the operands before it, or the result after it, with astype",
    )
  lhs, rhs = (builder.view(v) for v in node.inputs)
  product = _as_product(node, lhs, rhs)
  if 0 in product.shape:  # an empty result, or empty sums
    zero = builder.constant(np.zeros((), NUMPY[value.dtype]), value.dtype)
    builder.fill(zero, builder.result(node))
    return
  root = compute(builder, product)
  result = builder.root_view(root).reshape(value.shape)
  assert result is not None
  builder.define(value, result)


def _as_product(node: Node, lhs: View, rhs: View) -> Product:
  d: DotDimensions = node.attributes
  loops = loops_of(
    d, Access(lhs.shape, lhs.strides), Access(rhs.shape, rhs.strides)
  )
  left, right = loops.sides
  return Product(
    loops.shape,
    loops.counts,
    (left.operand(lhs), right.operand(rhs)),
    loops.kept,
    node.results[0],
    d.f16_sums,
    d.fourier,
  )


def _prefers(
  target: Target, node: Node, number: int, view: View
) -> Layout | None:
  """See `Operation.prefers`; assumes that the other operand is dense."""
  return preferred(target, _as_if(node, number, view, -2), number)


def _cycles_with(
  target: Target, node: Node, number: int, view: View, layout: Layout
) -> float:
  """See `Operation.cycles_with`; the other operand has its default layout."""
  builder = Builder(target)
  other = node.inputs[1 - number]
  roots = [
    builder.new_root((view.size,), view.dtype, layout),
    builder.new_root(other.shape, other.dtype),
  ]
  view = view._replace(root=roots[0])
  return choose(builder, _as_if(node, number, view, roots[1])).cycles


def _as_if(node: Node, number: int, view: View, root: int) -> Product:
  """A node's product if one operand is a view and the other one all of a
  root."""
  other = node.inputs[1 - number]
  strides = dense_strides(other.shape)
  views = [view, View(root, 0, strides, other.shape, other.dtype)]
  return _as_product(node, views[number], views[1 - number])


def _outer(e: Emitter, node: Node) -> list[Value] | None:
  """A product without sums as an element-wise one: it fuses with its users, and
  keeps -0."""
  d: DotDimensions = node.attributes
  lhs, rhs = node.inputs
  value = node.results[0]
  floats = lhs.dtype in FLOATS or rhs.dtype in FLOATS
  if d.lhs_contract or (floats and value.dtype not in FLOATS):
    return None
  dtypes = {value.dtype, lhs.dtype, rhs.dtype}
  dtype = value.dtype
  if dtype in FLOATS and len(dtypes) > 1:
    # Operands are exact before the product, which is rounded once.
    dtype = DType.F64 if DType.F64 in dtypes else DType.F32
  order = d.result or range(len(value.shape))
  sides = []
  first = len(d.lhs_batch)
  for operand, batched in (lhs, d.lhs_batch), (rhs, d.rhs_batch):
    places = {at: i for i, at in enumerate(batched)}
    for at in free(len(operand.shape), batched, ()):
      places[at] = first
      first += 1
    dims = [order.index(places[at]) for at in range(len(operand.shape))]
    wide = e.convert(operand, dtype)
    sides.append(e.broadcast_in_dim(wide, value.shape, dims))
  return [e.convert(e.multiply(*sides), value.dtype)]


define(
  Operation(
    "stablehlo.dot_general",
    _lower,
    _read,
    decompose=_outer,
    prefers=_prefers,
    cycles_with=_cycles_with,
    context=lambda builder, node: (builder.wanted(node.results[0]),),
  )
)
