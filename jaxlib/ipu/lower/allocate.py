"""Gives each root in the arena an address.

A copy of a whole root into another is free where both can have one address:
the allocator then gives them one (*coalescing*). That is how a loop's carried
state, a scattered-to tensor or a donated argument is updated in place.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq

from jaxlib.ipu.lower.builder import TensorInfo
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.program import schema

ALIGNMENT = 64

Interval = tuple[int, int]


@dataclasses.dataclass(slots=True)
class Storage:
  """Roots that share an address, and when any of them is live."""

  roots: list[int]
  intervals: list[Interval]
  bytes: int
  pinned: TensorInfo | None  # a result: its address is the caller's


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
  """Both lists as one, ascending and merged."""
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
    reserved: result roots whose memory is somebody else's at times.

  Returns:
    The arena's bytes.
  """
  storage: dict[int, Storage] = {}
  for root, intervals in line.intervals.items():
    info = tensors[root]
    if info.space in (schema.ARENA, schema.RESULT):
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
  """Merges source and destination of whole copies that do not conflict."""
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
      a.roots += b.roots
      a.intervals = union(a.intervals, b.intervals)
      a.pinned = a.pinned or b.pinned
      for root in b.roots:
        storage[root] = a
  # What was not merged is read until its copy is done.
  for event in line.events:
    for move in event.copies:
      a = storage.get(move.source)
      if a is not None and a is not storage.get(move.destination):
        late = (event.time, event.time + 1)
        a.intervals = union(a.intervals, [late])


def _assign(classes: list[Storage], tensors: list[TensorInfo]) -> int:
  """Best fit over the hulls of the classes' lives, in order of birth.

  An operand that its last reader reads early, index by index, can become a
  result of this reader, but only as a whole: a result that begins elsewhere
  in it would overwrite elements before they are read. Its memory is free for
  everything else from the next step on.
  """
  classes.sort(key=lambda s: (s.intervals[0][0], -s.bytes))
  ends: list[tuple[int, int, int]] = []  # (last time, address, bytes)
  holes: list[tuple[int, int]] = []  # (address, bytes), by address
  early: list[tuple[int, int]] = []  # read early by the step of `now`
  now = top = 0
  for s in classes:
    begin, end = s.intervals[0][0], s.intervals[-1][1]
    if begin != now:
      for address, size in early:
        _release(holes, address, size)
      early, now = [], begin
    while ends and ends[0][0] < begin:
      last, address, size = heapq.heappop(ends)
      if last == begin - 1:
        early.append((address, size))
      else:
        _release(holes, address, size)
    size = -(-s.bytes // ALIGNMENT) * ALIGNMENT
    same = next((piece for piece in early if piece[1] == size), None)
    best = -1
    for i, (_, room) in enumerate(holes):
      if room >= size and (best < 0 or room < holes[best][1]):
        best = i
    if same is not None:
      early.remove(same)
      address, _ = same
    elif best >= 0:
      address, room = holes[best]
      if room == size:
        del holes[best]
      else:
        holes[best] = (address + size, room - size)
    elif holes and holes[-1][0] + holes[-1][1] == top:
      address, _ = holes.pop()
      top = address + size
    else:
      address, top = top, top + size
    heapq.heappush(ends, (end, address, size))
    for root in s.roots:
      tensors[root].address = address
  return top


def _release(holes: list[tuple[int, int]], address: int, size: int) -> None:
  """Puts a piece back, joined with the holes beside it."""
  i = bisect.bisect_left(holes, (address, 0))
  if i < len(holes) and address + size == holes[i][0]:
    size += holes.pop(i)[1]
  if i > 0 and holes[i - 1][0] + holes[i - 1][1] == address:
    address, before = holes.pop(i - 1)
    size += before
    i -= 1
  holes.insert(i, (address, size))
