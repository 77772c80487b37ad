"""Slices and updates at run-time indices: each tile sends and receives what was
planned."""

from __future__ import annotations

import math

import hypothesis
import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowering_kit import check, phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.tile.execute import Execute

pytestmark = pytest.mark.ipu_only

INDEXED = (
  schema.Gather, schema.Scatter, schema.DynamicSlice, schema.DynamicUpdate,
)  # fmt: skip


def moved_as_planned(cpu, f, arguments, tiles) -> int:
  """All executors agree on the result, and indexed steps move exactly the
  planned bytes of candidates and partial results."""
  result = check(cpu, f, arguments, tiles, ulps=64)
  program, _ = container.read(phases(f, arguments, tiles).data)
  steps = {
    str(i)
    for i, step in enumerate(program.steps)
    if isinstance(step, schema.Execute) and isinstance(step.fields, INDEXED)
  }
  assert steps
  moved = [e for e in result.exchanges if e.step in steps]
  for e in moved:
    assert e.actual == e.planned
  return sum(e.actual for e in moved)


HOW = ("get", "set", "add", "max", "unique")
tiles = st.sampled_from([2, 5, 16, 1472])


def look_up(how, axis, shape, lookups, dtype):
  """A function of an array, indices and an update, and its arguments."""
  x = util.sample(dtype, shape, low=0, high=3)
  extent = shape[axis]
  i = util.sample(np.int32, lookups, low=0, high=extent - 1)
  if how == "unique":
    number = min(math.prod(lookups), extent)
    i = np.random.RandomState(0).permutation(extent)[:number].astype(np.int32)

  def f(x, i, u):
    at = (i, slice(None)) if axis == 0 else (slice(None), i)
    if how == "get":
      return jnp.take(x, i, axis, mode="clip")
    if how == "unique":
      return x.at[at].set(u, unique_indices=True)
    return getattr(x.at[at], how)(u)

  return f, [x, i, np.ones((), dtype)]


@given(st.data())
@hypothesis.settings(max_examples=15)
def test_gathers_and_scatters(cpu, data):
  machine = data.draw(tiles)
  rows = st.integers(1, 70)
  if machine > 5:  # fewer would not have enough room
    rows |= st.integers(1000, 4000)
  shape = data.draw(rows), data.draw(st.integers(1, 9))
  sizes = st.lists(st.sampled_from([1, 3, 12, 60]), min_size=1, max_size=2)
  lookups = tuple(data.draw(sizes))
  axis = data.draw(st.integers(0, 1))
  dtype = data.draw(st.sampled_from([np.float32, np.int32, np.float16]))
  how = data.draw(st.sampled_from(HOW))
  f, arguments = look_up(how, axis, shape, lookups, dtype)
  moved_as_planned(cpu, f, arguments, machine)


@pytest.mark.parametrize("how", ["get", "add", "max", "set", "unique"])
def test_candidates_and_partial_results_are_exchanged(cpu, how):
  """A table's rows are spread over many tiles; for updates, so are its
  lookups."""
  f, arguments = look_up(how, 0, (1000, 3), (900,), np.float32)
  assert moved_as_planned(cpu, f, arguments, 64) > 0


@given(st.data())
@hypothesis.settings(max_examples=15)
def test_dynamic_slices_and_updates(cpu, data):
  shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
  sizes = tuple(data.draw(st.integers(1, n)) for n in shape)
  hypothesis.assume(sizes != shape)

  def f(x, i, u):
    start = [i + d for d in range(len(shape))]
    return (
      lax.dynamic_slice(x, start, sizes),
      lax.dynamic_update_slice(x, u, start),
    )

  x = util.sample(np.float32, shape)
  u = util.sample(np.float32, sizes, key="u")
  i = np.int32(data.draw(st.integers(-3, 30)))
  moved_as_planned(cpu, f, [x, i, u], data.draw(tiles))


def row(x, i):
  return x[i]


def test_exchange_cycles_of_a_slice_are_near_the_minimum(ipu):
  """A row of an array whose rows are spread: the array is moved so that columns
  are whole, or all tiles that share the rows send candidates."""
  x = util.spec(1472, 1024)
  found = util.costs(ipu, row, x, util.spec(dtype=np.int32))
  least = 1472 * 1024 * 4 / 1472 / 4
  assert least <= found["ipu exchange cycles"] <= 2 * least


