"""Messages are packed where exchange code has no room."""

from __future__ import annotations

import dataclasses

import engine_kit
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp
from jaxlib.ipu.reporting import steps as reports
from jaxlib.ipu.tile import text
from jaxlib.ipu.tile.copy import Copy
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile.walk import walk
from jaxlib.ipu.tile_passes import pack

TILES = 16


def drawn(*shape: int) -> np.ndarray:
  rng = np.random.default_rng(shape)
  return rng.normal(size=shape).astype(np.float32)


def turned(x):
  for _ in range(3):
    x = jnp.cumsum(jnp.tanh(x).T, 1)
  return x


def looped(x):
  x = jnp.cumsum(x.T, 1)
  return lax.fori_loop(0, 5, lambda _, c: jnp.cumsum(c.T, 1) * 0.5, x)


def convolved(x, w):
  numbers = ("NHWC", "HWIO", "NHWC")
  for _ in range(2):
    x = lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=numbers
    )
  return x


PROGRAMS = {
  turned: [drawn(64, 64)],
  looped: [drawn(64, 64)],
  convolved: [drawn(2, 8, 8, 16), drawn(3, 3, 16, 16)],
}


def code(state: pipeline.State) -> int:
  """Bytes of executable code on the fullest tile."""
  return int(state.memory.code.executable.max())


def cycles(state: pipeline.State) -> float:
  tiles = state.tiles
  return totals(tiles.target, tiles.steps, tiles.tensors).cycles


def within(f, share: float, machine=TILES) -> tuple[int, pipeline.State]:
  """A share of a program's code, and the program compiled for it."""
  whole = lowering_kit.phases(f, PROGRAMS[f], machine)
  budget = int(share * code(whole))
  return budget, lowering_kit.phases(
    f, PROGRAMS[f], machine, code_budget=budget
  )


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_cycles_are_paid_for_code(f):
  before = lowering_kit.phases(f, PROGRAMS[f], TILES)
  budget, after = within(f, 0.9)
  assert code(after) <= budget < code(before)
  assert cycles(before) < cycles(after) < 1.3 * cycles(before)
  for run in (interp.run, engine_kit.run):
    expected, found = (
      run(s.data, PROGRAMS[f]).outputs for s in (before, after)
    )
    for actual, e in zip(found, expected, strict=True):
      assert actual.tobytes() == e.tobytes()


def test_no_more_is_paid_than_needed():
  found = [within(turned, share)[1] for share in (0.95, 0.9, 0.8)]
  assert sorted(map(code, found), reverse=True) == [*map(code, found)]
  assert sorted(map(cycles, found)) == [*map(cycles, found)]
  assert cycles(found[0]) < cycles(found[2])


@pytest.mark.parametrize("share", [1.0, 0.01])
def test_what_fits_or_never_will_stays_as_it_is(share):
  before = lowering_kit.phases(turned, PROGRAMS[turned], TILES)
  _, after = within(turned, share)
  first, second = (text.program_text(s.tiles) for s in (before, after))
  assert first == second


def test_messages_are_buffered():
  before = lowering_kit.phases(turned, PROGRAMS[turned], TILES)
  _, after = within(turned, 0.8)
  assert len(after.memory.buffers) > len(before.memory.buffers)


def test_iterations_pay_each():
  """A loop of many trips is packed after what runs once."""

  def f(x):
    for _ in range(4):
      x = jnp.cumsum(jnp.tanh(x).T, 1)
    return lax.fori_loop(0, 50, lambda _, c: jnp.cumsum(c.T, 1) * 0.5, x)

  before = lowering_kit.phases(f, PROGRAMS[looped], TILES)
  after = lowering_kit.phases(
    f, PROGRAMS[looped], TILES, code_budget=code(before) - 1
  )
  assert code(after) < code(before)
  assert cycles(after) < 1.05 * cycles(before)


def test_calls_of_a_function_have_the_same_messages():
  _, state = within(convolved, 0.7)
  assert state.tiles.functions
  prices: dict[tuple[int, ...], set[int]] = {}
  for call in state.tiles.steps:
    for i, step in enumerate(walk(call.regions[0]) if call.regions else ()):
      prices.setdefault((call.callee, i), set()).add(step.word_price)
  assert any(prices.values()) and all(len(p) == 1 for p in prices.values())
  assert any(p != {0} for p in prices.values())


def test_costs_are_those_of_the_copies():
  _, state = within(turned, 0.8)
  packed = [s for s in walk(state.tiles.steps) if s.word_price]
  assert packed
  after = [s.own for s in packed]
  copying = [
    reports._exchanged(state.tiles.target, s, state.tiles.tensors).copying
    for s in packed
  ]
  pack.undo(state.tiles)
  plain = lowering_kit.phases(turned, PROGRAMS[turned], TILES)
  assert cycles(state) == cycles(plain)
  for step, more, copied in zip(packed, after, copying, strict=True):
    extra = more.compute_cycles - step.own.compute_cycles
    assert extra >= copied.max() * (step.own.compute_cycles == 0) > 0
    assert more.exchange_cycles == step.own.exchange_cycles


def test_code_that_has_no_room_beside_data():
  """The region of code would have room for it."""
  before = lowering_kit.phases(turned, PROGRAMS[turned], TILES)
  machine = machines.resolve("ipu2", TILES)
  limit = before.memory.bytes_with_gaps - 100
  tight = dataclasses.replace(machine, bytes_per_tile=limit)
  found = lowering_kit.phases(turned, PROGRAMS[turned], tight)
  assert found.tiles.packed
  assert found.memory.bytes_with_gaps <= limit


def test_text_says_what_a_word_may_cost():
  _, state = within(turned, 0.8)
  again = text.parse(text.program_text(state.tiles), state.tiles.target)
  prices = [
    [s.word_price for s in walk(p.steps) if isinstance(s, Copy)]
    for p in (state.tiles, again)
  ]
  assert any(prices[0]) and prices[0] == prices[1]


def test_copies_are_not_kept_where_they_keep_code_from_being_shared():
  """Gradients read copies that the layers made, so layers are no functions."""

  def step(weights, x):
    def loss(weights):
      h = x
      for w in weights:
        h = h + jnp.tanh(h @ w)
      return h.sum()

    return [
      w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)
    ]

  arguments = [[drawn(64, 64)] * 12, drawn(64, 64)]
  machine = machines.resolve("ipu2", TILES)
  whole = lowering_kit.phases(step, arguments, machine)
  assert whole.builder.choices.keeps and whole.builder.used.keeps
  found = lowering_kit.phases(
    step, arguments, dataclasses.replace(machine, executable_bytes=10_000)
  )
  assert not found.builder.choices.keeps
  assert found.tiles.functions
  assert code(found) <= 10_000
