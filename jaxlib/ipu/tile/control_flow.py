"""Loops and branches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.messages import row_words
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import LOOP, CodeCount, Participants
from jaxlib.ipu.tile.step import Decision, Region, Step

# A decision after the word that it depends on arrived: load, branch, jump [D].
_DECISION = 4


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Repeat(Step):
  """Runs `body` `count` times."""

  count: int
  body: Region

  @property
  def regions(self) -> Sequence[Region]:
    return (self.body,)

  @property
  def trips(self) -> int | None:
    return self.count

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.body = self.body.renamed(name)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    body = count.steps(self.body)
    count.loop(LOOP, body)
    return body

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    body = [step.record(target, number) for step in self.body]
    return schema.Repeat(self.count, body, self.location)


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class While(Step):
  """Runs `condition`, then `body` for as long as the tensor `predicate`
  holds."""

  condition: Region
  predicate: int
  body: Region
  rare: bool = False  # few data need any iteration

  @property
  def regions(self) -> Sequence[Region]:
    return self.condition, self.body

  @property
  def trips(self) -> int | None:
    return 0 if self.rare else None

  @property
  def decision(self) -> Decision | None:
    return Decision(self.predicate, 1)

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.condition = self.condition.renamed(name)
    found.predicate = name(self.predicate)
    found.body = self.body.renamed(name)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    return _decided(self.regions, count)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.While(
      [step.record(target, number) for step in self.condition],
      self.predicate,
      [step.record(target, number) for step in self.body],
      self.own,
      self.location,
    )


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Switch(Step):
  """Runs the branch that the tensor `selector` names (see `schema.Switch`)."""

  selector: int
  branches: list[Region]

  exclusive: ClassVar[bool] = True

  @property
  def regions(self) -> Sequence[Region]:
    return self.branches

  @property
  def decision(self) -> Decision | None:
    return Decision(self.selector, 0)

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.selector = name(self.selector)
    found.branches = [branch.renamed(name) for branch in self.branches]
    return found

  def count_code(self, count: CodeCount) -> Participants:
    return _decided(self.regions, count)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    branches = [
      schema.Branch([step.record(target, number) for step in branch])
      for branch in self.branches
    ]
    return schema.Switch(self.selector, branches, self.own, self.location)


def _decided(regions: Sequence[Region], count: CodeCount) -> Participants:
  """Counts regions and the decision, in which all tiles take part."""
  parts = [count.steps(region) for region in regions]
  count.decision(_DECISION * max(len(regions) - 1, 1), row_words(0, 1))
  return Participants(Participants.joined(parts).partitions, True)
