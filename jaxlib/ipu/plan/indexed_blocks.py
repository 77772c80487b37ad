"""What is walked where indices name windows of a tensor at run time, and what
the fullest tile has of it under a split, or under each of several.

Dimensions of the tensor that adjoin and that indices name are cut as one, by
their row-major index: a histogram of 16 x 16 x 16 bins is split as one of 4096.
Who owns what of a block that several tiles share is decided by `_share`, for
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

from jaxlib.ipu.plan.cuts import distribute
from jaxlib.ipu.plan.layout import Layout, refine

# A number of each of several splits, or of one.
Counts = npt.NDArray[np.int64] | np.int64 | int


class Axis(NamedTuple):
  """Dimensions of a tensor that are cut as one.

  Attributes:
    extent: their elements, row-major.
    along: the dimension of the iteration space that has the same index; -1 if
      indices name it.
  """

  extent: int
  along: int


class Windows(NamedTuple):
  """What a step walks.

  Attributes:
    shape: the iteration space.
    windowed: the shape of the tensor whose elements indices name.
    along: for each of its dimensions that of the iteration space with the
      same index, -1 where the indices name it.
    num_batch: the dimensions of the iteration space that count lookups come
      first.
    item_bytes: of an element.
    index_bytes: of all components of an index.
  """

  shape: tuple[int, ...]
  windowed: tuple[int, ...]
  along: tuple[int, ...]
  num_batch: int
  item_bytes: int
  index_bytes: int

  @property
  def free(self) -> tuple[int, ...]:
    """Dimensions of the iteration space that walk none of the tensor's: the
    lookups, and places in a window along what the indices name."""
    return tuple(d for d in range(len(self.shape)) if d not in self.along)

  @property
  def axes(self) -> tuple[Axis, ...]:
    """The tensor's dimensions, as far as they are cut separately."""
    return _axes(self.windowed, self.along)

  @property
  def sliced(self) -> int | None:
    """The longest of the axes that indices name."""
    named = [i for i, axis in enumerate(self.axes) if axis.along < 0]
    return max(named, key=lambda i: self.axes[i].extent, default=None)

  @property
  def rounds_along(self) -> int | None:
    """The dimension along which lookups can come one after the other: the
    longest that counts them; None if there is one lookup."""
    lookups = [d for d in self.free if d < self.num_batch]
    return max(lookups, key=lambda d: self.shape[d], default=None)

  @property
  def most_rounds(self) -> int:
    """How many there can be."""
    d = self.rounds_along
    return 1 if d is None else self.shape[d]

  def of_round(self, size: int) -> Windows:
    """What a round of `size` indices along that dimension walks."""
    shape = list(self.shape)
    if self.rounds_along is not None:
      shape[self.rounds_along] = size
    return self._replace(shape=tuple(shape))

  @property
  def places(self) -> int:
    """How many parts the sliced axis may have."""
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


def largest_cell(w: Windows, partition: Layout) -> tuple[int, int]:
  """Lookups of the largest cell, and elements of each."""
  refined = refine(partition.factors, w.shape)
  assert refined is not None, "partitions keep to dimensions"
  sizes = [
    math.prod(min(f.block, f.extent) for f in factors) for factors in refined
  ]
  counting = [d in w.free and d < w.num_batch for d in range(len(sizes))]
  lookups = math.prod(n for n, c in zip(sizes, counting) if c)
  return lookups, math.prod(sizes) // lookups


class Blocks(NamedTuple):
  """What the fullest tile has under a split, or under each of several.

  Attributes:
    cell: indices along each dimension of the iteration space.
    parts: tiles that share the tensor along what indices name.
    window: the elements of the tensor that the tiles of a cell, or of a team,
      have.
    team: tiles that share an element's updates.
    shared: of the result's axes those that are cut further, by those who share
      a block.
  """

  cell: list[Counts]
  parts: Counts
  window: Counts
  team: Counts
  shared: Shared

  def side_by_side(self, w: Windows, shares: bool) -> Any:
    """Elements of the tensor that lie side by side on a tile, of a block or of
    its share of one."""
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
  """How a block is divided among tiles that share it.

  Attributes:
    first, last: the axes whose row-major index is cut.
    extent: of that index.
    run: indices of a block.
    share: of these, a tile's.
    elements: a tile's.
  """

  first: Counts
  last: Counts
  extent: Counts
  run: Counts
  share: Counts
  elements: Counts


def slice_blocks(
  w: Windows, parts: Counts, groups: Counts, others: Counts
) -> Blocks:
  """Slices of a tensor that is brought.

  Args:
    w: what is walked.
    parts: of the sliced axis.
    groups: of the lookups.
    others: of the dimensions that walk the tensor's.
  """
  cell = _cells(w, groups, others)
  shared = _share(w.shape, cell, parts)
  cell = _rounded(w.shape, cell, shared)
  window = _volume(tensor_blocks(w, cell, parts))
  return Blocks(cell, parts, window, 1, shared)


def update_blocks(
  w: Windows, parts: Counts, groups: Counts, others: Counts
) -> Blocks:
  """Updates of a tensor that is brought; the arguments of `slice_blocks`."""
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
    # A run that is cut has fewer parts if its blocks became larger.
    inside = (shared.first <= w.sliced) & (w.sliced <= shared.last)
    parts = np.where(inside, -(-shared.extent // shared.run), parts)
  return Blocks(cell, parts, window, team, shared)


def walked(w: Windows, cell: Sequence[Counts]) -> Any:
  """Elements of a cell along what walks the tensor's dimensions."""
  return _volume(cell[axis.along] for axis in w.axes if axis.along >= 0)


def _cells(w: Windows, groups: Counts, others: Counts) -> list[Counts]:
  """Blocks of the iteration space's dimensions."""
  cell: list[Counts] = [1] * len(w.shape)
  rest = tuple(sorted(to for to in w.along if to >= 0))
  for dims, count in ((w.free, groups), (rest, others)):
    extents = tuple(w.shape[d] for d in dims)
    if len(dims) == 1:
      cuts: list[Any] = [np.minimum(count, extents[0])]
    elif isinstance(count, np.ndarray):
      found = {n: distribute(n, extents) for n in set(count.tolist())}
      cuts = list(np.array([found[n] for n in count.tolist()]).T)
    else:
      cuts = list(distribute(int(count), extents))
    for d, n in zip(dims, cuts, strict=True):
      cell[d] = np.maximum(-(-w.shape[d] // n), 1)
  return cell


def tensor_blocks(
  w: Windows, cell: Sequence[Counts], parts: Counts
) -> list[Counts]:
  """Blocks of the tensor's axes."""
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
  """Divides a block among `count` tiles: the longest run of its elements.

  A run is an axis, with those after it that are not cut. Before these stands
  at most one that is cut, and only the axis `straddling`: tiles that share a
  block have the same updates wherever blocks begin along what indices name.
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
  # Blocks of what is cut are a multiple of what each of the tiles has.
  run = np.minimum(share * count, extent)
  return Shared(first, last, extent, run, share, elements)


def _rounded(
  extents: Sequence[int], blocks: Sequence[Counts], shared: Shared
) -> list[Counts]:
  """Blocks, once what is shared of an axis that is cut is a multiple of what
  each tile has."""
  alone = shared.first == shared.last
  return [
    np.where(alone & (shared.first == d), shared.run, block)
    for d, block in enumerate(blocks)
  ]


def _volume(blocks: Iterable[Counts]) -> Any:
  return functools.reduce(operator.mul, blocks, 1)
