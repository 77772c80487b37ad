"""Division by constants, which needs no division: exact everywhere.

The expected values of integers are Python's, truncated towards zero; x / 0 is
all ones and x % 0 is x; the least integer over -1 wraps. Floats are divided by
powers of two, and rounded where a quotient is denormal.
"""

from __future__ import annotations

import numpy as np
import pytest
from ipu_test_util import rng_of

import jax
from jax import lax

SMALL = [np.int8, np.uint8, np.int16, np.uint16]
LARGE = [np.int32, np.uint32, np.int64, np.uint64]


def divided(x: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
  """Quotients and remainders."""
  dtype = x.dtype
  if d == 0:
    return np.full_like(x, np.iinfo(dtype).max if dtype.kind == "u" else -1), x
  wide = x.astype(object)
  quotient = np.array([abs(v) // abs(d) for v in wide], object)
  quotient = np.where((wide < 0) != (d < 0), -quotient, quotient)
  mask = (1 << 8 * dtype.itemsize) - 1
  wrap = lambda v: np.array([n & mask for n in v], f"u{dtype.itemsize}")
  return tuple(wrap(v).view(dtype) for v in (quotient, wide - quotient * d))


def check(ipu, x: np.ndarray, divisors: list[int]) -> None:
  def f(x):
    at = [x.dtype.type(d) for d in divisors]
    return [(lax.div(x, d), lax.rem(x, d)) for d in at]

  with jax.default_device(ipu):
    found = jax.jit(f)(x)
  for d, results in zip(divisors, found, strict=True):
    for name, actual, expected in zip("/%", results, divided(x, d)):
      np.testing.assert_array_equal(actual, expected, f"{x.dtype} {name} {d}")


@pytest.mark.parametrize("dtype", SMALL[:2])
def test_all_of_8_bits(ipu, dtype):
  info = np.iinfo(dtype)
  every = np.arange(info.min, info.max + 1, dtype=dtype)
  divisors = [int(d) for d in every]
  for i in range(0, 256, 64):
    check(ipu, every, divisors[i : i + 64])


@pytest.mark.parametrize("dtype", SMALL[2:])
def test_all_dividends_of_16_bits(ipu, dtype):
  info = np.iinfo(dtype)
  every = np.arange(info.min, info.max + 1, dtype=dtype)
  check(ipu, every, [3, 7, 10, 641, 1000, info.max, info.max // 2 + 1])
  if dtype == np.int16:
    check(ipu, every, [-3, -7, info.min])


@pytest.mark.parametrize("dtype", LARGE)
def test_edges(ipu, dtype):
  info = np.iinfo(dtype)
  rng = np.random.default_rng(0)
  ends = [info.min, info.max, info.max // 2, info.max // 2 + 1, info.min // 2]
  near = {e + d for e in ends for d in range(-3, 4)} | set(range(-20, 20))
  powers = {s * (1 << k) + d for k in range(info.bits) for s in (1, -1)
            for d in (-1, 0, 1)}  # fmt: skip
  drawn = set(rng.integers(info.min, info.max, 40, dtype=dtype).tolist())
  inside = lambda v: sorted(n for n in v if info.min <= n <= info.max)
  divisors = inside({0, 1, -1, 2, -2, 3, -3, 5, 7, -7, 10, 641, 1000, -1000,
                     10**9, 6700417, *ends[:4], info.max - 1, info.min + 1,
                     *list(drawn)[:8]})  # fmt: skip
  factors = lambda d: (-3, 1, 2, info.max // (d or 1))
  multiples = {k * d + r for d in divisors for k in factors(d)
               for r in (-1, 0, 1)}  # fmt: skip
  x = np.array(inside(near | powers | drawn | multiples), dtype)
  with jax.enable_x64(info.bits == 64):
    check(ipu, x, divisors)
    check(ipu, x[:1], divisors)  # one element: no vectors


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_in_loops_and_chains(ipu, dtype):
  def digits(x):
    def body(i, c):
      n, total = c
      return n // 10, total + n % 10

    return lax.fori_loop(0, 12, body, (x, x * 0))[1]

  x = np.array([0, 9, 99, 100, 123, 127], dtype)
  expected = [sum(map(int, str(n))) for n in x]
  with jax.default_device(ipu):
    np.testing.assert_array_equal(jax.jit(digits)(x), expected)
    for n, total in zip(x, expected, strict=True):
      assert jax.jit(digits)(n) == total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_by_powers_of_two(ipu, dtype):
  info = np.finfo(dtype)
  special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.tiny, info.max, info.eps]
  random = rng_of("powers", dtype).normal(size=500)
  x = np.concatenate([special, random * info.tiny, random, -random]).astype(
    dtype
  )
  powers = [2.0, -4.0, 0.25, -1.0, 1024.0, 2.0**-60, 2.0**60]
  with jax.enable_x64(dtype == np.float64), jax.default_device(ipu):
    found = jax.jit(lambda x: [x / dtype(p) for p in powers])(x)
  for p, quotient in zip(powers, found, strict=True):
    with np.errstate(over="ignore", under="ignore"):
      expected = x / dtype(p)
    np.testing.assert_array_equal(quotient, expected, f"{p}")
    signs = np.signbit(np.asarray(quotient)) == np.signbit(expected)
    assert np.all(signs | np.isnan(x)), p
