"""Liveness: loops and branches may leave values unwritten; concatenations are
written part by part."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from program_kit import double
from tile_kit import TileKit

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.tile.control_flow import Repeat, Switch, While
from jaxlib.ipu.tile.copy import Copy
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile_passes.lifetimes import overlap
from jaxlib.ipu.tile_passes.liveness import Timeline


class Kit(TileKit):
  """Arrays of 8 floats on one tile, after a predicate."""

  def __init__(self) -> None:
    super().__init__(tiles=1)
    self.predicate = self.tensor((), DType.BOOL)

  def array(self) -> int:
    return self.tensor((8,))

  def twice(self, a: int, b: int) -> Execute:
    """b = a + a"""
    return self.execute(double(), (8,), [a], [b])

  def copy(self, source: int, destination: int, offset: int = 0) -> Copy:
    return Copy(location=0, moves=[self.move(source, destination, offset)])

  def analysed(
    self, steps: list[Step], results: list[int], assembled: Sequence[int] = ()
  ) -> Timeline:
    line = Timeline(steps, self.tensors, assembled)
    line.analyse(results)
    return line


def forks(*branches: list[Step]) -> Step:
  return Switch(location=0, selector=0, branches=list(branches))


def loop(condition: list[Step], body: list[Step]) -> Step:
  return While(location=0, condition=condition, predicate=0, body=body)


def repeat(*body: Step) -> Step:
  return Repeat(location=0, count=2, body=list(body))


@pytest.mark.parametrize(
  ("inner", "stays"),
  [
    (lambda write: forks([write()], [write()]), False),
    (lambda write: forks([], [write()]), True),
    (lambda write: forks([write()], []), True),
    (lambda write: forks([], [], [write()]), True),
    (lambda write: loop([], [write()]), True),
    (lambda write: loop([write()], []), False),
  ],
  ids=[
    "all branches", "last branch", "first branch", "last of three",
    "body", "condition",
  ],
)  # fmt: skip
def test_values_that_an_iteration_may_not_write_are_live_across_iterations(
  inner, stays
):
  """An iteration reads `t` after a step that certainly writes it, or may
  not."""
  kit = Kit()
  a, t, r = kit.array(), kit.array(), kit.array()
  body = inner(lambda: kit.twice(a, t)), kit.twice(t, r)
  line = kit.analysed([kit.copy(a, t), repeat(*body)], [r])
  last = line.end - 2  # the end of an iteration
  assert overlap(sorted(line.intervals[t]), [(last, last)]) == stays


def test_values_that_are_live_across_branches_and_loops_have_one_interval():
  """Values that are live across many switches and loops have one interval
  each."""
  kit = Kit()
  a, r = kit.array(), kit.array()
  values = [kit.array() for _ in range(20)]
  steps: list[Step] = [kit.twice(a, v) for v in values]
  for _ in range(10):
    steps += [forks([kit.twice(a, r)], []), repeat(kit.twice(a, r))]
  steps += [kit.twice(v, r) for v in values]
  line = kit.analysed(steps, [r])
  assert [len(line.intervals[v]) for v in values] == [1] * 20


def test_placed_before_a_loop_and_used_in_an_inner_one():
  """It is live for all iterations of the outermost loop that came after it."""
  kit = Kit()
  a, r = kit.array(), kit.array()
  placed = kit.tensor((8,), root=a)
  nest = repeat(repeat(kit.twice(placed, r)))
  line = kit.analysed([kit.copy(a, placed), nest], [r])
  ((begin, end),) = line.placed_intervals[placed]
  assert (begin, end) == (0, line.end - 2)


@pytest.mark.parametrize("known", [True, False])
def test_an_assembled_root_is_live_from_its_first_part_on(known):
  """If it is not known to be assembled, it is live from the start, since no
  step writes all of it."""
  kit = Kit()
  a, u = kit.tensor((4,)), kit.tensor((4,))
  t, r = kit.array(), kit.array()
  steps = [
    kit.copy(a, u), kit.copy(a, t), kit.copy(a, u), kit.copy(u, t, 4),
    kit.copy(t, r),
  ]  # fmt: skip
  line = kit.analysed(steps, [r], [t] if known else [])
  ((begin, end),) = line.intervals[t]
  assert begin == (steps[1].time + 1 if known else 0)
  assert end == steps[4].time
