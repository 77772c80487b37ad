"""Arrays over several IPUs: how they come, move, and go."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
X = np.arange(128, dtype=np.float32).reshape(8, 16)


def put(mesh, value, *spec):
  return jax.device_put(value, NamedSharding(mesh, P(*spec)))


SPECS = [P("x", "y"), P("y", "x"), P(("x", "y")), P(None, "x"), P()]


@pytest.mark.parametrize("to", SPECS, ids=str)
def test_resharding(mesh, to):
  grid = mesh("ipu", GRID)
  x = put(grid, X, "x", "y")
  y = jax.device_put(x, NamedSharding(grid, to))
  assert y.sharding.spec == to
  np.testing.assert_array_equal(y, X)
  for shard in y.addressable_shards:
    np.testing.assert_array_equal(shard.data, X[shard.index])


def test_resharding_to_other_devices(mesh):
  x = put(mesh("ipu", GRID), X, "x", "y")
  other = mesh("ipu", {"x": 2, "y": 2}, [7, 0, 5, 2])
  np.testing.assert_array_equal(put(other, x, "y", "x"), X)
  one = jax.device_put(x, jax.devices("ipu")[3])
  np.testing.assert_array_equal(one, X)


def test_copies_between_ipus_are_charged_over_links(mesh):
  first, pair, far = (jax.devices("ipu")[i] for i in (0, 1, 6))
  x = jax.device_put(np.ones(1 << 20, np.float32), first)
  seconds = {}
  for to in (pair, far):
    np.testing.assert_array_equal(jax.device_put(x, to), x)
    run = first.ipu_last_run()
    assert run.program == f"copy to {to}" and run.exchange_bytes == x.nbytes
    seconds[to] = run.seconds
  # 96 GB/s between the IPUs of a pair, 32 GB/s along a rail; and some latency.
  assert x.nbytes / 96e9 < seconds[pair] < x.nbytes / 96e9 + 1e-6
  assert x.nbytes / 32e9 < seconds[far] < x.nbytes / 32e9 + 1e-6


def test_arrays_from_parts(mesh):
  sharding = NamedSharding(mesh("ipu", GRID), P("y", "x"))
  x = jax.make_array_from_callback(X.shape, sharding, lambda i: X[i])
  y = jax.make_array_from_single_device_arrays(
    X.shape, sharding, [s.data + 1 for s in x.addressable_shards]
  )
  np.testing.assert_array_equal(jax.jit(lambda a, b: b - a)(x, y), X * 0 + 1)


def test_operations_one_by_one(mesh):
  x = put(mesh("ipu", GRID), X, "x", "y")
  y = x + 1
  assert y.sharding == x.sharding
  np.testing.assert_array_equal(y[3:5].sum(), (X + 1)[3:5].sum())
  np.testing.assert_array_equal(jnp.concatenate([x, y]), [*X, *(X + 1)])


def test_donation(mesh):
  grid = mesh("ipu", GRID)
  step = jax.jit(lambda w, x: (w + x.sum(0), x * 2), donate_argnums=0)
  w, x = put(grid, X[0], "y"), put(grid, X, "x", "y")
  pointers = [s.data.unsafe_buffer_pointer() for s in w.addressable_shards]
  new, _ = step(w, x)
  assert w.is_deleted() and not x.is_deleted()
  again = [s.data.unsafe_buffer_pointer() for s in new.addressable_shards]
  assert again == pointers
  np.testing.assert_array_equal(new, X[0] + X.sum(0))
  with pytest.raises((ValueError, RuntimeError), match="deleted|donated"):
    step(w, x)


def test_a_donated_array_that_no_result_replaces_stays_alive(mesh):
  x = put(mesh("ipu", {"x": 8}), X, "x", None)
  y = jax.jit(lambda x: x @ x.T, donate_argnums=0)(x)
  assert not x.is_deleted()
  np.testing.assert_allclose(y, X @ X.T)


def test_state_is_updated_in_place_over_steps(mesh):
  grid = mesh("ipu", GRID)

  def step(state, x):
    return jax.tree.map(lambda s: s * 0.5 + x.mean(), state)

  state = {"a": put(grid, X, "x", "y"), "b": put(grid, X[0], "y")}
  expected = {"a": X, "b": X[0]}
  x = put(grid, X, "y", "x")
  run = jax.jit(step, donate_argnums=0)
  for _ in range(4):
    state = run(state, x)
    expected = jax.tree.map(lambda s: s * 0.5 + X.mean(), expected)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), state, expected
  )


def test_an_array_in_host_memory(mesh):
  grid = mesh("ipu", GRID)
  hosted = NamedSharding(grid, P("x"), memory_kind="pinned_host")
  y = jax.jit(lambda x: jax.device_put(x + 1, hosted))(put(grid, X, "x"))
  assert y.sharding.memory_kind == "pinned_host"
  np.testing.assert_array_equal(y, X + 1)


def test_memory_stats(mesh):
  stats = jax.devices("ipu")[5].memory_stats()
  assert stats["bytes_reservable_limit"] > 0
  before = stats["bytes_in_use"]
  x = put(mesh("ipu", GRID), np.ones((1024, 1024), np.float32), "x", "y")
  after = jax.devices("ipu")[5].memory_stats()["bytes_in_use"]
  assert after - before == x.nbytes // 8


def test_pmap(mesh):
  devices = jax.devices("ipu")
  f = jax.pmap(
    lambda x: x / jax.lax.psum(x, "i"), axis_name="i", devices=devices
  )
  np.testing.assert_allclose(f(X + 1), (X + 1) / (X + 1).sum(0), rtol=1e-6)
