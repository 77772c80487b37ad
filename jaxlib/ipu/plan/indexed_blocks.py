"""Windows of a tensor named by run-time indices, and the fullest tile's part of
them under a split, or under each of several.

Adjacent dimensions of the tensor that indices name are cut as one, by their
row-major index: a histogram of 16 x 16 x 16 bins is split as one of 4096.
`_share` decides who owns what of a block that several tiles share, both for the
search over splits (plan/indexed.py) and for the split that it finds
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

# One number for each of several splits, or a single one.
Counts = npt.NDArray[np.int64] | np.int64 | int


class Axis(NamedTuple):
  """Dimensions of a tensor that are cut as one.

  Attributes:
    extent: their elements, row-major.
    along: the dimension of the iteration space with the same index; -1 if
      indices name it.
  """

  extent: int
  along: int


class Windows(NamedTuple):
  """The windows of a tensor that a step accesses.

  Attributes:
    shape: the iteration space.
    windowed: the shape of the indexed tensor.
    along: for each of its dimensions that of the iteration space with the
      same index; -1 where the indices name it.
    num_batch: number of leading dimensions of the iteration space that count
      lookups.
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
    """Dimensions of the iteration space that are none of the tensor's: the
    lookups, and places in a window along indexed dimensions."""
    return tuple(d for d in range(len(self.shape)) if d not in self.along)

  @property
  def axes(self) -> tuple[Axis, ...]:
    """The tensor's dimensions, joined where they are cut as one."""
    return _axes(self.windowed, self.along)

  @property
  def sliced(self) -> int | None:
    """The longest of the indexed axes."""
    named = [i for i, axis in enumerate(self.axes) if axis.along < 0]
    return max(named, key=lambda i: self.axes[i].extent, default=None)

  @property
  def rounds_along(self) -> int | None:
    """The dimension along which lookups can be split into rounds: the longest
    that counts them; None if there is one lookup."""
    lookups = [d for d in self.free if d < self.num_batch]
    return max(lookups, key=lambda d: self.shape[d], default=None)

  @property
  def most_rounds(self) -> int:
    """The maximum number of rounds."""
    d = self.rounds_along
    return 1 if d is None else self.shape[d]

  def of_round(self, size: int) -> Windows:
    """The windows of a round of `size` indices along that dimension."""
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
  """The fullest tile's part of a split, or of each of several.

  Attributes:
    cell: indices along each dimension of the iteration space.
    parts: tiles that share the tensor along indexed dimensions.
    window: elements of the tensor on the tiles of a cell, or of a team.
    team: tiles that share an element's updates.
    shared: the result's axes that are cut further, among the tiles that share
      a block.
  """

  cell: list[Counts]
  parts: Counts
  window: Counts
  team: Counts
  shared: Shared

  def side_by_side(self, w: Windows, shares: bool) -> Any:
    """Contiguous elements of the tensor on a tile, of a block or of the tile's
    share of one."""
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
    first, last: the axes whose row-major index is cut.
    extent: of that index.
    run: indices of a block.
    share: indices of a tile.
    elements: of a tile.
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
  """Slices of a tensor that is moved.

  Args:
    w: the windows.
    parts: of the sliced axis.
    groups: of the lookups.
    others: of the dimensions that are the tensor's.
  """
  cell = _cells(w, groups, others)
  shared = _share(w.shape, cell, parts)
  cell = _rounded(w.shape, cell, shared)
  window = _volume(tensor_blocks(w, cell, parts))
  return Blocks(cell, parts, window, 1, shared)


def update_blocks(
  w: Windows, parts: Counts, groups: Counts, others: Counts
) -> Blocks:
  """Updates of a tensor that is moved; the arguments of `slice_blocks`."""
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
    # A cut run has fewer parts if its blocks became larger.
    inside = (shared.first <= w.sliced) & (w.sliced <= shared.last)
    parts = np.where(inside, -(-shared.extent // shared.run), parts)
  return Blocks(cell, parts, window, team, shared)


def walked(w: Windows, cell: Sequence[Counts]) -> Any:
  """Elements of a cell along dimensions that are the tensor's."""
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

  A run is an axis with the uncut axes after it. At most one cut axis may come
  before these, and only the axis `straddling`: tiles that share a block have
  the same updates wherever blocks begin along indexed dimensions.
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
  # Blocks of what is cut are a multiple of each tile's share.
  run = np.minimum(share * count, extent)
  return Shared(first, last, extent, run, share, elements)


def _rounded(
  extents: Sequence[int], blocks: Sequence[Counts], shared: Shared
) -> list[Counts]:
  """Blocks, where that of a single shared axis is a multiple of each tile's
  share."""
  alone = shared.first == shared.last
  return [
    np.where(alone & (shared.first == d), shared.run, block)
    for d, block in enumerate(blocks)
  ]


def _volume(blocks: Iterable[Counts]) -> Any:
  return functools.reduce(operator.mul, blocks, 1)
