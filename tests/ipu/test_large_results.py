"""Results that are stored past the caches, as they are large, on XLA:CPU."""

from __future__ import annotations

import numpy as np
import pytest
from ipu_test_util import rng_of

import jax
import jax.numpy as jnp

# More than 16 MiB of f32, in rows that are not whole vectors.
SHAPE = (2100, 2051)


def matrix(*key, shape=SHAPE) -> np.ndarray:
  return rng_of("large", *key).normal(size=shape).astype(np.float32)


def twice(x):
  y = x + 1
  return y, y * y - x


@pytest.mark.parametrize(
  "f",
  [
    lambda x: x * 2 + 1,
    lambda x: x.T - 1,
    lambda x: jnp.concatenate([x[1:], x[:1] + 1]),
    lambda x: (x.astype(jnp.bfloat16), x > 0, x.astype(jnp.int32)),
    lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x * 0.5 + i, x),
    twice,
    jax.nn.softmax,
  ],
)
def test_results(check, f):
  check(f, matrix(0), rtol=1e-5, atol=1e-6)


def test_whole_vectors(check):
  x = matrix(1, shape=(2048, 2064))
  check(lambda x: (x - 3) * x, x)
  check(lambda x: x - x.max(1, keepdims=True), x)


def test_donated_arguments():
  host = matrix(2)
  f = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
  x = jax.device_put(host, jax.devices("ipu")[0])
  for _ in range(3):
    x, host = f(x), host * 2 + 1
  np.testing.assert_array_equal(x, host)
