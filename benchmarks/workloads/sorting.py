"""Full and partial sorts."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted
from benchmarks.workloads.movement import values
from jax import lax


def integers(*shape: int):
  def make():
    rng = np.random.default_rng(0)
    return [rng.integers(-(2**31), 2**31, shape).astype(np.int32)]

  return make


MANY = 1_000_000

WORKLOADS = [
  jitted("sort", "10^6 f32", jnp.sort, values(MANY)),
  jitted("sort", "10^6 i32", jnp.sort, integers(MANY)),
  jitted("sort", "1000 rows of 1000", jnp.sort, values(1000, 1000)),
  jitted("sort", "1000 columns of 1000", lambda x: jnp.sort(x, 0),
         values(1000, 1000)),
  jitted("sort", "10^5 rows of 10", jnp.sort, values(100_000, 10)),
  jitted("sort", "argsort of 10^6", jnp.argsort, values(MANY)),
  jitted("sort", "two keys of 10^6",
         lambda x: lax.sort((jnp.round(100 * x), x), num_keys=2),
         values(MANY)),
  jitted("sort", "median of 1000 rows", lambda x: jnp.median(x, 1),
         values(1000, 1000)),
  jitted("sort", "permutation of 10^6",
         lambda x: jax.random.permutation(jax.random.key(0), x),
         values(MANY)),
  jitted("top_k", "10 of 10^6", lambda x: lax.top_k(x, 10), values(MANY)),
  jitted("top_k", "1000 of 10^6", lambda x: lax.top_k(x, 1000), values(MANY)),
  jitted("top_k", "8 of 32768, 64 rows", lambda x: lax.top_k(x, 8),
         values(64, 32768)),
  jitted("top_k", "2 of 64, 8192 rows", lambda x: lax.top_k(x, 2),
         values(8192, 64)),
]  # fmt: skip
