"""64-bit types, which an IPU emulates in software: jax.enable_x64."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from ipu_test_util import ALL, WIDE

import jax
import jax.numpy as jnp
from jax import lax

I64, U64, F64 = WIDE


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def test_integer_operations(check):
  def f(cases):
    return {
      name: [
        x + y, x - y, x * y, -x, lax.div(x, y), lax.rem(x, y), x & y, x | y,
        x ^ y, ~x, jnp.maximum(x, y), jnp.minimum(x, y), x < y, x >= y, x == y,
        lax.population_count(x), lax.clz(x), lax.sign(x),
        lax.shift_left(x, y), lax.shift_right_logical(x, y),
        lax.shift_right_arithmetic(x, y),
      ]
      for name, (x, y) in cases.items()
    }  # fmt: skip

  cases = {}
  for dtype in (I64, U64):
    v = util.special_values(dtype)
    cases[str(dtype)] = np.repeat(v, len(v)), np.tile(v, len(v))
    cases[f"{dtype} by small"] = (
      util.sample(dtype, (99,)),
      util.sample(dtype, (99,), low=1, high=60),
    )
  check(f, cases)


def test_float_operations(check):
  def f(x, y):
    p = jnp.abs(x) + 0.1
    return [
      x + y, x - y, x * y, x / y, lax.rem(x, y), p**y, jnp.exp(x), jnp.log(p),
      jnp.sin(x), jnp.cos(x), jnp.tanh(x), jnp.sqrt(p), lax.rsqrt(p),
      jnp.expm1(x), jnp.log1p(p), lax.cbrt(x), jnp.arctan2(x, y),
      lax.logistic(x), jnp.floor(x), jnp.ceil(x), lax.round(x), jnp.abs(x),
      jnp.maximum(x, y), x < y, jnp.sign(x), lax.erf(x), jnp.tan(x),
      lax.nextafter(x, y), jnp.isfinite(x / 0),
    ]  # fmt: skip

  x, y = (util.sample(F64, (200,), key=i) for i in (0, 1))
  check(f, x, y, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("source", WIDE, ids=str)
def test_conversions(check, source):
  def f(cases):
    return {name: x.astype(name) for name, x in cases.items()}

  cases = {}
  for to in (*ALL, *WIDE):
    low = high = None
    if util.is_float(source) and to.kind in "iu":
      info = np.iinfo(to)
      low, high = max(info.min, -(2.0**52)), min(info.max, 2.0**52)
    cases[str(to)] = util.sample(source, (5, 31), low=low, high=high)
  check(f, cases, exact=True)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_conversions_to_wide(check, source):
  x = util.sample(source, (9, 9), low=0 if source.kind == "u" else None,
                  high=100)  # fmt: skip
  check(lambda x: [x.astype(t) for t in WIDE], x, exact=True)


def test_data_movement(check):
  def f(x, i):
    return [
      x.T, x[::-1, 1::2], jnp.pad(x, 1), jnp.concatenate([x, x], 1), x[i],
      x.at[i].set(x[:3]), x.at[i].add(x[:3]), x.reshape(-1),
      lax.dynamic_slice(x, (i[0], i[1]), (2, 2)), jnp.where(x > 0, x, -x),
    ]  # fmt: skip

  i = np.array([4, 0, 2], np.int64)
  for dtype in WIDE:
    check(f, util.sample(dtype, (7, 6)), i, exact=dtype != F64)


def test_reductions_and_products(check):
  def f(x):
    return [
      x.sum(0), x.max(1), x.min(), x.prod(1), x.argmax(0), x @ x.T,
      x.mean(0), jnp.einsum("ij,ij->i", x, x),
    ]  # fmt: skip

  for dtype in WIDE:
    x = util.sample(dtype, (20, 30), low=1, high=3)
    check(f, x, rtol=1e-12, atol=1e-12)


def test_any_and_all_of_wide_numbers(check):
  def f(cases):
    return {
      dtype: [
        jnp.any(x, axis=axis) if name == "any" else jnp.all(x, axis=axis)
        for name in ("any", "all")
        for axis in (None, 0, 1)
      ]
      for dtype, x in cases.items()
    }

  sparse = np.arange(63).reshape(7, 9) % 9 > 3
  check(f, {str(d): util.sample(d, (7, 9)) * sparse.astype(d) for d in WIDE})


def test_loops_and_random_numbers(check):
  def f(n, seed):
    product = lax.fori_loop(1, n, lambda i, x: x * i, jnp.int64(1))
    key = jax.random.key(seed)
    return (
      product,
      jax.random.bits(key, (5,), "uint64"),
      jax.random.uniform(key, (50,), "float64"),
      jax.random.normal(key, (50,), "float64"),
      jax.random.randint(key, (50,), 0, 10**12, "int64"),
    )

  check(f, np.int64(21), np.int64(2**40 + 3), rtol=1e-12, atol=1e-14)


def test_a_gradient_in_f64(check):
  def f(x, w):
    return jax.nn.logsumexp(jnp.tanh(x @ w))

  x = util.sample(F64, (6, 7))
  w = util.sample(F64, (7, 5), low=-1, high=1)
  check(jax.value_and_grad(f, (0, 1)), x, w, rtol=1e-11, atol=1e-13)


def test_python_scalars_become_wide(ipu):
  with jax.default_device(ipu):
    assert jnp.arange(3).dtype == np.int64
    assert (jnp.arange(3) * 2.5).dtype == np.float64
    assert int(jnp.asarray(2**40) * 3) == 3 * 2**40
