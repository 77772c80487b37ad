"""Layouts of loop-carried arrays of which each iteration writes a slice.

`scan` stacks its outputs in this way. If an array is not cut along the sliced
dimensions, only along the others (as popops' `createSliceableTensor` does), a
slice is distributed over all tiles that hold any of the array, and each of them
writes its own part. In any other mapping the slice is sent to all tiles that
hold different parts of the sliced dimensions, as only the index at run time
tells which of them owns it.
"""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._windows import along_dynamic
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Graph, Node, Users, Value
from jaxlib.ipu.layout import Factor, Layout, refine
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import SMALLEST_BYTES, default_layout
from jaxlib.ipu.plan.indexed_blocks import Lookups
from jaxlib.ipu.plan.indexed_split import updates_in_place
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.choices import LEAST_TRIPS
from jaxlib.ipu.tile.tensor import dense_strides

_SLICE = "stablehlo.dynamic_slice"
_UPDATE = "stablehlo.dynamic_update_slice"

# The fullest tile may hold this multiple of an even share, or this many bytes.
# [G]
_MOST_UNEVEN, _FEW_BYTES = 2, 4096


def stacked(
  builder: Builder,
  body: Graph,
  index: int,
  used: Users,
  layout: Layout,
  trips: int,
) -> Layout:
  """The mapping of a loop-carried value: `layout`, or one that does not cut the
  dimensions that iterations slice, if that saves more cycles in all iterations
  than the conversions before and after the loop take.

  Args:
    builder: the program's builder.
    body: the loop's body.
    index: the value's number among the body's parameters.
    used: users of values in the body.
    layout: the value's mapping before the loop.
    trips: number of iterations.
  """
  value = body.parameters[index]
  if trips < LEAST_TRIPS or not builder.choices.hoists:
    return layout
  updates, sliced = _slices(body, index, used)
  if not updates or not sliced:
    return layout
  item, size = SIZE[value.dtype], math.prod(value.shape)
  even = builder.default_layout(value.shape, value.dtype).max_elements * item
  best, least = layout, trips * _each(builder, value, updates, layout)
  for smallest in (SMALLEST_BYTES, builder.target.data_path_bytes):
    found = _whole(builder, value, sliced, smallest)
    if found.max_elements * item > max(_MOST_UNEVEN * even, _FEW_BYTES):
      continue
    sides = MoveEnd(layout, 0, (1,)), MoveEnd(found, 0, (1,))
    there = cost.exchange(builder.target, [move_traffic(*sides, (size,), item)])
    cycles = trips * _each(builder, value, updates, found)
    if cycles + 2 * cost.cycles(there) < least:
      best, least = found, cycles + 2 * cost.cycles(there)
  if best is not layout:
    builder.used.hoists = True
  return best


def _slices(
  body: Graph, index: int, used: Users
) -> tuple[list[Value], set[int]]:
  """The updates that an iteration writes into a carried value, and the
  dimensions along which these updates, or the slices that it reads, are smaller
  than the value. Both are empty if the value is used in any other way."""
  value = body.parameters[index]
  updates: list[Value] = []
  sliced: set[int] = set()
  while value is not body.results[index]:
    following: Node | None = None
    for node in used[id(value)]:
      if node is None or node.inputs[0] is not value:
        return [], set()
      if node.op == _UPDATE and following is None:
        following = node
        part = node.inputs[1]
        updates.append(part)
      elif node.op == _SLICE:
        part = node.results[0]
      else:
        return [], set()
      pairs = zip(part.shape, value.shape, strict=True)
      sliced |= {d for d, (n, m) in enumerate(pairs) if n != m}
    if following is None:
      return [], set()
    (value,) = following.results
  # Nothing but the next iteration may read the value with all updates.
  return (updates, sliced) if len(used[id(value)]) == 1 else ([], set())


def _whole(
  builder: Builder, value: Value, sliced: set[int], smallest: int
) -> Layout:
  """The mapping that distributes a slice over tiles, and does not cut the
  sliced dimensions."""
  shape = value.shape
  one = tuple(1 if d in sliced else n for d, n in enumerate(shape))
  spreading = default_layout(builder.target, one, SIZE[value.dtype], smallest)
  groups = refine(spreading.factors, one)
  assert groups is not None, "an even mapping keeps to dimensions"
  factors = [
    f
    for d, group in enumerate(groups)
    for f in ((Factor(shape[d], shape[d], 0),) if d in sliced else group)
  ]
  return Layout(tuple(f for f in factors if f.extent != 1))


def _each(
  builder: Builder, value: Value, updates: list[Value], mapping: Layout
) -> float:
  """Cycles of all updates of an iteration, given the value's mapping."""
  target, item = builder.target, SIZE[value.dtype]
  total = 0.0
  for update in updates:
    along = along_dynamic(update.shape, value.shape)
    w = Lookups(
      update.shape, value.shape, along, len(along), item, 0, target.num_tiles
    )
    plan = updates_in_place(w, mapping)
    if plan is None:
      return math.inf
    strides = dense_strides(update.shape)
    here = builder.default_layout(update.shape, update.dtype)
    sides = MoveEnd(here, 0, strides), MoveEnd(plan.partition, 0, strides)
    moved = move_traffic(*sides, update.shape, item, True)
    total += cost.cycles(cost.exchange(target, [moved]))
    fields = schema.DynamicUpdate([d for d, to in enumerate(along) if to < 0])
    dtypes = [update.dtype]
    total += cost.cycles(
      cost.compute_set(
        target, fields, update.shape, plan.partition, dtypes, dtypes
      )
    )
  return total
