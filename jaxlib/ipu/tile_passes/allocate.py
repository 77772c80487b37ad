"""Assigns addresses in the arena: to each root, or to all that share storage
(tile_passes/coalesce.py)."""

from __future__ import annotations

import bisect
import heapq

from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile_passes.coalesce import Storage
from jaxlib.ipu.tile_passes.lifetimes import lifetimes, union

ALIGNMENT = 64


def run(program: TileProgram) -> None:
  """Sets the addresses of all arena roots, and the arena's bytes."""
  tensors = program.tensors
  line, _ = lifetimes(program)
  shared: dict[int, Storage] = {}
  storage: dict[int, Storage] = {}  # by root
  for root, intervals in line.intervals.items():
    info = tensors[root]
    if info.space not in (schema.ARENA, schema.HOST):
      continue
    one = shared.setdefault(
      root if info.storage < 0 else info.storage,
      Storage([], [], max(info.bytes, 1)),
    )
    one.roots.append(root)
    one.intervals = union(one.intervals, intervals)
    storage[root] = one
  # Sources that do not share storage are read until their copy is done.
  for event in line.events:
    for move in event.copies:
      a = storage.get(move.source)
      if a is not None and a is not storage.get(move.destination):
        a.intervals = union(a.intervals, [(event.time, event.time + 1)])
  program.arena_bytes = _assign([*shared.values()], tensors)


def _assign(found: list[Storage], tensors: list[TensorInfo]) -> int:
  """Best fit in order of birth. A storage takes its address from the beginning
  of its first interval to the end of its last; returns the arena's bytes.

  If a step reads an operand for the last time before it writes, index by index,
  one of its results can take the operand's memory, but only at the same address
  and with the same size: a result at an offset in it would overwrite elements
  that are yet to be read. For everything else this memory is free from the next
  step on.
  """
  found.sort(key=lambda s: (s.intervals[0][0], -s.bytes))
  ends: list[tuple[int, int, int]] = []  # (last time, address, bytes)
  holes = _Holes()
  # The memory of operands that the step at `now` reads before it writes:
  # addresses by bytes.
  early: dict[int, list[int]] = {}
  now = 0
  for s in found:
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
