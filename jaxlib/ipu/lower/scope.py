"""Nested lists of steps while a program is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.view import View


class Placed(NamedTuple):
  """A copy made by an exchange.

  Attributes:
    number: the number of the placed tensor.
    loop: the loop before which the exchange was hoisted, if any.
    whole: whether vertices can load the copy as vectors (to which end what
      stays on its tile was copied, too, if needed). If not, it is of use only
      to vertices that read single elements.
  """

  number: int
  loop: Scope | None
  whole: bool


@dataclasses.dataclass(slots=True, eq=False)
class Scope:
  """A list of steps: the program's, a loop's body or condition, a branch.

  Attributes:
    trips: how often it runs for each run of the enclosing list, if known; 0 for
      a branch, which may not run.
    first: the number of the first tensor made in it.
    carried: roots made outside of it that it writes.
    steps: its steps so far.
    placed: copies made in it, or hoisted into it from loops inside it; by root,
      view and mapping.
    moves, traffic: exchanges that were hoisted to before this list.
  """

  trips: int
  first: int
  carried: Collection[int]
  steps: Region = dataclasses.field(default_factory=Region)
  placed: dict[int, dict[View, dict[Layout, Placed]]] = dataclasses.field(
    default_factory=dict
  )
  moves: list[schema.Move] = dataclasses.field(default_factory=list)
  traffic: list[Traffic] = dataclasses.field(default_factory=list)

  def keeps(self, root: int) -> bool:
    """Whether a root is invariant in this list."""
    return root < self.first and root not in self.carried
