"""Runs codelets whose vertices write where they compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.check.interp_cells import cells, operands, targets
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Elements, TileMemory, Trap
from jaxlib.ipu.codelets._kinds import LocalCodelet
from jaxlib.ipu.kernel.registers import store
from jaxlib.ipu.program import schema


def execute(
  machine: Machine, step: schema.Execute, codelet: LocalCodelet
) -> None:
  """Runs the vertices, then writes, so that none sees another's results."""
  parts = [machine.part(a.tensor, codelet.writes_parts) for a in step.results]
  memories = {m.number: m for m, _, _ in parts}
  times = {
    number: {tile: np.zeros(len(o), np.int64) for tile, o in m.tiles.items()}
    for number, m in memories.items()
  }
  pending: list[tuple[TileMemory, int, Elements, Array]] = []
  layout = machine.layouts[step.partition]
  for tile, cell in cells(layout, tuple(step.shape)):
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, local)
    for access, (m, part, place), value in zip(
      step.results, parts, values, strict=True
    ):
      to = place[targets(part, access, cell, codelet.reads_whole)]
      count = times[m.number].get(tile, np.zeros(0))
      np.add.at(count, m.local(tile, to), 1)
      pending.append((m, tile, to, store(value, m.dtype).reshape(-1)))
  for m, tile, to, value in pending:
    m.write(tile, to, value)
  for number, m in memories.items():
    machine.wrote(number, _written(m, times[number]))
  machine.count(step.cost, 0)


def _written(m: TileMemory, counts: dict[int, Elements]) -> Any:
  """Which elements were written: none twice, and on all replicas or none."""
  total = np.zeros(m.size, np.int64)
  for tile, count in counts.items():
    if (count > 1).any():
      element = m.tiles[tile][count > 1][0]
      raise Trap(
        "race", f"two vertices write element {element}", tile, m.number
      )
    total[m.tiles[tile]] += count
  partly = (total > 0) & (total < m.copies)
  if partly.any():
    raise Trap(
      "replica",
      f"element {int(np.argmax(partly))} is on {m.copies} tiles and written "
      "on fewer",
      tensor=m.number,
    )
  return total > 0
