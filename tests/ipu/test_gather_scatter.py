"""Gather and scatter: user-level indexing, and arbitrary dimension numbers."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL, NUMBERS

import jax
import jax.numpy as jnp
from jax import export, lax

MODES = ("clip", "fill", "promise_in_bounds")


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_indexing(check, dtype):
  def index(x, i, j):
    return {
      "rows": x[i],
      "columns": x[:, j],
      "pairs": x[i, j],
      "grid": x[i[:, None], j[None]],
      "scalar": x[i[0]],
      "take": jnp.take(x, i, 1, mode="clip"),
      "take along axis": jnp.take_along_axis(x, i[:, None], 0),
      "negative": x[-i - 1],
      "window": lax.dynamic_slice(x, (i[1], j[1]), (3, 2)),
    }

  x = util.sample(dtype, (20, 30), special=True)
  i = np.array([0, 19, 3, 3, 7], np.int32)
  j = np.array([29, 0, 5, 11, 5], np.int32)
  check(index, x, i, j, exact=True)


@pytest.mark.parametrize("mode", MODES)
def test_indices_out_of_bounds_are_read(check, mode):
  x = util.sample(np.float32, (10, 4))
  i = np.array([0, 9, 4], np.int32)
  if mode != "promise_in_bounds":
    i = np.array([0, 9, 10, -1, -11, 2**31 - 1, -(2**31)], np.int32)
  check(lambda x, i: x.at[i].get(mode=mode), x, i, exact=True)
  check(
    lambda x, i: x.at[i, i % 4].get(mode=mode, wrap_negative_indices=False),
    x,
    i,
    exact=True,
  )


@pytest.mark.parametrize(
  "dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
)
def test_types_of_indices(check, dtype):
  """Also those that were computed, or that others use."""

  def index(x, i, u):
    return {
      "rows": x[i],
      "windows": x[i, 2:],
      "grid": x[i[:, None], i[None, :7] % 5],
      "computed": x[i + i],
      "used": (x[i, 0], i < 0, jnp.where(i < 0, i + 100, i)),
      "clip": x.at[i].get(mode="clip"),
      "fill": x.at[i].get(mode="fill", fill_value=7),
      "set": x.at[i[:1]].set(u[:1]),
      "add": x.at[i].add(u),
      "drop": x.at[i, 3].max(u[:, 0], mode="drop"),
    }

  x = util.sample(np.float32, (100, 5))
  u = util.sample(np.float32, (40, 5), low=0, high=9)
  info = np.iinfo(dtype)
  ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 99, 100]
  drawn = util.rng_of("indices", dtype).integers(0, 120, 40 - len(ends))
  if info.min < 0:
    drawn[1::2] -= 120
  i = np.concatenate([np.array(ends, dtype), drawn.astype(dtype)])
  with jax.enable_x64(dtype.endswith("64")):
    check(index, x, i, u)


@pytest.mark.parametrize("mode", MODES)
def test_many_places_named_by_arrays(check, mode):
  """So many that the engine goes through them in bands; the arrays of indices
  are arguments, computed or broadcast, and take part in what follows."""

  def at(x, i, j):
    found = x.at[i, j].get(mode=mode) + i
    around = x.at[i // 2 + 1, j - 1].get(mode=mode) * x.at[j, i].get(mode=mode)
    grid = x.at[i[:, :1], j[:1]].get(mode=mode)
    rows = jnp.take_along_axis(x, i[: len(x)], 1, mode=mode) * 2
    deep = jnp.stack([x, -x], 2).at[i, j].get(mode=mode) + 1
    return found, around, grid, rows, deep

  rng = np.random.default_rng(1)
  x = rng.random((300, 301), dtype=np.float32)
  high = 299 if mode == "promise_in_bounds" else 320
  low = 1 if mode == "promise_in_bounds" else -20
  i, j = rng.integers(low, high, (2, 600, 450), np.int32)
  check(at, x, i, j, exact=True)


def test_many_places_are_updated(check):
  def update(x, i, j, y):
    i = i + 1
    new = x.at[i, j].add(y).at[j, i].max(2 * y, mode="drop")
    return new, x.at[i - 1, j].mul(y, mode="clip")

  rng = np.random.default_rng(2)
  x = rng.random((40, 50), dtype=np.float32)
  i, j = rng.integers(-3, 52, (2, 4000), np.int32)
  check(update, x, i, j, rng.random(4000, np.float32), rtol=1e-4)


def test_results_of_computed_parts(check):
  def parts(x, y, i):
    rows = x[i]
    return (
      jnp.concatenate([x @ y, rows, x + 1, jnp.cumsum(x, 0)]),
      jnp.concatenate([x @ y, rows, rows]),
      jnp.concatenate([rows, rows.T], 1),
    )

  x = util.sample(np.float32, (33, 33))
  i = np.arange(-33, 33, 2, np.int32)
  check(parts, x, x[::-1], i, rtol=1e-5, atol=1e-4)


def test_a_fill_value_may_be_chosen(check):
  x = util.sample(np.int32, (10,))
  i = np.array([3, 99, -99], np.int32)
  check(lambda x, i: x.at[i].get(mode="fill", fill_value=-5), x, i)


COMBINERS = ("set", "add", "multiply", "min", "max", "subtract")


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_scatter(check, dtype):
  """Indices repeat for the combiners that commute, not for `set`."""

  def scatters(x, i, repeated, u):
    cases = {}
    for name in COMBINERS:
      index = i if name == "set" else repeated
      cases[f"{name} rows"] = getattr(x.at[index], name)(u)
      cases[f"{name} pairs"] = getattr(x.at[index, index + 1], name)(u[:, 0])
      cases[f"{name} columns"] = getattr(x.at[:, index], name)(u.T[:1])
      cases[f"{name} scalar"] = getattr(x.at[i[0], i[1]], name)(u[0, 0])
    return cases

  x = util.sample(dtype, (9, 12), low=0, high=3)
  u = util.sample(dtype, (4, 12), low=1, high=3)
  i = np.array([6, 0, 3, 5], np.int32)
  repeated = np.array([6, 0, 6, 6], np.int32)
  check(scatters, x, i, repeated, u, rtol=_tolerance(dtype))


def _tolerance(dtype) -> float:
  return 1e-5 if dtype.itemsize == 4 else 3e-2


def test_scatter_of_bool(check):
  x = util.sample(np.bool_, (9, 4))
  i = np.array([6, 0, 6], np.int32)
  check(
    lambda x, i: [
      x.at[i].set(True),
      x.at[i].max(x[:3]),
      x.at[i].min(x[:3]),
      x.at[i, 2].set(False),
    ],
    x,
    i,
  )


@pytest.mark.parametrize("mode", ("clip", "drop"))
def test_indices_out_of_bounds_are_written(check, mode):
  x = util.sample(np.float32, (10, 4), low=1, high=2)
  i = np.array([0, 9, 10, -1, -11, 2**31 - 1, 4], np.int32)
  u = np.arange(28, dtype=np.float32).reshape(7, 4)

  def scatters(x, i, u):
    return [
      x.at[i].add(u, mode=mode),
      x.at[i].max(u, mode=mode),
      x.at[:, i].add(u[:1, :1], mode=mode),
    ]

  check(scatters, x, i, u, rtol=1e-5)


def test_a_window_out_of_bounds_is_dropped_whole(check):
  """StableHLO skips updates whose window does not fit."""
  numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
  x = util.sample(np.float32, (10,))
  u = util.sample(np.float32, (4, 3), key="u")
  i = np.array([[0], [7], [8], [-1]], np.int32)
  for mode in (lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP):
    check(
      lambda x, i, u: lax.scatter_add(x, i, u, numbers, mode=mode),
      x,
      i,
      u,
      rtol=1e-5,
      atol=1e-6,
    )


def test_general_combiners(check):
  x = util.sample(np.float32, (30,), low=0.5, high=2)
  i = np.array([3, 8, 29, 0], np.int32)
  check(
    lambda x, i: [
      x.at[i].apply(jnp.sin),
      x.at[i].power(2.0),
      x.at[i].divide(3.0),
    ],
    x,
    i,
    rtol=1e-5,
  )


def test_a_scatter_over_the_whole_operand(check):
  """The simplifier turns it into StableHLO's map."""
  x = util.sample(np.float32, (5, 7), low=0.5, high=2)
  x[0, :3] = np.nan, -0.0, np.inf
  u = util.sample(np.float32, (5, 7), key="u")
  check(
    lambda x, u: [
      x.at[...].min(u),
      x.at[...].max(u[0, 0]),
      x.at[:].multiply(u),
      x.at[...].add(u).sum(),
      x.at[...].apply(jnp.sin),
    ],
    x,
    u,
    rtol=1e-5,
  )


