"""The pass that orders independent operations for a low SRAM peak.

JAX keeps the order in which operations were written down, so a program may make
two large values before it uses either. The operations of each region, each with
its steps, are therefore put into other orders as well
(tile_passes/schedule.py), and the order with the lowest peak is kept; the
program's own order if no other is better. Operations with effects stay in order
among themselves.

If the peak is a copy that assembles a root, its parts are copied one by one, as
soon as each is made (tile_passes/assembled.py), if that lowers the peak.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import regions
from jaxlib.ipu.tile_passes.assembled import Division
from jaxlib.ipu.tile_passes.schedule import LEAST_GAIN, Task, TaskGraph


def run(program: TileProgram) -> None:
  """Orders the steps of all regions."""
  for region in regions(program.steps):
    inner = [i for i, step in enumerate(region) if step.operation >= 0]
    if not inner:
      continue
    begin, end = inner[0], inner[-1] + 1
    tasks = [
      Task(list(steps), has_effect)
      for (_, has_effect), steps in itertools.groupby(
        region[begin:end], lambda step: (step.operation, step.has_effect)
      )
    ]
    division = Division(program)
    region[begin:end] = schedule(tasks, program, region, division.divide)
    division.take(region)


def schedule(
  tasks: list[Task],
  program: TileProgram,
  region: Region,
  divide: Callable[[TaskGraph, list[int]], list[Task]],
) -> list[Step]:
  """The tasks' steps in an order of low peak SRAM.

  Args:
    tasks: in the program's order.
    program: the whole program.
    region: the region that contains the tasks.
    divide: given an order, returns its tasks with some copies divided, where
      that may lower the peak; empty if there is nothing to divide.
  """
  best = list(range(len(tasks)))
  if len(tasks) > 2:
    work = TaskGraph(tasks, program, region)
    best, peak = work.ordered()
    some = [] if work.is_chain() else divide(work, best)
    if some:
      other, least = TaskGraph(some, program, region).ordered()
      if LEAST_GAIN * least < peak:
        tasks, best = some, other
  return [step for number in best for step in tasks[number].steps]
