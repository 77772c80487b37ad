"""Compiled JAX programs pass the verifier and run on the interpreter's tiles
without traps, and interpreter, engine and XLA:CPU agree."""

from __future__ import annotations

import dataclasses

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from lowering_kit import TILES, check, compiled

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import target as machines
from jaxlib.ipu.program import container
from jaxlib.ipu.program.schema import Dot

pytestmark = pytest.mark.ipu_only


def softmax(x, i):
  return jax.nn.softmax(x), jax.nn.log_softmax(x, 0)


def normalise(x, i):
  return (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1) + 1)[:, None]


def perceptron(x, i):
  def loss(w):
    return ((jnp.tanh(x @ w[:20]) @ w[20:].T) ** 2).mean()

  return jax.grad(loss)(jnp.concatenate([x.T, x[:, ::-1].T * 0.5])[:, :5])


def embedding(x, i):
  table = x.reshape(-1, 5)
  return table[i[0] % table.shape[0]], table.at[i[1] % 7].add(1.0)


def loops(x, i):
  total, rows = lax.scan(lambda c, r: (c + r, c * r), x[0], x)
  n, _ = lax.while_loop(
    lambda s: s[0] * s[0] < s[1], lambda s: (s[0] + 1, s[1]), (0, i[0, 0])
  )
  return total, rows, n


def branches(x, i):
  return lax.switch(i[0, 0] % 3, [jnp.sin, lambda v: v * 2, jnp.abs], x)


def movement(x, i):
  padded = jnp.pad(x, ((1, 2), (0, 3)), constant_values=7.0)
  return (
    padded[::-1, ::2].T,
    jnp.concatenate([i, i[:, ::-1]], 1),
    jnp.tile(i, 3),
  )


def windows(x, i):
  at = i[0, 1] % 40 - 5
  return (
    lax.dynamic_slice(x, (at, at), (4, 3)),
    lax.dynamic_update_slice(x, x[:2, :4] + 1, (at, 1)),
  )


def extremes(x, i):
  return x.argmax(1), i.argmin(0), x.max(), jnp.where(x > 0, x, i)


PEOPLES = (
  softmax, normalise, perceptron, embedding, loops, branches, movement,
  windows, extremes,
)  # fmt: skip


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("f", PEOPLES, ids=lambda f: f.__name__)
def test_programs(cpu, f, tiles):
  x = util.sample(np.float32, (9, 20))
  i = util.sample(np.int32, (9, 20), low=0, high=1000)
  check(cpu, f, [x, i], tiles, ulps=64)


@pytest.mark.parametrize("f", PEOPLES, ids=lambda f: f.__name__)
def test_nothing_moves_on_one_tile(cpu, f):
  x = util.sample(np.float32, (9, 20))
  i = util.sample(np.int32, (9, 20), low=0, high=1000)
  result = check(cpu, f, [x, i], 1, ulps=64)
  moved = sum(e.actual for e in result.exchanges)
  assert moved == result.host_bytes


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("rows", [(5, 16), (16, 20, 20), (8, 64, 64, 20)])
def test_results_that_replace_dead_operands_next_to_free_memory(
  cpu, rows, tiles
):
  """The products are read for the last time where their functions are computed,
  and the memory before the first of them is free by then."""

  def f(w, *xs):
    first, *products = [x @ w for x in xs]
    total = sum((first[:5] * p[:5]).sum() for p in products)
    return [jnp.tanh(p * total) @ w for p in products]

  arrays = [util.sample(np.float32, (n, 16), low=-0.2, high=0.2) for n in rows]
  w = util.sample(np.float32, (16, 16), low=-0.2, high=0.2)
  check(cpu, f, [w, *arrays], tiles, ulps=256)


@pytest.mark.parametrize(
  "dtype",
  [np.float32, np.float16, ml_dtypes.bfloat16, np.int32],
  ids=lambda d: np.dtype(d).name,
)
def test_a_product_in_serial_steps(cpu, dtype):
  """On tiles too small for the blocks of one step; integers, exactly."""
  terms = 4608 // np.dtype(dtype).itemsize
  x = util.sample(np.int32, (60, terms), low=0, high=3).astype(dtype)
  y = util.sample(np.int32, (terms, 48), low=0, high=3).astype(dtype)
  small = dataclasses.replace(
    machines.resolve("ipu2", 36),
    bytes_per_tile=8192 + 3 * (x.nbytes + y.nbytes) // 36,
  )

  def f(x, y):
    return x @ y

  check(cpu, f, [x, y], small)
  program, _ = container.read(compiled(f, [x, y], small))
  dots = [s for s in program.steps if isinstance(getattr(s, "fields", 0), Dot)]
  assert [dot.fields.adds for dot in dots] == [0] + [1] * (len(dots) - 1)
  assert len(dots) > 1


def test_a_broadcast_is_hoisted_and_reused_in_a_loop(cpu):
  """The row is sent to all tiles once, before the loop, and kept."""

  def f(x, row):
    def iteration(i, s):
      y = jnp.sin(x * s + row)
      return s + jnp.sin((y @ y.T) * 1e-3).sum() * 1e-3

    return jnp.sin(x + row), lax.fori_loop(0, 3, iteration, jnp.float32(1))

  x = util.sample(np.float32, (16, 64))
  row = util.sample(np.float32, (64,))
  program, _ = container.read(compiled(f, [x, row], 16))
  result = check(cpu, f, [x, row], 16, ulps=1 << 12)
  planned = program.memory
  code = planned.code_bytes // 16
  assert result.peak_bytes.max() + code <= planned.peak_tile_bytes
