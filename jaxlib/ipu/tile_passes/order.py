"""The pass that orders independent operations for a low SRAM peak.

JAX keeps the order in which operations were written down, so a program may make
two large values before it uses either. The operations of each region, each with
its steps, are therefore put into other orders as well
(tile_passes/schedule.py), and the order with the lowest peak is kept; the
program's own order if no other is better. Operations with effects stay in order
among themselves.
"""

from __future__ import annotations

from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import regions
from jaxlib.ipu.tile_passes.schedule import Task, TaskGraph, operations


def run(program: TileProgram) -> None:
  """Orders the steps of all regions."""
  for region in regions(program.steps):
    place, tasks = operations(region)
    if len(tasks) > 2:
      region[place] = schedule(tasks, program, region)


def schedule(
  tasks: list[Task], program: TileProgram, region: Region
) -> list[Step]:
  """The tasks' steps in an order of low peak SRAM.

  Args:
    tasks: in the program's order.
    program: the whole program.
    region: the region that contains the tasks.
  """
  best, _ = TaskGraph(tasks, program, region).ordered()
  return [step for number in best for step in tasks[number].steps]