def test_set_at_equal_indices_writes_one_of_the_updates(ipu):
  """Which update wins is undefined, but it has to be one of them."""
  x = np.zeros((8, 3), np.float32)
  i = np.array([5, 5, 5, 2], np.int32)
  u = util.sample(np.float32, (4, 3))
  out = util.run_on(ipu, lambda x, i, u: x.at[i].set(u), x, i, u)
  assert any((out[5] == row).all() for row in u[:3])
  np.testing.assert_array_equal(out[2], u[3])
  assert not out[[0, 1, 3, 4, 6, 7]].any()


@st.composite
def gathers(draw):
  """An operand shape, start indices, and the arguments of `lax.gather`."""
  shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
  dims = st.sets(st.integers(0, len(shape) - 1))
  mapped = draw(st.permutations(range(len(shape))))
  mapped = mapped[: draw(st.integers(1, len(shape)))]
  collapsed = sorted(draw(dims))
  sizes = [
    1 if d in collapsed else draw(st.integers(0, n))
    for d, n in enumerate(shape)
  ]
  batch = draw(st.lists(st.integers(0, 4), max_size=2))
  rank = len(batch) + len(shape) - len(collapsed)
  offset = draw(st.permutations(range(rank)))
  offset = sorted(offset[: len(shape) - len(collapsed)])
  numbers = lax.GatherDimensionNumbers(
    tuple(offset), tuple(collapsed), tuple(mapped)
  )
  return shape, [*batch, len(mapped)], numbers, sizes


