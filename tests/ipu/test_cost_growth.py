"""Modelled cycles of drawn programs: more work never takes less, twice the
tiles take about half, narrower types less."""

from __future__ import annotations

import ipu_test_util as util
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax.numpy as jnp

pytestmark = pytest.mark.ipu_only

# Programs of arrays of (rows, columns).
PROGRAMS = {
  "add": (lambda x: x * 2 + 1, lambda a, b: [(a, b)]),
  "tanh": (jnp.tanh, lambda a, b: [(a, b)]),
  "columns": (lambda x: x.sum(0), lambda a, b: [(a, b)]),
  "rows": (lambda x: x.max(1), lambda a, b: [(a, b)]),
  "all": (jnp.sum, lambda a, b: [(a, b)]),
  "vector": (jnp.matmul, lambda a, b: [(a, b), (b,)]),
  "product": (jnp.matmul, lambda a, b: [(a, b), (b, 512)]),
}


def costs(ipu, name, extents, dtype=jnp.float32, **options):
  f, shapes = PROGRAMS[name]
  arguments = [util.spec(*shape, dtype=dtype) for shape in shapes(*extents)]
  return util.costs(ipu, f, *arguments, **options)


def extents(most: int) -> st.SearchStrategy[int]:
  """From 2 to about `most`, as many small ones as large ones."""
  powers = st.floats(1, most.bit_length() - 1)
  return powers.map(lambda power: round(2**power))


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=10)
@given(
  st.tuples(extents(4096), extents(4096)),
  st.integers(0, 1),
  st.one_of(st.integers(1, 3), extents(2048)),
)
def test_cycles_do_not_fall_when_a_dimension_grows(ipu, name, shape, d, more):
  larger = list(shape)
  larger[d] += more
  few, many = (costs(ipu, name, s) for s in (shape, larger))
  util.check_no_fall(few, many)


@pytest.mark.parametrize("name", ["add", "tanh", "all", "rows", "product"])
@settings(max_examples=4)
@given(st.integers(3, 6), st.integers(3, 6))
def test_twice_the_tiles_take_half_the_cycles_of_large_work(ipu, name, a, b):
  # All of it fits the SRAM of half the tiles, without steps.
  columns = {"all": 1024, "rows": 1024, "product": 128}.get(name, 512)
  shape = (a * 1472, b * columns)
  few, many = (
    costs(ipu, name, shape, ipu_num_tiles=n)["ipu cycles"]
    for n in (ipu.num_tiles // 2, ipu.num_tiles)
  )
  assert 1.7 <= few / many <= 2.05


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=5)
@given(extents(4096), extents(4096))
def test_f16_takes_no_longer_than_f32(ipu, name, a, b):
  f32, f16 = (
    costs(ipu, name, (a + 512, b + 512), dtype)["ipu cycles"]
    for dtype in (jnp.float32, jnp.float16)
  )
  assert f16 <= f32
