"""Collectives over one device, tokens, and markers that compute nothing."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

X = util.sample(np.float32, (4, 6))


def over_one_device(device, f, *specs):
  mesh = Mesh(np.array([device]), ("i",))
  return jax.jit(
    jax.shard_map(
      f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False
    )
  )


COLLECTIVES = {
  "psum": lambda x: lax.psum((x, x + 1), "i"),
  "pmean": lambda x: lax.pmean(x, "i"),
  "pmax": lambda x: lax.pmax(x, "i"),
  "all_gather": lambda x: lax.all_gather(x, "i"),
  "all_gather tiled": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
  "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True),
  "psum_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True),
  "ppermute": lambda x: lax.ppermute(x, "i", [(0, 0)]),
  "ppermute to nobody": lambda x: lax.ppermute(x, "i", []),
  "axis_index": lambda x: x + lax.axis_index("i"),
  "in a loop": lambda x: lax.fori_loop(
    0, 3, lambda i, y: y + lax.psum(y, "i") * lax.axis_index("i"), x
  ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_over_one_device(ipu, cpu, name):
  results = [
    jax.tree.map(np.asarray, over_one_device(d, COLLECTIVES[name])(X))
    for d in (ipu, cpu)
  ]
  util.check_equal(*results, exact=True)


def test_gradients_of_collectives(ipu, cpu):
  def f(x):
    return jax.grad(lambda x: (lax.psum(x, "i") ** 2).sum())(x)

  util.check_equal(*(np.asarray(over_one_device(d, f)(X)) for d in (ipu, cpu)))


def test_pmap(ipu, cpu):
  def f(x):
    return x / lax.psum(x, "i"), lax.axis_index("i")

  results = []
  for device in (ipu, cpu):
    mapped = jax.pmap(f, axis_name="i", devices=[device])
    results.append(jax.tree.map(np.asarray, mapped(X[None])))
  util.check_equal(*results)


def test_dce_sinks_tokens_and_barriers(check):
  def f(x):
    lax.dce_sink(x * 2, prevent_mlir_dce=True)
    lax.dce_sink(x.astype(jnp.int4), prevent_mlir_dce=True)
    y = jax.device_put(x + 1, jax.memory.Space.Device)
    token = lax.create_token(x)
    token = lax.after_all(token, lax.create_token(y))
    return lax.optimization_barrier((y, jnp.sin(y)))

  check(f, X)


def test_arrays_that_are_sharded_alike(check):
  module = pytest.importorskip(
    "jax.experimental.shard_alike", reason="newer versions of JAX have none"
  )
  check(lambda x: module.shard_alike(x + 1, x * 2), X)