@given(gathers(), st.sampled_from(["clip", "fill"]))
def test_gather_of_any_dimension_numbers(check, case, mode):
  shape, index_shape, numbers, sizes = case
  x = util.sample(np.float32, shape)
  i = util.sample(np.int32, index_shape, low=-2, high=7)
  check(
    lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode), x, i, exact=True
  )


@given(gathers(), st.sampled_from(["clip", "drop"]))
def test_scatter_of_any_dimension_numbers(check, case, mode):
  """The scatter that mirrors the gather; with integers the order does not
  matter."""
  shape, index_shape, gather, sizes = case
  numbers = lax.ScatterDimensionNumbers(
    gather.offset_dims, gather.collapsed_slice_dims, gather.start_index_map
  )
  window = [n for d, n in enumerate(sizes) if d not in
            gather.collapsed_slice_dims]  # fmt: skip
  batch = iter(index_shape[:-1])
  windows = iter(window)
  rank = len(index_shape) - 1 + len(window)
  update_shape = [
    next(windows) if d in gather.offset_dims else next(batch)
    for d in range(rank)
  ]
  x = util.sample(np.int32, shape)
  u = util.sample(np.int32, update_shape, key="u")
  i = util.sample(np.int32, index_shape, low=-2, high=7)
  check(lambda x, i, u: lax.scatter_add(x, i, u, numbers, mode=mode), x, i, u)


def test_batching_dimensions(check):
  """vmap of an index creates batching dimensions."""

  def batched(x, i, u):
    return {
      "gather": jax.vmap(lambda x, i: x[i])(x, i),
      "scatter": jax.vmap(lambda x, i, u: x.at[i].add(u))(x, i, u),
      "set": jax.vmap(lambda x, i, u: x.at[i[0]].set(u[0]))(x, i, u),
      "two": jax.vmap(jax.vmap(lambda x, i: x[i]))(
        x.reshape(2, 3, 10, 4), i.reshape(2, 3, 5)
      ),
      "indices alone": jax.vmap(lambda i: x[0, i])(i),
      "operand alone": jax.vmap(lambda x: x[i[0]], 1)(x),
      "slice": jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 1), (3, 2)))(
        x, i[:, 0]
      ),
      "update": jax.vmap(
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0))
      )(x, u, i[:, 0]),
    }

  x = util.sample(np.float32, (6, 10, 4))
  u = util.sample(np.float32, (6, 5, 4), key="u")
  i = util.sample(np.int32, (6, 5), low=0, high=9)
  check(batched, x, i, u, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  "dtype", [np.int8, np.uint8, np.int16, np.uint32], ids=str
)
def test_index_dtypes(check, dtype):
  x = util.sample(np.float32, (120, 3))
  i = util.sample(dtype, (17,), low=0, high=119)
  check(lambda x, i: [x[i], x.at[i].max(1)], x, i, exact=True)


def test_no_indices(check):
  """With empty indices, whose gathers JAX itself removes, except when
  exported."""
  (n,) = export.symbolic_shape("n")
  exported = export.export(
    jax.jit(lambda x, i: (x[i[1:]], x.at[i[1:]].add(1))),
    platforms=("ipu", "cpu"),
  )(
    jax.ShapeDtypeStruct((4, 6), np.float32),
    jax.ShapeDtypeStruct((n,), np.int32),
  )
  x = util.sample(np.float32, (4, 6))
  for count in (1, 4):  # a symbolic extent is not 0
    check(exported.call, x, np.zeros(count, np.int32))


def test_embedding_and_its_gradient(check):
  """Repeated tokens add up; 4,000 tokens over 1,000 rows."""

  def loss(table, tokens, weight):
    return (table[tokens] * weight).sum()

  check(
    jax.value_and_grad(loss),
    util.sample(np.float32, (1000, 48), low=-1, high=1),
    util.sample(np.int32, (4000,), low=0, high=999),
    util.sample(np.float32, (4000, 48), low=-1, high=1),
    rtol=1e-3,
    atol=1e-3,
  )


def test_one_hot_histogram_and_segments(check):
  def f(labels, values):
    return {
      "one hot": jax.nn.one_hot(labels, 10),
      "bincount": jnp.bincount(labels, length=10),
      "segment sum": jax.ops.segment_sum(values, labels, 10),
      "segment max": jax.ops.segment_max(values, labels, 10),
      "inverse": jnp.zeros(10, jnp.int32).at[labels].max(labels),
    }

  labels = util.sample(np.int32, (200,), low=0, high=9)
  values = util.sample(np.float32, (200,), low=-1, high=1)
  check(f, labels, values, rtol=1e-4, atol=1e-5)


def test_gather_without_indexed_dimensions(check):
  x = util.sample(np.float32, (3,))
  numbers = lax.GatherDimensionNumbers((1,), (), ())
  i = np.zeros((4, 0), np.int32)
  check(lambda x: lax.gather(x, jnp.asarray(i), numbers, (1,), mode="clip"), x)
