"""Lifetimes of tensors in a run of the interpreter, and the memory they take.

A tensor is live from a write of all its elements to the last read before the
next such write. Arguments, results and constants are live throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.tile_memory import Array

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


class Lifetimes:
  """Uses of tensors and of buffers within a step. Time is the number of steps
  run."""

  def __init__(self) -> None:
    # (time, tensor, whether it reads old contents)
    self._uses: list[tuple[int, int, bool]] = []
    # (time, bytes of each tile) of buffers that live within a step.
    self._brief: list[tuple[int, Array]] = []

  def read(self, time: int, tensor: int) -> None:
    """Records a read, or a write of some elements: old contents are live."""
    self._uses.append((time, tensor, True))

  def write(self, time: int, tensor: int) -> None:
    """Records a write of all elements, which starts a new lifetime."""
    self._uses.append((time, tensor, False))

  def hold_briefly(self, time: int, sizes: Array) -> None:
    """Records the bytes that each tile holds within a step."""
    self._brief.append((time, sizes))

  def _intervals(self) -> dict[int, list[list[int]]]:
    """The times from first to last use of each lifetime of each tensor."""
    lives: dict[int, list[list[int]]] = {}
    for time, tensor, reads in self._uses:
      mine = lives.setdefault(tensor, [])
      if mine and (reads or mine[-1][1] == time):
        mine[-1][1] = time
      else:
        mine.append([time, time])
    return lives

  def peak_bytes(self, machine: Machine) -> Array:
    """Maximum bytes live at a time, for each tile, after a run."""
    program = machine.program
    stay = machine.read_only | set(program.results)
    tiles = np.arange(program.target.num_tiles)
    change: dict[int, Array] = {}
    for tensor, intervals in self._intervals().items():
      if program.tensors[tensor].space == schema.HOST:
        continue
      item = SIZE[machine.memory[tensor].dtype]
      held = _held(machine, tensor, tiles) * item
      if tensor in stay:
        intervals = [[0, machine.steps + 1]]
      for begin, end in intervals:
        for time, sign in ((begin, 1), (end + 1, -1)):
          change[time] = change.get(time, 0) + sign * held
    for time, sizes in self._brief:
      for at, sign in ((time, 1), (time + 1, -1)):
        change[at] = change.get(at, 0) + sign * sizes
    now = np.zeros(len(tiles), np.int64)
    peak = now.copy()
    for time in sorted(change):
      now = now + change[time]
      peak = np.maximum(peak, now)
    return peak


def _held(machine: Machine, tensor: int, tiles: Array) -> Array:
  """Number of elements that each tile holds; of overlapping windows, each
  element of the root once."""
  m = machine.memory[tensor]
  if machine.program.tensors[tensor].root == tensor:
    return m.layout.elements(tiles)
  view = machine.view(tensor)
  held = np.zeros(len(tiles), np.int64)
  for tile, owned in m.tiles.items():
    held[tile] = len(np.unique(view[owned]))
  return held
