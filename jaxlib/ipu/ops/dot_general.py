"""dot_general: batched matrix products, planned by plan/matmul.py.

Each of a product's four groups of dimensions (batch, rows, columns, terms) may
have several without a common stride; so operands never have to be rearranged,
and a convolution is a product with a view of overlapping windows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, NAME, NUMPY, DType
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.code import Code
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.lower.view import View, dense_strides, merge
from jaxlib.ipu.ops._dot_split import (
  Choice,
  Product,
  choose,
  preferred,
  result_layout,
  windowed,
)
from jaxlib.ipu.ops.elementwise import convert
from jaxlib.ipu.plan import cost, matmul, partials
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.mlir.dialects import stablehlo


def free(
  rank: int, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...]:
  """The dimensions of an operand that are neither batch nor contracting."""
  return tuple(d for d in range(rank) if d not in batch and d not in contract)


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Loop:
  """Joined dimensions: those of each operand, and of the result."""

  lhs: tuple[int, ...] = ()
  rhs: tuple[int, ...] = ()
  result: tuple[int, ...] = ()


# Where a block begins and ends along each dimension.
_Block = tuple[tuple[int, ...], tuple[int, ...]]


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
  product, loops, left, right = _as_product(node, lhs, rhs)
  if 0 in product.shape:  # an empty result, or empty sums
    zero = builder.constant(np.zeros((), NUMPY[value.dtype]), value.dtype)
    builder.fill(zero, builder.result(node))
    return
  root = _compute(builder, product, loops, left, right)
  result = builder.root_view(root).reshape(value.shape)
  assert result is not None
  builder.define(value, result)


def _as_product(
  node: Node, lhs: View, rhs: View
) -> tuple[Product, list[_Loop], View, View]:
  """A node's iteration space, its dimensions, and both operands with one
  dimension for each of these."""
  groups = _loops(node.attributes, lhs, rhs)
  loops = [loop for group in groups for loop in group]
  left = _matrix(lhs, [loop.lhs for loop in loops])
  right = _matrix(rhs, [loop.rhs for loop in loops])
  f16_sums = node.attributes.f16_sums
  product = _product(groups, left, right, node.results[0], f16_sums)
  return product, loops, left, right


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
  return _as_product(node, views[number], views[1 - number])[0]


def _product(
  groups: Sequence[Sequence[_Loop]],
  left: View,
  right: View,
  value: Value,
  f16_sums: bool,
) -> Product:
  loops = [loop for group in groups for loop in group]
  shape = tuple(
    max(a, b) if a and b else 0 for a, b in zip(left.shape, right.shape)
  )
  none = [0] * len(shape)
  outer = len(loops) - len(groups[3])
  return Product(
    shape,
    (len(groups[0]), len(groups[1]), len(groups[2])),
    (
      _operand(left, none, shape, [loop.lhs for loop in loops]),
      _operand(right, none, shape, [loop.rhs for loop in loops]),
    ),
    tuple(
      sorted(
        (d for d in range(outer) if loops[d].result and shape[d] != 1),
        key=lambda d: loops[d].result,
      )
    ),
    value,
    f16_sums,
  )


def _compute(
  builder: Builder,
  product: Product,
  loops: Sequence[_Loop],
  left: View,
  right: View,
) -> int:
  """Adds a product's steps; returns the root of its result."""
  choice = choose(builder, product)
  outer = product.outer
  parts = _blocks(product.shape[:outer], choice.first[:outer])
  if choice.steps.results == 1:
    (whole,) = parts
    return _compute_part(builder, product, choice, loops, left, right, whole)
  dtype = product.value.dtype
  result = builder.new_root(
    tuple(product.shape[d] for d in product.kept),
    dtype,
    builder.wanted(product.value),
  )
  every = builder.root_view(result)
  for part in parts:
    root = _compute_part(builder, product, choice, loops, left, right, part)
    begins, ends = ([place[d] for d in product.kept] for place in part)
    place = every.slice(begins, ends, [1] * len(begins))
    builder.copy_to([(builder.root_view(root), place)])
  builder.assembled.add(result)
  return result


def _compute_part(
  builder: Builder,
  product: Product,
  choice: Choice,
  loops: Sequence[_Loop],
  left: View,
  right: View,
  place: _Block,
) -> int:
  """Adds the steps that make a part of a product's result; returns its root."""
  shape, outer, counts = product.shape, product.outer, product.counts
  dtype = product.value.dtype
  many = choice.steps.terms > 1
  sums = choice.accumulate if many else dtype
  written = tuple(
    product.kept.index(d) if d in product.kept else -1
    for d in range(len(shape))
  )
  _, m, n, _ = (math.prod(shape[s]) for s in product.spans)
  root = -1
  for terms in _blocks(shape[outer:], choice.first[outer:]):
    begins, ends = (a + b for a, b in zip(place, terms, strict=True))
    part = tuple(e - b for b, e in zip(begins, ends, strict=True))
    split = choice.partition
    if part != choice.first:
      split = matmul.partition(part, choice.parts, counts)
    first = root < 0
    if first:
      layout = result_layout(
        builder, product, split, choice.partial, part, sums
      )
      kept = tuple(part[d] for d in product.kept)
      root = builder.new_root(kept, sums, layout)
    fields = schema.Dot(choice.accumulate, int(not first), *counts)
    hints = {
      "f16_sums": product.f16_sums,
      "vector": min(m, n) == 1,
      "stored": sums,
      "whole": not choice.partial,
    }
    builder.execute(
      fields,
      part,
      split,
      [
        _operand(left, begins, ends, [loop.lhs for loop in loops]),
        _operand(right, begins, ends, [loop.rhs for loop in loops]),
      ],
      [Written(root, written)],
      epilogue=partials.epilogue(
        builder.target, fields, split, part, outer, layout,
        cost.casts(
          builder.target, fields, part, split, product.dtypes[:2], **hints
        ),
      ),
      # Steps save the SRAM that this takes.
      hoists=choice.steps == matmul.ONE,
      keeps=not many,
      **hints,
    )  # fmt: skip
  return root if sums is dtype else _rounded(builder, root, dtype)


