"""What compiling does not do again for further equal layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lowering_kit
import numpy as np
import pytest

import jax.numpy as jnp
from jaxlib.ipu import pipeline
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.tile import copy as exchange
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.walk import walk
from jaxlib.ipu.tile_passes import equal_steps, outline, pack
from jaxlib.ipu.tile_passes.liveness import Timeline

FEW, MANY = 5, 11


def layers(x, weights):
  for w in weights:
    x = jnp.tanh(x @ w["up"] + x[:, :1]) @ w["down"] + x
  return x


def compiled(count: int, budget: int | None = None) -> pipeline.State:
  """So many equal layers."""
  weights = {
    "up": np.ones((16, 32), np.float32),
    "down": np.ones((32, 16), np.float32),
  }
  arguments = [np.ones((8, 16), np.float32), [weights] * count]
  return lowering_kit.phases(
    layers, arguments, 16, verify=False, code_budget=budget
  )


def outlined(count: int) -> pipeline.State:
  """The same, with as little code as outlining makes of them."""
  return compiled(count, 0)


class Counter:
  """Counts the calls of a function, which it replaces.

  Attributes:
    calls: their first arguments.
  """

  def __init__(self, monkeypatch: Any, owner: Any, name: str) -> None:
    self.calls: list[Any] = []
    counted: Callable[..., Any] = getattr(owner, name)

    def noted(*args: Any, **keywords: Any) -> Any:
      self.calls.append(args[0])
      return counted(*args, **keywords)

    monkeypatch.setattr(owner, name, noted)


@pytest.mark.parametrize(
  ("owner", "name"), [(exchange, "messages"), (equal_steps, "_plain")]
)
def test_copies_of_a_step_are_looked_at_once(monkeypatch, owner, name):
  """Whatever their number: its exchange code, and what it is compared by."""
  found = []
  for count in (FEW, MANY):
    with monkeypatch.context() as patch:
      counter = Counter(patch, owner, name)
      assert outlined(count).tiles.functions
    # Copies of arguments are made for each call.
    calls = [x for x in counter.calls if isinstance(x, Execute | MoveEnd)]
    found.append(len(calls))
  assert found[0] == found[1] > 0


def test_effects_of_functions_are_worked_out_once(monkeypatch):
  tiles = outlined(MANY).tiles
  bodies: dict[int, int] = {}
  alone = 0
  for step in tiles.steps:
    inner = [s for s in walk([step]) if isinstance(s, Execute)]
    if step.callee is None:
      alone += len(inner)
    else:
      bodies[step.callee] = len(inner)
  counter = Counter(monkeypatch, Execute, "effects")
  line = Timeline(tiles.steps, tiles.tensors, tiles.assembled)
  assert len(counter.calls) == alone + sum(bodies.values())
  assert len(line.events) > 2 * len(counter.calls)


def test_known_code_is_not_counted(monkeypatch):
  """Of a program that has room for it."""
  state = outlined(FEW)
  tiles = state.tiles
  tiles.code = state.memory.code.executable
  tiles.code_room = tiles.code + 1
  counter = Counter(monkeypatch, outline.CodeCount, "steps")
  outline.run(tiles)
  assert not counter.calls
  assert tiles.code is None


def test_prices_are_tried_once_for_copies(monkeypatch):
  found = []
  for count in (FEW, MANY):
    tiles = compiled(count).tiles
    tiles.code_room = np.zeros(16, np.int64)
    with monkeypatch.context() as patch:
      counter = Counter(patch, pack.CodeCount, "own_code")
      pack.run(tiles)
      found.append(len(counter.calls))
  assert found[0] == found[1]


def test_copies_have_one_row_of_buffers():
  few, many = (compiled(count).memory.buffers for count in (FEW, MANY))
  assert len(many) > len(few)
  few, many = ({id(b.bytes) for b in found.values()} for found in (few, many))
  assert len(many) == len(few)
