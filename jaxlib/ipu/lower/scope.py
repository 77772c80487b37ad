"""Nested lists of steps while a program is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.traffic import Traffic
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.view import View


class Placed(NamedTuple):
  """A copy made by an exchange.

  Attributes:
    number: of the placed tensor.
    loop: the loop, if any, before which it was made for all iterations.
    whole: whether vertices can load it as vectors, copying what stays on its
      tile if needed; otherwise only vertices that read single elements can use
      it.
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
    carried: roots from outside that it writes.
    steps: so far.
    placed: copies made in it, or hoisted before it if it is a loop; by root,
      view and mapping.
    moves, traffic: hoisted exchanges, made once before the list.
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
