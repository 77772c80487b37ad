"""Vectors that no cache holds, computed by each step that reads them.

The oracle is NumPy with 64 bits.
"""

from __future__ import annotations

import numpy as np
import pytest
from ipu_test_util import rng_of

import jax
import jax.numpy as jnp

# 20 MB of f32, and no number that vectors divide.
SIZE = 5_000_011


def numbers(*key, dtype=np.float32) -> np.ndarray:
  return rng_of("recomputed", *key).normal(size=SIZE).astype(dtype)


def softmax(x: np.ndarray) -> np.ndarray:
  e = np.exp(x - x.max())
  return e / e.sum()


def wide(x: np.ndarray) -> np.ndarray:
  return x.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_softmax(ipu, dtype):
  x = numbers("softmax", dtype=dtype)
  found = jax.jit(jax.nn.softmax)(jax.device_put(x, ipu))
  expected = softmax(wide(x))
  tolerance = 1e-5 if dtype == np.float32 else 2e-3
  np.testing.assert_allclose(
    wide(np.asarray(found)), expected, rtol=tolerance, atol=1e-7
  )


def test_standard_scores(ipu):
  def scores(x):
    x = x - x.mean()
    return x / jnp.sqrt((x * x).mean()), jnp.abs(x).max()

  x = 3 * numbers("scores") + 5
  found, largest = jax.jit(scores)(jax.device_put(x, ipu))
  centred = wide(x) - wide(x).mean()
  np.testing.assert_allclose(found, centred / centred.std(), atol=1e-4)
  np.testing.assert_allclose(largest, np.abs(centred).max(), rtol=1e-5)


def test_what_is_donated_is_overwritten(ipu):
  x = numbers("donated")
  step = jax.jit(jax.nn.softmax, donate_argnums=0)
  found = step(jax.device_put(x, ipu))
  np.testing.assert_allclose(found, softmax(wide(x)), rtol=1e-5)


def test_in_a_loop(ipu):
  def step(_, x):
    y = jnp.exp(-x)
    return y / y.mean()

  x = np.abs(numbers("loop"))
  found = jax.jit(lambda x: jax.lax.fori_loop(0, 2, step, x))(
    jax.device_put(x, ipu)
  )
  expected = wide(x)
  for _ in range(2):
    expected = np.exp(-expected)
    expected /= expected.mean()
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_integers_are_the_same(ipu):
  def f(x):
    y = x * 77 + 13
    return y.sum(), y ^ y.max(), y >> 3

  x = rng_of("recomputed").integers(-999, 999, SIZE, np.int32)
  total, changed, shifted = jax.jit(f)(jax.device_put(x, ipu))
  y = x * 77 + 13
  assert int(total) == int(y.sum(dtype=np.int32))
  np.testing.assert_array_equal(changed, y ^ y.max())
  np.testing.assert_array_equal(shifted, y >> 3)
