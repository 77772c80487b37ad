"""Mistakes that are easy to make and go unnoticed: each has a test.

Where the right answer is known without another backend it is written down, so
that no test here relies on XLA:CPU alone.
"""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from ipu_test_util import FLOATS

import jax
import jax.numpy as jnp
from jax import lax


def run(ipu, f, *args):
  return util.run_on(ipu, f, *args)


def test_integer_remainder_takes_the_sign_of_the_dividend(ipu):
  for dtype in (np.int8, np.int16, np.int32):
    x = np.array([7, 7, -7, -7, 6, -6, 0, 1], dtype)
    y = np.array([3, -3, 3, -3, 3, 3, 5, -9], dtype)
    remainder, quotient = run(ipu, lambda x, y: (lax.rem(x, y), lax.div(x, y)),
                              x, y)  # fmt: skip
    np.testing.assert_array_equal(remainder, [1, 1, -1, -1, 0, 0, 0, 1])
    np.testing.assert_array_equal(quotient, [2, -2, -2, 2, 2, -2, 0, 0])


def test_python_modulo_takes_the_sign_of_the_divisor(ipu):
  x = np.array([7, 7, -7, -7, 6], np.int32)
  y = np.array([3, -3, 3, -3, -3], np.int32)
  modulo, quotient = run(ipu, lambda x, y: (x % y, x // y), x, y)
  np.testing.assert_array_equal(modulo, x % y)
  np.testing.assert_array_equal(quotient, x // y)


def test_large_integers_are_not_computed_in_float(ipu):
  x = np.array([2**31 - 1, 2**30 + 1, -(2**31) + 1, 16777217], np.int32)
  y = np.array([3, 7, 10, 2], np.int32)
  remainder, quotient, product = run(
    ipu, lambda x, y: (lax.rem(x, y), lax.div(x, y), x * y), x, y
  )
  np.testing.assert_array_equal(remainder, np.fmod(x, y))
  np.testing.assert_array_equal(quotient, np.trunc(x / y).astype(np.int32))
  np.testing.assert_array_equal(product, (x.astype(np.int64) * y).astype("i4"))


def test_integer_division_by_zero_is_defined(check):
  """-1 or all ones as the quotient, the dividend as the remainder; no trap."""
  for dtype in util.INTEGERS:
    x = util.special_values(dtype)
    check(lambda x: [lax.div(x, x * 0), lax.rem(x, x * 0)], x)


def test_least_integer_divided_by_minus_one(check):
  for dtype in util.SIGNED:
    x = np.array([np.iinfo(dtype).min], dtype)
    check(lambda x, y: [lax.div(x, y), lax.rem(x, y)], x, -np.ones_like(x))


BIG = np.array([2**31, 2**31 + 5, 2**32 - 1, 2**31 - 1, 1, 0], np.uint32)


def test_u32_above_2_to_the_31_compares(ipu):
  less, more = run(ipu, lambda x: (x < 7, x[:, None] >= x[None]), BIG)
  np.testing.assert_array_equal(less, BIG < 7)
  np.testing.assert_array_equal(more, BIG[:, None] >= BIG[None])


def test_u32_above_2_to_the_31_divides(ipu):
  quotient, remainder, shifted = run(
    ipu, lambda x: (x // 3, x % 1000, x >> 4), BIG
  )
  np.testing.assert_array_equal(quotient, BIG // 3)
  np.testing.assert_array_equal(remainder, BIG % 1000)
  np.testing.assert_array_equal(shifted, BIG >> 4)


def test_u32_above_2_to_the_31_converts(ipu):
  f32, back, i32, f16 = run(
    ipu,
    lambda x: (
      x.astype(jnp.float32),
      (x.astype(jnp.float32) * 0.5).astype(jnp.uint32),
      x.astype(jnp.int32),
      x.astype(jnp.bfloat16),
    ),
    BIG,
  )
  np.testing.assert_array_equal(f32, BIG.astype(np.float32))
  np.testing.assert_array_equal(back, (f32 * 0.5).astype(np.uint32))
  np.testing.assert_array_equal(i32, BIG.astype(np.int32))
  np.testing.assert_array_equal(f16, BIG.astype(f16.dtype))


def test_u32_above_2_to_the_31_in_max_and_argmax(ipu):
  largest, least, index, pairs = run(
    ipu,
    lambda x: (x.max(), x.min(), x.argmax(), jnp.maximum(x, x[::-1])),
    BIG,
  )
  assert largest == 2**32 - 1 and least == 0 and index == 2
  np.testing.assert_array_equal(pairs, np.maximum(BIG, BIG[::-1]))


def test_f32_to_u32_above_2_to_the_31(ipu):
  x = np.array([2.0**31, 3e9, 4294967040.0], np.float32)
  np.testing.assert_array_equal(
    run(ipu, lambda x: x.astype(jnp.uint32), x), x.astype(np.uint32)
  )


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_half_products_accumulate_in_more_than_half(ipu, dtype):
  """4,096 ones add up to 4,096, far more than half-precision sums reach."""
  a = np.ones((3, 4096), dtype)
  product, total = run(ipu, lambda a: (a @ a.T, a.sum(1)), a)
  np.testing.assert_array_equal(product.astype(np.float32), 4096.0)
  np.testing.assert_array_equal(total.astype(np.float32), 4096.0)


def test_half_products_are_within_a_rounding_of_the_exact_ones(ipu):
  for dtype, bound in zip(FLOATS[:2], (2**-11, 2**-8), strict=True):
    a = util.sample(dtype, (64, 512), low=0.5, high=1)
    b = util.sample(dtype, (512, 32), low=0.5, high=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    out = run(ipu, jnp.matmul, a, b).astype(np.float64)
    assert (np.abs(out - exact) <= 1.01 * bound * exact).all()


def test_maximum_of_nan_is_nan(ipu):
  for dtype in FLOATS:
    x = np.array([np.nan, 0, np.nan, 1], dtype)
    y = np.array([0, np.nan, np.nan, 2], dtype)
    for f in (jnp.maximum, jnp.minimum):
      out = run(ipu, f, x, y)
      np.testing.assert_array_equal(np.isnan(out), [True] * 3 + [False])
    assert np.isnan(run(ipu, lambda x: jax.nn.relu(x), x[:1])).all()
    assert np.isnan(run(ipu, jnp.max, x)) and np.isnan(run(ipu, jnp.min, x))
    assert np.isnan(run(ipu, lambda x: jnp.clip(x, 0, 1), x[:1])).all()


def test_comparisons_with_nan_are_false(ipu):
  nan = np.array([np.nan, 1], np.float32)
  out = run(ipu, lambda x: [x == x, x != x, x < x, x <= x, x > 0, ~(x <= 0)],
            nan)  # fmt: skip
  expected = [[0, 1], [1, 0], [0, 0], [0, 1], [0, 1], [1, 1]]
  np.testing.assert_array_equal(np.array(out), np.array(expected, bool))


def test_signed_zero(ipu):
  """XLA simplifies x + 0 to x, so that sum is left out."""
  x = np.array([0.0, -0.0], np.float32)

  def f(x):
    signed = [-x, x * -1, jnp.sqrt(x), jnp.sign(x), jnp.copysign(1, x)]
    return [*signed, jnp.round(x - 0.2), 1 / x]

  signs = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1], [0, 1]]
  np.testing.assert_array_equal(
    np.signbit(run(ipu, f, x)), np.array(signs, bool)
  )


def test_algebra_does_not_hide_nan_and_infinity(ipu):
  """x * 0, x - x and x / x are not constants."""
  x = np.array([np.inf, np.nan, 2, -np.inf], np.float32)
  out = run(ipu, lambda x: [x * 0, x - x, x / x, 0 / x], x)
  np.testing.assert_array_equal(
    np.isnan(out), np.array([[1, 1, 0, 1]] * 3 + [[0, 1, 0, 0]], bool)
  )


def test_variance_over_an_axis_of_a_large_square(ipu):
  """A reduction whose result is broadcast back along either axis."""
  x = util.sample(np.float32, (1000, 1000)) + np.float32(100)
  for axis in (0, 1):
    var, mean = run(ipu, lambda x: (x.var(axis), x.mean(axis)), x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(var, wide.var(axis), rtol=1e-4)
    np.testing.assert_allclose(mean, wide.mean(axis), rtol=1e-6)
  total = run(ipu, jnp.var, x)
  np.testing.assert_allclose(total, x.astype(np.float64).var(), rtol=1e-4)


def test_key_42(on_ipu):
  """The seed is a constant here, unlike in test_random."""
  key = jax.random.key(42)
  assert key.devices() == {on_ipu}
  np.testing.assert_array_equal(jax.random.key_data(key), [0, 42])
  with jax.default_device(jax.devices("cpu")[0]):
    expected = np.asarray(jax.random.bits(jax.random.key(42), (4,)))
  np.testing.assert_array_equal(jax.random.bits(key, (4,)), expected)
  assert jax.random.bits(key, (4,)).devices() == {on_ipu}


def test_a_loop_that_contains_a_cond(ipu):
  """Both branches are taken in turn, and the other one has no effect."""

  def f(n):
    def step(i, state):
      total, log = state
      total = lax.cond(i % 2 == 0, lambda t: t + i, lambda t: t * 2, total)
      return total, log.at[i].set(total)

    return lax.fori_loop(0, n, step, (jnp.int32(1), jnp.zeros(8, jnp.int32)))

  total, log = run(ipu, f, np.int32(8))
  expected = [1]
  for i in range(8):
    t = expected[-1]
    expected.append(t + i if i % 2 == 0 else t * 2)
  assert total == expected[-1]
  np.testing.assert_array_equal(log, expected[1:])


def test_a_condition_that_reads_what_the_body_updates_in_place(ipu):
  def f(x):
    def body(state):
      i, x = state
      return i + 1, x.at[i].add(x[i - 1])

    return lax.while_loop(lambda s: s[1][s[0] - 1] < 100, body, (1, x))

  i, x = run(ipu, f, np.full(20, 9, np.int32))
  np.testing.assert_array_equal(x[:12], 9 * np.arange(1, 13))
  assert i == 12 and (x[12:] == 9).all()


def test_arguments_survive_programs_that_overwrite_their_copies(ipu):
  """A loop that updates an argument in place must not modify the argument."""
  x = jax.device_put(np.ones((4, 4), np.float32), ipu)

  def f(x):
    return lax.fori_loop(0, 3, lambda i, y: y.at[i].set(7), x), x * 2

  jax.block_until_ready(jax.jit(f)(x))
  np.testing.assert_array_equal(x, np.ones((4, 4)))


def test_results_do_not_share_memory(ipu):
  """The same value, returned twice, can be donated once."""
  x = jax.device_put(np.arange(4, dtype=np.float32), ipu)
  a, b = jax.jit(lambda x: (x + 1, x + 1))(x)
  c = jax.jit(lambda a: a * 10, donate_argnums=0)(a)
  np.testing.assert_array_equal(c, [10, 20, 30, 40])
  np.testing.assert_array_equal(b, [1, 2, 3, 4])


def test_denormals_are_not_lost_in_data_movement(ipu):
  x = np.array([1e-40, -1e-44, 3e-39], np.float32)
  moved, chosen = run(ipu, lambda x: (x[::-1], jnp.where(x > 9, 0, x)), x)
  np.testing.assert_array_equal(moved, x[::-1])
  np.testing.assert_array_equal(chosen, x)


def test_all_threads_keep_denormals(ipu):
  """The compiler runs on threads that flush them; workers must not inherit
  that."""
  x = np.full((256, 256), 1e-40, np.float32)
  with jax.default_device(ipu):
    product = jax.jit(jnp.matmul)
    for _ in range(30):
      np.testing.assert_array_equal(product(x, np.eye(256, dtype=x.dtype)), x)


def test_denormal_constants_keep_their_bits(ipu):
  bits = {jnp.float32: 7, jnp.bfloat16: 11, jnp.float16: 3}

  def f():
    one = [np.array(b, f"u{t.dtype.itemsize}").view(t.dtype)
           for t, b in bits.items()]  # fmt: skip
    return [jnp.full(3, c) for c in one], [jnp.stack([c, c + 1]) for c in one]

  splats, others = run(ipu, f)
  for splat, pair, b in zip(splats, others, bits.values(), strict=True):
    view = f"u{splat.dtype.itemsize}"
    assert splat.view(view).tolist() == [b] * 3
    assert pair[:1].view(view).tolist() == [b]


def test_nan_keeps_its_bits_in_data_movement(ipu):
  bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800001], np.uint32)

  def f(bits):
    x = lax.bitcast_convert_type(bits, jnp.float32)
    y = jnp.concatenate([x[1:], x[:1]]).reshape(1, 3).T
    return lax.bitcast_convert_type(y, jnp.uint32)

  out = run(ipu, f, bits)
  np.testing.assert_array_equal(out[:, 0], np.roll(bits, -1))


def test_booleans_are_zero_or_one(ipu):
  x = np.array([0, 1, 2, 255, 256], np.int32)
  out = run(ipu, lambda x: [x.astype(bool), (x > 0) | (x > 1), ~(x > 0)], x)
  assert [o.view(np.uint8).max() for o in out] == [1, 1, 1]
  assert run(ipu, lambda x: x.astype(bool).sum(), x) == 4


def test_a_sum_of_bool_counts_beyond_255(ipu):
  x = np.ones(70_000, np.bool_)
  total, mean = run(ipu, lambda x: (x.sum(), x.mean()), x)
  assert total == 70_000 and mean == 1


OVER_2_GIB = """
import jax, numpy as np
import jax.numpy as jnp

n = 2**31 + 5000

@jax.jit
def f(seed):
  ones = jnp.full((n - 3,), 1, jnp.uint8)
  x = jnp.concatenate([ones, seed[None], ones[:2]])
  return x[-4:], x[:2], jax.lax.reduce_max(x, (0,))

seed = jax.device_put(np.uint8(77), jax.devices("ipu")[0])
last, first, largest = jax.device_get(f(seed))
assert last.tolist() == [1, 77, 1, 1], last
assert first.tolist() == [1, 1], first
assert largest == 77, largest
"""


@pytest.mark.slow
@pytest.mark.ipu_only
def test_arrays_over_2_gib():
  """Element offsets beyond 2**31, with a byte per element to keep it small.

  No IPU has enough SRAM for it, so it runs in a separate process that lets
  memory overflow.
  """
  allow = '{"debug.allowOutOfMemory": "true"}'
  util.run_python(OVER_2_GIB, POPLAR_ENGINE_OPTIONS=allow)


REFUSED = """
import jax
import jax.numpy as jnp

with jax.default_device(jax.devices("ipu")[0]):
  try:
    jax.jit(lambda: jnp.zeros(2**31, jnp.uint8)).lower().compile()
  except jax.errors.JaxRuntimeError as e:
    assert "RESOURCE_EXHAUSTED: out of memory" in str(e), e
  else:
    raise AssertionError("2 GiB fit no IPU")
"""


@pytest.mark.ipu_only
def test_arrays_over_the_sram_are_refused():
  util.run_python(REFUSED, POPLAR_ENGINE_OPTIONS="{}")