def test_arrays_on_one_tile_are_sliced_in_place(ipu):
  """A vector on one tile: only the index and the result move."""
  found = util.costs(ipu, row, util.spec(32), util.spec(dtype=np.int32))
  assert found["ipu exchange bytes"] == 0


def test_gradients_of_tables_are_made_on_their_tiles():
  """A table that is also the weight of a product (tied embeddings)."""
  x, y = np.zeros((50257, 768), np.float32), np.zeros((128, 768), np.float32)
  i = np.zeros(128, np.int32)

  def step(table, y, i):
    loss = lambda table: jnp.sum(jnp.tanh(table[i] @ table.T))
    return table - 0.1 * jax.grad(loss)(table)

  state = phases(step, [x, y, i], 1472, donated=(0,))
  tensors = state.builder.tensors
  (table, *_) = state.tiles.arguments
  (scatter,) = (
    s for s in state.builder.steps
    if isinstance(s, Execute) and isinstance(s.fields, schema.Scatter)
  )  # fmt: skip
  (result,) = scatter.results
  assert tensors[result.tensor].layout == tensors[table].layout


def test_more_lookups_cost_more(ipu):
  table = util.spec(5000, 64)
  before = 0.0
  for n in (16, 64, 256, 1024, 4096):
    found = util.costs(ipu, row, table, util.spec(n, dtype=np.int32))
    assert found["ipu cycles"] >= before
    before = found["ipu cycles"]


def test_sums_of_many_updates_are_split_into_partial_sums(ipu):
  """A million scalars into a thousand: no tile receives all of them."""
  add = lambda x, i: x.at[i].add(1.0)
  found = util.costs(
    ipu, add, util.spec(1000), util.spec(10**6, dtype=np.int32)
  )
  assert found["ipu exchange cycles"] < 10**4
  receives_all = lambda x, i: x.at[i].apply(jnp.sin)
  found = util.costs(
    ipu, receives_all, util.spec(1000), util.spec(10**5, dtype=np.int32)
  )
  assert found["ipu exchange cycles"] >= 5 * 10**4


@pytest.mark.parametrize("rows, lookups", [(1000, 10**6), (10**5, 1000)])
def test_overwriting_updates_are_split_over_teams(ipu, rows, lookups):
  """The last update of an element wins, on whichever tile; its number costs
  something, and less if no element is updated twice."""

  def cycles(update):
    return util.costs(
      ipu,
      update,
      util.spec(rows),
      util.spec(lookups, dtype=np.int32),
      util.spec(lookups),
    )["ipu cycles"]

  add = cycles(lambda x, i, u: x.at[i].add(u))
  unique = cycles(lambda x, i, u: x.at[i].set(u, unique_indices=True))
  assert add < unique < cycles(lambda x, i, u: x.at[i].set(u)) < 3 * add


@pytest.mark.parametrize("lookups", [(3, 400_000), (2, 3, 200_000)])
def test_the_last_of_many_updates_wins(check, lookups):
  """Also in rounds, which process the lookups in parts; XLA's order is
  row-major."""
  i = util.sample(np.int32, lookups, low=0, high=999)
  u = np.arange(i.size, dtype=np.int32).reshape(lookups)
  x = np.zeros(1000, np.int32)
  check(lambda x, i, u: x.at[i].set(u), x, i, u)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows, columns", [(1000, 1000), (784, 784)])
def test_blocks_of_tables_need_little_packing(ipu, rows, columns, dtype):
  """Not in columns of a word or less, for which the exchange and the lookups
  would take longer."""
  table = util.spec(rows, columns, dtype=dtype)
  found = util.costs(ipu, row, table, util.spec(20, dtype=np.int32))
  assert found["ipu compute cycles"] < 2500
  table = util.spec(rows, columns + 2, dtype=dtype)
  add = util.costs(
    ipu, lambda x, i, u: x.at[i].add(u), table,
    util.spec(20, dtype=np.int32), util.spec(20, table.shape[1], dtype=dtype),
  )  # fmt: skip
  assert add["ipu compute cycles"] < 3500


@pytest.mark.parametrize(
  "shape", [(784, 784), (64, 64), (60, 66), (24, 388), (100_000,)]
)
def test_f16_tables_cost_no_more_than_f32(ipu, shape):
  f32, f16 = (
    util.costs(
      ipu, row, util.spec(*shape, dtype=dtype), util.spec(20, dtype=np.int32)
    )["ipu cycles"]
    for dtype in (np.float32, np.float16)
  )
  assert f16 <= 1.04 * f32
