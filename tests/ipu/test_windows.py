"""reduce_window and select_and_scatter: pooling, its gradients, any region."""

from __future__ import annotations

import operator

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ipu_test_util import NUMBERS

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import internals


def pool(init, op, window, strides=None, padding="VALID", **dilations):
  def f(x):
    return lax.reduce_window(
      x, np.asarray(init, x.dtype), op, window, strides or (1,) * len(window),
      padding, **dilations
    )  # fmt: skip

  return f


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_monoids(check, dtype):
  x = util.sample(dtype, (3, 9, 10), low=0, high=3)
  least = -np.inf if util.is_float(dtype) else np.iinfo(dtype).min
  most = np.inf if util.is_float(dtype) else np.iinfo(dtype).max

  def f(x):
    return {
      "max": pool(least, lax.max, (1, 2, 3), (1, 2, 2), "SAME")(x),
      "min": pool(most, lax.min, (2, 2, 2))(x),
      "sum": pool(0, lax.add, (1, 3, 2), (1, 1, 3), "SAME")(x),
      "product": pool(1, lax.mul, (1, 2, 2))(x),
    }

  check(f, x, rtol=1e-2 if dtype.itemsize == 2 else None)


@pytest.mark.parametrize("length", [7, 8, 13, 20, 31, 32, 64, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32], ids=str)
def test_overlapping_windows_of_adjacent_elements(ipu, dtype, length):
  x = util.sample(dtype, (20, 400), low=-9, high=9)
  x[3, ::3], x[5, 17] = 0, x[5].max() + 1
  if util.is_float(dtype):
    x[7], x[8, 100] = -0.0, np.nan
  least = -np.inf if util.is_float(dtype) else np.iinfo(dtype).min

  def f(x):
    window = (1, length)
    return pool(0, lax.add, window)(x), pool(least, lax.max, window)(x)

  sums, most = util.run_on(ipu, f, x)
  windows = np.lib.stride_tricks.sliding_window_view(x, length, axis=1)
  np.testing.assert_array_equal(most, windows.max(-1))
  expected = windows.astype(np.float64).sum(-1)
  scale = np.abs(windows).astype(np.float64).sum(-1)
  eps = np.finfo(dtype).eps if util.is_float(dtype) else 0
  np.testing.assert_array_less(
    np.nan_to_num(np.abs(sums - expected)),
    np.nan_to_num(4 * eps * scale) + 1e-9,
  )
  np.testing.assert_array_equal(np.isnan(sums), np.isnan(expected))
  if util.is_float(dtype):
    assert not np.signbit(sums[7]).any()  # 0 + -0


