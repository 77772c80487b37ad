"""What gather and scatter share: StableHLO's dimension numbers in a normal
form, and how their work is split over tiles."""

from __future__ import annotations

import dataclasses
import math

from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.lower.builder import Builder, Operand
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan.layout import Factor, Layout, grid, project, single


@dataclasses.dataclass(frozen=True)
class Indexing:
  """Gather's and scatter's dimension numbers under one set of names.

  Attributes:
    window_dims: dimensions of the result (updates) that walk a slice.
    collapsed: operand dimensions that a slice has once and drops.
    operand_batch, index_batch: dimensions that go together.
    index_map: operand dimension of each component of an index.
    index_vector_dim: the dimension of the indices that holds components.
    slice_sizes: extents of a slice, one per operand dimension.
    unique: the indices do not collide.
  """

  window_dims: tuple[int, ...]
  collapsed: tuple[int, ...]
  operand_batch: tuple[int, ...]
  index_batch: tuple[int, ...]
  index_map: tuple[int, ...]
  index_vector_dim: int
  slice_sizes: tuple[int, ...] = ()
  unique: bool = False

  def batch_dims(self, rank: int) -> tuple[int, ...]:
    """The result's (updates') dimensions that come from the indices."""
    return tuple(d for d in range(rank) if d not in self.window_dims)

  def operand_window(self, operand_rank: int) -> list[int]:
    """For each operand dimension the window dimension that walks it."""
    walked = iter(range(operand_rank))
    dims = [-1] * operand_rank
    for d in range(operand_rank):
      if d not in self.collapsed and d not in self.operand_batch:
        dims[d] = next(walked)
    return dims

  def operand_batch_dims(self, operand_rank: int) -> list[int]:
    """For each operand dimension the batch dimension that indexes it."""
    dims = [-1] * operand_rank
    for operand_dim, index_dim in zip(self.operand_batch, self.index_batch):
      before = index_dim > self.index_vector_dim
      dims[operand_dim] = index_dim - before
    return dims


def index_view(view: View, indexing: Indexing) -> View:
  """The start indices as (batch..., components)."""
  rank = len(view.shape)
  if indexing.index_vector_dim == rank:
    return dataclasses.replace(
      view, shape=(*view.shape, 1), strides=(*view.strides, 0)
    )
  last = indexing.index_vector_dim
  order = [d for d in range(rank) if d != last] + [last]
  return view.transpose(order)


def partition(builder: Builder, shape: Shape, item: int) -> Layout:
  """Windows stay whole until there are fewer slices than tiles.

  Slices go to tiles by their place in the batch; the outer window dimensions
  are split for what is left.
  """
  tiles = min(builder.target.num_tiles, max(1, math.prod(shape) * item // 128))
  parts = []
  for extent in shape:
    count = max(1, min(tiles, extent))
    parts.append(count)
    tiles //= count
  return grid(shape, parts)


def index_operand(
  view: View, rank: int, num_batch: int, split: Layout, shape: Shape
) -> Operand:
  """The start indices, with all components of those that a tile's cell of
  the iteration space uses on that tile."""
  dims = tuple(range(num_batch)) + (-1,) * (rank - num_batch)
  own = project(split, shape, tuple(range(num_batch)))
  if own is None:
    assert 0 in shape, "a grid's blocks do not straddle dimensions"
    own = single(math.prod(view.shape[:-1]))  # nothing is looked up
  components = view.shape[-1]
  factors = (*own.factors, Factor(components, max(components, 1), 0))
  return Operand(view, dims, dataclasses.replace(own, factors=factors))


def operand_layout(builder: Builder, view: View) -> Layout:
  """Where an indexed operand is: its root's own place if it is whole."""
  info = builder.tensors[view.root]
  if builder.is_identity(view) and info.shape == view.shape:
    return info.layout
  return builder.default_layout(view.shape, view.dtype)
