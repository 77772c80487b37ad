"""Divides copies that assemble a root from parts into several copies.

A concatenation is lowered as one copy of all its parts, so all parts are in
SRAM together with the result. If that is the peak of the chosen order
(tile_passes/schedule.py), each part can instead be copied as soon as it is
made: its memory is free before the next part is made. But the result is then
live from the first of these copies on, which can be worse than the original
peak, so the scheduler compares both.

Each further copy adds a synchronisation, and parts that go to few tiles each
take longer one by one. While a program fits, a copy is therefore divided only
if its result takes a good part of a tile, and the copies take hardly more
cycles than one. A program that does not fit is lowered again without these
limits (tile/choices.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
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
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.walk import walk
from jaxlib.ipu.tile_passes.schedule import Task, TaskGraph

# The least share of a tile's SRAM that the result takes, and the most that the
# several copies may cost, relative to one copy. [G]
_LEAST_SHARE = 1 / 8
_MOST_CYCLES = 1.1
# A copy becomes at most so many. A part with more other readers than this was
# not made for the copy. [G]
_MOST_PARTS, _FEW_READERS = 8, 8


class Division:
  """The copies of a graph that may be divided."""

  def __init__(self, program: TileProgram) -> None:
    self._program = program
    self._divided: list[Step] = []

  def divide(self, work: TaskGraph, order: list[int]) -> list[Task]:
    """The tasks in the given order, in which each copy that assembles a root
    and is the peak of the order is divided into copies as early as possible.
    Empty if there is no such copy."""
    some = {n for n in order if self._puts_together(work.tasks[n])}
    if not some:
      return []
    moments = dict(zip(order, work.moments(order), strict=True))
    rest = max((moments[n] for n in order if n not in some), default=0)
    place = {n: i for i, n in enumerate(order)}
    after: dict[int, list[Copy]] = defaultdict(list)
    instead = set()
    for number in sorted(some):
      if moments[number] <= rest:
        continue
      (copy,) = work.tasks[number].steps
      places, groups = self._groups(work, number, place)
      copies = self._copies(copy, groups) if len(groups) > 1 else None
      if copies is not None:
        instead.add(number)
        for at, part in zip(places, copies, strict=True):
          after[at].append(part)
    found = []
    for at, number in enumerate(order if instead else ()):
      task = work.tasks[number]
      if number not in instead:
        found.append(Task(task.steps, task.has_effect))
      found += [Task([part], False) for part in after[at]]
    return found

  def _puts_together(self, task: Task) -> bool:
    """Whether a task does nothing but copy parts to all of a new root."""
    if len(task.steps) != 1 or len(task.steps[0].moves) <= 1:
      return False
    tensors = self._program.tensors
    moves = task.steps[0].moves
    root = moves[0].destination
    return (
      task.steps[0].staying is not None
      and all(m.destination == root != m.source for m in moves)
      and sum(math.prod(m.shape) for m in moves) == tensors[root].size
    )

  def _groups(
    self, work: TaskGraph, number: int, place: dict[int, int]
  ) -> tuple[list[int], list[list[int]]]:
    """Groups the moves of a task's copy by the earliest place in the order at
    which they should be made: once their source is made and all other tasks
    have read it, so that its memory is free after the move."""
    (copy,) = work.tasks[number].steps
    end = place[number]
    found: dict[int, list[int]] = defaultdict(list)
    for i, move in enumerate(copy.moves):
      at = end
      readers = work.readers.get(move.source, ())
      if move.source in work.writer and len(readers) <= _FEW_READERS:
        others = (place.get(n, end) for n in readers if n != number)
        at = min(max(place[work.writer[move.source]], *others, 0), end)
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
      info = b.tensors[copy.moves[0].destination]
      share = info.layout.max_elements * SIZE[info.dtype]
      if (
        share < _LEAST_SHARE * b.target.bytes_per_tile
        or cycles > _MOST_CYCLES * self._cycles(copy.own, kept)
      ):
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
    """Registers the roots whose copies have been divided: those that are no
    longer among the steps of the chosen order."""
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
