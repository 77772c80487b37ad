"""How the interpreter runs a sort: each tile sorts its own part of a row; the
parts are merged and delivered inside the step."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets.sort import SortCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.interp_cells import (
  boxes,
  elements,
  first_point,
  operands,
)
from jaxlib.ipu.program.tile_memory import Array, arriving

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


def execute(
  machine: Machine, step: schema.Execute, codelet: SortCodelet
) -> None:
  """Runs a sort on the machine's memories."""
  fields: Any = step.fields
  parts: dict[tuple[int, ...], list[tuple[Cell, list[Array]]]]
  parts = defaultdict(list)
  for tile, cell in boxes(machine, step):
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(fields, cell, [*local, cell.coordinates[-1]])
    parts[first_point(cell)[:-1]].append((cell, values))
  memories = [machine.computed(a.tensor) for a in step.results]
  new = [m.gather_all()[0].copy() for m in memories]
  # Which element of its operand each element of a result is.
  origin = [np.full(m.size, -1, np.int64) for m in memories]
  for found in parts.values():
    cell, total = found[0]
    for _, values in found[1:]:
      total = codelet.combine(fields, total, values)
    *sorted_, number = total
    rows = (*cell.coordinates[:-1], np.zeros((1,) * len(cell.shape), np.int64))
    whole = Cell(cell.shape, rows)
    places = Cell(cell.shape, (*cell.coordinates[:-1], number))
    for j, (m, access) in enumerate(zip(memories, step.results, strict=True)):
      to = elements(access, m.shape, whole, True).reshape(number.shape)
      new[j][to] = sorted_[j]
      operand = step.operands[j]
      shape = machine.memory[operand.tensor].shape
      origin[j][to] = elements(operand, shape, places, False)
  moved = 0
  num_tiles = machine.program.target.num_tiles
  for j, m in enumerate(memories):
    written = origin[j] >= 0
    m.write_all(new[j], written)
    machine.wrote(m.number, written)
    source = machine.memory[step.operands[j].tensor]
    received, _ = arriving(source, m, origin[j], num_tiles)
    moved += int(received.sum()) * SIZE[m.dtype]
  machine.count(step.cost, moved)
