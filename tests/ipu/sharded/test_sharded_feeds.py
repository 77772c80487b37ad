"""Feeds whose items are split over devices."""

from __future__ import annotations

import types

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.ipu import _infeed as lax_
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
# Partition order is not device order.
ORDER = (3, 0, 2, 1, 7, 6, 4, 5)
ROWS = np.arange(48, dtype=np.float32).reshape(8, 6)


@pytest.fixture(params=["ipu", "cpu"])
def grid(request, mesh):
  return mesh(request.param, GRID, ORDER)


def batches(grid, count):
  """Items of an array split in both dimensions, one in one, and a scalar."""
  items = ((ROWS + i, ROWS[0] * i, np.int32(i)) for i in range(count))
  types = [((8, 6), np.float32, P("x", "y")), ((6,), np.float32, P("y"))]
  like = [
    jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(grid, spec))
    for shape, dtype, spec in types
  ]
  return jax.ipu.feed(items, like=(*like, np.int32(0)))


def test_each_device_gets_its_part(grid):
  rows, first, number = jax.jit(lambda feed: feed.next())(batches(grid, 1))
  assert rows.sharding.is_equivalent_to(NamedSharding(grid, P("x", "y")), 2)
  np.testing.assert_array_equal(rows, ROWS)
  np.testing.assert_array_equal(first, ROWS[0] * 0)
  assert number == 0


def test_a_loop_that_adds_to_a_sharded_state(grid):
  def train(feed, state):
    def step(state, _):
      rows, first, number = feed.next()
      return state + rows @ first * number, number

    return lax.scan(step, state, length=4)

  zeros = jax.device_put(
    np.zeros(8, np.float32), NamedSharding(grid, P(("y", "x")))
  )
  state, numbers = jax.jit(train)(batches(grid, 4), zeros)
  expected = sum((ROWS + i) @ (ROWS[0] * i) * i for i in range(4))
  np.testing.assert_allclose(state, expected, rtol=1e-5)
  assert numbers.tolist() == [0, 1, 2, 3]


def test_a_loop_until_the_end(grid):
  def step(carry):
    feed, total, _ = carry
    (rows, _, _), more = feed.next_or_end()
    return feed, total + rows.sum(), more

  def total(feed):
    return lax.while_loop(lambda c: c[2], step, (feed, jnp.zeros(()), True))[1]

  assert jax.jit(total)(batches(grid, 3)) == 3 * ROWS.sum() + 3 * ROWS.size


def test_inside_of_shard_map(grid):
  @jax.jit
  @jax.shard_map(
    mesh=grid, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False
  )
  def scaled(feed):
    rows, first, _ = feed.next()
    assert rows.shape == (2, 3) and first.shape == (3,)
    return rows * lax.psum(1, ("x", "y"))

  np.testing.assert_array_equal(scaled(batches(grid, 1)), ROWS * 8)


def test_explicit_axes(mesh):
  grid = mesh("ipu", GRID, types=AxisType.Explicit)
  with jax.set_mesh(grid):
    rows, *_ = jax.jit(lambda feed: feed.next())(batches(grid, 1))
  assert rows.sharding.spec == P("x", "y")
  np.testing.assert_array_equal(rows, ROWS)


def test_an_item_is_streamed_in_parts(mesh):
  grid = mesh("ipu", GRID)
  take = jax.jit(lambda feed: feed.next()[0])
  split = take.lower(batches(grid, 1)).compile().cost_analysis()
  feed = jax.device_put(jax.ipu.feed([ROWS]), jax.devices("ipu")[0])
  one = jax.jit(lambda feed: feed.next())
  whole = one.lower(feed).compile().cost_analysis()
  # A part of `rows` and one of `first`, and the number of the batch.
  assert split["ipu host bytes"] == 4 * (2 * 3 + 3 + 1)
  assert whole["ipu host bytes"] == 4 * ROWS.size
  assert split["ipu link bytes"] == 0


def test_the_end_names_the_iterator(mesh):
  feed = batches(mesh("ipu", GRID), 1)
  take = jax.jit(lambda feed: feed.next()[0])
  take(feed)
  with pytest.raises(RuntimeError, match="generator.* ended after 1 item"):
    take(feed).block_until_ready()


@pytest.mark.parametrize("platform", ["ipu", "cpu"])
def test_an_item_that_is_not_split_is_refused(mesh, platform):
  grid = mesh(platform, GRID)
  x = jax.device_put(ROWS, NamedSharding(grid, P("x")))
  take = jax.jit(lambda feed, x: x + feed.next())
  with pytest.raises(NotImplementedError, match="for 8 devices.*like=jax"):
    take(jax.ipu.feed([ROWS]), x)


def test_the_infeed_of_a_device_is_refused_outside_of_shard_map(mesh):
  x = jax.device_put(ROWS, NamedSharding(mesh("ipu", GRID), P("x")))

  @jax.jit
  def f(x):
    return x + lax_.infeed(lax_.create_token(), jax.typeof(ROWS))[0]

  with pytest.raises(NotImplementedError, match=r"in jax\.shard_map"):
    f(x)


def test_items_have_one_mesh(mesh):
  like = [
    jax.ShapeDtypeStruct(
      (8,), np.int32, sharding=NamedSharding(mesh("ipu", axes), P("x"))
    )
    for axes in (GRID, {"x": 8})
  ]
  with pytest.raises(ValueError, match="on different meshes"):
    jax.ipu.feed([], like=like)


def test_shardings_without_a_mesh_are_refused():
  other = types.SimpleNamespace(num_devices=8)
  like = types.SimpleNamespace(shape=(8,), dtype=np.int32, sharding=other)
  with pytest.raises(NotImplementedError, match="NamedSharding"):
    jax.ipu.feed([], like=like)
