"""Integers and floats of less than 16 bits: stored as bytes, computed wider."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ipu_test_util import check_equal, rng_of, run_on

import jax
import jax.numpy as jnp

FLOATS = tuple(
  np.dtype(t)
  for t in (
    ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn,
  )
)  # fmt: skip
# Types with a zero and a sign.
SIGNED_FLOATS = tuple(t for t in FLOATS if t != ml_dtypes.float8_e8m0fnu)
# XLA has no buffers of these types: they only occur inside programs.
INNER = tuple(
  np.dtype(t) for t in (ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)
)
INTEGERS = tuple(
  np.dtype(t)
  for t in (ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4)
)
ALL = FLOATS + INTEGERS


def bits(dtype: np.dtype) -> int:
  info = ml_dtypes.finfo if dtype in FLOATS + INNER else ml_dtypes.iinfo
  return info(dtype).bits


def patterns(dtype: np.dtype) -> np.ndarray:
  """Every value of the type."""
  return np.arange(1 << bits(dtype), dtype=np.uint8).view(dtype)


def sample(dtype: np.dtype, shape: tuple[int, ...], key: Any = 0) -> np.ndarray:
  """Finite values, small enough that some sums stay in range."""
  rng = rng_of(str(dtype), shape, key)
  if dtype == ml_dtypes.float8_e8m0fnu:
    return np.exp2(rng.integers(-3, 4, shape)).astype(dtype)
  if dtype in FLOATS + INNER:
    return rng.uniform(-2, 2, shape).astype(np.float32).astype(dtype)
  info = ml_dtypes.iinfo(dtype)
  return rng.integers(int(info.min), int(info.max) + 1, shape).astype(dtype)


def plain(x: np.ndarray) -> np.ndarray:
  """A narrow array as f32 or i32; others unchanged."""
  if x.dtype in FLOATS:
    return x.astype(np.float32)
  return x.astype(np.int32) if x.dtype in INTEGERS else x


@pytest.fixture
def check_values(ipu, cpu):
  """f gives the same numbers and types on both devices."""

  def check(f, *args, **tolerance):
    actual, expected = (run_on(device, f, *args) for device in (ipu, cpu))
    kinds = [jax.tree.map(lambda x: x.dtype, t) for t in (actual, expected)]
    assert kinds[0] == kinds[1]
    actual, expected = (jax.tree.map(plain, t) for t in (actual, expected))
    check_equal(actual, expected, **tolerance)

  return check


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_bit_pattern_is_widened(check_values, dtype):
  wider = [jnp.float32, jnp.float16, jnp.bfloat16, jnp.bool_]
  if dtype != ml_dtypes.float4_e2m1fn:
    wider.append(jnp.int32)  # XLA:CPU gives INT_MAX for 6.0

  def f(x):
    return {np.dtype(t).name: x.astype(t) for t in wider}

  values = patterns(dtype)
  if dtype in FLOATS:  # XLA:CPU does not convert infinity to a defined integer
    with np.errstate(all="ignore"):
      values = values[np.abs(values.astype(np.float32)) < 2**31]
  check_values(f, values, rtol=0)


@pytest.mark.parametrize("source", ("float16", "bfloat16"))
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_half_is_narrowed(check_values, dtype, source):
  x = np.arange(1 << 16, dtype=np.uint16).view(np.dtype(source))
  check_values(lambda x: x.astype(dtype), x, rtol=0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_singles_are_narrowed(check_values, dtype):
  x = rng_of("single").integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
  near = sample(dtype, (50_000,)).astype(np.float32)
  near = near * rng_of("near").uniform(0.9, 1.1, near.shape).astype(np.float32)
  ties = np.arange(-600, 600, dtype=np.float32) / 32
  x = np.concatenate([x, near, ties])
  check_values(lambda x: x.astype(dtype), x, rtol=0)


@pytest.mark.parametrize("dtype", INNER, ids=str)
def test_types_without_buffers_live_inside_programs(ipu, dtype):
  x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
  x = x[~np.isnan(x.astype(np.float32))]  # these types have no NaN
  f = lambda x: x.astype(dtype).astype(jnp.float32)
  want = x.astype(np.float32).astype(dtype).astype(np.float32)
  check_equal(run_on(ipu, f, x), want, rtol=0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_integers_are_narrowed(check_values, dtype):
  x = np.arange(-300, 300, dtype=np.int32) * 3
  check_values(
    lambda x: [x.astype(dtype), x.astype(jnp.uint8).astype(dtype)], x, rtol=0
  )


@pytest.mark.parametrize("dtype", SIGNED_FLOATS, ids=str)
def test_float_arithmetic(check_values, dtype):
  def f(x, y):
    return {
      "add": x + y, "multiply": x * y, "subtract": x - y, "negate": -x,
      "abs": abs(x), "exp": jnp.exp(x), "max": jnp.maximum(x, y),
      "less": x < y, "equal": x == y, "select": jnp.where(x < y, x, y),
      "clip": jnp.clip(x, -1, 1), "sign": jnp.sign(x),
    }  # fmt: skip

  x, y = sample(dtype, (300,)), sample(dtype, (300,), 1)
  # XLA:CPU goes through f16, which rounds some results twice.
  check_values(f, x, y, rtol=2.0 ** -ml_dtypes.finfo(dtype).nmant)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(check_values, dtype):
  def f(x, y):
    return {
      "add": x + y, "multiply": x * y, "subtract": x - y, "negate": -x,
      "max": jnp.maximum(x, y), "less": x < y, "and": x & y, "xor": x ^ y,
      "not": ~x, "clip": jnp.clip(x, 0, 1), "sign": jnp.sign(x),
      "divide": jax.lax.div(x, y), "remainder": jax.lax.rem(x, y),
      "left": jax.lax.shift_left(x, y),
      "logical": jax.lax.shift_right_logical(x, y),
      "arithmetic": jax.lax.shift_right_arithmetic(x, y),
      "clz": jax.lax.clz(x),
    }  # fmt: skip

  x, y = (a.reshape(-1) for a in np.meshgrid(*2 * [patterns(dtype)]))
  check_values(f, x, y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_population_count(ipu, dtype):
  """XLA:CPU also counts the bits above the type's own."""
  count = run_on(ipu, jax.lax.population_count, patterns(dtype))
  want = np.bitwise_count(np.arange(1 << bits(dtype))).astype(dtype)
  np.testing.assert_array_equal(count.astype(int), want.astype(int))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_data_movement(ipu, cpu, dtype):
  """Compared with plain numbers: XLA:CPU aborts on some of these types."""

  def f(x, i):
    return {
      "transpose": x.T, "slice": x[1:, ::2], "reverse": x[::-1],
      "concatenate": jnp.concatenate([x, x]), "gather": x[i],
      "dynamic": jax.lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
      "update": jax.lax.dynamic_update_slice(x, x[:2, :2], (i[0], i[1])),
      "set": x.at[i].set(x[:3]), "broadcast": jnp.broadcast_to(x, (2, 5, 7)),
      "pad": jax.lax.pad(x, x[0, 0], ((1, 2, 1), (0, -1, 0))),
      "empty": x[:0], "scan": jax.lax.scan(lambda c, r: (r, c), x[0], x),
      "loop": jax.lax.fori_loop(0, 3, lambda j, c: c[::-1], x),
      "branch": jax.lax.cond(i[0] > 1, lambda a: a, lambda a: a[::-1], x),
    }  # fmt: skip

  x, i = sample(dtype, (5, 7)), np.array([3, 0, 2], np.int32)
  got, want = run_on(ipu, f, x, i), run_on(cpu, f, plain(x), i)
  assert {a.dtype for a in jax.tree.leaves(got)} == {dtype}
  check_equal(jax.tree.map(plain, got), want, rtol=0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_constants(check_values, dtype):
  values = patterns(dtype)
  if dtype in FLOATS:
    values = values[~np.isnan(values.astype(np.float32))]
  one = values[3]

  def f(x):
    few = [jnp.asarray(values[i : i + 5]) for i in range(0, len(values), 5)]
    return x, jnp.asarray(values), jnp.full((4,), one), jnp.asarray(one), few

  check_values(f, sample(dtype, (3,)), rtol=0)


@pytest.mark.parametrize("dtype", SIGNED_FLOATS, ids=str)
def test_reductions(check_values, dtype):
  check_values(
    lambda x: (x.max(1), x.argmin(0)), sample(dtype, (9, 12)), rtol=0
  )


def test_windows_are_computed_wide(ipu):
  x = np.arange(8).astype(jnp.float8_e4m3fn).reshape(1, 1, 8)
  conv = lambda x: jax.lax.conv(x, x[..., :3], (1,), "VALID")
  got = run_on(ipu, lambda x: (jnp.cumsum(x, 2), conv(x)), x)
  wide = x.astype(np.float32)[0, 0]
  want = np.cumsum(wide), np.correlate(wide, wide[:3])
  for a, b in zip(got, want, strict=True):
    np.testing.assert_array_equal(a[0, 0], b.astype(x.dtype))


@pytest.mark.parametrize("dtype", SIGNED_FLOATS + INTEGERS, ids=str)
def test_products(ipu, dtype):
  """XLA:CPU refuses types of less than 8 bits."""
  x, y = sample(dtype, (9, 12)), sample(dtype, (12, 4), 1)
  wide = jnp.float32 if dtype in FLOATS else jnp.int32
  dot = lambda x, y: jnp.matmul(x, y, preferred_element_type=wide)
  check_equal(run_on(ipu, dot, x, y), plain(x) @ plain(y), rtol=1e-5)


def test_a_sum_of_narrow_floats_is_rounded_once(ipu):
  x = np.full(64, 0.25, ml_dtypes.float8_e4m3fn)
  f = lambda x: jax.lax.reduce(x, np.zeros((), x.dtype), jax.lax.add, (0,))
  assert float(run_on(ipu, f, x)) == 16.0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_reductions(check_values, dtype):
  def f(x):
    zero = np.zeros((), dtype)
    return {
      "sum": jax.lax.reduce(x, zero, jax.lax.add, (0,)),
      "max": x.max(1),
      "add": x.at[np.array([1, 1])].add(x[:2]),
    }

  check_values(f, sample(dtype, (9, 12)))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_bitcasts(check_values, dtype):
  n = 32 // bits(dtype)  # elements in 32 bits

  def f(x):
    cast = jax.lax.bitcast_convert_type
    whole = cast(x, jnp.uint32)
    octets = x if n == 4 else x.reshape(-1, 4, n // 4)
    return whole, cast(whole, dtype), cast(octets, jnp.uint8)

  check_values(f, sample(dtype, (5, n)), rtol=0)


def test_reduce_precision_to_narrow_formats(check):
  x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
  x = x[np.isfinite(x)].astype(np.float32)

  def f(x):
    formats = ((5, 2), (4, 3), (3, 4), (2, 1))
    return [jax.lax.reduce_precision(x, *f) for f in formats]

  check(f, x)


def test_eager_and_donated(on_ipu):
  x = jnp.arange(8, dtype=jnp.float8_e4m3fn)
  assert (x * 2).dtype == jnp.float8_e4m3fn
  np.testing.assert_array_equal(np.asarray(x + x, np.float32), 2 * np.arange(8))
  y = jax.jit(lambda x: x + x, donate_argnums=0)(x)
  assert x.is_deleted()
  np.testing.assert_array_equal(np.asarray(y, np.float32), 2 * np.arange(8))


def test_gradient_through_a_narrow_cast(check):
  def loss(w, x):
    y = jax.lax.dot(
      x.astype(jnp.float8_e4m3fn),
      w.astype(jnp.float8_e5m2),
      preferred_element_type=jnp.float32,
    )
    return (y**2).sum()

  rng = rng_of("fp8")
  w, x = (rng.normal(size=s).astype(np.float32) for s in ((6, 3), (4, 6)))
  # Cotangents are rounded to 8 bits: a sum of another order may be rounded to
  # the neighbouring value.
  eps = float(ml_dtypes.finfo(jnp.float8_e5m2).eps)
  check(jax.grad(loss), w, x, rtol=eps, atol=eps)
