"""Runs codelets that make partial results.

Each tile makes its own; further supersteps combine them in stages and move the
results to their owners (plan/combine.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.check.interp_cells import (
  boxes,
  first_point,
  folds,
  operands,
  targets,
)
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Elements, TileMemory, Trap
from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets._kinds import ReducingCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.registers import NUMPY_REGISTER, load, store
from jaxlib.ipu.plan.combine import Stage, stages
from jaxlib.ipu.program import schema


class _Partial(NamedTuple):
  """The results that one tile computed: `points` are row-major numbers over the
  parallel dimensions."""

  part: tuple[int, ...]
  tile: int
  points: Elements
  values: list[Array]


class _Holder(NamedTuple):
  """A tile with partial results of some points."""

  tile: int
  values: list[Array]


def execute(
  machine: Machine, step: schema.Execute, codelet: ReducingCodelet
) -> None:
  """Combines partial results in ascending order of part, then delivers them."""
  memories = [machine.computed(a.tensor) for a in step.results]
  num_kept = codelet.num_kept(step.fields, len(step.shape))
  partials = _partials(machine, step, codelet, num_kept)
  combining = _Combining(machine, step, codelet, memories, num_kept)
  if partials:
    combining.run(partials)
  else:
    size = math.prod(step.shape[:num_kept])
    registers = [NUMPY_REGISTER[REGISTER[m.dtype]] for m in memories]
    totals = codelet.initial(step.fields, registers, (size,))
    for m, to, total in zip(
      memories, combining.targets, totals[-len(memories) :], strict=True
    ):
      for tile in m.tiles:
        combining.write(m, tile, to, total)
  combining.finish()


def _partials(
  machine: Machine,
  step: schema.Execute,
  codelet: ReducingCodelet,
  num_kept: int,
) -> list[_Partial]:
  """What each tile computes, in ascending order of part."""
  found = (
    boxes(machine, step)
    if codelet.needs_boxes
    else folds(machine, step, num_kept)
  )
  partials = []
  for tile, cell in found:
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, local)
    points = np.zeros((), np.int64)
    for d in range(num_kept):
      points = points * step.shape[d] + cell.coordinates[d]
    part = first_point(cell)[num_kept:]
    flat = [np.asarray(v).reshape(-1) for v in values]
    partials.append(_Partial(part, tile, points.reshape(-1), flat))
  return sorted(partials, key=lambda p: p.part)


class _Combining:
  """The supersteps that combine partial results.

  Counts what each tile sends, receives and holds in each of them.

  Attributes:
    targets: for each result, its elements at the parallel points.
  """

  def __init__(
    self,
    machine: Machine,
    step: schema.Execute,
    codelet: ReducingCodelet,
    memories: list[TileMemory],
    num_kept: int,
  ) -> None:
    self._machine = machine
    self._step = step
    self._codelet = codelet
    self._memories = memories
    ones = [1] * (len(step.shape) - num_kept)
    whole = Cell.whole([*step.shape[:num_kept], *ones])
    self.targets = [
      targets(m, access, whole)
      for m, access in zip(memories, step.results, strict=True)
    ]
    self._copies = {id(m): np.zeros(m.size, np.int64) for m in memories}
    self._tiles = machine.program.target.num_tiles
    self._received: dict[int, Elements] = {}
    self._sent: dict[int, Elements] = {}
    self._own = np.zeros(self._tiles, np.int64)  # bytes of partial results

  def run(self, partials: list[_Partial]) -> None:
    """Combines the partial results of every block and delivers them."""
    blocks: dict[int, list[_Partial]] = defaultdict(list)
    for p in partials:
      blocks[int(p.points[0])].append(p)
    parts = max(len(b) for b in blocks.values())
    owned = max(m.layout.max_elements for m in self._memories)
    most = max(len(p.points) for p in partials)
    todo = stages(most, parts, owned, self._codelet.many_partials)
    for block in blocks.values():
      holders = [_Holder(p.tile, p.values) for p in block]
      self._sizes = self._value_bytes(len(block[0].values), parts > 1)
      for h in holders if parts > 1 else ():
        self._own[h.tile] += sum(self._sizes) * len(block[0].points)
      self._combine(holders, block[0].points, todo, 0)

  def _value_bytes(self, count: int, partial: bool) -> list[int]:
    """Bytes of each value sent: partial results have the accumulator's type,
    complete ones the result's. Arg-reductions may return indices only."""
    sizes = []
    for i in range(count):
      m = self._memories[min(i, len(self._memories) - 1)]
      if partial:
        sizes.append(self._codelet.partial_bytes(self._step.fields, m.dtype))
      else:
        asked = i >= count - len(self._memories)
        sizes.append(SIZE[m.dtype] if asked else 0)
    return sizes

  def _combine(
    self,
    holders: list[_Holder],
    points: Elements,
    todo: list[Stage],
    number: int,
  ) -> None:
    """Runs stage `number` on the partial results of some points."""
    stage = todo[number]
    if not stage.shares:
      self._deliver(holders, points, number)
      return
    groups = np.array_split(np.arange(len(holders)), stage.groups)
    share = -(-len(points) // stage.shares)
    for i in range(stage.shares):
      mine = slice(i * share, (i + 1) * share)
      count = len(points[mine])
      if not count:
        break
      reduced = []
      for group in groups:
        owner = holders[group[i]].tile
        values: list[Array] | None = None
        for k in group.tolist():
          piece = [v[mine] for v in holders[k].values]
          values = self._merged(values, piece)
          if k != group[i]:
            self._move(number, holders[k].tile, owner, count)
        assert values is not None
        reduced.append(_Holder(owner, values))
      self._combine(reduced, points[mine], todo, number + 1)

  def _merged(
    self, earlier: list[Array] | None, later: list[Array]
  ) -> list[Array]:
    if earlier is None:
      return later
    return self._codelet.combine(self._step.fields, earlier, later)

  def _move(self, number: int, source: int, to: int, count: int) -> None:
    size = count * sum(self._sizes)
    self._counter(self._sent, number)[source] += size
    self._counter(self._received, number)[to] += size

  def _counter(self, of: dict[int, Elements], number: int) -> Elements:
    if number not in of:
      of[number] = np.zeros(self._tiles, np.int64)
    return of[number]

  def _deliver(
    self, holders: list[_Holder], points: Elements, number: int
  ) -> None:
    """Sends partial results to the results' owners, which reduce them."""
    total: list[Array] | None = None
    for h in holders:
      total = self._merged(total, h.values)
    assert total is not None
    count = len(self._memories)
    received = self._counter(self._received, number)
    sent = self._counter(self._sent, number)
    # If only indices are results, the values travel with them.
    sizes = self._sizes[-count:]
    sizes[0] += sum(self._sizes[:-count])
    for m, to, size, values in zip(
      self._memories, self.targets, sizes, total[-count:], strict=True
    ):
      elements = to[points]
      owners = m.owners[:, elements]  # by copy and element
      for h in holders:
        away = owners != h.tile
        sent[h.tile] += int(away.any(0).sum()) * size
        np.add.at(received, owners[away], size)
      for tile in np.unique(owners).tolist():
        self.write(m, tile, elements, values)

  def write(
    self, m: TileMemory, tile: int, to: Elements, values: Array
  ) -> None:
    """Writes those results of `to` that a tile owns."""
    here = m.has(tile, to)
    to, values = to[here], values[here]
    if self._codelet.updates(self._step.fields):
      at = m.local(tile, to)
      if not m.defined[tile][at].all():
        raise Trap(
          "undefined",
          f"element {to[~m.defined[tile][at]][0]} is added to but was never "
          "written",
          tile,
          m.number,
        )
      before = load(m.read(tile, to), REGISTER[m.dtype])
      (values,) = self._codelet.combine(self._step.fields, [before], [values])
    m.write(tile, to, store(values, m.dtype))
    self._copies[id(m)][to] += 1

  def finish(self) -> None:
    """Records what was written, moved and held."""
    for m in self._memories:
      self._machine.wrote(m.number, self._copies[id(m)] > 0)
    received = sum(int(r.sum()) for r in self._received.values())
    busiest = sum(
      max(int(r.max()), int(self._sent[number].max()))
      for number, r in self._received.items()
    )
    self._machine.count(self._step.cost, float(received), float(busiest))
    # A stage's results take no more memory than what it received.
    most = np.max([self._own * 0, *self._received.values()], axis=0)
    self._machine.held_briefly(self._own + most)
