"""The SRAM plan: what each tile holds, and when.

Every tensor takes SRAM on every tile of its mapping while it is live,
placed ones from their exchange to their last use. Arguments that are not
donated and constants stay for the whole run, and so does the code.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.layout import Array
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.addresses import Addresses, assign
from jaxlib.ipu.sram.allocation_groups import AllocationGroup, allocation_groups
from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, TileCode
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import is_root_itself, tile_bytes
from jaxlib.ipu.tile.walk import walk
from jaxlib.ipu.tile_passes.lifetimes import Interval, lifetimes
from jaxlib.ipu.tile_passes.liveness import Timeline


class StepBuffers(NamedTuple):
  """A step, and the bytes that each tile needs while it runs, besides
  tensors."""

  step: Step
  bytes: Array


Lives = dict[int, list[tuple[int, int]]]
Buffers = dict[int, StepBuffers]  # by the time of the step


@dataclasses.dataclass(slots=True)
class MemoryPlan:
  """Bytes over all tiles, and the peak of the fullest tile.

  Storage is assigned before a run, so each tile takes its own peak for the
  whole run. Arguments, results less aliases, temporaries and code add up to the
  sum of these peaks.

  A program fits if both of these hold on each tile: code, tensors and buffers
  at their addresses, gaps included, end within the SRAM; and what has to be
  executable is no more than the region that can hold code (`excess`).

  Attributes:
    argument_bytes, result_bytes: all arguments and all results.
    alias_bytes: results that are written over donated arguments.
    temporary_bytes: everything else except code, including exchanged copies.
    code: non-tensor memory of each tile.
    peak_tile_bytes: peak bytes of the fullest tile, without gaps.
    peak_tile: the number of that tile.
    always_bytes: of its bytes, those that are live all the time.
    lives: when each tensor takes SRAM.
    used: when each root is used; arguments that are not donated take SRAM for
      longer.
    buffers: buffers of single steps.
    addresses: of everything, above the code.
  """

  argument_bytes: int
  result_bytes: int
  alias_bytes: int
  temporary_bytes: int
  code: TileCode
  peak_tile_bytes: int
  peak_tile: int
  always_bytes: int
  lives: Lives
  used: Lives
  buffers: Buffers
  addresses: Addresses

  @property
  def code_bytes(self) -> int:
    """Bytes of all code on all tiles, whether it fits or not."""
    return int(self.code.total.sum())

  @property
  def bytes_with_gaps(self) -> int:
    """Bytes of the tile that needs most, gaps between tensors included."""
    return self.addresses.fullest.needed

  def record(self, target: Target) -> schema.Memory:
    """The plan as a record of the program."""
    needed = self.addresses.needed(target, self.code.total)
    changes = np.flatnonzero(needed[1:] != needed[:-1]) + 1
    begins = [0, *changes.tolist()]
    ends = [*begins[1:], len(needed)]
    return schema.Memory(
      self.argument_bytes,
      self.result_bytes,
      self.alias_bytes,
      self.temporary_bytes,
      self.code_bytes,
      self.bytes_with_gaps,
      self.peak_tile,
      list(map(operator.sub, ends, begins)),
      needed[begins].tolist(),
    )


def plan(builder: Builder, program: TileProgram, module: Module) -> MemoryPlan:
  """Adds up what is live on each tile over the run.

  Args:
    builder: the builder by which the program was lowered.
    program: the program, with all roots allocated.
    module: the module, which says what arguments are donated.
  """
  tensors, arguments, results = (
    program.tensors, program.arguments, program.results,
  )  # fmt: skip
  line, _ = lifetimes(program)
  donated = {arguments[i] for i in module.donated}
  lives = _lives(builder, line, [a for a in arguments if a not in donated])
  code = tile_code(program)
  buffers = _buffers(builder, line)
  table = TileBytes(tensors, builder.target.num_tiles)
  data = table.peaks(_taken(table, lives, buffers))
  peaks = data + code.total
  peak_tile = int(peaks.argmax())
  aliased = [(arguments[i], results[j]) for i, j in module.aliases]
  wide = {n for product in builder.products for n in product.operands}
  places = allocation_groups(tensors, line, lives, table, aliased, wide)
  places += [
    AllocationGroup([], [(time, time + 1)], table.of(step.bytes))
    for time, step in buffers.items()
  ]
  always = int(code.total[peak_tile]) + sum(
    int(table.row(u.row)[peak_tile]) for u in places if u.always(line.end)
  )

  weights: set[int] | None = None

  def interleaved(allocation: AllocationGroup) -> bool:
    nonlocal weights
    if weights is None:
      found = builder.interleaved()
      weights = {n if n in lives else tensors[n].root for n in found}
    return allocation.wide and not weights.isdisjoint(allocation.tensors)

  target = builder.target
  given = target, places, interleaved, table, code.total, peaks, line.end
  placed = assign(*given)
  if peaks.max() <= target.bytes_per_tile < placed.fullest.needed:
    placed = assign(*given, thorough=True)
  argument_bytes = sum(tensors[a].bytes for a in arguments)
  result_bytes = sum(tensors[r].bytes for r in results)
  alias_bytes = sum(tensors[results[j]].bytes for _, j in module.aliases)
  signature = argument_bytes + result_bytes - alias_bytes
  return MemoryPlan(
    argument_bytes=argument_bytes,
    result_bytes=result_bytes,
    alias_bytes=alias_bytes,
    # Donated arguments that nothing replaces may be dead at the peak.
    temporary_bytes=max(int(data.sum()) - signature, 0),
    code=code,
    peak_tile_bytes=int(peaks[peak_tile]),
    peak_tile=peak_tile,
    always_bytes=always,
    lives=lives,
    used=line.intervals,
    buffers=buffers,
    addresses=placed,
  )


def tile_code(program: TileProgram) -> TileCode:
  """The non-tensor memory of each tile."""
  count = CodeCount(program.target, program.tensors)
  count.steps(program.steps)
  return count.finish()


def _buffers(builder: Builder, line: Timeline) -> Buffers:
  """The buffers of steps. A step that permutes the elements of a root in place
  also has a copy of the root, so that no element is overwritten before it is
  read."""
  found = {}
  tiles = builder.target.num_tiles
  known: dict[int, Array] = {}  # copies of a step share their buffers
  for step in walk(builder.steps):
    if step.buffers is not None:
      taken = known.get(id(step.buffers))
      if taken is None:
        taken = known[id(step.buffers)] = np.zeros(tiles, np.int64)
        taken[: len(step.buffers)] = step.buffers[:tiles]
      found[step.time] = StepBuffers(step, taken)
  for step, roots in line.permuted:
    held = [tile_bytes(builder.tensors[r], tiles) for r in roots]
    if step.time in found:
      held.append(found[step.time].bytes)
    found[step.time] = StepBuffers(step, np.sum(held, 0))
  return found


def peaks_of(builder: Builder, lives: Lives, buffers: Buffers) -> Array:
  """The bytes of tensors and buffers on each tile at the tile's own peak."""
  table = TileBytes(builder.tensors, builder.target.num_tiles)
  return table.peaks(_taken(table, lives, buffers))


