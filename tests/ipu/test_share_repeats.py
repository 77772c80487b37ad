"""Repeated operations become functions of the graph, compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine_kit
import lowering_kit
import numpy as np
import pytest
import report_kit

import jax
import jax.numpy as jnp
from jaxlib.ipu import pipeline
from jaxlib.ipu.check import interp, verify_graph
from jaxlib.ipu.ir.graph import CALL
from jaxlib.ipu.ir.printer import module_text
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.passes import share_repeats
from jaxlib.ipu.program import codec, container, schema
from jaxlib.ipu.reporting import collect
from jaxlib.ipu.tile import text
from jaxlib.ipu.tile.call import calls
from jaxlib.ipu.tile_passes import schedule

TILES = 4


def drawn(*shape: int) -> np.ndarray:
  return np.random.default_rng(shape).normal(size=shape).astype(np.float32) / 4


def parameters(count: int, width: int = 16) -> list[dict[str, np.ndarray]]:
  return [
    {
      "up": drawn(width, 2 * width) + i / 32,
      "bias": drawn(2 * width) - i / 32,
      "down": drawn(2 * width, width),
      "scale": drawn(width) + 1,
    }
    for i in range(count)
  ]


def layer(p, x, mask):
  mean = x.mean(-1, keepdims=True)
  centred = x - mean
  variance = (centred * centred).mean(-1, keepdims=True)
  y = centred * jax.lax.rsqrt(variance + 1e-5) * p["scale"]
  y = jnp.where(mask, y, -0.5)
  return x + jax.nn.gelu(y @ p["up"] + p["bias"]) @ p["down"]


def forward(weights, x, mask):
  for p in weights:
    x = layer(p, x, mask)
  return x


def loss(weights, x, mask):
  return jnp.mean(forward(weights, x, mask) ** 2)


def descent(weights, x, mask):
  gradient = jax.grad(loss)(weights, x, mask)
  return jax.tree.map(lambda p, g: p - 0.1 * g, weights, gradient)


def adam(weights, x, mask, first, second, step):
  gradient = jax.grad(loss)(weights, x, mask)
  first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
  second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradient)
  step = step + 1
  a, b = 1 - 0.9**step, 1 - 0.99**step

  def updated(p, m, v):
    return p - 0.01 * (m / a) / (jnp.sqrt(v / b) + 1e-6)

  return jax.tree.map(updated, weights, first, second), first, second, step


def arguments(count: int) -> list[Any]:
  return [parameters(count), drawn(8, 16), drawn(8, 16) > -0.2]


def with_state(count: int) -> list[Any]:
  weights, *rest = arguments(count)
  zeros = jax.tree.map(np.zeros_like, weights)
  ones = jax.tree.map(np.ones_like, weights)
  return [weights, *rest, zeros, ones, np.float32(3)]


def compiled(
  f: Callable[..., Any],
  given: list[Any],
  budget: int | None = 0,
  donated: tuple[int, ...] = (),
) -> pipeline.State:
  return lowering_kit.phases(f, given, TILES, donated, code_budget=budget)


def functions(state: pipeline.State) -> list[int]:
  """How often each function of the graph is called."""
  count = [0] * len(state.module.functions)
  for node in state.module.graph.nodes:
    if node.op == CALL:
      count[node.attributes.function.number] += 1
  return count


def check_results(
  f: Callable[..., Any],
  given: list[Any],
  expected: list[int],
  donated: tuple[int, ...] = (),
) -> pipeline.State:
  """Compares with the results without functions; returns the compilation with
  them, which are called as often as expected."""
  state = compiled(f, given, 0, donated)
  assert functions(state) == expected
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(given)]
  for actual, wanted in zip(
    engine_kit.run(state.data, flat).outputs,
    engine_kit.run(compiled(f, given, None, donated).data, flat).outputs,
    strict=True,
  ):
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)
  return state


# --- Results -----------------------------------------------------------------


@pytest.mark.parametrize(
  ("f", "given", "expected"),
  [
    (forward, arguments(5), [5]),
    # The first layer's gradient needs none of its operand.
    (jax.grad(loss), arguments(5), [4, 4]),
    (descent, arguments(5), [4, 4]),
    (adam, with_state(5), [4, 4]),
  ],
  ids=["forward", "gradient", "descent", "adam"],
)
def test_results(cpu, f, given, expected):
  """Sums may be split over tiles in another way than without functions."""
  plain, state = compiled(f, given, None), compiled(f, given)
  assert functions(plain) == [] and functions(state) == expected
  assert len([*calls(state.tiles.steps)]) >= sum(expected)
  flat = [np.asarray(leaf) for leaf in jax.tree.leaves(given)]
  runs = [
    run(s.data, flat).outputs
    for s in (plain, state)
    for run in (interp.run, engine_kit.run)
  ]
  for one, *others in zip(*runs, strict=True):
    for other in others:
      np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
  with jax.default_device(cpu):
    wanted = jax.tree.leaves(jax.jit(f)(*given))
  for actual, exact in zip(runs[-1], wanted, strict=True):
    np.testing.assert_allclose(actual, exact, rtol=1e-3, atol=1e-5)


def test_donated_state():
  state = check_results(descent, arguments(5), [4, 4], (0,))
  assert len(state.module.aliases) == 20


def test_operands_of_the_first_call_may_lie_elsewhere():
  """A function has its operands where the call before leaves them."""

  def f(weights, x, mask):
    return forward(weights, x.T, mask)

  weights, x, mask = arguments(5)
  given = [weights, np.ascontiguousarray(x.T), mask]
  state = check_results(f, given, [5])
  assert len({c.callee for c in calls(state.tiles.steps)}) == 1


def test_parts_of_updates_that_others_need_too(monkeypatch):
  """Decayed moments that something before the layers reads are not computed in
  the layers."""
  # Nor are the updates.
  monkeypatch.setattr(share_repeats, "_LEAST_COVERED", 0.5)

  def f(weights, x, mask, moments):
    decayed = jax.tree.map(lambda m: 0.9 * m, moments)
    x = x + sum(m["down"].sum() for m in decayed) / 100
    gradient = jax.grad(loss)(weights, x, mask)
    moments = jax.tree.map(lambda m, g: m + 0.1 * g, decayed, gradient)
    return jax.tree.map(lambda p, m: p - m, weights, moments), moments

  check_results(f, [*arguments(6), parameters(6)], [5, 5])


def test_branches_use_what_functions_compute():
  """Their regions have no parameters: they use values of the graph around."""

  def f(weights, x, mask):
    y = forward(weights[:3], x, mask)
    z = forward(weights[3:], y, mask)
    return jax.lax.cond(
      z.sum() > 0, lambda: jnp.sort(y) @ z.T, lambda: jnp.cumsum(z, 1) @ y.T
    )

  check_results(f, arguments(6), [6])


def test_first_layer_may_have_one_operand_twice():
  """Each layer has the results of the two before it, the first one of none."""

  def f(weights, x, mask):
    before = x
    for p in weights:
      x, before = layer(p, x, mask) + before, x
    return x

  check_results(f, arguments(6), [5])


def test_layers_may_have_scalars():
  """Their broadcasts are computed in the function, from a scalar that is passed
  to it."""

  def f(weights, x, mask):
    for p in weights:
      x = x + p["rate"] * layer(p, x, mask)
    return x

  weights, *rest = arguments(5)
  for i, p in enumerate(weights):
    p["rate"] = np.float32(i / 8)
  state = check_results(f, [weights, *rest], [5])
  (function,) = state.module.functions
  assert [v.shape for v in function.graph.parameters].count(()) == 1


def test_convolutions():
  """They are no products before they are decomposed."""

  def f(kernels, x):
    for kernel in kernels:
      x = x - x.mean((1, 2), keepdims=True)
      y = jax.lax.conv_general_dilated(
        jax.nn.silu(x), kernel, (1, 1), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
      )  # fmt: skip
      x = x + jnp.tanh(y) * jnp.exp(-y * y) + jnp.sin(x)
    return x

  kernels = [drawn(3, 3, 4, 4) + i / 32 for i in range(5)]
  check_results(f, [kernels, drawn(2, 6, 6, 4)], [5])


# --- What is shared ----------------------------------------------------------


def test_layers_are_lowered_once(monkeypatch):
  made = []
  for count in (6, 9):
    seen = []
    execute = Builder.execute

    def noted(self, *args, seen=seen, execute=execute, **keywords):
      seen.append(args)
      execute(self, *args, **keywords)

    with monkeypatch.context() as patch:
      patch.setattr(Builder, "execute", noted)
      assert functions(compiled(descent, arguments(count))) == [count - 1] * 2
    made.append(len(seen))
  assert made[0] == made[1] > 10


def test_programs_with_room_for_their_code_have_no_functions():
  state = compiled(forward, arguments(5), None)
  code = int(state.memory.code.executable.max())
  # One that hardly exceeds it is outlined as far as needed.
  for budget in (code, code - 100):
    assert functions(compiled(forward, arguments(5), budget)) == []


def test_functions_that_do_not_pay_are_undone(monkeypatch):
  """The code of an operation is known once it is lowered."""
  monkeypatch.setattr(pipeline, "_MOST_BYTES", 1 << 30)
  state = compiled(descent, arguments(5), 1 << 20)
  assert functions(state) == [] and not [*calls(state.tiles.steps)]
  plain = compiled(descent, arguments(5), None)
  assert state.program.steps == plain.program.steps


def test_updates_are_part_of_functions():
  """Gradients stay in the function: only weights leave it."""
  for count in (5, 9):
    state = compiled(descent, arguments(count))
    graph = state.module.functions[0].graph
    shapes = [v.shape for v in graph.results]
    assert {(16,), (16, 32), (32,), (32, 16)} < {*shapes}
    # Those of the first layer, and what is beside layers.
    kinds = [node.op for node in state.module.graph.nodes if node.op != CALL]
    assert len(kinds) < 60


def test_cheap_operands_are_computed_again():
  """Of the values of this shape that GELU's gradient needs, its operand and its
  tanh leave the forward function."""
  state = compiled(jax.grad(loss), arguments(5))
  hidden = [
    value
    for function in state.module.functions
    for value in function.graph.results
    if value.shape == (8, 32)
  ]
  assert len(hidden) == 2


def test_the_last_layer_may_be_followed_by_something_else():
  def f(weights, x, mask):
    y = forward(weights, x, mask)
    return y, forward(weights[:1], y[::-1], mask) * 2

  assert max(functions(compiled(f, arguments(6)))) >= 6


def test_different_constants_are_different_functions():
  def f(x, weights):
    for i, w in enumerate(weights):
      for _ in range(10):
        x = jnp.sin(x) * (i + 1.5)
      x = x @ w
    return x

  weights = [drawn(16, 16)] * 4
  assert functions(compiled(f, [drawn(8, 16), weights])) == []


def test_shared_values_are_not_copied():
  """The mask is the same for all calls, so the function reads it in place."""
  state = compiled(forward, arguments(5))
  (function,) = state.module.functions
  (fixed,) = function.fixed
  assert function.graph.parameters[fixed].shape == (8, 16)


def test_calls_order_operations_by_what_leaves_them():
  """A tensor of the function's own is used by all of its calls, and makes none
  of them wait for another one."""
  tiles = compiled(descent, arguments(5)).tiles
  _, tasks = schedule.operations(tiles.steps)
  graph = schedule.TaskGraph(tasks, tiles, tiles.steps)
  calling = [task for task in graph.tasks if any(calls(task.steps))]
  assert len(calling) == 8
  for task in calling:
    private = {n for call in calls(task.steps) for n in call.private}
    assert private and task.reads and private.isdisjoint(task.reads)


def test_equal_calls_are_encoded_once(monkeypatch):
  shared = []
  init = codec.Shared.__init__

  def noted(self, values):
    init(self, values)
    shared.append(self)

  monkeypatch.setattr(codec.Shared, "__init__", noted)
  state = compiled(forward, arguments(5))
  assert len(shared) == 1
  program, _ = container.read(state.data)
  bodies = [s.body for s in program.steps if isinstance(s, schema.Call)]
  assert len(bodies) == 5 and all(body == bodies[0] for body in bodies)


def test_each_call_has_its_own_lines():
  def f(weights, x, mask):
    a, b, c, d = weights
    x = layer(a, x, mask)
    x = layer(b, x, mask)
    x = layer(c, x, mask)
    return layer(d, x, mask)

  state = compiled(f, arguments(4))
  assert functions(state) == [4]
  program, _ = container.read(state.data)
  names = []
  for step in program.steps:
    if isinstance(step, schema.Call):
      where = [program.locations[s.location] for s in step.body]
      names.append({(p.name, p.line) for p in where})
  assert len(names) == 4

  def scoped(weights, x, mask):
    for i, p in enumerate(weights):
      with jax.named_scope(f"layer {i}"):
        x = layer(p, x, mask)
    return x

  state = compiled(scoped, arguments(4))
  assert functions(state) == [4]
  program, _ = container.read(state.data)
  for i, call in enumerate(
    s for s in program.steps if isinstance(s, schema.Call)
  ):
    where = [program.locations[s.location].name for s in call.body]
    assert where and all(f"layer {i}" in name for name in where)


# --- The graph ---------------------------------------------------------------


def test_calls_are_verified_and_printed():
  module = compiled(forward, arguments(5)).module
  text = module_text(module)
  assert "\nfunction 0\n" in text and text.count(" ipu.call(") == 5
  (function,) = module.functions
  function.graph.results = []
  with pytest.raises(verify_graph.InvalidGraph, match="its results are"):
    verify_graph.verify(module)


def test_text():
  state = compiled(descent, arguments(5))
  shown = text.program_text(state.tiles)
  found = text.parse(shown, state.tiles.target)
  assert text.program_text(found) == shown
  inside = [c.private for c in calls(state.tiles.steps)]
  assert [c.private for c in calls(found.steps)] == inside and inside[0]


def test_reports_have_the_sums_of_calls():
  state = compiled(descent, arguments(5))
  found = collect.collect(state, state.tiles.target, {})
  report_kit.check_sums(found)
  assert [*found.steps["kind"]].count("call") == 8