def _loops(d: DotDimensions, lhs: View, rhs: View) -> list[list[_Loop]]:
  """The dimensions of each group, joined where they have a common stride;
  without those of extent 1, but at least one for each group."""
  lhs_free = free(len(lhs.shape), d.lhs_batch, d.lhs_contract)
  rhs_free = free(len(rhs.shape), d.rhs_batch, d.rhs_contract)
  rank = len(d.lhs_batch) + len(lhs_free) + len(rhs_free)
  order = d.result or tuple(range(rank))
  place = iter([order.index(i) for i in range(rank)])
  groups = [
    [
      _Loop((a,), (b,), (next(place),))
      for a, b in zip(d.lhs_batch, d.rhs_batch)
    ],
    [_Loop((a,), (), (next(place),)) for a in lhs_free],
    [_Loop((), (b,), (next(place),)) for b in rhs_free],
    [_Loop((a,), (b,)) for a, b in zip(d.lhs_contract, d.rhs_contract)],
  ]

  def extent(loop: _Loop) -> int:
    return lhs.shape[loop.lhs[0]] if loop.lhs else rhs.shape[loop.rhs[0]]

  ones = {loop.result[0] for g in groups[:3] for loop in g if extent(loop) == 1}
  # Places in the result without dimensions of extent 1.
  rest = [p for p in range(rank) if p not in ones]

  # Dimensions of overlapping windows are not joined with others, which can be
  # cut without a larger halo.
  windows = [windowed(view) for view in (lhs, rhs)]

  def joins(a: _Loop, b: _Loop) -> bool:
    for view, among, one, other in (
      (lhs, windows[0], a.lhs, b.lhs),
      (rhs, windows[1], a.rhs, b.rhs),
    ):
      if one and (one[-1] in among) != (other[0] in among):
        return False
      if one and view.strides[one[-1]] != (
        view.shape[other[0]] * view.strides[other[0]]
      ):
        return False
    if not a.result:
      return True
    return rest.index(b.result[0]) == rest.index(a.result[-1]) + 1

  joined: list[list[_Loop]] = []
  for group in groups:
    out: list[_Loop] = []
    for loop in group:
      if extent(loop) == 1:
        continue
      if out and joins(out[-1], loop):
        a = out.pop()
        loop = _Loop(a.lhs + loop.lhs, a.rhs + loop.rhs, a.result + loop.result)
      out.append(loop)
    joined.append(out or [_Loop()])
  return joined


def _matrix(view: View, loops: Sequence[tuple[int, ...]]) -> View:
  """The operand with one dimension for each loop; extent 1 along loops that it
  does not have."""
  used = {d for loop in loops for d in loop}
  ones = [d for d in range(len(view.shape)) if d not in used]
  merged = merge(view, [*loops, ones])
  assert merged is not None, "joined loops have one stride"
  rank = len(loops)
  return merged._replace(
    shape=merged.shape[:rank], strides=merged.strides[:rank]
  )


def _operand(
  matrix: View,
  begins: Sequence[int],
  ends: Sequence[int],
  loops: Sequence[tuple[int, ...]],
) -> Operand:
  """A part of an operand, with its dimension for each loop."""
  own = [d for d, loop in enumerate(loops) if loop]
  some = matrix.slice(
    [begins[d] if loop else 0 for d, loop in enumerate(loops)],
    [ends[d] if loop else 1 for d, loop in enumerate(loops)],
    [1] * len(loops),
  )
  some = some._replace(
    shape=tuple(some.shape[d] for d in own),
    strides=tuple(some.strides[d] for d in own),
  )
  dims = tuple(own.index(d) if d in own else -1 for d in range(len(loops)))
  return Operand(some, dims)


def _blocks(extents: Sequence[int], sizes: Sequence[int]) -> list[_Block]:
  """The consecutive blocks of some size, the last of a dimension maybe
  smaller."""
  found = []
  for begins in itertools.product(
    *(range(0, n, b) for n, b in zip(extents, sizes, strict=True))
  ):
    ends = (min(a + b, n) for a, b, n in zip(begins, sizes, extents))
    found.append((begins, tuple(ends)))
  return found


def _rounded(builder: Builder, sums: int, dtype: DType) -> int:
  """Converts a root's values to another type, in place on their tiles."""
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
  )
)
