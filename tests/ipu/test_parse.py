"""What the compiler folds and rewrites computes what the specification says.

A sample of the sweeps; `python tests/ipu/parse_cases.py` runs them whole.
"""

from __future__ import annotations

import numpy as np
import parse_cases
import pytest

import jax
import jax.numpy as jnp
from jax import lax

pytestmark = pytest.mark.ipu_only

_EVERY = {  # of so many programs one
  "converts": 9,
  "binary_integers": 101,
  "unary_integers": 31,
  "clamps": 13,
  "selects": 7,
  "indices": 23,
  "loops": 5,
  "floats": 53,
  "float_clamps": 29,
  "functions": 61,
  "float_converts": 11,
}


@pytest.mark.parametrize("sweep", parse_cases.SWEEPS)
def test_a_sample_of(ipu, sweep):
  assert not parse_cases.run(ipu, sweep, _EVERY[sweep])


def test_a_widening_through_an_unsigned_type(on_ipu):
  x = np.int8([-1, -128, 5])
  widen = jax.jit(lambda x: x.astype(jnp.uint16).astype(jnp.int32))
  np.testing.assert_array_equal(widen(x), [65535, 65408, 5])
  total = jax.jit(lambda x: jnp.sum(x.astype(jnp.uint16), dtype=jnp.int32))
  assert total(x) == 65535 + 65408 + 5
  narrow = jax.jit(
    lambda x: x.astype(jnp.int4).astype(jnp.uint8).astype(jnp.int16)
  )
  np.testing.assert_array_equal(narrow(np.int8([-1, 3])), [255, 3])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_constant_unsigned_index_with_its_top_bit_set(on_ipu, dtype):
  at = dtype(min(np.iinfo(dtype).max // 2 + 72, 40_000))
  x = np.arange(50_000)

  def read(table):
    return (
      lax.dynamic_slice(table, [at], [2]),
      lax.dynamic_index_in_dim(table, at, keepdims=False),
      table.at[at].get(mode="clip"),
      table.at[at].get(mode="promise_in_bounds"),
      table.at[at].get(mode="fill"),
    )

  pair, *ones = jax.jit(read)(x)
  np.testing.assert_array_equal(pair, [at, at + dtype(1)])
  assert ones == [at] * 4


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.int2])
def test_negative_indices_of_a_few_bits(on_ipu, dtype):
  def slice_(table, at):
    return lax.dynamic_slice(table, [at], [2], allow_negative_indices=False)

  at = jnp.int8(-1).astype(dtype)
  np.testing.assert_array_equal(jax.jit(slice_)(np.arange(7), at), [0, 1])


def test_constants_that_are_denormals(on_ipu):
  """Programs are loaded on threads that flush denormals; values of constants
  alone must not be computed there in that mode."""
  a, b = np.float32(3e-45), np.float32(2.5)
  product, equal, root = jax.jit(
    lambda: (lax.mul(a, b), lax.eq(a, np.float32(0)), lax.sqrt(a))
  )()
  assert product == np.float32(3e-45) * b > 0
  assert not equal
  assert root == np.sqrt(a) > 0


def test_functions_of_constants_are_those_of_arguments(on_ipu):
  x = np.float32(7.3)
  functions = (lax.exp, lax.tanh, lax.cbrt, lax.sin, lax.log1p, lax.rsqrt)
  for f in functions:
    assert jax.jit(lambda f=f: f(x))() == jax.jit(f)(x)


def test_adding_zero_normalises_the_sign_of_zero(on_ipu):
  add = jax.jit(lambda x: (x + 0.0, 0.0 + x, x - 0.0))
  a, b, c = add(np.float32(-0.0))
  assert not np.signbit(a) and not np.signbit(b) and np.signbit(c)
