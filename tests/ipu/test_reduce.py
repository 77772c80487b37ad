"""Reductions: the usual monoids, arg-reductions, and arbitrary regions."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL, BOOL, FLOATS, INTEGERS, NUMBERS

import jax
import jax.numpy as jnp
from jax import lax

SHAPE = (5, 33, 12)
AXES = [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_monoids(check, dtype):
  def reductions(x):
    number = x if dtype != np.bool_ else x.astype(jnp.int32)
    cases = {}
    for axes in AXES:
      cases[f"max {axes}"] = x.max(axes)
      cases[f"min {axes}"] = x.min(axes)
      cases[f"sum {axes}"] = number.sum(axes)
    return cases

  def products(x):
    x = x if dtype != np.bool_ else x.astype(jnp.int32)
    return {f"product {axes}": (x % 2 + 1).prod(axes) for axes in AXES}

  x = util.sample(dtype, SHAPE, low=0, high=1)
  half = dtype.itemsize == 2
  check(reductions, x, rtol=2e-2 if half else 1e-5, atol=1e-5)
  # XLA:CPU rounds every half-precision product, which accumulates.
  check(products, x, rtol=8e-2 if half else 1e-5)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_short_rows(check, dtype):
  """Adjacent and apart, up to a vector's length and beyond."""

  def reductions(x):
    cases = {}
    for n in (2, 3, 4, 6, 8, 17):
      adjacent = x.reshape(-1)[: 75 * n].reshape(75, n)
      for name, rows in (("adjacent", adjacent), ("apart", x[:, :n])):
        cases[f"{n} {name}"] = [
          rows.sum(1),
          rows.max(1),
          jnp.sum(rows * rows, 1),
        ]
    return cases

  half = dtype.itemsize == 2
  check(
    reductions,
    util.sample(dtype, (75, 20), low=0, high=3),
    rtol=2e-2 if half else 1e-5,
  )


@pytest.mark.parametrize("dtype", BOOL + INTEGERS, ids=str)
def test_bitwise_reductions(check, dtype):
  zero = np.zeros((), dtype)

  def reductions(x):
    return {
      f"{name} {axes}": lax.reduce(x, init, op, axes)
      for axes in AXES
      for name, init, op in (
        ("and", np.invert(zero), lax.bitwise_and),
        ("or", zero, lax.bitwise_or),
        ("xor", zero, lax.bitwise_xor),
      )
    }

  check(reductions, util.sample(dtype, SHAPE))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_argmax_and_argmin_take_the_first(check, dtype):
  """Few distinct values, so that ties are common."""

  def reductions(x):
    cases = {"flat": [jnp.argmax(x), jnp.argmin(x)]}
    for axis in range(3):
      cases[f"axis {axis}"] = [jnp.argmax(x, axis), jnp.argmin(x, axis)]
      cases[f"u8 {axis}"] = lax.argmax(x, axis, jnp.uint8)
    return cases

  check(reductions, util.sample(dtype, SHAPE, low=0, high=3).round())


@pytest.mark.ipu_only
@pytest.mark.parametrize("f", [jnp.argmax, lambda x, a: jnp.argmin(-x, a)])
def test_arg_reductions_need_no_iota(ipu, f):
  """The reduction is the only superstep: there is no iota."""
  costs = util.costs(ipu, lambda x: f(x, 1), util.spec(20000, 10))
  assert costs["ipu supersteps"] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint32], ids=str)
def test_arg_reductions_with_any_index_type(check, dtype):
  """A user's own reduction of pairs that looks like argmax."""

  def larger(old, new):
    (v, i), (w, j) = old, new
    before = (v > w) | (v != v)
    first = before | ((v == w) & (i < j))
    return lax.select(before, v, w), lax.select(first, i, j)

  def f(x):
    place = lax.broadcasted_iota(dtype, x.shape, 1)
    start = np.float32(-np.inf), np.zeros((), dtype)
    return lax.reduce((x, place), start, larger, (1,))

  check(f, util.sample(np.float32, (5, 300), low=0, high=40).round(), rtol=0)


def test_argmax_finds_the_first_nan(check):
  for dtype in FLOATS:
    x = util.sample(dtype, (20, 50), special=True)
    x[3, 7] = x[3, 20] = np.nan
    check(
      lambda x: [
        f(x, axis) for f in (jnp.argmax, jnp.argmin) for axis in (None, 0, 1)
      ],
      x,
    )


def test_infinities_and_nan_in_reductions(check):
  for dtype in FLOATS:
    x = util.sample(dtype, (30, 50), special=True)
    check(
      lambda x: [f(x, 1) for f in (jnp.max, jnp.min, jnp.sum)],
      x,
      rtol=3e-2,
      atol=1.0,
    )
    check(lambda x: [jnp.nanmax(x, 0), jnp.nanmin(x, 0)], x, exact=True)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 1), (1,)], ids=str)
