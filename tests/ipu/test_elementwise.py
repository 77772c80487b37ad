"""Element-wise operations: every dtype, values where implementations differ.

Each row of a table is an operation and the range from which its floats are
drawn. One program per row covers all dtypes and shapes, so a failure lists
everything that is wrong with the operation at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL, BOOL, FLOATS, INTEGERS, NUMBERS, SHAPES, SIGNED

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special as jsp


@dataclasses.dataclass(frozen=True)
class Row:
  """An operation to test.

  Attributes:
    name: shown in the test's id.
    function: takes as many arrays as `arity`.
    dtypes: the types it is defined for.
    low, high: the range from which floats are drawn.
    special: whether to include infinities, NaN, signed zeros, largest and
      smallest values.
    rtol: allowed relative error of f32; half types keep their own.
    atol: absolute error, for functions that have zeros in the range.
    exact: whether floats have to be bit-identical.
  """

  name: str
  function: Callable
  dtypes: tuple[np.dtype, ...] = FLOATS
  arity: int = 1
  low: float | None = None
  high: float | None = None
  special: bool = True
  rtol: float | None = None
  atol: float = 0.0
  exact: bool = False


EXACT_UNARY = [
  Row("neg", lax.neg, NUMBERS, exact=True),
  Row("abs", lax.abs, SIGNED + FLOATS, exact=True),
  Row("sign", lax.sign, NUMBERS),
  Row("not", lax.bitwise_not, BOOL + INTEGERS),
  Row("popcnt", lax.population_count, INTEGERS),
  Row("clz", lax.clz, INTEGERS),
  Row("ceil", lax.ceil, exact=True),
  Row("floor", lax.floor, exact=True),
  Row("round_afz", lambda x: lax.round(x, lax.RoundingMethod(0)), exact=True),
  Row("round_even", lambda x: lax.round(x, lax.RoundingMethod(1)), exact=True),
  Row("is_finite", lax.is_finite),
  Row("sqrt", lax.sqrt),
  Row("square", lax.square, NUMBERS),
  Row("reduce_precision", lambda x: lax.reduce_precision(x, 5, 3)),
]

# exp2 in f32 is exp(x log 2), whose error grows with the argument.
TRANSCENDENTAL = [
  Row("exp", lax.exp, low=-20, high=20),
  Row("exp2", lax.exp2, rtol=1e-5),
  Row("expm1", lax.expm1, atol=1e-9),
  Row("log", lax.log, low=1e-3, high=1e3, atol=1e-7),
  Row("log1p", lax.log1p, low=-0.99, atol=1e-9),
  Row("logistic", lax.logistic, low=-20, high=20),
  Row("tanh", lax.tanh),
  Row("sin", lax.sin, special=False, atol=5e-7),
  Row("cos", lax.cos, special=False, atol=5e-7),
  Row("tan", lax.tan, low=-1.5, high=1.5, special=False, rtol=1e-5),
  Row("sinh", lax.sinh, rtol=1e-5),
  Row("cosh", lax.cosh, rtol=1e-5),
  Row("asin", lax.asin, low=-1, high=1, rtol=1e-5),
  Row("acos", lax.acos, low=-1, high=1, rtol=1e-5, atol=1e-6),
  Row("atan", lax.atan, rtol=1e-5),
  Row("asinh", lax.asinh, rtol=1e-5),
  Row("acosh", lax.acosh, low=1, rtol=1e-5, atol=1e-6),
  Row("atanh", lax.atanh, low=-0.99, high=0.99, rtol=1e-5),
  Row("rsqrt", lax.rsqrt, low=1e-3),
  Row("cbrt", lax.cbrt),
  Row("erf", lax.erf),
  Row("erfc", lax.erfc, rtol=3e-5),
  Row("erf_inv", lax.erf_inv, low=-0.99, high=0.99, rtol=3e-5),
  Row("lgamma", lax.lgamma, low=0.1, special=False, rtol=2e-5, atol=2e-6),
  Row("digamma", lax.digamma, low=0.1, special=False, rtol=3e-5, atol=3e-6),
  Row("bessel_i0e", lax.bessel_i0e, special=False, rtol=1e-5),
  Row("bessel_i1e", lax.bessel_i1e, special=False, rtol=1e-5, atol=1e-6),
]

BINARY = [
  Row("add", lax.add, NUMBERS, 2),
  Row("sub", lax.sub, NUMBERS, 2),
  Row("mul", lax.mul, NUMBERS, 2),
  Row("div", lax.div, NUMBERS, 2),
  Row("rem", lax.rem, NUMBERS, 2),
  Row("max", lax.max, ALL, 2),
  Row("min", lax.min, ALL, 2),
  Row("and", lax.bitwise_and, BOOL + INTEGERS, 2),
  Row("or", lax.bitwise_or, BOOL + INTEGERS, 2),
  Row("xor", lax.bitwise_xor, BOOL + INTEGERS, 2),
  Row("shift_left", lax.shift_left, INTEGERS, 2, low=0, high=40),
  Row("shift_logical", lax.shift_right_logical, INTEGERS, 2, high=40),
  Row("shift_arithmetic", lax.shift_right_arithmetic, INTEGERS, 2, high=40),
  Row("pow", lax.pow, arity=2, low=0.1, special=False, rtol=1e-5),
  Row("atan2", lax.atan2, arity=2, rtol=1e-5),
  Row("nextafter", lax.nextafter, FLOATS[2:], 2, exact=True),
]

ROWS = EXACT_UNARY + TRANSCENDENTAL + BINARY


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_operation(check, row: Row):
  def operands(dtype, shape):
    return [
      util.sample(
        dtype, shape, low=_bound(row.low, dtype), high=_bound(row.high, dtype),
        special=row.special, key=i,
      )
      for i in range(row.arity)
    ]  # fmt: skip

  def apply_all(cases):
    return {name: row.function(*case) for name, case in cases.items()}

  for_f32, for_halves = {}, {}
  for dtype in row.dtypes:
    group = for_f32 if dtype == np.float32 else for_halves
    for shape in SHAPES:
      group[f"{dtype}{list(shape)}"] = operands(dtype, shape)
  check(apply_all, for_halves, exact=row.exact, atol=row.atol * 1e4)
  check(apply_all, for_f32, exact=row.exact, rtol=row.rtol, atol=row.atol)


def _bound(value: float | None, dtype: np.dtype) -> float | None:
  """A row's bound where `dtype` can represent it."""
  if value is None or util.is_float(dtype):
    return value
  info = np.iinfo(dtype) if dtype != np.bool_ else None
  return value if info and info.min <= value <= info.max else None


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_reduce_precision_of_every_number(check, dtype):
  """All numbers of the type, converted to shorter, equal and longer formats,
  except for f32 denormals, which XLA:CPU sometimes flushes."""
  bits = np.arange(1 << 16, dtype=np.uint16)
  with np.errstate(invalid="ignore"):
    x = bits.view(dtype)[~np.isnan(bits.view(dtype))]
  normal = np.abs(x.astype(np.float32)) >= 2 * np.finfo(np.float32).tiny
  x = x[normal | (x == 0)]

  def f(x):
    return {
      f"e{e}m{m}": lax.reduce_precision(x, e, m) * np.asarray(0.5, dtype)
      for e, m in ((5, 10), (5, 5), (5, 0), (8, 7), (8, 2), (4, 3), (6, 9))
    }

  check(f, x, exact=True)