@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=str)
def test_overlapping_windows_of_a_long_row(ipu, dtype):
  x = util.sample(dtype, (30_000,), low=-9, high=9)
  lengths = (7, 9, 16, 64)

  def f(x):
    return [pool(0, lax.add, (n,))(x) for n in lengths]

  for n, sums in zip(lengths, util.run_on(ipu, f, x), strict=True):
    windows = np.lib.stride_tricks.sliding_window_view(x, n)
    np.testing.assert_allclose(
      sums, windows.astype(np.float64).sum(-1), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("kwargs", [
  {"base_dilation": (2, 3)}, {"window_dilation": (2, 3)},
  {"base_dilation": (1, 2), "window_dilation": (3, 1)},
])  # fmt: skip
def test_dilations(check, kwargs):
  x = util.sample(np.float32, (11, 12))
  padding = [(2, 3), (1, 0)]
  for strides in ((1, 1), (3, 2)):
    f = pool(0.0, lax.add, (3, 2), strides, padding, **kwargs)
    check(f, x, atol=1e-5)


def test_initial_values_other_than_the_identity(check):
  x = util.sample(np.float32, (6, 7))
  check(pool(3.0, lax.add, (2, 3), padding="SAME"), x, atol=1e-5)
  check(pool(1.0, lax.max, (2, 3), (2, 1), "SAME"), x)
  check(pool(3.0, lax.add, (6, 1), padding=[(5, 0), (0, 0)]), x, atol=1e-4)


def test_windows_of_one_element(check):
  """Single elements, which are still combined with the initial value."""
  x = util.sample(np.float32, (16, 17))

  def f(x):
    return lax.reduce_window(
      x, 0.5, lax.max, (1, 1), (3, 2), "VALID", base_dilation=(2, 1)
    )

  check(f, x)


def test_several_operands_and_any_region(check):
  x = util.sample(np.float32, (8, 9))
  i = np.arange(72, dtype=np.int32).reshape(8, 9)

  def largest(a, b):
    keep = a[0] >= b[0]
    return tuple(lax.select(keep, p, q) for p, q in zip(a, b))

  def f(x, i):
    start = np.float32(-np.inf), np.int32(-1)
    return {
      "argmax": lax.reduce_window(
        (x, i), start, largest, (3, 2), (2, 1), "SAME"
      ),
      "logsumexp": lax.reduce_window(
        x, np.float32(-np.inf), jnp.logaddexp, (2, 3), (1, 1), "SAME"
      ),
    }

  check(f, x, i, rtol=1e-5)


@pytest.mark.parametrize("kwargs", [{}, {"base_dilation": (2, 1)}])
def test_padding_with_a_general_region(check, kwargs):
  x = util.sample(np.float32, (5, 6))

  def f(x, start):
    return lax.reduce_window(
      x, start, lambda a, b: a + b + a * b, (2, 3), (1, 2), "SAME", **kwargs
    )

  def with_tangent(x, start):
    return jax.jvp(lambda x: f(x, start), (x,), (x,))

  check(with_tangent, x, np.float32(0.5), rtol=1e-5)


@pytest.mark.parametrize("shape, window, padding", [
  ((0, 4), (1, 2), "SAME"), ((3, 0), (2, 2), [(1, 1), (2, 2)]),
  ((3, 4), (5, 1), "VALID"), ((3, 4), (1, 1), "VALID"), ((), (), "VALID"),
  ((5,), (5,), "VALID"),
])  # fmt: skip
def test_empty_and_small_arrays(check, shape, window, padding):
  check(pool(0.0, lax.add, window, padding=padding), util.sample(
    np.float32, shape), atol=1e-6)  # fmt: skip


WINDOWS = [
  ((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
  ((1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
  ((1, 3, 2, 1), (1, 1, 1, 1), "VALID"),
  ((1, 2, 2, 1), (1, 3, 4, 1), "VALID"),
  ((2, 3, 1, 2), (1, 2, 3, 2), [(1, 1), (1, 2), (0, 0), (0, 0)]),
]


@pytest.mark.parametrize("window, strides, padding", WINDOWS)
def test_gradients_of_pooling(check, window, strides, padding):
  x = util.sample(np.float32, (2, 9, 8, 3))

  def f(x):
    results = {}
    for name, init, op in (
      ("max", -np.inf, lax.max), ("min", np.inf, lax.min),
      ("sum", 0.0, lax.add),
    ):  # fmt: skip
      pooled = pool(init, op, window, strides, padding)
      out, pull = jax.vjp(pooled, x)
      results[name] = out, pull(jnp.sin(out))
    return results

  check(f, x, rtol=1e-5, atol=1e-5)


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_window_positions_are_compared_in_vectors(ipu, dtype):
  """Comparisons and selections are on vectors of floats."""
  pooled = pool(-np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1))
  x = util.spec(32, 28, 28, 32, dtype=dtype)
  found = util.costs(ipu, lambda x: jax.vjp(pooled, x)[1](pooled(x)), x)
  each = 32 * 28 * 28 * 32 / ipu.num_tiles
  # Every other half-precision element is packed and unpacked; words are not.
  packing = 8 * each if dtype is np.float16 else 0
  comparing = found["ipu compute cycles"] - packing
  assert comparing < 20 * each * np.dtype(dtype).itemsize / 4


def test_positions_in_large_f16_windows(check):
  """More than half precision can count: the last of 2,500 is the largest."""
  x = np.zeros((50, 50), np.float16)
  x[49, 49] = x[48, 49] = 1
  f = pool(-np.inf, lax.max, (50, 50))
  check(lambda x: jax.vjp(f, x)[1](f(x)), x)


def test_ties_select_the_first(check):
  x = util.sample(np.int32, (1, 12, 12, 2), low=0, high=2).astype(np.float32)
  f = pool(-np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
  check(lambda x: jax.grad(lambda x: (f(x) * f(x)).sum())(x), x)


def test_second_derivatives_of_max_pooling(check):
  x = util.sample(np.float32, (1, 6, 6, 2))

  def loss(x):
    f = pool(-np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1))
    return (f(x) ** 3).sum()

  check(lambda x: jax.grad(lambda y: jax.grad(loss)(y).sum())(x), x, rtol=1e-5)
  check(lambda x: jax.jvp(jax.grad(loss), (x,), (x,)), x, rtol=1e-5)


# Public JAX only uses it in gradients.
NAME = operator.attrgetter("__name__")
SELECT_AND_SCATTER = internals.resolve(
  "jax._src.lax.windowed_reductions._select_and_scatter"
)


@pytest.mark.parametrize("scatter", [lax.add, lax.mul, lax.max], ids=NAME)
@pytest.mark.parametrize("select", [lax.ge, lax.lt], ids=NAME)
@pytest.mark.parametrize("window, strides, padding", WINDOWS)
def test_select_and_scatter(check, scatter, select, window, strides, padding):
  x = util.sample(np.float32, (2, 9, 8, 3))
  pads = padding
  if isinstance(padding, str):
    pads = lax.padtype_to_pads(x.shape, window, strides, padding)
  shape = jax.eval_shape(pool(0, lax.add, window, strides, pads), x).shape
  source = util.sample(np.float32, shape, key=2)

  def f(x, source):
    return SELECT_AND_SCATTER(
      x, select, window, strides, pads, source, np.float32(1.5), scatter
    )

  check(f, x, source, rtol=1e-5)


@settings(max_examples=40)
@given(st.data())
def test_random_windows(check, data):
  draw = data.draw
  rank = draw(st.integers(1, 3))
  small = st.integers(1, 3)
  window, strides, base, spread = (
    tuple(draw(small) for _ in range(rank)) for _ in range(4)
  )
  shape = tuple(draw(st.integers(1, 8)) for _ in range(rank))
  padding = [
    (draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(rank)
  ]
  x = util.sample(np.float32, shape)
  for init, op in ((0.0, lax.add), (-np.inf, lax.max)):
    f = pool(
      init, op, window, strides, padding, base_dilation=base,
      window_dilation=spread,
    )  # fmt: skip
    check(f, x, atol=1e-5)
