"""Steps that run in bands of rows: arrays that no cache holds, on XLA:CPU."""

from __future__ import annotations

import numpy as np
import pytest
from ipu_test_util import rng_of

import jax
import jax.numpy as jnp

# No number of rows that bands divide; 2.7 MB of f32.
ROWS, COLUMNS = 1003, 700


def matrix(*key, shape=(ROWS, COLUMNS), dtype=np.float32) -> np.ndarray:
  return rng_of("bands", *key).normal(size=shape).astype(dtype)


def integers() -> np.ndarray:
  return rng_of("bands").integers(-99, 99, (ROWS, COLUMNS), np.int32)


def layer_norm(x):
  x = x - x.mean(-1, keepdims=True)
  return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def attention(q, k, v):
  scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8)
  return jnp.einsum("bqk,bkd->bqd", scores, v)


@pytest.mark.parametrize(
  "f",
  [
    jax.nn.softmax,
    lambda x: jax.nn.softmax(x, 0),
    layer_norm,
    lambda x: jax.grad(lambda x: (layer_norm(x) ** 3).sum())(x),
    lambda x: (x - x.sum(1, keepdims=True)) * x[::-1],
    lambda x: jax.nn.softmax(x[1:] - x[:-1]).T - x[:-1].T,
    lambda x: jnp.abs(jnp.fft.fft(x)) / ROWS,
    lambda x: jnp.abs(jnp.fft.rfft(x)) / ROWS,
    lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2),
  ],
)
def test_rows(check, f):
  check(f, matrix(0), rtol=1e-4, atol=1e-4)


def test_batches_of_products(check):
  x = [matrix(i, shape=(31, 128, 64)) for i in range(3)]
  check(attention, *x, rtol=1e-4, atol=1e-5)


def test_half_precision(check):
  x = matrix(1, shape=(1500, 1100)).astype(np.float16)
  check(jax.nn.softmax, x, rtol=4e-3)


def test_numbers_of_rows(check):
  def f(x):
    row = jax.lax.broadcasted_iota(np.int32, x.shape, 0)
    x = x * 3 + row
    best = x.max(1, keepdims=True)
    return jnp.where(x == best, row, x), x.argmax(1), best - x

  check(f, integers())


def test_donated_rows(ipu):
  x = integers()
  f = jax.jit(lambda x: x - x.sum(1, keepdims=True), donate_argnums=0)
  y = x
  for _ in range(3):
    y = y - y.sum(1, keepdims=True, dtype=np.int32)
  got = jax.device_put(x, ipu)
  for _ in range(3):
    got = f(got)
  np.testing.assert_array_equal(np.asarray(got), y)


def test_in_loops(check):
  def f(x):
    def step(_, x):
      y = x * 5 - x.min(1, keepdims=True)
      return y - (y // 7) * 7

    return jax.lax.fori_loop(0, 5, step, x)

  check(f, integers())
