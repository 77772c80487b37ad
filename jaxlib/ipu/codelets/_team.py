"""Tiles that share the rows of a matrix, in definitions of factorisations.

In a superstep each tile sends some words to all others; after it a tile knows
only its own rows and these words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxlib.ipu.codelets._codelet import Array


class Team:
  """Tiles that share the rows of a matrix, each with some consecutive ones.

  Attributes:
    rows: of each tile, which it overwrites.
    starts: the number of each tile's first row.
    total: words that all tiles have received.
    busiest: words of the busiest tile, added up over supersteps.
  """

  def __init__(self, rows: Sequence[Array]) -> None:
    self.rows = [r.copy() for r in rows]
    self.starts = np.cumsum([0, *(len(r) for r in rows)])[:-1].tolist()
    self.total = self.busiest = 0

  @property
  def shape(self) -> tuple[int, int]:
    """The shape of the whole matrix."""
    return sum(len(r) for r in self.rows), self.rows[0].shape[1]

  def superstep(self, messages: Sequence[Array]) -> list[Array]:
    """Sends each tile's message to all others."""
    words = [m.size for m in messages]
    received = [sum(words) - n for n in words]
    self.total += sum(received)
    self.busiest += max(max(received), max(words))
    return [m.copy() for m in messages]

  def after(self, row: int) -> Iterator[tuple[int, Array]]:
    """For each tile the rows after `row`, and the number of the first."""
    for start, rows in zip(self.starts, self.rows, strict=True):
      skip = min(max(row + 1 - start, 0), len(rows))
      yield start + skip, rows[skip:]

  def owner(self, row: int) -> tuple[int, int]:
    """The tile with a row, and the row's place there."""
    tile = int(np.searchsorted(self.starts, row, side="right")) - 1
    return tile, row - self.starts[tile]
