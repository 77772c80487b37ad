"""Prefix sums: cumsum and similar scans, of every length, type and
direction."""

from __future__ import annotations

import math

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from ipu_test_util import FLOATS, NUMBERS

import jax
import jax.numpy as jnp
from jax import lax

EPS = float(np.finfo(np.float32).eps)


def rounded(dtype, shape) -> float:
  """What sums along any dimension may differ by, in units of their terms: each
  is rounded. XLA:CPU's tree of 16-bit terms rounds once for each level."""
  if dtype not in FLOATS:
    return 0
  n = max(shape)
  eps = float(ml_dtypes.finfo(dtype).eps)
  return eps * (math.log2(n) if dtype.itemsize == 2 else n)


TOTALS = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_totals(check, dtype):
  x = util.sample(dtype, (4, 33, 5), low=0, high=2)
  x = np.where(x > 1, x * 0 + 1, x).astype(dtype)  # products stay small

  def f(x):
    return {
      f"{total.__name__} {axis} {reverse}": total(x, axis, reverse)
      for total in TOTALS
      for axis in range(3)
      for reverse in (False, True)
    }

  rtol = rounded(dtype, x.shape)
  check(f, x, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("n", [1, 2, 31, 128, 129, 1000, 8192, 20011])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths(check, n, reverse):
  x = util.sample(np.int32, (n,))

  def f(x):
    return [g(x, 0, reverse) for g in (lax.cumsum, lax.cummax, lax.cummin)]

  check(f, x)


@pytest.mark.parametrize("shape, axis", [
  ((300, 7), 0), ((7, 300), 1), ((3, 500, 2), 1), ((2, 9000), 1),
  ((5000, 3), 0), ((20, 0), 0), ((0,), 0), ((1, 1), 1),
])  # fmt: skip
def test_shapes(check, shape, axis):
  x = util.sample(np.float32, shape)
  bound = rounded(x.dtype, shape)
  check(
    lambda x: [g(x, axis) for g in (lax.cumsum, lax.cumlogsumexp)],
    x, rtol=bound, atol=bound,
  )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [50, 300])
def test_cumlogsumexp(check, dtype, n):
  x = util.sample(dtype, (n, 3), special=False)
  bound = rounded(x.dtype, x.shape)
  for reverse in (False, True):
    check(lambda x: lax.cumlogsumexp(x, 0, reverse), x, rtol=bound, atol=bound)


def test_special_values(check):
  x = util.sample(np.float32, (40, 3), special=True)
  check(lambda x: [g(x, 0) for g in TOTALS], x)


def test_gradients(check):
  x = util.sample(np.float32, (300,), low=0.9, high=1.1)

  def f(x):
    return {
      total.__name__: jax.grad(lambda x: (total(x) ** 2).sum())(x)
      for total in (lax.cumsum, lax.cumprod, lax.cummax, lax.cumlogsumexp)
    }

  # A scan of 300 terms, its gradient, which is another one, and of cumprod a
  # quotient of each term.
  check(f, x, rtol=3 * 300 * EPS)


def test_associative_scan(check):
  x = util.sample(np.float32, (50, 4), low=0, high=1)

  def f(x):
    def affine(a, b):
      return a[0] * b[0], b[0] * a[1] + b[1]

    return lax.associative_scan(affine, (x, x[::-1]))

  check(f, x, rtol=50 * EPS)  # a sum of products of up to 50 factors


def test_work_is_linear(ipu):
  """A window as long as the array would take n * n."""

  def flops(n):
    return util.costs(ipu, jnp.cumsum, util.spec(n))["flops"]

  assert flops(100_000) < 15 * flops(10_000)


@pytest.mark.ipu_only
def test_long_work_is_cut_into_short_blocks(ipu):
  """As long as that saves more than the block totals cost, which allows more
  blocks in emulated double precision."""
  with jax.enable_x64(True):
    found = [
      util.costs(ipu, jnp.cumsum, util.spec(n, dtype=np.float64))["ipu cycles"]
      for n in (16, 32, 64, 128, 256, 1024)
    ]
  assert found == sorted(found) and found[-1] < 4 * found[0]
  few, many = (
    util.costs(ipu, lambda x: jnp.cumsum(x, 1), util.spec(*s))["ipu cycles"]
    for s in ((1000, 1000), (1, 1_000_000))
  )
  assert many < 2 * few
