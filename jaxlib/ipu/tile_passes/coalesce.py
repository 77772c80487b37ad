"""Gives the source and the destination of a copy the same memory.

A copy of a whole root into another one is free if both have one address. In
this way a loop's carried state, a scattered-to tensor or a donated argument is
updated in place.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile_passes.lifetimes import (
  Interval,
  lifetimes,
  overlap,
  union,
)


@dataclasses.dataclass(slots=True)
class Storage:
  """Roots that share an address.

  Attributes:
    roots: their numbers.
    intervals: when any of them is live: closed, ascending.
    bytes: of each of them.
    result: while copies are coalesced, the root that is a result, if any: its
      address is the caller's.
  """

  roots: list[int]
  intervals: list[Interval]
  bytes: int
  result: TensorInfo | None = None


def run(program: TileProgram) -> None:
  """Gives one storage to both roots of each copy of a whole root, if they are
  never live at once (`TensorInfo.storage`). Roots that share the storage of a
  result are in the result space. What an earlier run shared, before steps were
  changed, is undone."""
  tensors = program.tensors
  results = set(program.results)
  for number, info in enumerate(tensors):
    info.storage = -1
    if info.space == schema.RESULT and number not in results:
      info.space, info.address = schema.ARENA, 0
  line, reserved = lifetimes(program)
  storage: dict[int, Storage] = {}
  for root, intervals in line.intervals.items():
    info = tensors[root]
    if info.space in (schema.ARENA, schema.RESULT, schema.HOST):
      storage[root] = Storage(
        [root],
        union(intervals, reserved.get(root, [])),
        max(info.bytes, 1),
        info if info.space == schema.RESULT else None,
      )
  for event in line.events:
    for move in event.copies:
      a = storage.get(move.source)
      b = storage.get(move.destination)
      if a is None or b is None or a is b:
        continue
      if a.bytes != b.bytes or (a.result and b.result):
        continue
      if overlap(a.intervals, b.intervals):
        continue
      if len(a.roots) < len(b.roots):
        a, b = b, a
      a.roots += b.roots
      a.intervals = union(a.intervals, b.intervals)
      a.result = a.result or b.result
      for root in b.roots:
        storage[root] = a
  for root, one in storage.items():
    if len(one.roots) == 1:
      continue
    info = tensors[root]
    info.storage = one.roots[0]
    if one.result is not None:
      info.space, info.address = schema.RESULT, one.result.address


def verify(program: TileProgram) -> None:
  """Checks that roots that share storage have one size and are never live at
  once.

  Raises:
    CompileError: two roots cannot share their memory.
  """
  tensors = program.tensors
  shared: dict[int, list[int]] = {}
  for number, info in enumerate(tensors):
    if info.storage >= 0:
      shared.setdefault(info.storage, []).append(number)
  if not shared:
    return
  live = lifetimes(program).line.intervals
  for roots in shared.values():
    if len({(tensors[r].bytes, tensors[r].space) for r in roots}) > 1:
      raise internal(f"tensors {roots} share storage, but are not of one size")
    times = sorted((*i, r) for r in roots for i in live.get(r, ()))
    for (_, end, a), (begin, _, b) in zip(times, times[1:]):
      if begin <= end and a != b:
        raise internal(
          f"tensors {a} and {b} share storage, but are both live at {begin}"
        )
