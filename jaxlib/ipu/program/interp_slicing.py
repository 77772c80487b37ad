"""How the interpreter runs codelets whose operand's owners serve slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxlib.ipu.codelets._kinds import SlicingCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.interp_cells import boxes, operands, targets
from jaxlib.ipu.program.tile_memory import Trap, arriving

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


def execute(
  machine: Machine, step: schema.Execute, codelet: SlicingCodelet
) -> None:
  """The owners of operand 0 serve what the indices name.

  The vertices run on the numbers of the operand's elements, which says where
  each element of the result comes from.
  """
  operand, *others = step.operands
  (access,) = step.results
  served = machine.memory[operand.tensor]
  m = machine.computed(access.tensor)
  for tile, owned in served.tiles.items():
    machine.fresh(tile, operand.tensor, owned)
  numbers = np.arange(served.size).reshape(served.shape)
  origin = np.full(m.size, -1, np.int64)
  for tile, cell in boxes(machine, step):
    local = operands(machine, step, tile, cell, others)
    (named,) = codelet.vertex(step.fields, cell, [numbers, *local])
    origin[targets(m, access, cell)] = named.reshape(-1)
  written = origin >= 0
  values, defined = served.gather_all()
  if not defined[origin[written]].all():
    raise Trap(
      "undefined",
      "a slice holds elements that were never written",
      tensor=operand.tensor,
    )
  if m.size:
    m.write_all(values[origin], written)
  machine.wrote(access.tensor, written)
  received, _ = arriving(served, m, origin, machine.program.target.num_tiles)
  machine.count(step.cost, float(received.sum() * SIZE[m.dtype]))
