"""Runs compute sets in the interpreter: tile by tile, on private memories.

Partial results, slices that owners serve and updates that owners apply travel
inside the step; what changes tile is counted as its exchange.
"""

from __future__ import annotations

import importlib

from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.program import schema


def execute(machine: Machine, step: schema.Execute) -> None:
  """Runs a compute set with its codelet's executor."""
  codelet = CODELETS[type(step.fields)]
  executor = importlib.import_module(
    f"jaxlib.ipu.check.interp_{codelet.executor}"
  )
  executor.execute(machine, step, codelet)
