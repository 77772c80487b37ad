"""When values are needed: what loops and branches may leave unwritten."""

from __future__ import annotations

import pytest
from program_kit import BOOL, FREE, Kit, double

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.lower.allocate import overlap
from jaxlib.ipu.lower.builder import TensorInfo
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.program import schema


def analysed(kit: Kit) -> Timeline:
  tensors = [
    TensorInfo(
      DType(t.dtype), tuple(t.shape), kit.mappings[t.mapping], t.root,
      t.offset, tuple(t.strides), t.space, t.address,
    )
    for t in kit.tensors
  ]  # fmt: skip
  line = Timeline(kit.steps, tensors)
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
def test_what_a_turn_may_not_write_lives_round_the_loop(inner, stays):
  """A turn reads `t` after a step that writes it for certain, or does not."""
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
  last = line.end - 2  # the end of a turn
  assert overlap(sorted(line.intervals[t]), [(last, last)]) == stays
