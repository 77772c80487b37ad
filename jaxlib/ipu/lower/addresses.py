"""Gives what is in the SRAM of tiles its addresses.

These have nothing to do with those of `allocate.py`, which are places in the
memory of the host that runs the model. Here a tile is a machine's: each unit
(`units.py`) takes its share, from one address on, on every tile that has any.

A tile that holds no more of anything than the fullest one has the same
addresses. What is left falls into a few groups of tiles, each with the
addresses that its largest shares need. So nothing depends on the number of
tiles, and what is said to fit does.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import math
import operator

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.lower.allocate import Interval, overlap
from jaxlib.ipu.lower.shares import Shares
from jaxlib.ipu.lower.units import Unit
from jaxlib.ipu.plan.layout import Array

# So many units are placed the largest first, which mostly leaves the fewest
# gaps. If there are more, so many of those that live longest are placed first,
# and the others in the order of their birth, in a time that grows with the
# program and not with its square.
_MANY = 128
# The same for a program that does not fit otherwise.
_MANY_IF_TIGHT = 1500
# What gaps may take, of what is there at the fullest moment, before those that
# live longest or take most of both are tried first, too.
_GAPS = 0.02
# Groups of tiles at most.
_GROUPS = 8

Tiles = npt.NDArray[np.bool_]


@dataclasses.dataclass(slots=True)
class Group:
  """Tiles with the same addresses.

  Attributes:
    tiles: whether each tile is one of them.
    sizes: what is reserved for each unit, bytes: what the tile of these takes
      that has most of it, aligned.
    addresses: of each unit, bytes from the begin of the SRAM.
    top: where the highest unit ends.
  """

  tiles: Tiles
  sizes: list[int]
  addresses: list[int]
  top: int


@dataclasses.dataclass(slots=True)
class Addresses:
  """Where everything is on each tile. Code comes first.

  Attributes:
    units: what has an address, those first that are there all the time.
    always: how many these are.
    groups: of all tiles.
  """

  units: list[Unit]
  always: int
  groups: list[Group]

  @property
  def fullest(self) -> Group:
    """The tiles that need most SRAM."""
    return max(self.groups, key=lambda g: g.top)


def assign(
  units: list[Unit],
  shares: Shares,
  code: Array,
  peaks: Array,
  end: int,
  thorough: bool = False,
) -> Addresses:
  """Addresses for everything on all tiles.

  Args:
    units: what has to have one.
    shares: their bytes.
    code: bytes of it on each tile.
    peaks: bytes of each tile at its fullest moment.
    end: the time when the run is over.
    thorough: takes longer, for fewer gaps.
  """
  first = shares.of(code)
  most = shares.most()
  # Those that are there all the time leave no gaps.
  always: list[Unit] = []
  others: list[Unit] = []
  for unit in units:
    (always if unit.always(end) else others).append(unit)
  always.sort(key=lambda u: -most[u.share])
  units = always + others
  count = _MANY_IF_TIGHT if thorough else _MANY

  def group(tiles: Tiles, rows: list[int]) -> Group:
    aligned = [_aligned(x) for x in rows]
    sizes = [aligned[u.share] for u in units]
    addresses = []
    top = aligned[first]
    for size in sizes[: len(always)]:
      addresses.append(_begin(top, size))
      top = addresses[-1] + size
    bound = int((1 + _GAPS) * int(peaks[tiles].max()))
    found, top = _fewest_gaps(others, sizes[len(always) :], top, bound, count)
    return Group(tiles, sizes, addresses + found, top)

  rest: Tiles = np.ones(len(code), np.bool_)
  fullest = int(peaks.argmax())
  if shares.on(fullest) == most:
    return Addresses(units, len(always), [group(rest, most)])
  rows = shares.rows()
  groups: list[Group] = []
  while True:
    groups.append(group(rest, rows[:, rest].max(1).tolist()))
    fullest = int(np.where(rest, peaks, -1).argmax())
    below: Tiles = rest & (rows <= rows[:, fullest, None]).all(0)
    if (
      groups[-1].top <= max((g.top for g in groups[:-1]), default=0)
      or len(groups) == _GROUPS
      or (below == rest).all()
    ):
      return Addresses(units, len(always), groups)
    groups[-1] = group(below, shares.on(fullest))
    rest = rest & ~below


def _aligned(size: int) -> int:
  """Stores are of 32 bits at least, loads of vectors of 64."""
  return -(-size // 8) * 8 if size > 4 else -(-size // 4) * 4


def _fewest_gaps(
  units: list[Unit], sizes: list[int], base: int, bound: int, count: int
) -> tuple[list[int], int]:
  """Addresses and where the highest unit ends: the first way that leaves all of
  them below a bound, or the best."""
  lengths = [u.intervals[-1][1] - u.intervals[0][0] + 1 for u in units]
  orders = [lengths]
  if len(units) <= count:
    orders = [sizes, lengths, list(map(operator.mul, lengths, sizes))]
  best: list[int] = []
  top = math.inf
  for order in orders:
    found = place(units, sizes, base, count, order)
    end = max(map(operator.add, found, sizes), default=base)
    if end < top:
      best, top = found, end
    if top <= bound:
      break
  return best, int(top)


def place(
  units: list[Unit],
  sizes: list[int],
  base: int,
  count: int,
  weights: list[int],
) -> list[int]:
  """The lowest address for each unit where it is free all its life.

  Args:
    units: what is to be placed.
    sizes: bytes of each, aligned.
    base: the lowest address.
    count: how many are placed in the order of their weights, the others in
      that of their birth.
    weights: the highest come first.
  """
  addresses = [base] * len(units)
  births = [u.intervals[0][0] for u in units]
  deaths = [u.intervals[-1][1] for u in units]
  order = [
    i
    for _, _, _, i in sorted(
      zip(
        map(operator.neg, weights),
        map(operator.neg, sizes),
        births,
        range(len(units)),
      )
    )
    if sizes[i]
  ]
  placed: list[_Placed] = []
  for i in order[:count]:
    size, first, last = sizes[i], births[i], deaths[i]
    intervals = units[i].intervals
    single = len(intervals) == 1
    at = _begin(base, size)
    for low, high, begin, end, _, theirs in placed:
      if low - at >= size:
        break
      if (
        high > at
        and begin <= last
        and first <= end
        and (single and len(theirs) == 1 or overlap(intervals, theirs))
      ):
        at = _begin(high, size)
    addresses[i] = at
    bisect.insort(placed, (at, at + size, first, last, i, intervals))
  if len(order) > count:
    rest = sorted((births[i], -sizes[i], i, deaths[i]) for i in order[count:])
    _by_birth(rest, placed, base, addresses)
  return addresses


# Address and end, first and last time, number, times.
_Placed = tuple[int, int, int, int, int, list[Interval]]


def _begin(address: int, size: int) -> int:
  """The first address from there on that so large a unit can have."""
  return address if size <= 4 else -(-address // 8) * 8


def _by_birth(
  order: list[tuple[int, int, int, int]],
  placed: list[_Placed],
  base: int,
  addresses: list[int],
) -> None:
  """Places units around those that are placed, each for all the time from its
  birth to its death. `order` has a unit's birth, less its size, its number and
  its death."""
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
    at = free.first(size, later)
    addresses[i] = at
    free.take(at, at + size)
    heapq.heappush(dying, (last, at, at + size))


class _Free:
  """What is free at a time: ascending pieces, the last one without an end."""

  def __init__(self, base: int) -> None:
    self._lows = [base]
    self._highs: list[float] = [math.inf]

  def first(self, size: int, taken: list[tuple[int, int]]) -> int:
    """The lowest address of a piece of which nothing is in `taken`."""
    for low, high in zip(self._lows, self._highs):
      at = _begin(low, size)
      if at + size > high:
        continue
      for begin, end in taken:
        if begin >= at + size:
          break
        if end > at:
          at = _begin(end, size)
      if at + size <= high:
        return at
    raise AssertionError("the last piece has no end")

  def take(self, low: int, high: int) -> None:
    """Of what is free."""
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
    """Joined with the pieces beside it."""
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
