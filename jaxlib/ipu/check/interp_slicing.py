"""Runs codelets whose vertices select elements by run-time indices.

Two supersteps: each tile picks what it has of its cell's slices; the tiles of
a cell send their candidates to those of them that own the results.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.check.interp_cells import (
  all_boxes,
  first_point,
  operands,
  targets,
)
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Elements, Mask, TileMemory, Trap
from jaxlib.ipu.codelets._kinds import SlicingCodelet
from jaxlib.ipu.dtypes import NUMPY, SIZE
from jaxlib.ipu.program import schema


class _Candidates(NamedTuple):
  """A tile's part of its cell: the results' elements, which of them it could
  pick, and all values (0 where it could not)."""

  tile: int
  to: Elements
  picked: Mask
  values: Array


def execute(
  machine: Machine, step: schema.Execute, codelet: SlicingCodelet
) -> None:
  """Picks on all tiles, then sends the candidates to the owners."""
  (access,) = step.results
  m = machine.computed(access.tensor)
  cells = _pick(machine, step, codelet, m)
  item = SIZE[m.dtype]
  num_tiles = machine.program.target.num_tiles
  received = np.zeros(num_tiles, np.int64)
  sent = np.zeros(num_tiles, np.int64)
  held = np.zeros(num_tiles, np.int64)
  wanted = np.zeros(m.size, np.bool_)
  copies = np.zeros(m.size, np.int64)
  for group in cells:
    wanted[group[0].to] = True
    for owner in group:
      here = m.has(owner.tile, owner.to)
      to = owner.to[here]
      m.write(owner.tile, to, _selected(m, group, here))
      copies[to] += 1
      if len(group) > 1:
        count = int(here.sum())
        received[owner.tile] += (len(group) - 1) * count
        sent[owner.tile] += here.size - count
        held[owner.tile] += here.size + (len(group) - 1) * count
  lost = wanted & (copies < m.copies)
  if lost.any():
    raise Trap(
      "absent",
      f"a tile that holds element {int(np.argmax(lost))} does not have the "
      "indices that name it",
      tensor=m.number,
    )
  machine.wrote(m.number, wanted)
  machine.held_briefly(held * item)
  busiest = max(received.max(), sent.max()) * item
  machine.count(step.cost, float(received.sum() * item), float(busiest))


def _pick(
  machine: Machine,
  step: schema.Execute,
  codelet: SlicingCodelet,
  m: TileMemory,
) -> list[list[_Candidates]]:
  """The candidates of each cell.

  The vertices run on the numbers of the operand's elements, which tells where
  each element of the result comes from.
  """
  operand, *others = step.operands
  served = machine.memory[operand.tensor]
  numbers = np.arange(served.size).reshape(served.shape)
  cells: dict[tuple[int, ...], list[_Candidates]] = defaultdict(list)
  for tile, cell in all_boxes(machine, step):
    local = operands(machine, step, tile, cell, others)
    (named,) = codelet.vertex(step.fields, cell, [numbers, *local])
    named = np.broadcast_to(named, cell.extents).reshape(-1)
    picked = served.has(tile, named)
    values = np.zeros(named.size, NUMPY[served.dtype])
    values[picked] = machine.read(tile, operand.tensor, named[picked])
    to = targets(m, step.results[0], cell)
    cells[first_point(cell)].append(_Candidates(tile, to, picked, values))
  return list(cells.values())


def _selected(m: TileMemory, group: list[_Candidates], here: Mask) -> Array:
  """For some of a cell's elements the single candidate of each."""
  found = np.zeros(int(here.sum()), np.int64)
  values = np.zeros(found.size, NUMPY[m.dtype])
  for candidate in group:
    picked = candidate.picked[here]
    values[picked] = candidate.values[here][picked]
    found += picked
  if (found != 1).any():
    bad = int(np.argmax(found != 1))
    raise Trap(
      "absent" if found[bad] == 0 else "race",
      f"{found[bad]} of the cell's tiles have what element "
      f"{group[0].to[here][bad]} is",
      tensor=m.number,
    )
  return values
