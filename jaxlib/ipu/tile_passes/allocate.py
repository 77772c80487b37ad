"""Assigns an address to each root in the arena.

A copy of a whole root into another is free if both can have one address: the
allocator then assigns it to both (*coalescing*). In this way a loop's carried
state, a scattered-to tensor or a donated argument is updated in place.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq

from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile_passes.liveness import Timeline

ALIGNMENT = 64

Interval = tuple[int, int]


@dataclasses.dataclass(slots=True)
class Storage:
  """Roots that share an address.

  Attributes:
    roots: their numbers.
    intervals: when any of them is live: closed, ascending.
    bytes: of each of them.
    pinned: the root that is a result, if any: its address is the caller's.
  """

  roots: list[int]
  intervals: list[Interval]
  bytes: int
  pinned: TensorInfo | None


def overlap(a: list[Interval], b: list[Interval]) -> bool:
  """Whether two ascending lists of closed intervals share a time."""
  i = j = 0
  while i < len(a) and j < len(b):
    if a[i][1] < b[j][0]:
      i += 1
    elif b[j][1] < a[i][0]:
      j += 1
    else:
      return True
  return False


def union(a: list[Interval], b: list[Interval]) -> list[Interval]:
  """The times in either of two lists of closed intervals, ascending and
  merged."""
  out: list[Interval] = []
  for begin, end in sorted(a + b):
    if out and begin <= out[-1][1] + 1:
      out[-1] = (out[-1][0], max(out[-1][1], end))
    else:
      out.append((begin, end))
  return out


def allocate(
  line: Timeline,
  tensors: list[TensorInfo],
  reserved: dict[int, list[Interval]],
) -> int:
  """Sets the address of every arena root.

  Args:
    line: the analysed steps.
    tensors: all tensors.
    reserved: for roots that are results, the times at which their memory holds
      something else.

  Returns:
    The arena's bytes.
  """
  storage: dict[int, Storage] = {}
  for root, intervals in line.intervals.items():
    info = tensors[root]
    if info.space in (schema.ARENA, schema.RESULT, schema.HOST):
      pinned = info if info.space == schema.RESULT else None
      storage[root] = Storage(
        [root],
        union(intervals, reserved.get(root, [])),
        max(info.bytes, 1),
        pinned,
      )
  _coalesce(line, storage)
  classes = {id(s): s for s in storage.values()}
  free: list[Storage] = []
  for s in classes.values():
    if s.pinned is None:
      free.append(s)
      continue
    for root in s.roots:
      tensors[root].space = schema.RESULT
      tensors[root].address = s.pinned.address
  return _assign(free, tensors)


def _coalesce(line: Timeline, storage: dict[int, Storage]) -> None:
  """Gives one storage to the source and the destination of each copy of a whole
  root, if both are never live at once."""
  for event in line.events:
    for move in event.copies:
      a = storage.get(move.source)
      b = storage.get(move.destination)
      if a is None or b is None or a is b:
        continue
      if a.bytes != b.bytes or (a.pinned and b.pinned):
        continue
      if overlap(a.intervals, b.intervals):
        continue
      if len(a.roots) < len(b.roots):
        a, b = b, a
      a.roots += b.roots
      a.intervals = union(a.intervals, b.intervals)
      a.pinned = a.pinned or b.pinned
      for root in b.roots:
        storage[root] = a
  # Sources that were not merged are read until their copy is done.
  for event in line.events:
    for move in event.copies:
      a = storage.get(move.source)
      if a is not None and a is not storage.get(move.destination):
        late = (event.time, event.time + 1)
        a.intervals = union(a.intervals, [late])


def _assign(classes: list[Storage], tensors: list[TensorInfo]) -> int:
  """Best fit in order of birth. A storage takes its address from the beginning
  of its first interval to the end of its last; returns the arena's bytes.

  If a step reads an operand for the last time before it writes, index by index,
  one of its results can take the operand's memory, but only at the same address
  and with the same size: a result at an offset in it would overwrite elements
  that are yet to be read. For everything else this memory is free from the next
  step on.
  """
  classes.sort(key=lambda s: (s.intervals[0][0], -s.bytes))
  ends: list[tuple[int, int, int]] = []  # (last time, address, bytes)
  holes = _Holes()
  # The memory of operands that the step at `now` reads before it writes:
  # addresses by bytes.
  early: dict[int, list[int]] = {}
  now = 0
  for s in classes:
    begin, end = s.intervals[0][0], s.intervals[-1][1]
    if begin != now:
      for size, addresses in early.items():
        for address in addresses:
          holes.release(address, size)
      early, now = {}, begin
    while ends and ends[0][0] < begin:
      last, address, size = heapq.heappop(ends)
      if last == begin - 1:
        early.setdefault(size, []).append(address)
      else:
        holes.release(address, size)
    size = -(-s.bytes // ALIGNMENT) * ALIGNMENT
    same = early.get(size)
    address = same.pop(0) if same else holes.take(size)
    heapq.heappush(ends, (end, address, size))
    for root in s.roots:
      tensors[root].address = address
  return holes.top


class _Holes:
  """The free pieces of the arena, which grows if none is large enough.

  Attributes:
    top: the arena's bytes.
  """

  def __init__(self) -> None:
    self.top = 0
    self._by_address: list[tuple[int, int]] = []  # (address, bytes)
    self._by_size: list[tuple[int, int]] = []  # (bytes, address)

  def take(self, size: int) -> int:
    """Takes so many bytes, and returns their address: in the smallest hole that
    is large enough (of equal ones the lowest), or at the end of the arena."""
    i = bisect.bisect_left(self._by_size, (size, 0))
    if i < len(self._by_size):
      room, address = self._by_size[i]
      self._remove(address, room)
      if room > size:
        self._add(address + size, room - size)
      return address
    address = self.top
    if self._by_address:
      last, room = self._by_address[-1]
      if last + room == self.top:
        self._remove(last, room)
        address = last
    self.top = address + size
    return address

  def release(self, address: int, size: int) -> None:
    """Frees so many bytes at an address, and joins them with adjacent holes."""
    i = bisect.bisect_left(self._by_address, (address, 0))
    beside = self._by_address[max(i - 1, 0) : i + 1]
    for start, room in beside:
      if start + room == address:
        self._remove(start, room)
        address, size = start, room + size
      elif address + size == start:
        self._remove(start, room)
        size += room
    self._add(address, size)

  def _add(self, address: int, size: int) -> None:
    bisect.insort(self._by_address, (address, size))
    bisect.insort(self._by_size, (size, address))

  def _remove(self, address: int, size: int) -> None:
    del self._by_address[bisect.bisect_left(self._by_address, (address, size))]
    del self._by_size[bisect.bisect_left(self._by_size, (size, address))]
