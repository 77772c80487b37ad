"""Powers, quotients and remainders by constants."""

from __future__ import annotations

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax

EDGES = [-0.0, 0.0, -np.inf, np.inf, np.nan, 1, -1, 2, 3, -2, 0.3, -0.7, 7.3]
EXPONENTS = [0.5, -0.5, 1.5, -1.5, 2.5, 3.5, -3.5, 1, -1, 2, -2, 3, -3, 4]
INTEGERS = [
  np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
  np.uint64,
]  # fmt: skip


@pytest.mark.parametrize(
  "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str
)
def test_powers(check, dtype):
  """Multiples of 1/2 and other values; zeros keep their signs."""
  with jax.enable_x64(True):
    x = np.array(EDGES, np.float64).astype(dtype)

    def powers(x):
      found = [
        lax.pow(x, jnp.asarray(p, dtype)) for p in (*EXPONENTS, 0.3, 5, 6.5)
      ]
      signs = [jnp.signbit(p) & ~jnp.isnan(p) for p in found]
      return found, signs

    eps = float(jnp.finfo(dtype).eps)
    check(powers, x, rtol=4 * eps, atol=0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.__name__)
def test_quotients_and_remainders(check, dtype):
  """Divisors: powers of two, their neighbours, and the smallest and largest."""
  info = np.iinfo(dtype)
  near = [n + k for n in (0, info.max, info.min) for k in range(-9, 10)]
  x = np.array([n for n in near if info.min <= n <= info.max], dtype)
  by = [1, 2, 3, 4, 8, 64, 1 << (info.bits - 2), info.max]
  by += [-1, -2, -8, info.min] if info.min else [1 << (info.bits - 1)]

  def divided(x):
    numbers = [jnp.asarray(n, dtype) for n in by]
    return [[lax.div(x, n), lax.rem(x, n), x // n, x % n] for n in numbers]

  with jax.enable_x64(True):
    check(divided, x)


@pytest.mark.ipu_only
@pytest.mark.parametrize("f, g", [
  (lambda x: x**0.5, lambda x: x**0.3),
  (lambda x: x**-1.5, lambda x: x**-1.4),
  (lambda x: lax.pow(x, jnp.float32(3)), lambda x: lax.pow(x, jnp.float32(5))),
  (lambda x: x.astype(int) // 8, lambda x: x.astype(int) // 7),
  (lambda x: x.astype(int) % 8, lambda x: x.astype(int) % 7),
  (lambda x: x.astype(jnp.uint32) % 8, lambda x: x.astype(jnp.uint32) % 7),
])  # fmt: skip
def test_constant_operands_take_a_tenth_of_the_cycles(ipu, f, g):
  """A POW takes 312 cycles per element, a quotient 277."""
  few, many = (util.costs(ipu, h, util.spec(100_000)) for h in (f, g))
  assert few["ipu compute cycles"] < 0.11 * many["ipu compute cycles"]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.__name__)
def test_divisors_known_at_run_time(check, dtype):
  """Divisors 0, -1 and others; a remainder shares the division of its
  quotient."""
  info = np.iinfo(dtype)
  numbers = [0, 1, 2, 7, info.max - 1, info.max, info.min, info.min + 1]
  numbers += [-1, -2, -7] if info.min else []
  x, y = (a.ravel() for a in np.meshgrid(*2 * [np.array(numbers, dtype)]))
  with jax.enable_x64(True):
    check(lambda x, y: [lax.rem(x, y), lax.div(x, y), x % y], x, y)


@pytest.mark.ipu_only
def test_a_remainder_shares_the_division_of_its_quotient(ipu):
  x, y = util.spec(100_000, dtype=np.int32), util.spec(100_000, dtype=np.int32)
  one = util.costs(ipu, lax.div, x, y)
  both = util.costs(ipu, lambda x, y: (lax.div(x, y), lax.rem(x, y)), x, y)
  assert both["ipu compute cycles"] < 1.1 * one["ipu compute cycles"]
