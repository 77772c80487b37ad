"""The SRAM plan: what each tile holds, and when.

Every tensor takes its share on every tile of its mapping while it is live,
placed ones from their exchange to their last use. Arguments that are not
donated and constants stay for the whole run, and so does the code.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator

import numpy as np

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower import local_copies
from jaxlib.ipu.lower.addresses import Addresses, assign
from jaxlib.ipu.lower.allocate import Interval
from jaxlib.ipu.lower.builder import Builder, StepBuffers
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.lower.shares import Shares, tile_bytes
from jaxlib.ipu.lower.tensors import is_root_itself
from jaxlib.ipu.lower.tile_code import TileCode, tile_code
from jaxlib.ipu.lower.units import Unit, units
from jaxlib.ipu.plan.layout import Array
from jaxlib.ipu.program import schema

logger = logging.getLogger("jaxlib.ipu")

Lives = dict[int, list[tuple[int, int]]]
Buffers = dict[int, StepBuffers]  # by the time of the step


@dataclasses.dataclass(slots=True)
class MemoryPlan:
  """Bytes over all tiles, and the fullest tile's at its fullest moment.

  Storage is given out before a run, so a tile takes what it needs at its own
  fullest moment: arguments, results less aliases, temporaries and code are the
  sum of that over all tiles.

  Attributes:
    argument_bytes, result_bytes: of the signature.
    alias_bytes: results that are written over donated arguments.
    temporary_bytes: all else but code, exchanged copies included.
    code: what is no data, on each tile, as far as it has room: see `_room`.
    code_parts: all that is no data.
    peak_tile_bytes: of the fullest tile, exchanged copies included.
    peak_tile: its number.
    always_bytes: of these, what is there all the time.
    lives: when each tensor takes SRAM.
    used: when each root is used; an argument that the caller keeps lives on.
    buffers: what single steps take beside tensors.
    addresses: where all that is.
    copied: copies that move something on a tile, and the bytes on each.
  """

  argument_bytes: int
  result_bytes: int
  alias_bytes: int
  temporary_bytes: int
  code: Array
  code_parts: TileCode
  peak_tile_bytes: int
  peak_tile: int
  always_bytes: int
  lives: Lives
  used: Lives
  buffers: Buffers
  addresses: Addresses
  copied: local_copies.Copied

  @property
  def code_bytes(self) -> int:
    """Over all tiles, whether there is room or not."""
    return int(self.code_parts.total.sum())

  @property
  def bytes_with_gaps(self) -> int:
    """Of the tile that needs most, with the gaps between tensors."""
    return self.addresses.fullest.needed

  def record(self) -> schema.Memory:
    """The program's form of it."""
    return schema.Memory(
      self.argument_bytes,
      self.result_bytes,
      self.alias_bytes,
      self.temporary_bytes,
      self.code_bytes,
      self.bytes_with_gaps,
      self.peak_tile,
    )


def plan(
  builder: Builder,
  line: Timeline,
  module: Module,
  arguments: list[int],
  results: list[int],
) -> MemoryPlan:
  """Adds up what is live on each tile over the run.

  Args:
    builder: with all roots allocated.
    line: the analysed steps.
    module: says what is donated.
    arguments, results: their roots.
  """
  tensors = builder.tensors
  donated = {arguments[i] for i in module.donated}
  lives = _lives(builder, line, [a for a in arguments if a not in donated])
  copied = local_copies.within(builder, module, arguments, results)
  parts, messages = tile_code(builder, (size for _, size in copied))
  code = _room(builder, parts)
  buffers = _buffers(builder, line, messages)
  shares = Shares(tensors, builder.target.num_tiles)
  peaks = shares.peaks(_taken(shares, lives, buffers)) + code
  peak_tile = int(peaks.argmax())
  aliased = [(arguments[i], results[j]) for i, j in module.aliases]
  wide = {n for product in builder.products for n in product.operands}
  places = units(tensors, line, lives, shares, aliased, wide)
  places += [
    Unit([], [(time, time + 1)], shares.of(step.bytes))
    for time, step in buffers.items()
  ]
  always = int(code[peak_tile]) + sum(
    int(shares.row(u.share)[peak_tile]) for u in places if u.always(line.end)
  )

  weights: set[int] | None = None

  def interleaved(unit: Unit) -> bool:
    nonlocal weights
    if weights is None:
      found = builder.interleaved()
      weights = {n if n in lives else tensors[n].root for n in found}
    return unit.wide and not weights.isdisjoint(unit.tensors)

  given = builder.target, places, interleaved, shares, code, peaks, line.end
  placed = assign(*given)
  limit = builder.target.bytes_per_tile
  if peaks[peak_tile] <= limit < placed.fullest.needed:
    placed = assign(*given, thorough=True)
  argument_bytes = sum(tensors[a].bytes for a in arguments)
  result_bytes = sum(tensors[r].bytes for r in results)
  alias_bytes = sum(tensors[results[j]].bytes for _, j in module.aliases)
  signature = argument_bytes + result_bytes - alias_bytes
  return MemoryPlan(
    argument_bytes=argument_bytes,
    result_bytes=result_bytes,
    alias_bytes=alias_bytes,
    # Donated arguments that nothing replaces may be gone by then.
    temporary_bytes=max(int((peaks - code).sum()) - signature, 0),
    code=code,
    code_parts=parts,
    peak_tile_bytes=int(peaks[peak_tile]),
    peak_tile=peak_tile,
    always_bytes=always,
    lives=lives,
    used=line.intervals,
    buffers=buffers,
    addresses=placed,
    copied=copied,
  )