def test_shifts_by_more_than_the_width_give_zero_or_the_sign(check):
  def shifts(cases):
    ops = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
    return {
      f"{op.__name__} {name}": op(x, jnp.full_like(x, by))
      for op in ops
      for name, x in cases.items()
      for by in (0, 1, x.dtype.itemsize * 8 - 1, x.dtype.itemsize * 8, 100)
    }

  check(shifts, {str(t): util.special_values(t) for t in INTEGERS})


COMPARISONS = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)


def all_pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Two vectors that pair every value with every value."""
  return np.repeat(values, len(values)), np.tile(values, len(values))


def test_compare(check):
  """NaN, signed zeros, the largest and the smallest values, in all pairs."""

  def compare(cases):
    return {
      f"{op.__name__} {name}": op(x, y)
      for op in COMPARISONS
      for name, (x, y) in cases.items()
    }

  check(compare, {str(t): all_pairs(util.special_values(t)) for t in ALL})


def test_compare_with_a_scalar(check):
  def compare(x, y):
    return [x < 3, x == y, 1 <= x, (x > 0) & (x != y)]

  for dtype in (np.int32, np.uint32, np.float32):
    check(compare, util.sample(dtype, (33, 5), low=0, high=4), dtype(2))


def test_select(check):
  def select(which, cases):
    return {
      name: {
        "where": jnp.where(which, x, y),
        "scalar predicate": lax.select_n(which[0, 0], x, y),
        "three-way": lax.select_n(which.astype(jnp.int32) * 2, x, y, -y)
        if x.dtype != jnp.bool_ else lax.select_n(which, y, x),
      }
      for name, (x, y) in cases.items()
    }  # fmt: skip

  which = util.sample(np.bool_, (13, 9))
  cases = {
    str(t): [util.sample(t, (13, 9), special=True, key=i) for i in (0, 1)]
    for t in ALL
  }
  check(select, which, cases, exact=True)


def test_clamp(check):
  def clamp(cases):
    return {
      name: [lax.clamp(low, x, high), lax.clamp(low[0, 0], x, high[0, 0])]
      for name, (low, x, high) in cases.items()
    }

  cases = {
    str(t): [util.sample(t, (6, 7), special=i == 1, key=i) for i in range(3)]
    for t in NUMBERS
  }
  check(clamp, cases)


def test_clamp_a_comparison(check):
  def clamp(x, low, high):
    found = (x > 0).astype(jnp.uint32)
    return lax.clamp(low, found, high), lax.clamp(low[0], found, high[0])

  x = np.arange(-3, 3, dtype=np.float32)
  check(clamp, x, np.arange(6, dtype=np.uint32), np.full(6, 4, np.uint32))


@pytest.mark.parametrize("source", ALL, ids=str)
def test_convert(check, source):
  """Conversions between all pairs of types, for values that both can hold.

  A float outside an integer's range is undefined in StableHLO and left out.
  """

  def convert(cases):
    return {to: x.astype(to) for to, x in cases.items()}

  cases = {}
  for to in ALL:
    low = high = None
    if util.is_float(source) and to in INTEGERS:
      info = np.iinfo(to)
      low, high = max(info.min, -3e4), min(info.max, 3e4)
    cases[str(to)] = util.sample(source, (5, 31), low=low, high=high)
  check(convert, cases, exact=True)


def test_convert_rounds_to_nearest_even(check):
  halves = np.array([2049, 2051, 4098, 4102, 257, 259, 65519, 65520], "f4")
  check(lambda x: [x.astype(t) for t in FLOATS], halves, exact=True)
  integers = np.array([16777217, 16777219, 2**31 - 1, -(2**31)], "i4")
  check(lambda x: [x.astype(t) for t in FLOATS], integers, exact=True)
  unsigned = np.array([16777217, 2**31, 2**32 - 1, 2**32 - 129], "u4")
  check(lambda x: [x.astype(t) for t in FLOATS], unsigned, exact=True)


def test_convert_a_float_special_to_bool_and_float(check):
  special = {str(t): util.special_values(t) for t in FLOATS}
  check(
    lambda cases: {
      name: [x.astype(t) for t in (jnp.bool_, *FLOATS)]
      for name, x in cases.items()
    },
    special,
  )


def quiet(x):
  """f16 passes through f32 registers, as F16C converts it: a signalling NaN
  becomes a quiet one. All other values keep their bits."""
  return jnp.where(jnp.isnan(x), jnp.nan, x) if x.dtype == np.float16 else x


def test_bitcast(check):
  def bitcasts(cases):
    return {
      f"{name} to {to}": quiet(lax.bitcast_convert_type(x, to))
      for name, x in cases.items()
      for to in NUMBERS
      if to.itemsize <= x.dtype.itemsize
      or x.shape[-1] * x.dtype.itemsize == to.itemsize
    }

  cases = {str(t): util.sample(t, (3, 4), special=True) for t in NUMBERS}
  cases |= {f"{t} pair": util.sample(t, (5, 2)) for t in NUMBERS}
  check(bitcasts, cases, exact=True)


@st.composite
def broadcast_shapes(draw):
  """Two shapes that broadcast against each other."""
  shape = draw(st.lists(st.integers(0, 9), max_size=4))
  shapes = []
  for _ in range(2):
    ones = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    dropped = draw(st.integers(0, len(shape)))
    kept = [1 if one else n for n, one in zip(shape, ones, strict=False)]
    shapes.append(tuple(kept[dropped:]))
  return shapes


@given(broadcast_shapes(), st.sampled_from([np.int32, np.float32, np.int8]))
def test_broadcast_operands(check, shapes, dtype):
  x, y = (util.sample(dtype, s, low=-9, high=9, key=i)
          for i, s in enumerate(shapes))  # fmt: skip
  check(lambda x, y: [x + y, x * y - x, jnp.maximum(x, y)], x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int16], ids=str)
def test_long_rows_of_views(check, dtype):
  """Blocks within a row of the view, at its start and across its end."""
  x = util.sample(dtype, (3, 9001), low=-8, high=8)

  def f(x):
    inner, row = x[:, 3:8500], x[1, 500:]
    return x + x[::-1], inner * 2 - inner[:, :1], inner[:, 4:] + row[:8493]

  check(f, x)


def test_chain_of_everything(check):
  """A long fused chain with shared values, broadcasts and strided inputs."""

  def chain(x, row, column):
    y = jnp.tanh(x * row + column)
    z = jnp.where(y > 0, jnp.exp(-y), y * y)
    w = (z - row) / (1 + jnp.abs(x.T[::2].mean()))
    return jax.nn.gelu(w) + jax.nn.softplus(z), jnp.sign(y).astype(jnp.int8)

  check(
    chain,
    util.sample(np.float32, (40, 50)),
    util.sample(np.float32, (50,)),
    util.sample(np.float32, (40, 1)),
    rtol=2e-5,
    atol=2e-6,
  )


def test_long_chains_that_share_a_scalar_store_only_their_results(ipu):
  def f(s, *xs):
    return [jax.lax.erf_inv(x * s) for x in xs]

  xs = [util.spec(256, 1472)] * 24
  costs = util.costs(ipu, f, util.spec(), *xs)
  assert costs["bytes accessed"] < 1.01 * 2 * len(xs) * 4 * 256 * 1472


def test_special_functions_of_scipy(check):
  def functions(x, p):
    return {
      "gelu": jax.nn.gelu(x),
      "gelu exact": jax.nn.gelu(x, approximate=False),
      "silu": jax.nn.silu(x),
      "elu": jax.nn.elu(x),
      "ndtr": jsp.ndtr(x),
      "ndtri": jsp.ndtri(p),
      "logit": jsp.logit(p),
      "xlogy": jsp.xlogy(p, p),
      "zeta": jsp.zeta(1.5 + p, 1.0 + p),
      "polygamma": jsp.polygamma(1, 1.0 + p),
      "gammainc": jsp.gammainc(1 + p, 2 * p),
      "betainc": jsp.betainc(1 + p, 2 - p, p),
    }

  x = util.sample(np.float32, (61,))
  p = util.sample(np.float32, (61,), low=0.05, high=0.95)
  check(functions, x, p, rtol=1e-4, atol=1e-5)


def test_integer_arithmetic_wraps(check):
  def arithmetic(cases):
    return {
      name: [x + y, x - y, x * y, -x, lax.integer_pow(x, 3)]
      for name, (x, y) in cases.items()
    }

  check(
    arithmetic, {str(t): all_pairs(util.special_values(t)) for t in INTEGERS}
  )
