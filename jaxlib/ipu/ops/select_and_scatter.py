"""select_and_scatter: the gradient of max-pooling and similar functions.

Each window selects a place in it. Then each element of the operand collects,
from the few windows that contain it, the sources of those that selected it.
Along a dimension, padded element q * stride + r is in windows q - j, at place
r + j * stride, for j below window / stride: so no source moves farther than
its window, and nothing is scattered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets._monoids import identity
from jaxlib.ipu.dtypes import FLOATS, NUMPY, DType
from jaxlib.ipu.ir.attributes import Reduction, Window, read_window
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.node_emitter import Number
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.ops.windows import windows


def _decompose(e: Emitter, node: Node) -> list[Value]:
  w: Window = node.attributes
  operand, source, init = node.inputs
  select, scatter = node.regions
  if 0 in operand.shape:
    return [operand]
  if 0 in source.shape:
    return [e.broadcast_in_dim(init, operand.shape, [])]
  # Dimensions along which windows are single, separate elements drop out.
  dims = [d for d, n in enumerate(w.sizes) if (n, w.strides[d]) != (1, 1)]
  dims += [d for d in range(len(w.sizes)) if d not in dims
           and (w.low[d] or w.high[d])]  # fmt: skip
  dims.sort()
  marks = _marks(operand, w, dims, _extreme(select))
  selected = _selected(e, operand, w, dims, select, marks)
  return [
    _collected(e, operand, selected, marks, source, init, w, dims, scatter)
  ]


def _reach(w: Window, d: int) -> int:
  """Maximum windows along a dimension that contain one element."""
  return -(-w.sizes[d] // w.strides[d])


def _numbers(w: Window, dims: Sequence[int]) -> list[int]:
  """What a step along each dimension adds to the number of a place in a window.
  Windows count as long as the next multiple of their stride."""
  steps, step = [], 1
  for d in reversed(dims):
    steps.append(step)
    step *= _reach(w, d) * w.strides[d]
  return steps[::-1]


# What the number of a place grows by for each dimension in which it is outside
# of the operand.
_OUTSIDE = {DType.I32: 1 << 28, DType.F32: 1 << 28, DType.F16: 4096}
# Integers up to this are exact.
_EXACT = {DType.F32: 1 << 24, DType.F16: 2048}


class _Marks(NamedTuple):
  """The encoding of places in a window: `first` plus or minus their number.

  If the first or last extreme of a window is selected, marks are floats from 1
  on, unless numbers are too large; the highest is selected. They are compared
  and selected like the elements themselves. In all other cases marks are the
  numbers.

  Attributes:
    dtype: of the marks.
    first: of the place of number 0.
    sign: whether marks rise or fall with the number.
    none: the mark of no place.
  """

  dtype: DType
  first: int
  sign: int
  none: int


class _Extreme(NamedTuple):
  """A selection of the first or last of a window's extremes."""

  kind: ReduceKind
  name: str
  first: bool


_EXTREMES = {
  Opcode.GE: _Extreme(ReduceKind.MAX, "maximum", True),
  Opcode.GT: _Extreme(ReduceKind.MAX, "maximum", False),
  Opcode.LE: _Extreme(ReduceKind.MIN, "minimum", True),
  Opcode.LT: _Extreme(ReduceKind.MIN, "minimum", False),
}


def _extreme(select: Graph) -> _Extreme | None:
  """The meaning of a selection that is one comparison; None for others. A NaN
  counts as an extreme, where XLA:CPU forgets what is before it."""
  if len(select.nodes) != 1:
    return None
  (node,) = select.nodes
  if node.op != "stablehlo.compare" or node.attributes.total_order:
    return None
  if list(node.inputs) != select.parameters or node.inputs[0].dtype is (
    DType.BOOL
  ):
    return None
  return _EXTREMES.get(node.attributes.opcode)


def _marks(
  operand: Value, w: Window, dims: Sequence[int], extreme: _Extreme | None
) -> _Marks:
  if extreme is None:
    return _Marks(DType.I32, 0, 1, -1)
  count = math.prod(_reach(w, d) * w.strides[d] for d in dims)
  dtype = operand.dtype if operand.dtype in _EXACT else DType.F32
  if count >= _EXACT[dtype]:
    dtype = DType.F32 if count < _EXACT[DType.F32] else DType.I32
  if extreme.first:
    return _Marks(dtype, count, -1, 0)
  return _Marks(dtype, 1, 1, 0)


def _total(
  e: Emitter,
  tables: Sequence[np.ndarray],
  walked: Sequence[Sequence[int]],
  shape: Sequence[int],
  marks: _Marks,
) -> Value:
  """The marks of places whose numbers are sums of tables, each along some
  dimensions of a shape."""
  values = []
  for i, (table, dims) in enumerate(zip(tables, walked, strict=True)):
    mark = marks.sign * table + (0 if i else marks.first)
    constant = e.constant(mark.astype(NUMPY[marks.dtype]))
    values.append(e.broadcast_in_dim(constant, shape, dims))
  if not values:
    return e.constant(marks.first, marks.dtype, shape)
  return functools.reduce(e.add, values)


