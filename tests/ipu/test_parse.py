"""What the compiler folds and rewrites computes what the specification says.

A sample of the sweeps; `python tests/ipu/parse_cases.py` runs them whole.
"""

from __future__ import annotations

import itertools

import numpy as np
import parse_cases
import parse_kit
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
  "float_converts": 11,
}


@pytest.mark.parametrize("sweep", parse_cases.SWEEPS)
def test_a_sample_of(ipu, sweep):
  cases = parse_cases.SWEEPS[sweep]()
  some = itertools.islice(cases, 0, None, _EVERY[sweep])
  assert not parse_kit.check(ipu, some)


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


def test_adding_zero_normalises_the_sign_of_zero(on_ipu):
  add = jax.jit(lambda x: (x + 0.0, 0.0 + x, x - 0.0))
  a, b, c = add(np.float32(-0.0))
  assert not np.signbit(a) and not np.signbit(b) and np.signbit(c)