def test_small_and_empty_reductions(check, shape):
  x = util.sample(np.float32, shape)

  def reductions(x):
    axes = [None, *range(x.ndim)]
    cases = [f(x, a) for f in (jnp.sum, jnp.prod, jnp.all) for a in axes]
    if x.size:
      cases += [f(x, a) for f in (jnp.max, jnp.argmin) for a in axes]
    return cases

  check(reductions, x)


@pytest.mark.parametrize("shape", [(33, 0), (0,), (4, 0, 2)])
def test_reductions_of_empty_constants(check, shape):
  """The compiler sees that all of their elements are equal."""
  monoids = (lax.bitwise_and, -1), (lax.bitwise_or, 0), (lax.max, -5)

  def reduced():
    x = jnp.full(shape, 3, jnp.int32)
    axes = shape.index(0), tuple(range(len(shape)))
    return [
      lax.reduce(x, np.int32(start), f, np.atleast_1d(along))
      for f, start in monoids
      for along in axes
    ]

  check(reduced, exact=True)


@given(
  st.lists(st.integers(1, 9), min_size=1, max_size=5),
  st.data(),
)
def test_any_axes_of_any_shape(check, shape, data):
  axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
  x = util.sample(np.int32, shape)
  y = util.sample(np.float32, shape)
  check(
    lambda x, y: [x.sum(axes), x.max(axes), y.min(axes), y.mean(axes)],
    x,
    y,
    rtol=1e-5,
    atol=1e-6,
  )
  order = data.draw(st.permutations(range(len(shape))))
  check(lambda x: x.transpose(order).sum(axes), x)


@pytest.mark.parametrize(
  "shape", [(1000003,), (3, 400001), (400001, 3), (1024, 1024)], ids=str
)
def test_large(check, shape):
  def reductions(x):
    return [
      f(x, axis)
      for f in (jnp.sum, jnp.max, jnp.argmax)
      for axis in (None, *range(x.ndim))
    ]

  check(reductions, util.sample(np.float32, shape), rtol=2e-5, atol=1e-2)
  check(reductions, util.sample(np.int32, shape))


def test_the_initial_value_is_applied_once(check):
  x = util.sample(np.float32, (7, 11))
  init = np.float32(100)
  check(
    lambda x, init: [
      lax.reduce(x, init, op, axes)
      for op in (lax.add, lax.max, lax.mul)
      for axes in ((0,), (1,), (0, 1), ())
    ],
    x,
    init,
    rtol=1e-5,
  )


@pytest.mark.parametrize("shape", [(7, 11), (3, 50000), (50000, 3)], ids=str)
def test_general_reductions_with_run_time_initial_values(check, shape):
  """Several operands, an arg-reduction and one operand with a function."""

  def reductions(x, i, start, index):
    def both(a, b):
      return a[0] + b[0], jnp.maximum(a[1], b[1])

    def smallest(a, b):
      less = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
      return jnp.where(less, a[0], b[0]), jnp.where(less, a[1], b[1])

    def matching(a, b):
      return (a & b) | (a ^ b)

    return [
      [
        lax.reduce((x * 2, i), (start, index), both, axes),
        lax.reduce((x, i), (start, index), smallest, axes),
        lax.reduce(i, index, matching, axes),
      ]
      for axes in ((0,), (1,), (0, 1))
    ]

  x = util.sample(np.float32, shape)
  i = util.sample(np.int32, shape)
  for start in (np.float32(100), np.float32(-100)):
    check(reductions, x, i, start, np.int32(3), rtol=2e-5, atol=2e-2)


def test_regions_that_are_no_known_monoid(check):
  """log-sum-exp of pairs, and a product of 2x2 matrices as four operands."""

  def logsumexp(x):
    return lax.reduce(x, -jnp.inf, jnp.logaddexp, (1,))

  check(logsumexp, util.sample(np.float32, (9, 40)), rtol=1e-5)

  def matrices(a, b, c, d):
    def multiply(p, q):
      return (
        p[0] * q[0] + p[1] * q[2],
        p[0] * q[1] + p[1] * q[3],
        p[2] * q[0] + p[3] * q[2],
        p[2] * q[1] + p[3] * q[3],
      )

    one, zero = np.int32(1), np.int32(0)
    return lax.reduce((a, b, c, d), (one, zero, zero, one), multiply, (0,))

  check(matrices, *(util.sample(np.int32, (6, 5), key=i) for i in range(4)))


