"""Which pieces of memory are in use at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.tile_passes.lifetimes import Interval, overlap

# From this number of pieces on, NumPy is faster. [G]
_MANY = 64
# Later than any time.
_NEVER = np.iinfo(np.int64).max


class Concurrent:
  """Tells which pieces are live together. Each question is answered once,
  however often the pieces are placed.

  Attributes:
    lives: the lifetime of each piece: closed intervals, ascending.
    births, deaths: its first and its last time.
  """

  def __init__(self, lives: Sequence[list[Interval]]) -> None:
    self.lives = lives
    self.births = [live[0][0] for live in lives]
    self.deaths = [live[-1][1] for live in lives]
    self._rows: dict[int, bytes] = {}
    if len(lives) >= _MANY:
      every = np.array([*itertools.chain(*lives)], np.int64)
      self._begins, self._ends = np.ascontiguousarray(every.T)
      lengths = [0, *map(len, lives[:-1])]
      self._firsts = np.cumsum(lengths)

  def of(self, number: int) -> bytes:
    """For each piece, 1 if it is live at any time at which this one is."""
    row = self._rows.get(number)
    if row is None:
      many = len(self.lives) >= _MANY
      row = self._rows[number] = (self._all if many else self._each)(number)
    return row

  def _each(self, number: int) -> bytes:
    live = self.lives[number]
    first, last = self.births[number], self.deaths[number]
    return bytes(
      begin <= last and first <= end and overlap(live, other)
      for begin, end, other in zip(self.births, self.deaths, self.lives)
    )

  def _all(self, number: int) -> bytes:
    """Compares with the intervals of all pieces: of those of this piece, the
    first one that does not end before such an interval begins."""
    live = np.array(self.lives[number], np.int64)
    at = live[:, 1].searchsorted(self._begins)
    begins = np.append(live[:, 0], _NEVER)
    return np.logical_or.reduceat(
      begins[at] <= self._ends, self._firsts
    ).tobytes()
