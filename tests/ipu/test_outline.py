"""Outlining: repeated steps become functions, and results stay the same."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

import engine_kit
import lowering_kit
import numpy as np
import pytest
import report_kit

import jax
import jax.numpy as jnp
from jax import lax
from jax.ipu import _infeed as feeds
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp, verify, verify_functions
from jaxlib.ipu.check.tile_memory import Trap
from jaxlib.ipu.check.verify_functions import InvalidFunction
from jaxlib.ipu.check.verify_state import InvalidProgram
from jaxlib.ipu.ir.repeats import repeats
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.reporting import collect
from jaxlib.ipu.tile import text
from jaxlib.ipu.tile.call import ArgumentCopy, Call, calls
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile.walk import walk

TILES = 4


def drawn(*shape: int) -> np.ndarray:
  rng = np.random.default_rng(shape)
  return rng.normal(size=shape).astype(np.float32)


def layers(x, weights, biases):
  for w, b in zip(weights, biases, strict=True):
    x = x + jnp.tanh(x @ w + b) @ w
  return x


WEIGHTS = [drawn(16, 16) + i for i in range(5)]
BIASES = [drawn(16) - i for i in range(5)]
LAYERS = [drawn(4, 16), WEIGHTS, BIASES]


def code(state: pipeline.State) -> int:
  """Bytes of executable code on the fullest tile."""
  return int(state.memory.code.executable.max())


def outlined(
  f: Callable[..., Any], arguments: list[Any], donated: tuple[int, ...] = ()
) -> pipeline.State:
  """The program with as little code as outlining makes of it."""
  return lowering_kit.phases(f, arguments, TILES, donated, code_budget=0)


@pytest.fixture(scope="module")
def state() -> pipeline.State:
  """Five equal layers, outlined."""
  return outlined(layers, LAYERS)


# --- Repeats ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_repeats_are_equal_and_apart(seed):
  rng = random.Random(seed)
  planted = [rng.randrange(100) for _ in range(rng.randrange(5, 20))]
  letters: list[int] = []
  begins = []
  for i in range(4):
    letters += [1000 + i, *(rng.randrange(3) for _ in range(5)), 2000 + i]
    begins.append(len(letters))
    letters += planted
  letters.append(3000)
  found = repeats(letters)
  for repeat in found:
    parts = [letters[b : b + repeat.length] for b in repeat.begins]
    assert all(part == parts[0] for part in parts)
    assert np.diff(repeat.begins).min() >= repeat.length
  whole = [r for r in found if r.begins == begins]
  assert max(r.length for r in whole) == len(planted)


def test_repeats_in_a_row_have_whole_periods():
  found = repeats([9, *[1, 2, 3] * 50, 8])
  assert {(r.length, len(r.begins)) for r in found} >= {(3, 50), (6, 25)}


# --- Results ----------------------------------------------------------------


def chain(x, y):
  for i in range(12):
    x = jnp.sin(x) * 1.01 + i
    if i % 3 == 2:
      x = x @ y
  return x


def gradients(x, weights, biases):
  return jax.grad(lambda w: layers(x, w, biases).sum())(weights)


def updated(weights, x, biases):
  step = gradients(x, weights, biases)
  return [w - 0.1 * g for w, g in zip(weights, step, strict=True)]


def loops(x, y):
  for i in range(5):
    x = lax.fori_loop(0, 3, lambda _, c: jnp.sin(c @ y) * c, x) + i
  return x


def inside_and_outside_of_a_loop(x, y):
  def some(c):
    for i in range(4):
      c = jnp.tanh(c @ y) + i
    return c

  return some(lax.fori_loop(0, 3, lambda _, c: some(c), x))


def branches(x, chosen):
  for i in range(4):
    x = lax.cond(
      chosen[i] > 0,
      lambda c: jnp.sort(c, 0) @ c,
      lambda c: jnp.cumsum(c, 1) @ c,
      x,
    )
  return x


def updates(x, at):
  for i in range(5):
    x = x.at[at[i]].add(x[at[(i + 1) % 5]] * 1.5)
    x = lax.dynamic_update_slice(x, jnp.sin(x[:2]), (at[i], 0))
  return x


def unknown_trips(x):
  for _ in range(4):
    x = lax.while_loop(lambda c: jnp.sum(c) < 1000, lambda c: c * 2 + 1, x)
    x = x * 0.001
  return x


def many_results(x, y):
  out = []
  for i in range(6):
    z = x @ y + i
    x = x + z * 0.1
    out += [z, x.T @ y]
  return out


def attention_and_loops(weights, x, mask):
  def loss(weights):
    y = x
    for w in weights:
      scores = jnp.where(mask, (y @ w) @ y.T, -1e4)
      y = y + jax.nn.softmax(scores) @ y
      y = lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) @ w, y)
      y = (y + jnp.cumsum(y, 1) * 0.1) @ w
    return jnp.mean(jnp.tanh(y) ** 2)

  return jax.grad(loss)(weights)


SQUARES = [drawn(8, 8), drawn(8, 8) + 1]
PROGRAMS = {
  chain: SQUARES,
  layers: LAYERS,
  gradients: LAYERS,
  loops: SQUARES,
  inside_and_outside_of_a_loop: SQUARES,
  branches: [SQUARES[0], np.array([1, 0, 1, 0], np.int32)],
  updates: [SQUARES[0], np.array([1, 3, 0, 2, 5], np.int32)],
  unknown_trips: [np.ones((4, 4), np.float32)],
  many_results: SQUARES,
}


def same_results(
  f: Callable[..., Any], arguments: list[Any], donated: tuple[int, ...] = ()
) -> None:
  """The interpreter and the engine have the same bits with and without
  outlining, and less code with it."""
  before = lowering_kit.phases(f, arguments, TILES, donated)
  after = outlined(f, arguments, donated)
  assert code(after) < code(before)
  assert not [*calls(before.tiles.steps)]
  assert [*calls(after.tiles.steps)]
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
  for run in (interp.run, engine_kit.run):
    expected, found = (run(s.data, flat).outputs for s in (before, after))
    for actual, e in zip(found, expected, strict=True):
      assert actual.tobytes() == e.tobytes()


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_results_are_those_without_outlining(f):
  same_results(f, PROGRAMS[f])


def test_loops_in_which_steps_have_become_functions():
  """A later search looks at them again."""
  arguments = [[drawn(32, 32)] * 3, drawn(24, 32), drawn(24, 24) > -1]
  before, after = (
    lowering_kit.phases(attention_and_loops, arguments, 1472, code_budget=b)
    for b in (None, 0)
  )
  assert code(after) < code(before)
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
  results = [engine_kit.run(s.data, flat).outputs for s in (before, after)]
  for expected, actual in zip(*results, strict=True):
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_donated_state():
  same_results(updated, [WEIGHTS, LAYERS[0], BIASES], donated=(0,))


def test_functions_with_feeds_keep_their_order():
  items = [drawn(4, 16) * i for i in range(5)]

  def f(x, weights):
    token = feeds.create_token(x)
    for w in weights:
      (item,), token = feeds.infeed(
        token, shape=[jax.ShapeDtypeStruct(x.shape, x.dtype)]
      )
      x = x + jnp.tanh((x + item) @ w) @ w
      token = feeds.outfeed(token, [x])
    return x

  arguments = [LAYERS[0], WEIGHTS]
  states = [
    lowering_kit.phases(f, arguments, TILES),
    outlined(f, arguments),
  ]
  inside = [
    type(s).__name__ for c in calls(states[1].tiles.steps) for s in walk(c.body)
  ]
  assert {"Infeed", "Outfeed"} <= {*inside}
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
  before, after = (
    interp.run(s.data, flat, feeds={schema.NONE: iter([[i] for i in items])})
    for s in states
  )
  assert len(before.outfeed) == len(items)
  for a, b in zip(
    [before.outputs, *before.outfeed], [after.outputs, *after.outfeed],
    strict=True,
  ):  # fmt: skip
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_host_functions_keep_their_order(ipu):
  order: list[int] = []

  def f(x, w):
    for i in range(5):
      x = x + jnp.tanh(x @ w) @ w
      jax.debug.callback(lambda _, i=i: order.append(i), x[0, 0])
    return x

  results = []
  for budget in (0, 1 << 30):
    g = jax.jit(lambda *a: f(*a), compiler_options={"ipu_code_budget": budget})
    results.append(g(*jax.device_put((LAYERS[0], WEIGHTS[0]), ipu)))
    jax.effects_barrier()
  assert order == [*range(5), *range(5)]
  np.testing.assert_array_equal(*map(np.asarray, results))


def test_streams_of_arguments_stay_outside_of_functions(ipu):
  """Those in the host's memory are equal steps, but not on roots that may be
  others."""

  def f(weights, x):
    for w in jax.device_put(weights, jax.memory.Space.Device):
      x = jnp.tanh(x @ w)
    return x

  x, w = LAYERS[0], WEIGHTS[0]
  host = jax.sharding.SingleDeviceSharding(ipu, memory_kind="pinned_host")
  given = jax.device_put([w, w / 2, w + 1, w - 1], host), jax.device_put(x, ipu)
  results = []
  for budget in (0, 1 << 30):
    g = jax.jit(lambda *a: f(*a), compiler_options={"ipu_code_budget": budget})
    results.append(g(*given))
  np.testing.assert_array_equal(*map(np.asarray, results))


# --- Choices ----------------------------------------------------------------


def test_programs_that_fit_stay_as_they_are(state):
  before = lowering_kit.phases(layers, LAYERS, TILES)
  for budget in (code(before), None):
    found = lowering_kit.phases(layers, LAYERS, TILES, code_budget=budget)
    shown = [text.program_text(s.tiles) for s in (found, before)]
    assert shown[0] == shown[1]
  found = lowering_kit.phases(
    layers, LAYERS, TILES, code_budget=code(before) - 1
  )
  assert code(state) <= code(found) < code(before)
  # No more calls than needed.
  few, all_ = ([*calls(s.tiles.steps)] for s in (found, state))
  assert 2 <= len(few) < len(all_)


def test_code_that_has_no_room_beside_data_is_shared():
  """Its own region would have room for it."""
  before = lowering_kit.phases(layers, LAYERS, TILES)
  machine = machines.resolve("ipu2", TILES)
  limit = before.memory.bytes_with_gaps - 100
  tight = dataclasses.replace(machine, bytes_per_tile=limit)
  assert code(before) < tight.executable_bytes
  found = lowering_kit.phases(layers, LAYERS, tight)
  assert found.memory.bytes_with_gaps <= limit
  assert code(found) < code(before) and [*calls(found.tiles.steps)]


def test_calls_leave_loops_alone_where_others_save_enough():
  def f(x, y):
    def inside(_, c):
      for i in range(6):
        c = jnp.tanh(jnp.sin(c @ y) + i) @ y
      return c

    x = lax.fori_loop(0, 1000, inside, x)
    for _ in range(4):
      x = jnp.cumsum(jnp.sort(x, 0), 1) - x
    return x

  before = lowering_kit.phases(f, SQUARES, TILES)
  slight, much = (
    lowering_kit.phases(f, SQUARES, TILES, code_budget=budget)
    for budget in (code(before) - 1, 0)
  )
  loops = [
    [s for s in walk(state.tiles.steps) if s.trips == 1000]
    for state in (slight, much)
  ]
  assert [*calls(slight.tiles.steps)] and not [*calls(loops[0])]
  assert [*calls(loops[1])] and code(much) < code(slight)


def test_code_hardly_grows_with_equal_layers():
  x, weights, biases = LAYERS
  small, large = (
    outlined(layers, [x, weights * n, biases * n]) for n in (1, 4)
  )
  each = code(lowering_kit.phases(layers, LAYERS, TILES)) / len(weights)
  assert code(large) - code(small) < 15 * 0.2 * each


def test_what_differs_is_not_shared():
  """Products of different shapes: nothing repeats."""

  def f(x):
    for n in range(3, 9):
      x = jnp.pad(x, ((0, 0), (0, 1))) @ jnp.ones((n + 1, n + 1)) + x[:, :1]
    return x

  found = outlined(f, [drawn(4, 3)])
  same = [c for c in calls(found.tiles.steps) if len([*walk(c.body)]) > 3]
  assert not same


# --- Costs ------------------------------------------------------------------


def test_costs_are_those_of_steps_calls_and_arguments(state):
  before = lowering_kit.phases(layers, LAYERS, TILES)
  target = state.tiles.target
  more = 0.0
  for step in walk(state.tiles.steps):
    if isinstance(step, Call | ArgumentCopy):
      more += cost.cycles(step.price(target))
      assert isinstance(step, ArgumentCopy) or more > 0
    more += 13 * step.passed
  sums = [
    totals(target, s.tiles.steps, s.tiles.tensors) for s in (before, state)
  ]
  assert sums[1].cycles == sums[0].cycles + more
  for name in ("exchange_bytes", "flops", "supersteps"):
    assert getattr(sums[0], name) == getattr(sums[1], name)


def test_each_call_has_its_own_lines():
  def f(x, weights, biases):
    w, b = weights, biases
    x = x + jnp.tanh(x @ w[0] + b[0]) @ w[0]
    x = x + jnp.tanh(x @ w[1] + b[1]) @ w[1]
    x = x + jnp.tanh(x @ w[2] + b[2]) @ w[2]
    return x + jnp.tanh(x @ w[3] + b[3]) @ w[3]

  found = outlined(f, LAYERS)
  lines = {
    found.program.locations[c.location].line for c in calls(found.tiles.steps)
  }
  assert len(lines) > 1


def test_constants_are_passed():
  found = outlined(chain, SQUARES)
  passed = sum(s.passed for s in walk(found.tiles.steps))
  assert passed > 0
  # The table of each call.
  assert found.memory.code.state.max() >= 4 * passed


# --- Checks -----------------------------------------------------------------


def test_code_of_functions_is_checked(state):
  verify_functions.verify(state.tiles, state.memory)
  full = state.memory.code
  half = [bytes_ // 2 for bytes_ in full.functions]
  memory = dataclasses.replace(
    state.memory, code=dataclasses.replace(full, functions=half)
  )
  with pytest.raises(InvalidFunction, match="of function 0 takes"):
    verify_functions.verify(state.tiles, memory)


def tampered(state: pipeline.State) -> tuple[schema.Program, bytes]:
  """The program with a call that runs its function on another tensor."""
  program, constants = container.read(state.data)
  made = [s for s in program.steps if isinstance(s, schema.Call)]
  step = next(s for s in made[1].body if isinstance(s, schema.Execute))
  step.results[0].tensor = program.results[0]
  return program, container.write(program, constants)


def test_calls_with_other_addresses(state):
  program, data = tampered(state)
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(LAYERS)]
  with pytest.raises(Trap, match="not those of function"):
    interp.run(data, flat)
  with pytest.raises(InvalidProgram, match="not those of function"):
    verify.verify(program)
  with pytest.raises(
    engine_kit.EngineError, match="calls of function 0 differ"
  ):
    engine_kit.run(data, flat)


def test_calls_of_unknown_functions(state):
  program, constants = container.read(state.data)
  program.functions = []
  data = container.write(program, constants)
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(LAYERS)]
  with pytest.raises(InvalidProgram, match="calls function 0 of 0"):
    verify.verify(program)
  with pytest.raises(engine_kit.EngineError, match="a call of function 0"):
    engine_kit.run(data, flat)


# --- Reports and text -------------------------------------------------------


def test_text(state):
  shown = text.program_text(state.tiles)
  found = text.parse(shown, state.tiles.target)
  assert [c.callee for c in calls(found.steps)] == [
    c.callee for c in calls(state.tiles.steps)
  ]
  assert text.program_text(found) == shown
  assert len(re.findall(r"\bCall\(.*\bfunction=0\b", shown)) == 5


def test_reports_have_the_sums_of_calls(state):
  found = collect.collect(state, state.tiles.target, {})
  report_kit.check_sums(found)
  assert [*found.steps["kind"]].count("call") == 5
