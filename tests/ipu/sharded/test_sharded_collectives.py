"""Collectives of `jax.lax` in `shard_map`."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

X = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
GROUPS = [[0, 3], [2, 1]]
RING = [(i, (i + 1) % 4) for i in range(4)]

COLLECTIVES = {
  "psum": lambda x: lax.psum(x, "x"),
  "psum of both": lambda x: lax.psum(x, ("x", "y")),
  "pmean": lambda x: lax.pmean(x, "y"),
  "pmax, pmin": lambda x: lax.pmax(x, "x") - lax.pmin(x, "x"),
  "psum of integers": lambda x: lax.psum((x * 9).astype(jnp.int32), "x") * 1.0,
  "psum of bf16": lambda x: lax.psum(x.astype(jnp.bfloat16), "x") * 1.0,
  "psum in groups": lambda x: lax.psum(x, "x", axis_index_groups=GROUPS),
  "any": lambda x: lax.pmax(x > 2, "x") * 1.0,
  "all_gather": lambda x: lax.all_gather(x, "x").sum(0),
  "all_gather tiled": lambda x: lax.all_gather(x, "x", tiled=True)[:8],
  "psum_scatter": lambda x: jnp.tile(
    lax.psum_scatter(x, "x", tiled=True), (4, 1)
  ),
  "all_to_all": lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True),
  "all_to_all across": lambda x: lax.all_to_all(
    x, "y", 1, 0, tiled=True
  ).reshape(x.shape),
  "ppermute": lambda x: lax.ppermute(x, "x", RING),
  "ppermute to some": lambda x: lax.ppermute(x, "x", [(0, 2)]),
  "axis_index": lambda x: x + 10 * lax.axis_index("x") + lax.axis_index("y"),
  "in a loop": lambda x: lax.fori_loop(
    0, 3, lambda i, c: c * 0.5 + lax.pmean(c, "x") * i, x
  ),
  "in a branch": lambda x: lax.cond(
    lax.psum(x.sum(), ("x", "y")) > 0,
    lambda x: lax.psum(x, "y"),
    lambda x: lax.pmax(x, "x"),
    x,
  ),
  "gradient": jax.grad(lambda x: (lax.psum(jnp.sin(x), "x") ** 2).sum()),
}


def over(mesh, f):
  return jax.jit(
    jax.shard_map(
      f,
      mesh=mesh,
      in_specs=P("x", "y"),
      out_specs=P("x", "y"),
      check_vma=False,
    )
  )


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(both, name):
  def run(mesh):
    x = jax.device_put(X, NamedSharding(mesh, P("x", "y")))
    return over(mesh, COLLECTIVES[name])(x)

  both(run, {"x": 4, "y": 2}, [3, 1, 4, 0, 5, 2, 6, 7])


def test_pbroadcast(mesh):
  grid = mesh("ipu", {"x": 4, "y": 2})
  y = over(grid, lambda x: lax.pbroadcast(x, ("x",), 2))(X)
  np.testing.assert_array_equal(y, np.tile(X[16:24], (4, 1)))


# JAX 0.12 says that both will go.
@pytest.mark.filterwarnings("ignore:.*p(send|recv) is deprecated")
def test_psend_and_precv(mesh):
  grid = mesh("ipu", {"x": 4, "y": 2})

  def f(x):
    token = lax.psend(x, "x", [(0, 3), (1, 2)])
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return lax.precv(token, like, "x", [(0, 3), (1, 2)])

  y = over(grid, f)(X)
  np.testing.assert_array_equal(y, [*(X[:16] * 0), *X[8:16], *X[:8]])


def test_ragged_all_to_all(mesh):
  grid = mesh("ipu", {"x": 8})
  n = np.int32

  def f(x):
    me = lax.axis_index("x").astype(n)
    out = jnp.zeros((8, 1), np.float32)
    at = jnp.arange(8, dtype=n)
    return lax.ragged_all_to_all(
      x,
      out,
      at,
      jnp.ones(8, n),
      jnp.full(8, me),
      jnp.ones(8, n),
      axis_name="x",
    )

  x = np.arange(64, dtype=np.float32).reshape(64, 1)
  y = jax.jit(jax.shard_map(f, mesh=grid, in_specs=P("x"), out_specs=P("x")))(x)
  np.testing.assert_array_equal(y, x.reshape(8, 8).T.reshape(64, 1))


def test_partly_manual_axes(both):
  def run(mesh):
    f = jax.shard_map(
      lambda x: lax.psum(x, "x"),
      mesh=mesh,
      in_specs=P("x"),
      out_specs=P(),
      axis_names={"x"},
    )
    x = jax.device_put(X, NamedSharding(mesh, P("x", "y")))
    return jax.jit(f)(x)

  both(run, {"x": 4, "y": 2})


@pytest.mark.parametrize("donated", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_large_all_reduces_add_in_the_order_of_devices(mesh, dtype, donated):
  """Large enough to bypass the caches, with elements left over at the end."""
  grid = mesh("ipu", {"x": 8})
  count = (4 << 20) // (8 * jnp.dtype(dtype).itemsize) + 37
  values = 100 * np.random.default_rng(1).normal(size=(8, count))
  values = values.astype(jnp.dtype(dtype))
  f = jax.shard_map(
    lambda x: lax.pcast(lax.psum(x, "x"), "x", to="varying"),
    mesh=grid,
    in_specs=P("x"),
    out_specs=P("x"),
  )
  args = jax.device_put(values, NamedSharding(grid, P("x")))
  result = jax.jit(f, donate_argnums=(0,) if donated else ())(args)
  wide = values if dtype == "int8" else values.astype(np.float32)
  total = wide[0]
  for other in wide[1:]:
    total = total + other
  total = total.astype(values.dtype)
  for shard in result.addressable_shards:
    np.testing.assert_array_equal(shard.data[0], total)