def _selected(
  e: Emitter,
  operand: Value,
  w: Window,
  dims: Sequence[int],
  select: Graph,
  marks: _Marks,
) -> Value:
  """The mark of the place that each window selects."""
  rank = len(operand.shape)
  extreme = _extreme(select)
  filling: Number = 0
  if extreme is not None:
    filling = identity(extreme.kind, NUMPY[operand.dtype])
  padded = e.pad(operand, filling, w.low, w.high)
  values = windows(
    e,
    padded,
    dims,
    [w.sizes[d] for d in dims],
    [w.strides[d] for d in dims],
    [1] * len(dims),
  )
  shape = values.shape
  # If the highest mark is selected, marks outside are negative.
  outside = _OUTSIDE[marks.dtype] * (1 if extreme is None else -marks.sign)
  tables, walked, padded_dims = [], [], False
  for i, (d, step) in enumerate(zip(dims, _numbers(w, dims), strict=True)):
    place = np.arange(w.sizes[d])
    table = place * step
    if w.low[d] > 0 or w.high[d] > 0:
      index = np.arange(shape[d])[:, None] * w.strides[d] + place - w.low[d]
      inside = (index >= 0) & (index < operand.shape[d])
      table = np.where(inside, table, outside)
      padded_dims = True
    tables.append(table)
    walked.append((d, rank + i)[2 - table.ndim :])
  number = _total(e, tables, walked, shape, marks)
  reduced = range(rank, rank + len(dims))
  if extreme is not None:
    best = e.reduce(values, filling, reduced, extreme.name)
    best = e.broadcast_in_dim(best, shape, range(rank))
    chosen = e.compare(values, best, "EQ")
    if operand.dtype in FLOATS:
      chosen = e.or_(chosen, e.compare(values, values, "NE"))
    lowest = identity(ReduceKind.MAX, NUMPY[marks.dtype])
    found = e.select(chosen, number, marks.none)
    return e.reduce(found, lowest, reduced, "maximum")
  if padded_dims:
    number = e.select(e.compare(number, outside, "GE"), -1, number)

  def better(
    old: Value, place: Value, new: Value, new_place: Value
  ) -> list[Value]:
    (keeps,) = e.call(select, [old, new])
    has = e.compare(place, 0, "GE")
    keep = e.and_(has, keeps)
    if padded_dims:
      keep = e.or_(e.compare(new_place, 0, "LT"), keep)
    return [e.select(keep, old, new), e.select(keep, place, new_place)]

  start = [e.constant(0, operand.dtype, ()), e.constant(-1, DType.I32, ())]
  return e.reduce_several([values, number], start, reduced, better)[1]


def _collected(
  e: Emitter,
  operand: Value,
  selected: Value,
  marks: _Marks,
  source: Value,
  init: Value,
  w: Window,
  dims: Sequence[int],
  scatter: Graph,
) -> Value:
  rank = len(operand.shape)
  reach = [_reach(w, d) for d in dims]
  # How often the stride fits into the leading padding and the operand.
  quotients = {
    d: (w.low[d] + operand.shape[d] - 1) // w.strides[d] + 1 for d in dims
  }
  low, high = [0] * rank, [0] * rank
  for d, j in zip(dims, reach, strict=True):
    low[d] = j - 1
    high[d] = quotients[d] - source.shape[d]
  # The windows q - reach + 1 ... q of each quotient q.
  ones = [1] * len(dims)
  near = [
    windows(e, e.pad(value, fill, low, high), dims, reach, ones, ones)
    for value, fill in ((selected, marks.none), (source, 0))
  ]
  # (..., quotient, remainder, ..., window) for each dimension of `dims`.
  kept: list[int] = []
  places: list[int] = []
  for d in range(rank):
    places.append(len(kept))
    kept.append(near[0].shape[d])
    if d in dims:
      kept.append(w.strides[d])
  shape = (*kept, *reach)
  behind = [*places, *range(len(kept), len(shape))]
  choice, value = (e.broadcast_in_dim(v, shape, behind) for v in near)
  tables, walked = [], []
  for i, (d, step) in enumerate(zip(dims, _numbers(w, dims), strict=True)):
    turn = (reach[i] - 1 - np.arange(reach[i])) * w.strides[d]
    tables.append((np.arange(w.strides[d])[:, None] + turn) * step)
    walked.append((places[d] + 1, len(kept) + i))
  number = _total(e, tables, walked, shape, marks)
  here = e.compare(choice, number, "EQ")
  result = _combined(e, here, value, init, len(kept), scatter)
  whole = [quotients[d] * w.strides[d] if d in dims else n
           for d, n in enumerate(operand.shape)]  # fmt: skip
  joined = e.reshape(result, whole)
  # Element i is padded element i + low.
  begins = [w.low[d] if d in dims else 0 for d in range(rank)]
  ends = [b + n for b, n in zip(begins, operand.shape, strict=True)]
  if min(begins) >= 0:
    return e.slice(joined, begins, ends)
  return e.pad(
    joined,
    init,
    [-b for b in begins],
    [end - n for end, n in zip(ends, whole, strict=True)],
  )


def _combined(
  e: Emitter, here: Value, value: Value, init: Value, kept: int, scatter: Graph
) -> Value:
  """Combines the values marked by `here` along the dimensions after `kept`."""
  rank = len(value.shape)
  reduced = tuple(range(kept, rank))
  shape = value.shape[:kept]
  if monoid(scatter) is ReduceKind.SUM:
    types = [(p.shape, p.dtype) for p in scatter.parameters]
    return e.node(
      "stablehlo.reduce",
      [e.select(here, value, 0), init],
      [(shape, value.dtype)],
      Reduction(reduced),
      [e.region(types, lambda *values: e.call(scatter, values))],
    )[0]

  def combine(a: Value, has: Value, b: Value, more: Value) -> list[Value]:
    (both,) = e.call(scatter, [a, b])
    one = e.select(has, a, b)
    return [e.select(e.and_(has, more), both, one), e.or_(has, more)]

  true = e.constant(np.True_, DType.BOOL, ())
  return e.reduce_several([value, here], [init, true], reduced, combine)[0]


define(
  Operation(
    "stablehlo.select_and_scatter", read=read_window, decompose=_decompose
  )
)
