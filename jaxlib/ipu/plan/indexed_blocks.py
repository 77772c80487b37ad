"""The windows of a tensor that run-time indices select, and the blocks of them
on the fullest tile under a split, or under each of several.

Adjacent dimensions of the tensor that are indexed at run time are cut as one
axis, by their row-major index: a histogram of 16 x 16 x 16 bins is split like
one of 4096. `_share` divides a block among the tiles that share it, both for
the search over splits (plan/indexed.py) and for the split that it finds
(plan/indexed_split.py).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.layout import Layout, refine
from jaxlib.ipu.plan.cuts import distribute

# An array with one number for each of several splits, or a single number.
Counts = npt.NDArray[np.int64] | np.int64 | int


class Axis(NamedTuple):
  """Dimensions of a tensor that are cut as one.

  Attributes:
    extent: the product of the dimensions' extents.
    along: the dimension of the iteration space with the same index; -1 if the
      axis is indexed at run time.
  """

  extent: int
  along: int


class Lookups(NamedTuple):
  """The windows of a tensor that a step accesses.

  Attributes:
    shape: the iteration space.
    windowed: the shape of the indexed tensor.
    along: for each dimension of that tensor, the dimension of the iteration
      space with the same index; -1 if it is indexed at run time.
    num_batch: number of leading dimensions of the iteration space; the `free`
      ones of these enumerate the lookups.
    item_bytes: bytes of an element.
    index_bytes: bytes of an index, all components together.
    num_tiles: the machine's number of tiles.
  """

  shape: tuple[int, ...]
  windowed: tuple[int, ...]
  along: tuple[int, ...]
  num_batch: int
  item_bytes: int
  index_bytes: int
  num_tiles: int

  @property
  def free(self) -> tuple[int, ...]:
    """Dimensions of the iteration space that are not dimensions of the tensor:
    the lookups, and the indices within a window along indexed dimensions."""
    return tuple(d for d in range(len(self.shape)) if d not in self.along)

  @property
  def axes(self) -> tuple[Axis, ...]:
    """The tensor's axes: dimensions that are cut as one are joined."""
    return _axes(self.windowed, self.along)

  @property
  def sliced(self) -> int | None:
    """The longest of the axes that are indexed at run time."""
    named = [i for i, axis in enumerate(self.axes) if axis.along < 0]
    return max(named, key=lambda i: self.axes[i].extent, default=None)

  @property
  def rounds_along(self) -> int | None:
    """The dimension of the iteration space along which lookups can be divided
    into rounds: the longest that enumerates them; None if none does."""
    lookups = [d for d in self.free if d < self.num_batch]
    return max(lookups, key=lambda d: self.shape[d], default=None)

  @property
  def most_rounds(self) -> int:
    """The maximum number of rounds."""
    d = self.rounds_along
    return 1 if d is None else self.shape[d]

  def of_round(self, size: int) -> Lookups:
    """The windows of a round of `size` indices along `rounds_along`."""
    shape = list(self.shape)
    if self.rounds_along is not None:
      shape[self.rounds_along] = size
    return self._replace(shape=tuple(shape))

  @property
  def places(self) -> int:
    """The maximum number of parts of the sliced axis."""
    return 1 if self.sliced is None else max(self.axes[self.sliced].extent, 1)


@functools.lru_cache(maxsize=4096)
def _axes(
  windowed: tuple[int, ...], along: tuple[int, ...]
) -> tuple[Axis, ...]:
  found: list[Axis] = []
  for extent, to in zip(windowed, along, strict=True):
    if extent == 1:
      continue
    if found and to < 0 and found[-1].along < 0:
      found[-1] = Axis(found[-1].extent * extent, -1)
    else:
      found.append(Axis(extent, to))
  return tuple(found) or (Axis(math.prod(windowed), -1),)


def largest_cell(w: Lookups, partition: Layout) -> tuple[int, int]:
  """The number of lookups of the largest cell, and the elements of each."""
  refined = refine(partition.factors, w.shape)
  assert refined is not None, "partitions keep to dimensions"
  sizes = [
    math.prod(min(f.block, f.extent) for f in factors) for factors in refined
  ]
  counting = [d in w.free and d < w.num_batch for d in range(len(sizes))]
  lookups = math.prod(n for n, c in zip(sizes, counting) if c)
  return lookups, math.prod(sizes) // lookups


class Blocks(NamedTuple):
  """The blocks of the fullest tile under a split, or under each of several.

  Attributes:
    cell: number of indices along each dimension of the iteration space.
    parts: number of tiles that share the tensor along indexed dimensions.
    window: elements of the tensor on a tile; for updates, on a team.
    team: number of tiles among which the updates of an element are divided.
    shared: how the result's block is divided among the tiles that share it.
  """

  cell: list[Counts]
  parts: Counts
  window: Counts
  team: Counts
  shared: Shared

  def side_by_side(self, w: Lookups, shares: bool) -> Any:
    """Number of contiguous elements of the tensor in a tile's block; if
    `shares`, in its share of the block."""
    blocks = tensor_blocks(w, self.cell, self.parts)
    run, whole = 1 + 0 * self.parts, 0 * self.parts == 0
    for d in reversed(range(len(w.axes))):
      extent: Counts = w.axes[d].extent
      block = blocks[d]
      if shares:
        first, last = self.shared.first, self.shared.last
        inside = (first <= d) & (d <= last)
        extent = np.where(d == last, self.shared.extent, extent)
        extent = np.where(inside & (d < last), 1, extent)
        block = np.where(d == last, self.shared.share, block)
        block = np.where(inside & (d < last), 1, block)
      run = run * np.where(whole, block, 1)
      whole = whole & (block >= extent)
    return run