def _taken(
  table: TileBytes, lives: Lives, buffers: Buffers
) -> Iterator[tuple[int, list[Interval]]]:
  """Yields the numbers of rows (tile_bytes.py), each with the times at which
  the tensor or buffer with these bytes is live."""
  for number, intervals in lives.items():
    yield table.of_tensor(number), intervals
  for time, step in buffers.items():
    yield table.of(step.bytes), [(time, time + 1)]


def _lives(builder: Builder, line: Timeline, lent: list[int]) -> Lives:
  """When each tensor takes SRAM. Constants, and the arguments `lent`, which are
  not donated, do so throughout the run."""
  lives = {
    r: _joined(i)
    for r, i in line.intervals.items()
    if builder.tensors[r].space != schema.HOST
  }
  constants = [r for r in lives if builder.tensors[r].space == schema.CONSTANT]
  for root in (*constants, *lent):
    lives[root] = [(0, line.end)]
  for number, intervals in line.placed_intervals.items():
    if not is_root_itself(builder.tensors, number):
      lives[number] = intervals
  return lives


def _joined(intervals: list[Interval]) -> list[Interval]:
  """The same times, merged and ascending."""
  out: list[Interval] = []
  for begin, end in intervals:
    if out and begin <= out[-1][1]:
      out[-1] = (out[-1][0], max(end, out[-1][1]))
    else:
      out.append((begin, end))
  return out


class Excess(NamedTuple):
  """Bytes by which a program exceeds a machine; none positive if it fits.

  Attributes:
    code: of the tile with most executable code, beyond the region that can
      hold code.
    sram: of the fullest tile, code and gaps included, beyond its SRAM.
  """

  code: int
  sram: int


def excess(target: Target, memory: MemoryPlan) -> Excess:
  """How far the fullest tiles are beyond what a tile of the machine has."""
  executable = int(memory.code.executable.max(initial=0))
  return Excess(
    executable - target.executable_bytes,
    memory.bytes_with_gaps - target.bytes_per_tile,
  )


def fits(target: Target, memory: MemoryPlan) -> bool:
  """Whether every tile has room for its code and for everything else."""
  return max(excess(target, memory)) <= 0


def code_room(target: Target, memory: MemoryPlan) -> Array:
  """Bytes of executable code on each tile with which a program would fit if
  nothing else changed; int64[tile], negative if less code is not enough."""
  room = np.full(target.num_tiles, target.executable_bytes, np.int64)
  for group in memory.addresses.groups:
    over = group.needed - target.bytes_per_tile
    if over > 0:  # the addresses of all data are above the code of all tiles
      most = int(memory.code.executable[group.tiles].max()) - over
      room[group.tiles] = np.minimum(room[group.tiles], most)
  return room


def executable_room(target: Target, memory: MemoryPlan) -> Array:
  """Bytes of executable code on each tile with which a program may fit once
  steps are outlined; int64[tile].

  These are the bytes of the region that can hold code. There is none on tiles
  that exceed their SRAM, as arguments of functions take some, too, unless these
  tiles would exceed it without any code.
  """
  room = np.full(target.num_tiles, target.executable_bytes, np.int64)
  for group in memory.addresses.groups:
    over = group.needed - target.bytes_per_tile
    if over > 0 and not group.crowded:
      room[group.tiles & (memory.code.executable > over)] = 0
  return room
