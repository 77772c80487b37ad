"""Divides copies that assemble a root from parts into several copies.

A concatenation is lowered as one copy of all its parts, so all parts are in
SRAM together with the result. If that is the peak of a region, once its
operations are in order (tile_passes/order.py), each part can instead be copied
as soon as it is made: its memory is free before the next part is made. But the
result is then live from the first of these copies on, which can be worse than
the original peak, so the pass compares both.

Each further copy adds a synchronisation, and parts that go to few tiles each
take longer one by one. While a program fits, a copy is therefore divided only
if its result takes a good part of a tile, and the copies take hardly more
cycles than one. A program that does not fit is lowered again without these
limits (tile/choices.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.copy import Copy
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import regions, walk
from jaxlib.ipu.tile_passes.schedule import (
  LEAST_GAIN,
  Task,
  TaskGraph,
  operations,
)

# The least share of a tile's SRAM that the result takes, and the most that the
# several copies may cost, relative to one copy. [G]
_LEAST_SHARE = 1 / 8
_MOST_CYCLES = 1.1
# A copy becomes at most so many. A part with more other readers than this was
# not made for the copy. [G]
_MOST_PARTS, _FEW_READERS = 8, 8


def run(program: TileProgram) -> None:
  """Divides the copies of all regions that need most SRAM, where that lowers
  the peak. Regions of small copies are left out, unless `Choices.divides`."""
  for region, place, work in _regions(program, program.choices.divides):
    division = Division(program)
    divided = division.divide(work)
    if not divided:
      continue
    best, least = TaskGraph(divided, program, region).ordered()
    if LEAST_GAIN * least < work.peak([*range(len(work.tasks))]):
      region[place] = [s for number in best for s in divided[number].steps]
      division.take(region)


def find_divisible(program: TileProgram) -> None:
  """Sets `Used.divisible` for the regions that `run` leaves out, too."""
  for _, _, work in _regions(program, every=True):
    Division(program).divide(work)


def _regions(
  program: TileProgram, every: bool
) -> Iterator[tuple[Region, slice, TaskGraph]]:
  """The regions with copies that assemble roots, not only small ones or
  `every`; where their operations are, and these."""
  for region in regions(program.steps):
    copies = [step for step in region if _assembles(program, step)]
    if not any(every or not _small(program, copy) for copy in copies):
      continue
    place, tasks = operations(region)
    if len(tasks) <= 2:
      continue
    work = TaskGraph(tasks, program, region)
    if not work.is_chain():
      yield region, place, work


def _assembles(program: TileProgram, step: Step) -> bool:
  """Whether a step does nothing but copy parts to all of a new root."""
  if len(step.moves) <= 1 or step.staying is None:
    return False
  root = step.moves[0].destination
  return (
    all(m.destination == root != m.source for m in step.moves)
    and sum(math.prod(m.shape) for m in step.moves)
    == program.tensors[root].size
  )


def _small(program: TileProgram, copy: Step) -> bool:
  """Whether the root that a copy assembles takes little of a tile."""
  info = program.tensors[copy.moves[0].destination]
  share = info.layout.max_elements * SIZE[info.dtype]
  return share < _LEAST_SHARE * program.target.bytes_per_tile


class Division:
  """The copies of a region that may be divided."""

  def __init__(self, program: TileProgram) -> None:
    self._program = program
    self._divided: list[Step] = []

  def divide(self, work: TaskGraph) -> list[Task]:
    """The tasks in their order, in which each copy that assembles a root and is
    the peak is divided into copies as early as possible. Empty if there is no
    such copy."""
    order = range(len(work.tasks))
    some = {n for n in order if self._is_assembly(work.tasks[n])}
    if not some:
      return []
    moments = [*work.moments([*order])]
    rest = max((moments[n] for n in order if n not in some), default=0)
    after: dict[int, list[Copy]] = defaultdict(list)
    instead = set()
    for number in sorted(some):
      if moments[number] <= rest:
        continue
      (copy,) = work.tasks[number].steps
      places, groups = self._groups(work, number)
      copies = self._copies(copy, groups) if len(groups) > 1 else None
      if copies is not None:
        instead.add(number)
        for at, part in zip(places, copies, strict=True):
          after[at].append(part)
    found = []
    for number, task in enumerate(work.tasks if instead else ()):
      if number not in instead:
        found.append(Task(task.steps, task.has_effect))
      found += [Task([part], False) for part in after[number]]
    return found

  def _is_assembly(self, task: Task) -> bool:
    return len(task.steps) == 1 and _assembles(self._program, task.steps[0])

  def _groups(
    self, work: TaskGraph, number: int
  ) -> tuple[list[int], list[list[int]]]:
    """Groups the moves of a task's copy by the first task after which they
    should be made: once their source is made and all other tasks have read it,
    so that its memory is free after the move."""
    (copy,) = work.tasks[number].steps
    last = len(work.tasks)
    found: dict[int, list[int]] = defaultdict(list)
    for i, move in enumerate(copy.moves):
      at = number
      readers = work.readers.get(move.source, ())
      if move.source in work.writer and len(readers) <= _FEW_READERS:
        others = (number if n == last else n for n in readers if n != number)
        at = min(max(work.writer[move.source], *others, 0), number)
      found[at].append(i)
    sizes = [math.prod(m.shape) for m in copy.moves]
    least = sum(sizes) / _MOST_PARTS
    places: list[int] = []
    groups: list[list[int]] = []
    size = least
    for at, moves in sorted(found.items()):
      if size >= least:
        places.append(at)
        groups.append([])
        size = 0
      places[-1] = at
      groups[-1] += moves
      size += sum(sizes[i] for i in moves)
    return places, groups

  def _copies(
    self, copy: Step, groups: Sequence[Sequence[int]]
  ) -> list[Copy] | None:
    """One copy per group of moves; None if they cost too much."""
    b = self._program
    traffic = [self._traffic(m) for m in copy.moves]
    kept = copy.staying
    assert kept is not None
    found = []
    cycles = 0.0
    for group in groups:
      price = cost.exchange(b.target, [traffic[i] for i in group])
      some = [kept[i] for i in group]
      moves = [copy.moves[i] for i in group]
      found.append(
        Copy(moves=moves, staying=some, own=price, location=copy.location)
      )
      cycles += self._cycles(price, some)
    if not b.choices.divides:
      most = _MOST_CYCLES * self._cycles(copy.own, kept)
      if _small(b, copy) or cycles > most:
        b.used.divisible = True
        return None
    self._divided.append(copy)
    return found

  def _traffic(self, m: schema.Move) -> Traffic:
    tensors = self._program.tensors
    a, b = tensors[m.source], tensors[m.destination]
    return move_traffic(
      MoveEnd(a.layout, m.source_offset, tuple(m.source_strides)),
      MoveEnd(b.layout, m.destination_offset, tuple(m.destination_strides)),
      tuple(m.shape),
      SIZE[a.dtype],
    )

  def _cycles(self, price: schema.Cost, kept: Sequence[Any]) -> float:
    """Cycles of a copy, local copies on the tiles included."""
    some = [x for x in kept if x is not None]
    local = cost.local_copies(self._program.target, some)
    return cost.cycles(price) + cost.cycles(local)

  def take(self, steps: Sequence[Step]) -> None:
    """Registers the roots whose copies have been divided: those that are not
    among `steps` any more."""
    taken = set(steps) if self._divided else ()
    for copy in self._divided:
      if copy not in taken:
        self._program.assembled.add(copy.moves[0].destination)


def verify(program: TileProgram) -> None:
  """Checks that all parts of assembled roots are written before any is read.

  Raises:
    CompileError: a root is read too early.
  """
  tensors = program.tensors
  written = dict.fromkeys(program.assembled, 0)
  for step in walk(program.steps):
    for number in step.reads():
      root = tensors[number].root
      if written.get(root, tensors[root].size) < tensors[root].size:
        raise internal(f"tensor {root} is read before all of it is written")
    for m in step.moves:
      if m.destination in written:
        written[m.destination] += math.prod(m.shape)
