"""First fit: gives each piece of memory the lowest address that is free for the
piece's whole lifetime.

Pieces are placed in the order of their weights, highest first, which takes
quadratic time. If there are many pieces, only a limited number is placed in
this way; the others are placed around these in order of birth, in time that is
linear in their number.
"""

from __future__ import annotations

import bisect
import heapq
import math
import operator
from collections.abc import Iterable, Sequence

from jaxlib.ipu.tile_passes.lifetimes import Interval, overlap

# Begin and end address, first and last time, number, lifetime.
_Placed = tuple[int, int, int, int, int, list[Interval]]


def place(
  lives: Sequence[list[Interval]],
  sizes: Sequence[int],
  steps: Sequence[int],
  base: int,
  count: int,
  weights: Sequence[int],
  taken: Iterable[tuple[int, int, list[Interval]]] = (),
) -> list[int]:
  """Assigns an address to each piece.

  Args:
    lives: the lifetime of each piece: closed intervals, ascending.
    sizes: the bytes of each piece.
    steps: the alignment of each piece; a divisor of its size.
    base: the lowest address.
    count: how many pieces are placed in the order of their weights; the others
      are placed in order of birth.
    weights: pieces of higher weight are placed first.
    taken: pieces that are already placed: begin, end and lifetime.
  """
  addresses = [base] * len(sizes)
  births = [live[0][0] for live in lives]
  deaths = [live[-1][1] for live in lives]
  ranked = zip(
    map(operator.neg, weights),
    map(operator.neg, sizes),
    births,
    range(len(sizes)),
  )
  order = [i for _, _, _, i in sorted(ranked) if sizes[i]]
  placed: list[_Placed] = sorted(
    (low, high, live[0][0], live[-1][1], -1 - number, live)
    for number, (low, high, live) in enumerate(taken)
  )
  for i in order[:count]:
    size, step, live = sizes[i], steps[i], lives[i]
    first, last, single = births[i], deaths[i], len(live) == 1
    at = -(-base // step) * step
    for low, high, begin, end, _, other in placed:
      if low - at >= size:
        break
      if (
        high > at
        and begin <= last
        and first <= end
        and (single and len(other) == 1 or overlap(live, other))
      ):
        at = -(-high // step) * step
    addresses[i] = at
    bisect.insort(placed, (at, at + size, first, last, i, live))
  if len(order) > count:
    rest = sorted((births[i], -sizes[i], i, deaths[i]) for i in order[count:])
    _by_birth(rest, steps, placed, base, addresses)
  return addresses


def _by_birth(
  order: list[tuple[int, int, int, int]],
  steps: Sequence[int],
  placed: list[_Placed],
  base: int,
  addresses: list[int],
) -> None:
  """Places pieces in order of birth around those already placed. Each takes its
  address for all the time from birth to death, gaps in its lifetime included.
  `order` has each piece's birth, negative size, number and death."""
  coming = [
    (begin, end, low, high)
    for low, high, _, _, _, intervals in placed
    for begin, end in intervals
  ]
  coming.sort(reverse=True)
  free = _Free(base)
  dying: list[tuple[int, int, int]] = []
  for first, size, i, last in order:
    size = -size
    while coming and coming[-1][0] <= first:
      begin, end, low, high = coming.pop()
      while dying and dying[0][0] < begin:
        free.release(*heapq.heappop(dying)[1:])
      free.take(low, high)
      heapq.heappush(dying, (end, low, high))
    while dying and dying[0][0] < first:
      free.release(*heapq.heappop(dying)[1:])
    later: list[tuple[int, int]] = []
    if coming and coming[-1][0] <= last:
      for begin, _, low, high in reversed(coming):
        if begin > last:
          break
        later.append((low, high))
      later.sort()
    at = free.first(size, steps[i], later)
    addresses[i] = at
    free.take(at, at + size)
    heapq.heappush(dying, (last, at, at + size))


class _Free:
  """The free intervals of memory at a time, ascending; the last is
  unbounded."""

  def __init__(self, base: int) -> None:
    self._lows = [base]
    self._highs: list[float] = [math.inf]

  def first(self, size: int, step: int, taken: list[tuple[int, int]]) -> int:
    """The lowest free address of so many bytes that overlap none of the
    intervals in `taken`."""
    for low, high in zip(self._lows, self._highs):
      at = -(-low // step) * step
      if at + size > high:
        continue
      for begin, end in taken:
        if begin >= at + size:
          break
        if end > at:
          at = -(-end // step) * step
      if at + size <= high:
        return at
    raise AssertionError("the last piece has no end")

  def take(self, low: int, high: int) -> None:
    """Removes [low, high) from a free interval that contains it."""
    i = bisect.bisect_right(self._lows, low) - 1
    left = self._lows[i] < low
    right = high < self._highs[i]
    if left and right:
      self._lows.insert(i + 1, high)
      self._highs.insert(i, low)
    elif left:
      self._highs[i] = low
    elif right:
      self._lows[i] = high
    else:
      del self._lows[i], self._highs[i]

  def release(self, low: int, high: int) -> None:
    """Frees [low, high), and joins it with adjacent free intervals."""
    i = bisect.bisect_left(self._lows, low)
    left = i > 0 and self._highs[i - 1] == low
    right = self._lows[i] == high
    if left and right:
      del self._lows[i], self._highs[i - 1]
    elif left:
      self._highs[i - 1] = high
    elif right:
      self._lows[i] = low
    else:
      self._lows.insert(i, low)
      self._highs.insert(i, high)
