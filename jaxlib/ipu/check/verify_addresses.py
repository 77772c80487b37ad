"""Checks the addresses of `addresses.py` against the tensors' bytes and
lifetimes.

The check does not rely on allocation groups. Tensors that share bytes of a tile
must never be live at once, except that a result may replace an operand while a
step reads it: then both have the same address and size.
"""

from __future__ import annotations

import bisect
import heapq

import numpy as np

from jaxlib.ipu.layout import Array
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.sram.addresses import TileGroup
from jaxlib.ipu.sram.memory import MemoryPlan, peaks_of
from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.tile.walk import exchanges

# First and last time, begin and end address, name.
_Piece = tuple[int, int, int, int, str]


class InvalidAddresses(Exception):
  """Invalid addresses; names the tile."""


def verify(builder: Builder, memory: MemoryPlan) -> None:
  """Checks the addresses of a program on all tiles.

  Args:
    builder: has the tensors, and knows which of them have to be interleaved.
    memory: has their lifetimes and addresses.

  Raises:
    InvalidAddresses: names the first defect.
  """
  groups = memory.addresses.groups
  together = np.stack([g.tiles for g in groups]).sum(0)
  if (together != 1).any():
    tile = int(np.argmax(together != 1))
    raise InvalidAddresses(f"tile {tile} is in {together[tile]} groups")
  table = TileBytes(builder.tensors, len(memory.code.total))
  target = builder.target
  weights = builder.interleaved()
  wide = {
    f"tensor {n if n in memory.lives else builder.tensors[n].root}"
    for n in weights
  }
  for group in groups:
    pieces = _pieces(memory, table, group)
    tile = int(np.argmax(group.tiles))
    fits = group.needed <= target.bytes_per_tile
    end = target.bytes_per_tile if fits else group.needed
    for _, _, low, high, what in pieces:
      if low % (16 if what in wide else 8 if high - low > 4 else 4):
        raise InvalidAddresses(f"tile {tile}: {what} is not aligned at {low}")
      if high > end:
        raise InvalidAddresses(
          f"tile {tile}: {what} ends at {high}, beyond {end}"
        )
      if fits and what in wide and low < target.executable_bytes:
        raise InvalidAddresses(
          f"tile {tile}: {what} at {low} is not interleaved"
        )
    _apart(pieces, tile)
    _copied(builder, {p[4]: p for p in pieces}, tile)
  _needed(builder, memory)


def _needed(builder: Builder, memory: MemoryPlan) -> None:
  """Checks that no tile is said to need less than what is live on it at its
  peak, or more than the fullest tile."""
  code = memory.code.total
  needed = memory.addresses.needed(builder.target, code)
  live = peaks_of(builder, memory.lives, memory.buffers) + code
  wrong = (needed < live) | (needed > memory.bytes_with_gaps)
  if wrong.any():
    tile = int(np.argmax(wrong))
    raise InvalidAddresses(
      f"tile {tile} is said to need {needed[tile]} bytes, but {live[tile]} are "
      f"live at its peak, and the fullest needs {memory.bytes_with_gaps}"
    )


def _copied(builder: Builder, pieces: dict[str, _Piece], tile: int) -> None:
  """Checks that a copy's source is live until its destination is written,
  unless they are coalesced and nothing moves."""
  for step in exchanges(builder.steps):
    for move in step.moves:
      source = pieces.get(f"tensor {move.source}")
      written = pieces.get(f"tensor {move.destination}")
      if source is None or written is None or source[4] == written[4]:
        continue
      layouts = {
        builder.tensors[n].layout.joined
        for n in (move.source, move.destination)
      }
      same = source[2:4] == written[2:4] and len(layouts) == 1
      if not same and source[2] < written[3] and written[2] < source[3]:
        raise InvalidAddresses(
          f"tile {tile}: {written[4]} at {written[2]} is copied over "
          f"{source[4]} at {source[2]}"
        )


def _pieces(
  memory: MemoryPlan, table: TileBytes, group: TileGroup
) -> list[_Piece]:
  """The tensors and buffers on the tiles of a group, each with the most bytes
  that any of these tiles has of it."""

  def most(row: Array) -> int:
    return int(row[group.tiles].max())

  found: list[_Piece] = []
  code = most(memory.code.total)
  if code:
    found.append((-2, 1 << 62, 0, code, "code"))
  steps = dict(memory.buffers)
  numbers = dict(memory.lives)
  for allocation, low in zip(
    memory.addresses.allocations, group.addresses, strict=True
  ):
    for number in allocation.tensors:
      high = low + most(table.row(table.of_tensor(number)))
      found += [
        (begin, end, low, high, f"tensor {number}")
        for begin, end in numbers.pop(number)
      ]
    if not allocation.tensors:
      ((time, _),) = allocation.intervals
      high = low + most(steps.pop(time).bytes)
      found.append((time, time + 1, low, high, f"buffers at {time}"))
  missing = [
    *(f"tensor {n}" for n in numbers),
    *(f"buffers at {t}" for t in steps),
  ]
  if missing:
    raise InvalidAddresses(f"{missing[0]} has no address")
  return sorted(p for p in found if p[2] < p[3])


def _apart(pieces: list[_Piece], tile: int) -> None:
  """Checks that pieces of memory that are live at once do not overlap, by a
  sweep over time.

  A piece that a step reads last at an even time stays until the step has
  written, at the next odd time. Only a result at the very same place may begin
  there at that time.
  """
  lows: list[int] = []
  there: list[_Piece] = []
  ending: list[tuple[int, int]] = []
  for piece in pieces:
    begin, end, low, high, what = piece
    while ending and ending[0][0] < begin:
      _, gone = heapq.heappop(ending)
      i = bisect.bisect_left(lows, gone)
      del lows[i], there[i]
    i = bisect.bisect_left(lows, low)
    before = there[i - 1 : i]
    if before and before[0][3] <= low:
      before = []
    for other in (*before, *there[i : bisect.bisect_left(lows, high)]):
      if other[1] >= begin or other[2:4] != (low, high):
        raise InvalidAddresses(
          f"tile {tile}: {what} at {low} to {high} overlaps {other[4]} at "
          f"{other[2]} to {other[3]}, both there at time {begin}"
        )
    if i < len(lows) and lows[i] == low:
      # It replaces the other one, which ends now.
      ending.remove((there[i][1] | 1, low))
      heapq.heapify(ending)
      del lows[i], there[i]
    lows.insert(i, low)
    there.insert(i, piece)
    heapq.heappush(ending, (end | 1, low))
