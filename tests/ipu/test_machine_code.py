"""Machine code for chains of cheap instructions: every element type, and sizes
that fill vectors, fall short of one, and leave a rest."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp

SIZES = (1, 4, 7, 8, 37)
INTEGERS = (
  np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
  np.uint64,
)  # fmt: skip


def of_integers(x, y):
  compared = (x < y, x <= y, x == y, x != y, x > y, x >= y)
  shifted = (x >> 3, x << 2, jax.lax.shift_right_arithmetic(x, y))
  signs = (abs(x), ~x, -x, jnp.sign(x))
  return (
    *compared, *shifted, *signs,
    jnp.minimum(x, y), jnp.maximum(x, y), x * y + x, x // 7, x % 7,
    jnp.where(x > y, x - y, x ^ y), jnp.where(x > y, 1.5, 2.5),
    x.astype(jnp.float32), x.astype(jnp.int64), x.astype(jnp.uint16),
  )  # fmt: skip


def all_values(dtype):
  """All bytes, or words of all kinds; their number fills no vector."""
  info = np.iinfo(dtype)
  x = np.arange(info.min, info.max + 1, 1 if info.bits == 8 else 7)
  return np.concatenate([x, x[-5:], x[:4]]).astype(dtype)


def divisors(dtype):
  """Powers of two, odd and even constants of both signs, and the limits."""
  info = np.iinfo(dtype)
  magnitudes = [2, 3, 7, 16, 100, 127]
  magnitudes += [1000, 16384] if info.bits == 16 else []
  signs = (1, -1) if info.min < 0 else (1,)
  return [s * d for d in magnitudes for s in signs] + [
    1, info.max, info.min or info.max - 1,
  ]  # fmt: skip


def of_shifts(x, by):
  left, right = x << by, jax.lax.shift_right_logical(x, x.dtype.type(by))
  return left, right, x >> by, jnp.maximum(left, x), jnp.minimum(right, x)


def of_constant(x, c):
  """Arithmetic that wraps around, and comparisons."""
  compared = (x < c, x <= c, x == c, x != c, x > c, x >= c)
  wrapped = (x + c, x * c, c - x, (x * 3 + c) ^ (x >> 3), x * x * c)
  return (
    *compared, *wrapped, x & c, jnp.where(x * 5 > c, x - c, ~x),
    jnp.clip(x, c, 100), jnp.maximum(x + 7, c), jnp.minimum(-x, c),
    jnp.sign(x - c), jnp.abs(x) | c, (x * c).astype(jnp.int16),
    (x - c).astype(jnp.uint8),
  )  # fmt: skip


def of_floats(x, y):
  compared = (x < y, x <= y, x == y, x != y, x > y, x >= y)
  signs = (abs(x), -x, jnp.sign(x), jnp.floor(x), jnp.ceil(x))
  return (
    *compared, *signs, jnp.minimum(x, y), jnp.maximum(x, y), x + y,
    jnp.clip(x, -0.5, y), jnp.where(x > y, x, -y), jnp.where(x > y, 1, 2),
    x.astype(jnp.int32), x.astype(jnp.float16), x.astype(jnp.bfloat16),
  )  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.__name__)
def test_integers(check, dtype):
  rng = np.random.default_rng(0)
  info = np.iinfo(dtype)
  edges = np.array([info.min, info.max, 0, 1, 7], dtype)
  with jax.enable_x64(True):
    for size in SIZES:
      x, y = rng.integers(
        info.min, info.max, (2, size), dtype=dtype, endpoint=True
      )
      x[: edges.size] = edges[:size]
      check(of_integers, x, y, rtol=0)


@pytest.mark.parametrize("dtype", INTEGERS[:4], ids=lambda d: d.__name__)
def test_division_of_narrow_integers(on_ipu, dtype):
  x = all_values(dtype)
  wide = x.astype(np.int64)
  for divisor in divisors(dtype):
    d = dtype(divisor)
    found = jax.jit(
      lambda x, d=d: (jax.lax.div(x, d), jax.lax.rem(x, d), x // d, x % d)
    )(x)
    rest = np.fmod(wide, divisor)
    expected = (
      (wide - rest) // divisor, rest, wide // divisor, wide % divisor,
    )  # fmt: skip
    for name, f, e in zip(("div", "rem", "//", "%"), found, expected):
      assert f.dtype == dtype
      np.testing.assert_array_equal(f, e.astype(dtype), f"{name} {divisor}")


@pytest.mark.parametrize("dtype", INTEGERS[:4], ids=lambda d: d.__name__)
def test_constants_and_narrow_integers(check, dtype):
  info = np.iinfo(dtype)
  x = all_values(dtype)
  constants = (50, info.min)
  for constant in map(dtype, constants):
    check(lambda x, c=constant: of_constant(x, c), x, rtol=0)
  for by in (1, info.bits - 1, info.bits):
    check(lambda x, by=by: of_shifts(x, by), x, rtol=0)


@pytest.mark.parametrize(
  "dtype",
  [np.float32, np.float64, jnp.float16, jnp.bfloat16],
  ids=["f32", "f64", "f16", "bf16"],
)
def test_floats(check, dtype):
  rng = np.random.default_rng(0)
  edges = np.array([np.nan, np.inf, -np.inf, 0, -0.0], dtype)
  with jax.enable_x64(True):
    for size in SIZES:
      x, y = rng.normal(0, 2, (2, size)).astype(dtype)
      x[: edges.size] = edges[:size]
      check(of_floats, x, y, rtol=0)


def of_few_floats(x, y):
  """Long computations that only zeros, NaN and infinities need."""

  def long(v):
    for k in range(20):
      v = jnp.maximum(v + k, y - v)
    return v

  special = jnp.isnan(x) | (abs(x) == jnp.inf)
  return (
    jnp.where(x == 0, long(x), y),
    jnp.where(jnp.isfinite(x), x, long(y)),
    jnp.where(special, long(y + 1), x),
  )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("few", ["none", "one", "all"])
def test_few_floats(check, dtype, few):
  rng = np.random.default_rng(0)
  with jax.enable_x64(True):
    for size in (5, 37, 300):
      x, y = rng.normal(0, 2, (2, size)).astype(dtype)
      for special in (0, np.nan, np.inf):
        x[{"none": [], "one": size // 2, "all": slice(None)}[few]] = special
        check(of_few_floats, x, y, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 11])
def test_loops(check, size):
  def step(i, x):
    return jnp.where(i % 3 == 0, x * 1.01, x * 0.9 + 0.5)

  def loop(x):
    return jax.lax.fori_loop(0, 50, step, x)

  # XLA:CPU may fuse a product and a sum.
  check(loop, np.linspace(-3, 3, size, dtype=np.float32), rtol=1e-5)
