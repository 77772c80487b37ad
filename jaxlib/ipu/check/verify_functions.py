"""Checks the code that a program declares for its functions."""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.sram.memory import MemoryPlan
from jaxlib.ipu.tile.call import calls
from jaxlib.ipu.tile.code import CodeCount
from jaxlib.ipu.tile.program import TileProgram


class InvalidFunction(Exception):
  """A function whose code is too small for one of its calls; names both."""


def verify(program: TileProgram, memory: MemoryPlan) -> None:
  """Counts the code of the steps of each call afresh: no tile may need more of
  it than the SRAM plan has for the function.

  Raises:
    InvalidFunction: names the first call that needs more.
  """
  declared = memory.code.functions
  for number, call in enumerate(calls(program.steps)):
    count = CodeCount(program.target, program.tensors)
    assert call.callee is not None
    count.call(call.callee, call.regions[0])
    # Functions that it calls have lower numbers.
    needed = count.finish().functions[-1]
    if call.callee >= len(declared):
      raise InvalidFunction(f"call {number}: no function {call.callee}")
    missing = needed - declared[call.callee]
    if missing.any() and missing.max() > 0:
      tile = int(np.argmax(missing))
      raise InvalidFunction(
        f"call {number} of function {call.callee} takes {needed[tile]} bytes "
        f"of code on tile {tile}, which has {declared[call.callee][tile]}"
      )