def _buffers(
  builder: Builder, line: Timeline, messages: list[StepBuffers]
) -> Buffers:
  """What steps hold beside tensors, `messages` among it. No exchange writes
  where it has yet to read: it has a buffer for what it reads of a root that it
  writes."""
  found = {}
  for step, needed in (*builder.buffers.values(), *messages):
    share = np.zeros(builder.target.num_tiles, np.int64)
    share[: len(needed)] = needed[: len(share)]
    found[line.times[id(step)]] = StepBuffers(step, share)
  tiles = builder.target.num_tiles
  for time, (copy, roots) in line.permuted.items():
    shares = [tile_bytes(builder.tensors[r], tiles) for r in roots]
    if time in found:
      shares.append(found[time].bytes)
    found[time] = StepBuffers(copy, np.sum(shares, 0))
  return found


def peaks_of(builder: Builder, lives: Lives, buffers: Buffers) -> Array:
  """What tensors and buffers take of each tile at its own fullest moment."""
  shares = Shares(builder.tensors, builder.target.num_tiles)
  return shares.peaks(_taken(shares, lives, buffers))


def _taken(
  shares: Shares, lives: Lives, buffers: Buffers
) -> Iterator[tuple[int, list[Interval]]]:
  """Shares, and when they are taken."""
  for number, intervals in lives.items():
    yield shares.of_tensor(number), intervals
  for time, step in buffers.items():
    yield shares.of(step.bytes), [(time, time + 1)]


def _lives(builder: Builder, line: Timeline, lent: list[int]) -> Lives:
  """When each tensor takes SRAM; `lent` are the arguments not donated."""
  lives = {r: _joined(i) for r, i in line.intervals.items()}
  constants = [r for r in lives if builder.tensors[r].space == schema.CONSTANT]
  for root in (*constants, *lent):
    lives[root] = [(0, line.end)]
  for number, intervals in line.placed_intervals.items():
    if not is_root_itself(builder.tensors, number):
      lives[number] = intervals
  return lives


def _joined(intervals: list[Interval]) -> list[Interval]:
  """The same times without those that are said twice, ascending."""
  out: list[Interval] = []
  for begin, end in intervals:
    if out and begin <= out[-1][1]:
      out[-1] = (out[-1][0], max(end, out[-1][1]))
    else:
      out.append((begin, end))
  return out


def _room(builder: Builder, parts: TileCode) -> Array:
  """What is no data, with no more code than a tile can hold.

  Of long programs there is more: each step has code of its own here, where
  Poplar outlines what repeats. So they are not refused; `check` warns of it.
  """
  room = np.maximum(parts.vertices, builder.target.executable_bytes)
  return parts.state + parts.stacks + np.minimum(parts.executable, room)


def overflows(builder: Builder, memory: MemoryPlan) -> bool:
  """Whether a tile needs more than its SRAM, or the code of its vertices more
  than the part of it that can hold any."""
  target = builder.target
  return memory.bytes_with_gaps > target.bytes_per_tile or bool(
    memory.code_parts.vertices.max(initial=0) > target.executable_bytes
  )


def check(
  builder: Builder, module: Module, memory: MemoryPlan, allow: bool
) -> None:
  """Raises RESOURCE_EXHAUSTED if a tile is over its SRAM, unless allowed; warns
  of more code than there is room for."""
  refused = overflows(builder, memory) and not allow
  code = memory.code_parts.executable.max(initial=0)
  if refused or code > builder.target.executable_bytes:
    from jaxlib.ipu.lower import overflow  # imports what few programs need

    if refused:
      raise overflow.error(builder, module, memory)
    logger.warning("%s", overflow.code(builder, module, memory))