class Shared(NamedTuple):
  """How a block is divided among the tiles that share it.

  Attributes:
    first, last: the first and last of the axes whose common row-major index
      is cut.
    extent: number of values of that index.
    run: number of its values in a block.
    share: number of its values on a tile.
    elements: number of elements on a tile.
  """

  first: Counts
  last: Counts
  extent: Counts
  run: Counts
  share: Counts
  elements: Counts


def slice_blocks(
  w: Lookups, parts: Counts, groups: Counts, others: Counts
) -> Blocks:
  """The blocks of slices of a tensor that is moved.

  Args:
    w: the windows.
    parts: number of parts of the sliced axis.
    groups: number of parts of the free dimensions, i.e. of the lookups.
    others: number of parts of the other dimensions of the iteration space.
  """
  cell = _cells(w, groups, others)
  shared = _share(w.shape, cell, parts)
  cell = _rounded(w.shape, cell, shared)
  window = _volume(tensor_blocks(w, cell, parts))
  return Blocks(cell, parts, window, 1, shared)


def update_blocks(
  w: Lookups, parts: Counts, groups: Counts, others: Counts
) -> Blocks:
  """The blocks of updates of a tensor that is moved; for the arguments see
  `slice_blocks`."""
  cell = _cells(w, groups, others)
  team = _volume([-(-w.shape[d] // cell[d]) for d in w.free])
  blocks = tensor_blocks(w, cell, parts)
  extents = [axis.extent for axis in w.axes]
  shared = _share(extents, blocks, team, w.sliced)
  for i, block in enumerate(_rounded(extents, blocks, shared)):
    if w.axes[i].along >= 0:
      cell[w.axes[i].along] = block
  window = shared.elements // shared.share * shared.run
  if w.sliced is not None:
    # If the sliced axis is cut further, its blocks may have been rounded up, so
    # that there are fewer of them.
    inside = (shared.first <= w.sliced) & (w.sliced <= shared.last)
    parts = np.where(inside, -(-shared.extent // shared.run), parts)
  return Blocks(cell, parts, window, team, shared)


def window_elements(w: Lookups, cell: Sequence[Counts]) -> Any:
  """The number of elements of a cell along the dimensions of the iteration
  space that are dimensions of the tensor."""
  return _volume(cell[axis.along] for axis in w.axes if axis.along >= 0)


def _cells(w: Lookups, groups: Counts, others: Counts) -> list[Counts]:
  """The block of each dimension of the iteration space."""
  cell: list[Counts] = [1] * len(w.shape)
  rest = tuple(sorted(to for to in w.along if to >= 0))
  for dims, count in ((w.free, groups), (rest, others)):
    extents = tuple(w.shape[d] for d in dims)
    if len(dims) == 1:
      cuts: list[Any] = [np.minimum(count, extents[0])]
    elif isinstance(count, np.ndarray):
      found = {
        n: distribute(n, extents, w.num_tiles) for n in set(count.tolist())
      }
      cuts = list(np.array([found[n] for n in count.tolist()]).T)
    else:
      cuts = list(distribute(int(count), extents, w.num_tiles))
    for d, n in zip(dims, cuts, strict=True):
      cell[d] = np.maximum(-(-w.shape[d] // n), 1)
  return cell


def tensor_blocks(
  w: Lookups, cell: Sequence[Counts], parts: Counts
) -> list[Counts]:
  """The block of each axis of the tensor."""
  return [
    cell[axis.along]
    if axis.along >= 0
    else -(-axis.extent // parts)
    if i == w.sliced
    else axis.extent
    for i, axis in enumerate(w.axes)
  ]


def _share(
  extents: Sequence[int],
  blocks: Sequence[Counts],
  count: Counts,
  straddling: int | None = None,
) -> Shared:
  """Divides a block among `count` tiles by cutting its longest run.

  A run is an axis with all axes behind it that are not cut into blocks
  themselves. Of the cut axes only `straddling` may be joined to a run: it is
  indexed at run time, and tiles that share a block have the same updates
  wherever the block begins along such an axis.
  """
  first, last, longest = 0 * count, 0 * count, 0 * count + 1
  size, end = longest, 0 * count + max(len(extents) - 1, 0)
  for d in reversed(range(len(extents))):
    whole = blocks[d] >= extents[d]
    joins = whole | (d == straddling)
    found = np.where(joins, size * blocks[d], blocks[d])
    better = found > longest
    first = np.where(better, d, first)
    last = np.where(better, np.where(joins, end, d), last)
    longest = np.where(better, found, longest)
    size = np.where(whole, size * blocks[d], 1)
    end = np.where(whole, end, d - 1)
  share = -(-longest // count)
  elements = _volume(blocks) // longest * share
  extent = _volume(
    np.where((first <= d) & (d <= last), n, 1) for d, n in enumerate(extents)
  )
  # A block is as many values of the common index as its tiles have together.
  run = np.minimum(share * count, extent)
  return Shared(first, last, extent, run, share, elements)


def _rounded(
  extents: Sequence[int], blocks: Sequence[Counts], shared: Shared
) -> list[Counts]:
  """The blocks; that of an axis which is cut alone is rounded up to a multiple
  of the tiles' shares."""
  alone = shared.first == shared.last
  return [
    np.where(alone & (shared.first == d), shared.run, block)
    for d, block in enumerate(blocks)
  ]


def _volume(blocks: Iterable[Counts]) -> Any:
  return functools.reduce(operator.mul, blocks, 1)
