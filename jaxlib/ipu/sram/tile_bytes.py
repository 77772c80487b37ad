"""The bytes that tensors take on each tile.

The bytes of a tensor, by tile, are a *row*. Most tensors of a program have one
of a few mappings, so rows are stored once and referred to by number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.layout import Array
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.tile.tensor import TensorInfo, bytes_of, tile_bytes
from jaxlib.ipu.tile_passes.lifetimes import Interval

# For sorting, a time and the number of a row are packed into one integer.
_BITS = 32
_MASK = (1 << _BITS) - 1


class TileBytes:
  """The rows of a program's tensors, by number. Tensors of the same mapping
  and element size have the same number."""

  def __init__(self, tensors: list[TensorInfo], num_tiles: int) -> None:
    self._tensors = tensors
    self._tiles = num_tiles
    self._rows: list[Array] = []
    self._most: list[int] = []
    # The keys contain the identity of the mapping or row, which are kept alive.
    self._mappings: dict[tuple[int, int], int] = {}
    self._numbers: dict[int, int] = {}

  def of_tensor(self, number: int) -> int:
    """The number of a tensor's row."""
    info = self._tensors[number]
    if info.root != number and overlapping(info.shape, info.strides):
      return self.of(tile_bytes(info, self._tiles))
    key = id(info.layout), SIZE[info.dtype]
    found = self._mappings.get(key)
    if found is None:
      row = bytes_of(info.layout, SIZE[info.dtype], self._tiles)
      most = info.layout.max_elements * SIZE[info.dtype]
      found = self._mappings[key] = self._number(row, most)
    return found

  def of(self, row: Array) -> int:
    """The number of the row with these bytes."""
    return self._number(row, int(row.max()))

  def _number(self, row: Array, most: int) -> int:
    number = self._numbers.setdefault(id(row), len(self._rows))
    if number == len(self._rows):
      self._rows.append(row)
      self._most.append(most)
    return number

  def row(self, number: int) -> Array:
    """The bytes on each tile."""
    return self._rows[number]

  def most(self) -> list[int]:
    """The bytes of each row on its fullest tile."""
    return self._most

  def equal(self, one: int, other: int) -> bool:
    """Whether two rows have the same bytes on every tile."""
    return one == other or (
      self._most[one] == self._most[other]
      and np.array_equal(self._rows[one], self._rows[other])
    )

  def on(self, tile: int) -> list[int]:
    """The bytes of each row on one tile."""
    return [int(row[tile]) for row in self._rows]

  def rows(self) -> Array:
    """The bytes of all rows, int64[row, tile]."""
    return np.stack(self._rows)

  def peaks(self, live: Iterable[tuple[int, Iterable[Interval]]]) -> Array:
    """The peak bytes of each tile.

    Args:
      live: pairs of a row's number and the closed intervals of time during
        which a tensor with that row is live.
    """
    changes: dict[int, int] = defaultdict(int)  # by time and row
    for number, intervals in live:
      for begin, end in intervals:
        changes[begin << _BITS | number] += 1
        changes[(end + 1) << _BITS | number] -= 1
    now = np.zeros(self._tiles, np.int64)
    peaks = np.zeros(self._tiles, np.int64)
    rows = self._rows
    time, grown = 0, False
    for key in sorted(changes):
      count = changes[key]
      if not count:
        continue
      if key >> _BITS != time:
        if grown:
          np.maximum(peaks, now, out=peaks)
        time, grown = key >> _BITS, False
      row = rows[key & _MASK]
      if count == 1:
        now += row
      elif count == -1:
        now -= row
      else:
        now += count * row
      grown = grown or count > 0
    if grown:
      np.maximum(peaks, now, out=peaks)
    return peaks
