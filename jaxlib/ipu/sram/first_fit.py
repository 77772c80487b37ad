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
from collections.abc import Sequence

from jaxlib.ipu.sram.concurrent import Concurrent

# Begin and end address, number.
_Placed = tuple[int, int, int]


def place(
  concurrent: Concurrent,
  sizes: Sequence[int],
  steps: Sequence[int],
  base: int,
  count: int,
  weights: Sequence[int],
  taken: Sequence[tuple[int, int]] = (),
) -> list[int]:
  """Assigns an address to each piece.

  Args:
    concurrent: the lifetimes of all pieces, those in `taken` last.
    sizes: the bytes of each piece.
    steps: the alignment of each piece; a divisor of its size.
    base: the lowest address.
    count: how many pieces are placed in the order of their weights; the others
      are placed in order of birth.
    weights: pieces of higher weight are placed first.
    taken: begin and end of further pieces, which are already placed.
  """
  addresses = [base] * len(sizes)
  births, deaths = concurrent.births, concurrent.deaths
  ranked = zip(
    map(operator.neg, weights),
    map(operator.neg, sizes),
    births,
    range(len(sizes)),
  )
  order = [i for _, _, _, i in sorted(ranked) if sizes[i]]
  placed: list[_Placed] = sorted(
    (low, high, number) for number, (low, high) in enumerate(taken, len(sizes))
  )
  for i in order[:count]:
    size, step, together = sizes[i], steps[i], concurrent.of(i)
    at = -(-base // step) * step
    for low, high, other in placed:
      if low - at >= size:
        break
      if high > at and together[other]:
        at = -(-high // step) * step
    addresses[i] = at
    bisect.insort(placed, (at, at + size, i))
  if len(order) > count:
    rest = sorted((births[i], -sizes[i], i, deaths[i]) for i in order[count:])
    _by_birth(rest, steps, placed, concurrent, base, addresses)
  return addresses


def _by_birth(
  order: list[tuple[int, int, int, int]],
  steps: Sequence[int],
  placed: list[_Placed],
  concurrent: Concurrent,
  base: int,
  addresses: list[int],
) -> None:
  """Places pieces in order of birth around those already placed. Each takes its
  address for all the time from birth to death, gaps in its lifetime included.
  `order` has each piece's birth, negative size, number and death."""
  coming = [
    (begin, end, low, high)
    for low, high, number in placed
    for begin, end in concurrent.lives[number]
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
