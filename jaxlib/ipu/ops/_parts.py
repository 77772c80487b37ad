"""Parts of arrays, of which each iteration of a loop slices one."""

from __future__ import annotations

from typing import NamedTuple

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops._indexing import SliceCycles, moving_windows
from jaxlib.ipu.plan.default_layout import default_layout
from jaxlib.ipu.plan.indexed_cycles import candidates
from jaxlib.ipu.plan.indexed_split import slices_in_place
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.view import View

# The fullest tile may have this multiple of an even share of an array that is
# whole along the parts; otherwise it is cut along them, too. [G]
_MOST_UNEVEN = 1.3


class Parts(NamedTuple):
  """A root that a loop's iterations read or write in parts.

  Attributes:
    view: all of the root.
    dim: the dimension of the value that is cut.
    stacked: whether the parts are along a dimension of their own, the first,
      which is whole on each tile: nothing moves for them, but it takes another
      copy. `dim` is then the second one.
  """

  view: View
  dim: int
  stacked: bool


def stack(builder: Builder, rounds: int, shape: Shape, dtype: DType) -> View:
  """A new root of `rounds` parts, all distributed over tiles alike."""
  target = builder.target
  each = default_layout(target, shape, SIZE[dtype], target.data_path_bytes)
  layout = Layout((Factor(rounds, rounds, 0), *each.factors))
  even = builder.default_layout((rounds, *shape), dtype)
  if layout.max_elements > _MOST_UNEVEN * even.max_elements:
    layout = even
  return builder.root_view(builder.new_root((rounds, *shape), dtype, layout))


def slice_part(
  builder: Builder, parts: Parts, nth: View, begin: View, size: int
) -> View:
  """Slices an iteration's part, on the tiles that hold any of the root.

  Args:
    builder: of the program.
    parts: what is sliced.
    nth: the iteration's number, for stacked parts.
    begin: the index where the part begins, for others.
    size: the extent of a part.
  """
  view, dim, stacked = parts
  d, at, extent = (0, nth, 1) if stacked else (dim, begin, size)
  shape = resized(view.shape, d, extent)
  rank = len(shape)
  target, layout = builder.target, builder.tensors[view.root].layout
  windows = moving_windows(
    shape, view.shape, view.dtype, builder.target.num_tiles
  )
  plan = slices_in_place(windows, layout)
  assert plan is not None, "the root's blocks keep to dimensions"
  root = builder.new_root(shape, view.dtype, plan.result)
  cycles = SliceCycles(target, view.dtype)
  builder.execute(
    schema.DynamicSlice([d]),
    shape,
    plan.partition,
    [Operand(view, (-1,) * rank, layout), Operand(at, (-1,) * rank)],
    [Written(root, tuple(range(rank)))],
    epilogue=candidates(target, windows, plan, cycles),
  )
  some = builder.root_view(root)
  return moved(_first(some), 0, dim) if stacked else some


def resized(shape: Shape, d: int, extent: int) -> Shape:
  """A shape with another extent of dimension d."""
  return (*shape[:d], extent, *shape[d + 1 :])


def moved(view: View, source: int, to: int) -> View:
  """A view with dimension `source` moved to `to`."""
  order = [d for d in range(len(view.shape)) if d != source]
  order.insert(to, source)
  return view.transpose(order)


def _first(view: View) -> View:
  return view._replace(shape=view.shape[1:], strides=view.strides[1:])
