"""while, if, case, call and what lax builds on them."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax


@pytest.mark.parametrize("trips", [0, 1, 2, 7, 1000])
def test_fori_loop(check, trips):
  def f(n, x):
    return {
      "fixed": lax.fori_loop(0, trips, lambda i, x: x * 0.5 + i, x),
      "from an argument": lax.fori_loop(0, n, lambda i, x: x * 0.5 + i, x),
      "backwards": lax.fori_loop(-n, 0, lambda i, x: x - i * 1e-3, x),
    }

  check(f, np.int32(trips), util.sample(np.float32, (5,)), rtol=1e-5)


@pytest.mark.parametrize(
  "dtype, limit, step", [(np.int8, 120, 50), (np.uint8, 250, 11)]
)
def test_a_counter_that_wraps_past_its_limit(check, dtype, limit, step):
  limit, step = dtype(limit), dtype(step)

  def f(trips):
    return lax.while_loop(
      lambda s: s[0] < limit,
      lambda s: (s[0] + step, s[1] + 1),
      (dtype(0), trips),
    )

  check(f, np.int32(0))


def test_while_loop_with_a_data_dependent_end(check):
  def collatz(n):
    def step(state):
      n, steps = state
      return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))

  for start in (1, 2, 27, 97):
    check(collatz, np.int32(start))


def test_while_loop_that_swaps_its_state(check):
  """The state of one step has to be read before the next one is written."""

  def f(n, a, b, c):
    def step(state):
      i, a, b, c = state
      return i + 1, b, c + a, a

    return lax.while_loop(lambda s: s[0] < n, step, (0, a, b, c))

  state = [util.sample(np.int32, (4,), key=i) for i in range(3)]
  for n in (0, 1, 2, 5, 6):
    check(f, np.int32(n), *state)


def test_loop_invariant_and_unused_state(check):
  def f(x, w):
    def step(i, state):
      x, w, unused = state
      return x @ w, w, unused + 1

    return lax.fori_loop(0, 4, step, (x, w, jnp.zeros(3)))[0]

  x = util.sample(np.float32, (6, 6), low=-0.4, high=0.4)
  check(f, x, x.T.copy(), rtol=1e-4, atol=1e-6)


def test_nested_loops(check):
  def table(n):
    def row(i, t):
      return lax.fori_loop(0, i + 1, lambda j, t: t.at[i, j].set(i * j), t)

    return lax.fori_loop(0, n, row, jnp.zeros((6, 6), jnp.int32))

  check(table, np.int32(6))


def test_scan(check):
  def f(xs, carry):
    def cumulative(c, x):
      c = c * 0.9 + x
      return c, (c.sum(), c)

    return {
      "forward": lax.scan(cumulative, carry, xs),
      "reverse": lax.scan(cumulative, carry, xs, reverse=True),
      "unroll": lax.scan(cumulative, carry, xs, unroll=3),
      "no xs": lax.scan(lambda c, _: (c + 1, c[0]), carry, length=5),
      "map": lax.map(lambda x: x @ carry, xs),
      "empty": lax.scan(cumulative, carry, xs[:0]),
    }

  check(
    f,
    util.sample(np.float32, (11, 4)),
    util.sample(np.float32, (4,), key="carry"),
    rtol=1e-5,
    atol=1e-5,
  )


def test_gradient_of_scan(check):
  def rnn(w, xs):
    def cell(h, x):
      h = jnp.tanh(w @ h + x)
      return h, h

    h, hs = lax.scan(cell, jnp.zeros(8), xs)
    return (hs**2).mean() + h.sum()

  w = util.sample(np.float32, (8, 8), low=-0.5, high=0.5)
  xs = util.sample(np.float32, (12, 8), low=-1, high=1)
  check(jax.value_and_grad(rnn), w, xs, rtol=1e-4, atol=1e-6)
  check(jax.grad(jax.checkpoint(rnn)), w, xs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("predicate", [False, True])
def test_cond(check, predicate):
  def f(p, x):
    return {
      "plain": lax.cond(p, jnp.sin, jnp.cos, x),
      "identity": lax.cond(p, lambda x: x, lambda x: x * 2, x),
      "constant": lax.cond(p, lambda: 1.0, lambda: 2.0),
      "many": lax.cond(p, lambda x: (x, x + 1), lambda x: (-x, x), x),
      "swap": lax.cond(p, lambda x, y: (y, x), lambda x, y: (x, y), x, x + 1),
      "no results": lax.cond(p, lambda: (), lambda: ()),
      "nested": lax.cond(
        p,
        lambda x: lax.cond(x[0] > 0, jnp.exp, jnp.negative, x),
        lambda x: x,
        x,
      ),
    }

  check(f, np.bool_(predicate), util.sample(np.float32, (5,)), atol=1e-6)


def test_switch_clamps_its_index(check):
  branches = [lambda x: x, lambda x: x + 1, lambda x: x * 5]
  for index in (-3, 0, 1, 2, 3, 99):
    check(lambda i, x: lax.switch(i, branches, x), np.int32(index), np.int32(7))


def test_cond_inside_while_inside_cond(check):
  def f(p, n, x):
    def loop(x):
      def step(state):
        i, x = state
        x = lax.cond(i % 3 == 0, lambda x: x + 1, lambda x: x * 0.5, x)
        return i + 1, x

      return lax.while_loop(lambda s: s[0] < n, step, (0, x))[1]

    return lax.cond(p, loop, lambda x: -x, x)

  x = util.sample(np.float32, (6,))
  for p in (True, False):
    check(f, np.bool_(p), np.int32(10), x, rtol=1e-5)


def test_vmap_of_while_and_cond(check):
  """A batched predicate turns branches into selects and loops into masks."""

  def newton(x):
    def step(state):
      y, i = state
      return 0.5 * (y + x / y), i + 1

    def more(state):
      y, i = state
      return (jnp.abs(y * y - x) > 1e-4) & (i < 50)

    return lax.while_loop(more, step, (x, 0))

  x = util.sample(np.float32, (20,), low=0.1, high=90)
  check(lambda x: jax.vmap(newton)(x)[0], x, rtol=1e-4)
  check(
    jax.vmap(lambda x: lax.cond(x > 9, jnp.sqrt, jnp.square, x)), x, rtol=1e-5
  )


def test_calls(check):
  @jax.jit
  def inner(x, scale):
    return x * scale + 1

  @jax.custom_vjp
  def clipped(x):
    return jnp.clip(x, -1, 1)

  clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (g * (x > 0),))

  def f(x):
    y = inner(inner(x, 2.0), 3.0)
    return y, jax.grad(lambda x: clipped(x).sum())(x)

  check(f, util.sample(np.float32, (9,)))


def test_associative_scan(check):
  x = util.sample(np.float32, (37, 3), low=0.5, high=1.5)
  check(
    lambda x: [
      lax.associative_scan(op, x, axis=axis)
      for op in (jnp.add, jnp.multiply, jnp.maximum)
      for axis in (0, 1)
    ],
    x,
    rtol=1e-4,
  )


def test_a_small_loop_that_runs_long(check):
  """A linear congruential generator, bit-exact after 20,000 steps."""

  def generator(seed):
    return lax.fori_loop(
      0, 20_000, lambda _, s: s * jnp.uint32(1664525) + 1013904223, seed
    )

  check(generator, np.uint32(42))


def test_large_state_that_is_updated_in_place(check):
  def f(x):
    def step(i, x):
      row = lax.dynamic_index_in_dim(x, i, keepdims=False)
      return lax.dynamic_update_index_in_dim(x, row[::-1] + i, i + 1, 0)

    return lax.fori_loop(0, 99, step, x)

  check(f, util.sample(np.float32, (100, 300)), rtol=1e-5, atol=1e-3)
