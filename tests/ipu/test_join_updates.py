"""Updates of many small parameters by one map (passes/join_updates.py)."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ir.map_program import MAP

pytestmark = pytest.mark.ipu_only

SHAPES = ((64,), (3,), (64,), (10, 7), (40,), (1,), (16, 8), (300,))


def arrays(shapes=SHAPES, dtype=np.float32, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=s).astype(dtype) for s in shapes]


def adam(state, gradients, rate):
  """A step of Adam: parameters, both moments and a count."""
  weights, first, second, count = state
  count = count + 1
  first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
  second = [0.99 * v + 0.01 * g * g for v, g in zip(second, gradients)]
  scale = rate / (1 - 0.9**count)
  weights = [
    w - scale * m / (jnp.sqrt(v) + 1e-6)
    for w, m, v in zip(weights, first, second)
  ]
  return weights, first, second, count


def adam_arguments(shapes=SHAPES, dtype=np.float32):
  moments = [np.abs(a) for a in arrays(shapes, dtype, 2)]
  state = (arrays(shapes, dtype), arrays(shapes, dtype, 1), moments)
  return (*state, np.float32(3)), arrays(shapes, dtype, 3), dtype(0.1)


def joined(f, *arguments, donated=(0,)):
  """The numbers of elements that joined maps compute, loops included."""
  flat, tree = jax.tree.flatten(arguments)
  numbers = jax.tree.unflatten(tree, range(len(flat)))
  taken = [n for k in donated for n in jax.tree.leaves(numbers[k])]

  def flattened(*flat):
    return jax.tree.leaves(f(*jax.tree.unflatten(tree, flat)))

  state = lowering_kit.phases(flattened, flat, 1472, donated=tuple(taken))
  graphs, found = [state.module.graph], []
  for graph in graphs:
    for node in graph.nodes:
      graphs += node.regions
      if node.op == MAP and node.attributes.partition is not None:
        found += node.attributes.shape
  return found


def trained(device, f, *arguments, donated, runs=3):
  """The state after several runs, each on the last one's."""
  state, *rest = jax.device_put(arguments, device)
  compiled = jax.jit(f, donate_argnums=donated)
  for _ in range(runs):
    state = compiled(state, *rest)
  return jax.tree.leaves(jax.device_get(state))


def check(ipu, cpu, f, *arguments, rtol=2e-5):
  """The same as on the CPU, and without donation, when nothing is joined, bit
  for bit."""
  results = trained(ipu, f, *arguments, donated=0)
  for got, want in zip(results, trained(ipu, f, *arguments, donated=())):
    np.testing.assert_array_equal(got, want)
  for got, want in zip(results, trained(cpu, f, *arguments, donated=())):
    np.testing.assert_allclose(
      got.astype(np.float32), want.astype(np.float32), rtol, atol=rtol
    )


def test_small_parameters_are_updated_together():
  total = sum(int(np.prod(s)) for s in SHAPES if s != (1,))
  # The moments, and then the parameters, which read them.
  assert joined(adam, *adam_arguments()) == [total, total]


# XLA:CPU keeps results in f32 where other operations read them.
def test_both_moments_are_made_by_one_map():
  """So many that no map can read all of them."""
  assert joined(adam, *adam_arguments([(64,)] * 20)) == [1280, 1280]


@pytest.mark.parametrize(
  "dtype, rtol", ((np.float32, 2e-5), (np.float16, 5e-3), (jnp.bfloat16, 2e-2))
)
def test_results(ipu, cpu, dtype, rtol):
  check(ipu, cpu, adam, *adam_arguments(dtype=dtype), rtol=rtol)


def test_together_they_take_fewer_cycles(ipu):
  def step(state, gradients):
    return [w - jnp.exp(g) / (1 + g * g) for w, g in zip(state, gradients)]

  arguments = jax.device_put((arrays(), arrays(seed=1)), ipu)

  def cycles(donated):
    compiled = jax.jit(step, donate_argnums=donated).lower(*arguments).compile()
    return compiled.cost_analysis()["ipu cycles"]

  # Without donation, each is updated on its own.
  assert 2 * cycles(0) < cycles(())


def test_state_that_a_loop_carries(ipu, cpu):
  def train(state, gradients, rate):
    def step(_, state):
      return adam(state, gradients, rate)

    return lax.fori_loop(0, 3, step, state)

  arguments = adam_arguments()
  assert joined(train, *arguments)
  check(ipu, cpu, train, *arguments)


def test_only_what_leaves_in_the_place_of_an_operand():
  state, gradients = arrays(), arrays(seed=1)

  def f(state, gradients):
    return [a - 0.1 * jnp.tanh(g) for a, g in zip(state, gradients)]

  def read_again(state, gradients):
    new = f(state, gradients)
    return new, sum(a.sum() for a in new)

  assert joined(f, state, gradients)
  assert not joined(f, state, gradients, donated=())
  assert not joined(read_again, state, gradients)


def test_results_that_a_branch_returns_are_made_before_it(ipu, cpu):
  def f(state, gradients):
    new = [a - 0.1 * jnp.tanh(g) for a, g in zip(state, gradients)]
    total = lax.cond(
      gradients[0][0] > 0,
      lambda new, old: new,
      lambda new, old: old.sort(),
      new[0],
      gradients[0],
    )
    return [*new[:-1], new[-1] + jnp.sin(total.sum())]

  check(ipu, cpu, f, arrays(), arrays(seed=1))


def test_different_scalars_and_programs_are_not_mixed(ipu, cpu):
  state, scales = arrays([(64,)] * 6), arrays([()] * 3, seed=4)

  def f(state, scales):
    a, b, c, d, e, g = state
    s, t, u = scales
    long = lambda x, s: jnp.exp(jnp.sin(x) * s) / (1 + x * x)
    return [
      long(a, s), long(b, t), long(c, s), long(d, t) + 1, long(e, u), long(g, t)
    ]  # fmt: skip

  assert sorted(joined(f, state, scales)) == [128, 128]
  check(ipu, cpu, f, state, scales)


def test_parameters_lie_where_they_are_updated(ipu):
  """Of a step, only the gradients move; of the first one, the state."""
  state, gradients = jax.device_put(
    (arrays([(64,)] * 10), arrays([(64,)] * 10, seed=1)), ipu
  )

  def step(state, gradients):
    return [w - 0.1 * jnp.tanh(g) for w, g in zip(state, gradients)]

  compiled = jax.jit(step, donate_argnums=0).lower(state, gradients).compile()
  costs = compiled.cost_analysis()
  assert 0 < costs["ipu exchange bytes"] <= 10 * 64 * 4
  assert costs["ipu argument layout cycles"] > 0


def test_many_updates_stay_with_their_layers():
  assert not joined(adam, *adam_arguments([(64,)] * 33))
