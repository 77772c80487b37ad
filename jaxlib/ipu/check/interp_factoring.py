"""Runs factorisations in the interpreter: a tile has whole matrices, or tiles
that share the rows of some exchange words for each column. Tiles that make rows
of an inverse have all of the matrix."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from jaxlib.ipu.check.interp_cells import boxes, elements, operands
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Trap
from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets._factor_cycles import ON_ONE_TILE
from jaxlib.ipu.codelets._team import Team
from jaxlib.ipu.codelets.factorise import FactoriseCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import FactorKind

# A tile, its cell, and its rows of the cell's matrices.
_Part = tuple[int, Cell, Array]


def execute(
  machine: Machine, step: schema.Execute, codelet: FactoriseCodelet
) -> None:
  """Runs factorisations on the machine's memories."""
  fields: Any = step.fields
  memories = [machine.computed(a.tensor) for a in step.results]
  parts: dict[int, list[_Part]] = defaultdict(list)
  for tile, cell in boxes(machine, step):
    (rows,) = operands(machine, step, tile, cell, step.operands)
    parts[int(cell.coordinates[0].reshape(-1)[0])].append((tile, cell, rows))
  written = [np.zeros(m.size, np.bool_) for m in memories]
  words = busiest = 0
  for sharing in parts.values():
    sharing.sort(key=lambda p: _rows(p[1])[0])
    whole = step.operands[0].dims[1] < 0
    _check_rows(fields, sharing, whole)
    if whole:
      others = []
      own = [
        codelet.vertex(fields, cell, [all_rows])[0][:, _rows(cell)]
        for _, cell, all_rows in sharing
      ]
    elif len(sharing) == 1:
      ((_, cell, rows),) = sharing
      matrices, *others = codelet.vertex(fields, cell, [rows])
      own = [matrices]
    else:
      own, others, sent, most = _together(codelet, fields, sharing)
      # Teams work in parallel.
      words, busiest = words + sent, max(busiest, most)
    for j, (m, access) in enumerate(zip(memories, step.results, strict=True)):
      # Results that are not matrices are on the first of the tiles.
      for i, (tile, cell, _) in enumerate(sharing if j == 0 else sharing[:1]):
        to = elements(access, m.shape, cell, True).reshape(-1)
        m.write(tile, to, (others[j - 1] if j else own[i]).reshape(-1))
        written[j][to] = True
  for m, mask in zip(memories, written, strict=True):
    machine.wrote(m.number, mask)
  item = SIZE[memories[0].dtype]
  machine.count(step.cost, words * item, busiest * item)


def _rows(cell: Cell) -> Array:
  return np.asarray(cell.coordinates[1]).reshape(-1)


def _check_rows(fields: Any, sharing: list[_Part], whole: bool) -> None:
  """Traps unless tiles have consecutive rows, and share no matrices of kinds
  that are made on one tile, unless each has all of them."""
  rows = np.concatenate([_rows(cell) for _, cell, _ in sharing])
  if (rows != np.arange(fields.rows)).any():
    raise Trap("partition", "rows of a matrix are not distributed in order")
  if len(sharing) > 1 and fields.kind in ON_ONE_TILE and not whole:
    raise Trap("partition", f"no tiles share {FactorKind(fields.kind).name}")


def _together(
  codelet: FactoriseCodelet, fields: Any, sharing: list[_Part]
) -> tuple[list[Array], list[Array], int, int]:
  """Each tile's final rows, the other results, words that moved, and those of
  the busiest tile."""
  matrices: list[list[Array]] = []
  others: list[list[Array]] = []
  words = busiest = 0
  for i in range(len(sharing[0][2])):
    team = Team([rows[i] for _, _, rows in sharing])
    others.append(codelet.together(fields, team))
    matrices.append(team.rows)
    words, busiest = words + team.total, busiest + team.busiest
  own = [np.stack(rows) for rows in zip(*matrices, strict=True)]
  rest = [np.stack(values) for values in zip(*others, strict=True)]
  return own, rest, words, busiest
