"""Modelled cycles grow with the work, halve with twice the tiles, and shrink
with narrower types.
"""

from __future__ import annotations

import itertools

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax
import jax.numpy as jnp
from jaxlib.ipu import target
from jaxlib.ipu.plan import cost

pytestmark = pytest.mark.ipu_only

# --- Random sizes ------------------------------------------------------------

# Programs on arrays of (rows, columns).
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
  """Sizes from 2 to about `most`, small and large ones equally likely."""
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


@pytest.mark.parametrize("n", [1, 8, 64, 1000, 10_000])
def test_fused_producers_of_reductions_are_charged(ipu, n):
  """A single element per tile, which needs no addition, was once free."""
  made, reduced = (
    util.costs(ipu, f, util.spec(n))["ipu compute cycles"]
    for f in (jnp.sin, lambda x: jnp.sin(x).sum())
  )
  assert reduced > 0.99 * made


@pytest.mark.parametrize("name", ["add", "tanh", "all", "rows", "product"])
@settings(max_examples=4)
@given(st.integers(3, 6), st.integers(3, 6))
def test_twice_the_tiles_take_half_the_cycles_of_large_work(ipu, name, a, b):
  # Everything fits the SRAM of half the tiles, without serial steps.
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
  """Blocks with odd numbers of elements need a copy that assembles words."""
  f32, f16 = (
    costs(ipu, name, (a + 512, b + 512), dtype)["ipu cycles"]
    for dtype in (jnp.float32, jnp.float16)
  )
  words = cost.local_copy(target.resolve("ipu2"), 8 * 2 * 64)
  assert f16 <= f32 + cost.cycles(words)


# --- Chosen sizes -------------------------------------------------------------

GROWING = {
  "add": (lambda x: x + 1, lambda n: (n,)),
  "tanh": (jnp.tanh, lambda n: (n, 16)),
  "sum": (jnp.sum, lambda n: (n,)),
  "row sums": (lambda x: x.sum(1), lambda n: (16, n)),
  "transpose": (lambda x: x.T + 0, lambda n: (n, 24)),
  "product": (lambda x: x @ x.T, lambda n: (n, 64)),
  "softmax": (jax.nn.softmax, lambda n: (32, n)),
  "gather": (lambda x: x[jnp.array([0, 1, 0])], lambda n: (2, n)),
}


# Sides of square matrices around the number of tiles.
SIDES = (512, 1024, 1216, 1312, 1472, 1600, 2048)


@pytest.mark.parametrize(
  "f",
  [jnp.sum, lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.argmax(0)],
  ids=["all", "columns", "rows", "argmax"],
)
def test_cycles_of_reductions_do_not_fall_when_work_grows(ipu, f):
  costs = [util.costs(ipu, f, util.spec(n, n)) for n in SIDES]
  for few, many in itertools.pairwise(costs):
    util.check_no_fall(few, many)
  assert costs[-1]["ipu cycles"] > 1.5 * costs[0]["ipu cycles"]


def test_sums_are_charged_in_the_type_of_the_sum(ipu):
  def took(f, dtype):
    spec = jax.ShapeDtypeStruct((1472, 512), dtype)
    return util.costs(ipu, f, spec)["ipu compute cycles"]

  with jax.enable_x64(True):
    counting = lambda x: x.sum(1, dtype=np.int32)
    doubles = lambda x: x.sum(1, dtype=np.float64)
    assert took(counting, np.bool_) > took(counting, np.int32)
    assert took(doubles, np.float32) > took(doubles, np.float64)


@pytest.mark.parametrize(
  "f, least",
  [
    (jnp.sum, 1.5),
    (lambda x: x.sum(0), 1.7),
    (lambda x: x.sum(1), 1.7),
    (jnp.tanh, 1.9),
    (jax.nn.softmax, 1.9),
  ],
  ids=["sum", "columns", "rows", "tanh", "softmax"],
)
def test_twice_the_tiles_take_about_half_the_cycles(ipu, f, least):
  x = np.ones((4096, 2048), np.float32)
  most = ipu.num_tiles
  few, many = (
    util.costs(ipu, f, x, ipu_num_tiles=n, ipu_allow_out_of_memory=True)
    for n in (most // 2, most)
  )
  assert least <= few["ipu cycles"] / many["ipu cycles"] <= 2.15


@pytest.mark.parametrize(
  "f",
  [
    lambda x: x + x[0, 0],
    lambda x: x * 2 + x.T,
    jnp.tanh,
    jnp.exp,
    lambda x: jnp.maximum(x, 0) - 1,
    lambda x: x.sum(1),
    lambda x: x @ x,
    jax.nn.softmax,
  ],
  ids="add scale tanh exp relu rows product softmax".split(),
)
def test_f16_is_faster_than_f32(ipu, f):
  f32, f16 = (util.costs(ipu, f, np.ones((2048, 2048), t)) for t in "fe")
  assert f16["ipu cycles"] < f32["ipu cycles"]


@pytest.mark.parametrize("name", GROWING)
def test_cycles_do_not_fall_when_work_grows(ipu, name):
  f, shape = GROWING[name]
  sizes = [2**k for k in range(0, 15, 2)]
  found = []
  for n in sizes:
    x = util.spec(*shape(min(n, 2048) if name == "product" else n))
    found.append(util.costs(ipu, f, x))
  for few, many in itertools.pairwise(found):
    util.check_no_fall(few, many)


def test_rows_times_a_vector_keep_all_workers_busy(ipu):
  """However many of them fall to a tile."""
  cycles = []
  for rows in (1, 2, 5, 6, 7, 8, 12, 13, 24):
    found = util.costs(
      ipu, jnp.matmul, util.spec(1472 * rows, 1000), util.spec(1000)
    )
    cycles.append(found["ipu compute cycles"])
    # A worker processes two f32 per cycle.
    assert cycles[-1] < 1.3 * rows * 1000 / 2 + 1000
  assert sorted(cycles) == cycles


def test_fewer_tiles_take_no_fewer_cycles_for_large_work(ipu):
  x = np.ones((1472, 256), np.float32)
  most = ipu.num_tiles
  cycles = [
    util.costs(ipu, jnp.tanh, x, ipu_num_tiles=tiles)["ipu cycles"]
    for tiles in (-(-most // 92), -(-most // 11), most)
  ]
  assert cycles == sorted(cycles, reverse=True)
