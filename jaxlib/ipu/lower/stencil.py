"""Layouts of loop-carried arrays that stencils read. Each element is combined
with its neighbours in all directions, so a tile's block should be a box of
small surface."""

from __future__ import annotations

import math

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Shape, Users, Value
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.align import aligned
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import blocks
from jaxlib.ipu.tile.choices import LEAST_TRIPS
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import View

_SLICE = "stablehlo.slice"
# Operations that work equally well in either mapping.
_INDIFFERENT = (MAP, "ipu.update_slice", "stablehlo.concatenate")


def boxes(
  builder: Builder, value: Value, used: Users, layout: Layout, trips: int
) -> Layout:
  """The mapping of a loop-carried value: `layout`, or boxes, if these save more
  cycles in all iterations than the conversions before and after the loop take.

  Args:
    builder: the program's builder.
    value: a parameter of the loop's body.
    used: users of values in that body.
    layout: the value's mapping before the loop.
    trips: number of iterations.
  """
  found = blocks(builder.target, value.shape)
  if (
    found is None
    or found == layout
    or trips < LEAST_TRIPS
    or not builder.choices.boxes
  ):
    return layout
  strides = dense_strides(value.shape)
  views = []
  for node in used[id(value)]:
    if node is None:
      continue
    if node.op == _SLICE:
      whole = View(0, 0, strides, value.shape, value.dtype)
      views.append(whole.slice(*node.attributes))
    elif node.op not in _INDIFFERENT:
      return layout
  if not all(_is_shifted(views, value.shape, d) for d in (-2, -1)):
    return layout

  item = SIZE[value.dtype]

  def each(mapping: Layout) -> float:
    """Cycles of the exchange that moves all slices to their users."""
    root = TensorInfo(value.dtype, value.shape, mapping, 0, 0, strides)
    moves = []
    for view in views:
      to = aligned(view, root)
      if to is None:
        to = builder.default_layout(view.shape, view.dtype)
      there = MoveEnd(to, 0, dense_strides(view.shape))
      here = MoveEnd(mapping, view.offset, view.strides)
      moves.append(move_traffic(here, there, view.shape, item, True))
    return cost.cycles(cost.exchange(builder.target, moves))

  size = (math.prod(value.shape),)
  conversion = move_traffic(
    MoveEnd(layout, 0, (1,)), MoveEnd(found, 0, (1,)), size, item
  )
  there_and_back = 2 * cost.cycles(cost.exchange(builder.target, [conversion]))
  if trips * (each(layout) - each(found)) <= there_and_back:
    return layout
  builder.used.boxes = True
  return found


def _is_shifted(views: list[View], shape: Shape, d: int) -> bool:
  """Whether some view has more than half of a dimension, but not all of it, as
  the shifted operands of a stencil do."""
  return any(shape[d] // 2 < view.shape[d] < shape[d] for view in views)