def test_several_operands(check):
  """The pair (value, index), with an order of its own."""

  def widest(x, index):
    def pick(a, b):
      take = jnp.abs(a[0]) >= jnp.abs(b[0])
      return jnp.where(take, a[0], b[0]), jnp.where(take, a[1], b[1])

    return [
      lax.reduce((x, index), (np.float32(0), np.int32(-1)), pick, (axis,))
      for axis in (0, 1)
    ]

  x = util.sample(np.float32, (30, 40))
  check(widest, x, np.arange(1200, dtype=np.int32).reshape(30, 40))


def test_several_values_of_one_operand(check):
  """There are more reduced values than operands."""

  def both(a, b):
    return a[0] + b[0], jnp.maximum(a[1], b[1])

  zero = np.float32(0)
  check(
    lambda x: lax.reduce((x * 2, jnp.exp(x)), (zero, zero), both, (1,)),
    util.sample(np.float32, (6, 50)),
    rtol=1e-5,
    atol=1e-5,
  )


def test_reductions_without_operands(check):
  """There are no operands: the reduced values are computed from their
  indices."""

  def reductions():
    i = lax.broadcasted_iota(jnp.int32, (7, 100), 0) * 100
    i += lax.broadcasted_iota(jnp.int32, (7, 100), 1)
    return {
      "sum": (i * i).sum(1),
      "bfloat16": (i % 5).astype(jnp.bfloat16).sum(1),
      "product": (1 + i % 3).prod(0),
      "max": (i % 13).max(0),
      "argmax": jnp.argmax(i % 13, 1),
      "argmin of floats": jnp.argmin((i % 17) * 0.5, 1),
      "any": (i == 4).any(1),
      "mean": jnp.eye(33).mean(0),
      "general": lax.reduce(i % 7, 0, lambda a, b: (a + b) % 11, (1,)),
    }

  check(reductions)


def test_statistics(check):
  def statistics(x):
    return {
      "mean": x.mean(0),
      "var": x.var(1),
      "std": x.std(),
      "logsumexp": jax.nn.logsumexp(x, 1),
      "norm": jnp.linalg.norm(x, axis=1),
      "softmax": jax.nn.softmax(x, 0),
      "count": jnp.count_nonzero(x > 0, 0),
      "any": (x > 3.9).any(1),
      "all": (x > -3.9).all(0),
      "ptp": jnp.ptp(x, 0),
      "average": jnp.average(x, 0, weights=x[:, 0] ** 2),
    }

  check(statistics, util.sample(np.float32, (64, 100)), rtol=1e-4, atol=1e-6)


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_sums_are_rounded_once_at_their_definition(ipu, dtype):
  x = util.sample(np.dtype(jnp.dtype(dtype)), (300, 70), low=-1, high=1)

  def f(x):
    def body(
      i, c
    ):  # rounds again, in each iteration, a sum from outside the loop
      return c + total.astype(x.dtype)

    total = x.astype(jnp.float32).sum(1)
    return x.sum(0), (x * 2).sum(), lax.fori_loop(0, 3, body, x[:, 0])

  columns, doubled, looped = util.run_on(ipu, f, x)
  wide = x.astype(np.float64)
  np.testing.assert_array_equal(columns, wide.sum(0).astype(x.dtype))
  np.testing.assert_array_equal(doubled, (wide.sum() * 2).astype(x.dtype))
  expected, rows = x[:, 0], wide.sum(1).astype(x.dtype)
  for _ in range(3):
    expected = expected + rows
  np.testing.assert_array_equal(looped, expected)
  key = "ipu compute cycles"
  narrow = util.costs(ipu, lambda x: x.sum(0), x)[key]
  assert (
    narrow <= util.costs(ipu, lambda x: x.sum(0, dtype=jnp.float32), x)[key]
  )


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("f", [jnp.argmax, jnp.argmin])
def test_arg_reductions_of_every_type_are_recognised(ipu, f, wide):
  # Those of integers arrive without a test for NaN.
  dtypes = [bool, *INTEGERS]
  numpy = np.argmax if f is jnp.argmax else np.argmin
  rng = np.random.default_rng(0)
  with jax.enable_x64(wide), jax.default_device(ipu):
    for dtype in dtypes:
      if np.dtype(dtype).itemsize == 8 and not wide:
        continue
      equal = np.full(70_000, 1, dtype)
      ties = rng.integers(0, 3, (7, 10_001)).astype(dtype)
      compiled = jax.jit(lambda x, y: (f(x), f(y, axis=1), f(y, axis=0)))
      compiled = compiled.lower(equal, ties).compile()
      found = compiled(equal, ties)
      np.testing.assert_array_equal(found[0], 0)
      np.testing.assert_array_equal(found[1], numpy(ties, axis=1))
      np.testing.assert_array_equal(found[2], numpy(ties, axis=0))
