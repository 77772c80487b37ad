"""What the code of one tile comes from: the user's lines, in bytes.

It is counted as for the plan (tile/code.py), and what a step adds belongs to
its line: the code of its exchange, its part of the control code, and the code
of its vertices where no step before it has vertices with the same code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, HasCode, Participants, active
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.tensor import TensorInfo

# The parts of a line's bytes.
PARTS = ("exchange", "vertices", "control", "host")


def code_by_line(program: TileProgram, tile: int) -> dict[int, Array]:
  """The executable code on a tile by the numbers of source locations, each
  int64[PARTS] bytes. Only the code that all copies on a tile share, and the
  returns of functions, are not part of it."""
  count = _Lines(program.target, program.tensors, tile)
  count.steps(program.steps)
  return count.lines


class _Lines(CodeCount):
  """Attributes:
  lines: the bytes found so far by location.
  """

  def __init__(
    self, target: Target, tensors: Sequence[TensorInfo], tile: int
  ) -> None:
    super().__init__(target, tensors)
    self.lines: dict[int, Array] = defaultdict(_none)
    self._tile = tile
    self._known: set[Any] = set()
    # Code and words of vertices that are on the tile.
    self._code, self._words = 0, 0
    self._given = _none()

  def inner(self) -> CodeCount:
    found = _Lines(self.target, self.tensors, self._tile)
    found.lines, found._known = self.lines, self._known
    return self.shared(found)

  def step(self, step: HasCode) -> Participants:
    before = self._here() - self._given
    parts = super().step(step)
    # What nested steps have added is theirs.
    own = self._here() - self._given - before
    self._given += own
    self.lines[step.location] += own
    return parts

  def vertices(
    self, partition: Layout, state_bytes: int, code: Any, code_bytes: int
  ) -> None:
    if active(partition, self.target.num_tiles)[self._tile]:
      if code not in self._known:
        self._known.add(code)
        self._code += code_bytes
    super().vertices(partition, state_bytes, code, code_bytes)

  def partition_control(self, partition: Layout, words: int) -> None:
    if active(partition, self.target.num_tiles)[self._tile]:
      self._words += words
    super().partition_control(partition, words)

  def _here(self) -> Array:
    """The bytes on the tile so far, by part."""
    exchange, control, host = self.on_tile(self._tile)
    control += self._words * WORD
    return np.array([exchange, self._code, control, host], np.int64)


def _none() -> Array:
  return np.zeros(len(PARTS), np.int64)
