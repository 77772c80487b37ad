"""Lists of steps within each other, while a program is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, NamedTuple

from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.traffic import Traffic


class Placed(NamedTuple):
  """A copy that an exchange has made.

  Attributes:
    number: the placed tensor's.
    loop: the loop, if any, before which it was made for all its iterations.
    whole: whether what stays on its tile was copied if vertices could not load
      it as vectors, or they can; else it serves those alone that read elements
      apart.
  """

  number: int
  loop: Scope | None
  whole: bool


@dataclasses.dataclass(slots=True, eq=False)
class Scope:
  """A list of steps: the program's, a loop's body or condition, a branch.

  Attributes:
    trips: how often it runs for each run of the list around it, as far as that
      is known; 0 for a branch, which may not run.
    first: the number of the first tensor that is made in it.
    carried: roots from outside that it writes.
    steps: so far.
    placed: the copies that were made in it, or before it for a loop; by root,
      view and mapping.
    moves, traffic: exchanges that are made once, before the list.
  """

  trips: int
  first: int
  carried: Collection[int]
  steps: list[Any] = dataclasses.field(default_factory=list)
  placed: dict[int, dict[View, dict[Layout, Placed]]] = dataclasses.field(
    default_factory=dict
  )
  moves: list[Any] = dataclasses.field(default_factory=list)
  traffic: list[Traffic] = dataclasses.field(default_factory=list)

  def keeps(self, root: int) -> bool:
    """Whether a root holds the same before this list and all through it."""
    return root < self.first and root not in self.carried
