"""Host functions in programs of several IPUs."""

from __future__ import annotations

import numpy as np

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
X = np.arange(16, dtype=np.float32).reshape(8, 2)


def put(mesh, value, *spec):
  return jax.device_put(value, NamedSharding(mesh, P(*spec)))


def test_print_in_jit_shows_the_whole_array_once(mesh, capfd):
  def f(x):
    jax.debug.print("sum {} of {}", x.sum(), x[:, 0])
    return x + 1

  jax.block_until_ready(jax.jit(f)(put(mesh("ipu", GRID), X, "x", "y")))
  jax.effects_barrier()
  lines = capfd.readouterr().out.splitlines()
  assert lines == [f"sum 120.0 of {X[:, 0]}"]


def test_print_in_shard_map_shows_each_part(mesh, capfd):
  def f(x):
    jax.debug.print("part {}", x[0])
    return x

  grid = mesh("ipu", {"x": 8})
  run = jax.shard_map(f, mesh=grid, in_specs=P("x"), out_specs=P("x"))
  jax.block_until_ready(jax.jit(run)(put(grid, X, "x")))
  jax.effects_barrier()
  lines = capfd.readouterr().out.splitlines()
  assert sorted(lines) == sorted(f"part {row}" for row in X)


def test_a_partitioned_callback_gets_each_part(mesh):
  found = []

  def f(x):
    jax.debug.callback(lambda v: found.append(v.copy()), x, partitioned=True)
    return x + 1

  grid = mesh("ipu", GRID)
  with jax.set_mesh(grid):
    for spec, parts in (
      (
        ("x", "y"),
        [X[i : i + 2, j : j + 1] for i in (0, 2, 4, 6) for j in (0, 1)],
      ),
      (("x",), [X[i : i + 2] for i in (0, 2, 4, 6)] * 2),
    ):
      jax.block_until_ready(jax.jit(f)(put(grid, X, *spec)))
      jax.effects_barrier()
      assert sorted(v.tolist() for v in found) == sorted(
        v.tolist() for v in parts
      )
      found.clear()


def test_a_pure_callback_gets_the_whole_array(mesh):
  shapes = []

  def host(x):
    shapes.append(x.shape)
    return np.cumsum(x, axis=0)

  def f(x):
    return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

  y = jax.jit(f)(put(mesh("ipu", GRID), X, "x", "y"))
  np.testing.assert_array_equal(y, np.cumsum(X, axis=0))
  assert set(shapes) == {X.shape}


def test_a_pure_callback_in_shard_map_gets_its_part(mesh):
  grid = mesh("ipu", {"x": 8})

  def f(x):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda v: v - v.mean(), like, x)

  run = jax.shard_map(f, mesh=grid, in_specs=P("x"), out_specs=P("x"))
  y = jax.jit(run)(put(grid, X, "x"))
  np.testing.assert_array_equal(y, X - X.mean(1, keepdims=True))


def test_the_sharding_of_a_value(mesh):
  found = []

  def f(x):
    y = x @ x.T
    jax.debug.inspect_array_sharding(y, callback=found.append)
    return y

  jax.jit(f)(put(mesh("ipu", GRID), X, "x", None))
  (sharding,) = found
  assert sharding.is_equivalent_to(NamedSharding(mesh("ipu", GRID), P("x")), 2)


def test_a_function_whose_arrays_have_other_layouts(mesh):
  """LAPACK's are column-major."""
  x = np.random.default_rng(0).normal(size=(8, 6, 6)).astype(np.float32)
  grid = mesh("ipu", {"x": 8})
  w, left, right = jax.jit(jax.lax.linalg.eig)(put(grid, x, "x"))
  np.testing.assert_allclose(x @ right, right * w[:, None], atol=1e-4)
  adjoint = np.conj(np.swapaxes(left, 1, 2))
  np.testing.assert_allclose(adjoint @ x, w[..., None] * adjoint, atol=1e-4)
