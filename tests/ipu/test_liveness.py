"""Liveness: loops and branches may leave values unwritten; concatenations are
written part by part."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from program_kit import BOOL, FREE, Kit, double, everywhere

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.lower.allocate import overlap
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.lower.tensors import TensorInfo
from jaxlib.ipu.program import schema


def analysed(kit: Kit, assembled: Sequence[int] = ()) -> Timeline:
  tensors = [
    TensorInfo(
      DType(t.dtype), tuple(t.shape), kit.mappings[t.mapping], t.root,
      t.offset, tuple(t.strides), t.space, t.address,
    )
    for t in kit.tensors
  ]  # fmt: skip
  line = Timeline(kit.steps, tensors, assembled)
  line.analyse(kit.results)
  return line


def forks(branches: list[list]) -> schema.Step:
  return schema.Switch(0, [schema.Branch(b) for b in branches], FREE, 0)


@pytest.mark.parametrize(
  ("inner", "stays"),
  [
    (lambda write: forks([write, write]), False),
    (lambda write: forks([[], write]), True),
    (lambda write: forks([write, []]), True),
    (lambda write: forks([[], [], write]), True),
    (lambda write: schema.While([], 0, write, FREE, 0), True),
    (lambda write: schema.While(write, 0, [], FREE, 0), False),
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
  kit = Kit(tiles=1)
  kit.argument((), BOOL)
  a, t, r = kit.argument((8,)), kit.tensor((8,)), kit.result((8,))
  kit.copy(kit.whole(a, t))
  write: list = []
  kit.execute(double(), (8,), [(a, (0,))], [(t, (0,))], into=write)
  body = [inner(write)]
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))], into=body)
  kit.steps.append(schema.Repeat(2, body, 0))
  line = analysed(kit)
  last = line.end - 2  # the end of an iteration
  assert overlap(sorted(line.intervals[t]), [(last, last)]) == stays


def test_values_that_are_live_across_branches_and_loops_have_one_interval():
  """Values that are live across many switches and loops have one interval
  each."""
  kit = Kit(tiles=1)
  kit.argument((), BOOL)
  a, r = kit.argument((8,)), kit.result((8,))
  values = [kit.tensor((8,)) for _ in range(20)]
  for v in values:
    kit.execute(double(), (8,), [(a, (0,))], [(v, (0,))])
  for _ in range(10):
    write: list = []
    kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))], into=write)
    kit.steps += [forks([write, []]), schema.Repeat(2, write, 0)]
  for v in values:
    kit.execute(double(), (8,), [(v, (0,))], [(r, (0,))])
  line = analysed(kit)
  assert [len(line.intervals[v]) for v in values] == [1] * 20


def test_placed_before_a_loop_and_used_in_an_inner_one():
  """It is live for all iterations of the outermost loop that came after it."""
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  placed = kit.placed(a, everywhere(8, 2))
  kit.copy(kit.move(placed))
  use: list = []
  kit.execute(double(), (8,), [(placed, (0,))], [(r, (0,))], into=use)
  inner = schema.Repeat(2, use, 0)
  kit.steps.append(schema.Repeat(3, [inner], 0))
  line = analysed(kit)
  ((begin, end),) = line.placed_intervals[placed]
  assert (begin, end) == (0, line.end - 2)


@pytest.mark.parametrize("known", [True, False])
def test_an_assembled_root_is_live_from_its_first_part_on(known):
  """If it is not known to be assembled, it is live from the start, since no
  step writes all of it."""
  kit = Kit(tiles=1)
  a, t, r = kit.argument((4,)), kit.tensor((8,)), kit.result((8,))
  u = kit.tensor((4,))
  kit.copy(kit.whole(a, u))
  kit.copy(schema.Move(a, 0, [1], t, 0, [1], [4]))
  kit.copy(kit.whole(a, u))
  kit.copy(schema.Move(u, 0, [1], t, 4, [1], [4]))
  kit.copy(kit.whole(t, r))
  line = analysed(kit, [t] if known else [])
  ((begin, end),) = line.intervals[t]
  assert begin == (line.times[id(kit.steps[1])] + 1 if known else 0)
  assert end == line.times[id(kit.steps[4])]
