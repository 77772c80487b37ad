"""Calls of functions: steps whose code several places of a program share.

A function has tensors of its own, at fixed addresses. Exchanges before a call
copy to them what differs from call to call, and exchanges after it copy the
results from them; both are ordinary steps, which cost nothing where storage is
assigned so that nothing moves. Each call has the function's steps with its own
source lines, origins and costs, and the constants that it passes.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import (
  CALL,
  COPY,
  NOWHERE,
  CodeCount,
  Participants,
  active,
)
from jaxlib.ipu.tile.copy import Copy, copy_views
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import whole_view

# The supervisor's cycles of a call: the address of its constants, the call, the
# return (6 each, as they branch), and the return address, which is stored and
# loaded (6, as the return depends on it): one cycle an instruction, six if it
# branches or waits for a load (PopLibs' PerformanceEstimation.hpp) [D].
CALL_CYCLES = 20.0
# Of each copy of an argument: its addresses and length (see `_COPY` in code.py)
# [D].
ARGUMENT_CYCLES = 4.0


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Call(Step):
  """Runs function `function`, whose steps are those of `body`, once.

  Attributes:
    inside: the begin and the end of the numbers of tensors that nothing else
      accesses but copies of its arguments.
  """

  function: int
  body: Region
  inside: tuple[int, int] = (0, 0)

  @property
  def callee(self) -> int | None:
    return self.function

  @property
  def regions(self) -> Sequence[Region]:
    return (self.body,)

  @property
  def private(self) -> Sequence[int]:
    return range(*self.inside)

  def price(self, target: Target) -> schema.Cost:
    return cost.Sourced(CALL_CYCLES, 0.0, 0.0, 0.0, 0.0, derived=CALL_CYCLES)

  @property
  def known_code(self) -> int | None:
    return CALL * WORD

  def count_code(self, count: CodeCount) -> Participants:
    return count.call(self.function, self.body)

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.body = self.body.renamed(name)
    return found

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    body = [step.record(target, number) for step in self.body]
    return schema.Call(self.function, body, self.price(target), self.location)


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class ArgumentCopy(Copy):
  """Copies roots to those of a function, or back, each on its tiles."""

  passes_arguments: ClassVar[bool] = True

  def price(self, target: Target) -> schema.Cost:
    price = Copy.price(self, target)
    if self.within is None:
      return price
    cycles = len(self.moves) * ARGUMENT_CYCLES
    return cost.add(
      price, cost.Sourced(cycles, 0.0, 0.0, 0.0, 0.0, derived=cycles)
    )

  @property
  def has_messages(self) -> bool:
    return False

  @property
  def known_code(self) -> int | None:
    return COPY * WORD * len(self.moves)

  def count_code(self, count: CodeCount) -> Participants:
    if self.within is None:
      return NOWHERE
    copied = self.within > 0
    layouts = Counter(count.tensors[m.source].layout for m in self.moves)
    for layout, number in layouts.items():
      tiles = active(layout, count.target.num_tiles)
      count.copies(tiles[: len(copied)] & copied, number)
    return NOWHERE


def argument_copy(
  target: Target,
  tensors: Sequence[TensorInfo],
  pairs: Sequence[tuple[int, int]],
  location: int,
) -> ArgumentCopy | None:
  """A step that copies roots to others of the same mapping; None if they are
  all empty."""
  views = [
    (whole_view(tensors, source), whole_view(tensors, to))
    for source, to in pairs
  ]
  found = copy_views(target, tensors, views, location)
  if found is None:
    return None
  return ArgumentCopy(
    moves=found.moves,
    staying=found.staying,
    own=found.own,
    location=location,
  )


def calls(steps: Sequence[Step]) -> Iterator[Step]:
  """All calls, each after those in its body."""
  for step in steps:
    for region in step.regions:
      yield from calls(region)
    if step.callee is not None:
      yield step
