"""Cumulative sums and similar scans."""

from __future__ import annotations

import numpy as np

import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import lax


def vector(*shape: int, dtype=np.float32):
  def make():
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, shape).astype(dtype)]

  return make


def total(name: str, f, make, **options):
  return jitted("running totals", name, f, make, **options)


WORKLOADS = [
  total("cumsum of 10^6", jnp.cumsum, vector(10**6), tolerance=1e-3),
  total("cumsum of 10^3", jnp.cumsum, vector(10**3)),
  total("cumsum of 1000x1000, rows", lambda x: jnp.cumsum(x, 1),
        vector(1000, 1000)),
  total("cumsum of short rows, 100000x3", lambda x: jnp.cumsum(x, 1),
        vector(100_000, 3)),
  total("cumsum of 1000x1000, columns", lambda x: jnp.cumsum(x, 0),
        vector(1000, 1000)),
  total("cummax of 10^5", lax.cummax, vector(10**5)),
  total("cumlogsumexp of 10^5", lax.cumlogsumexp, vector(10**5),
        tolerance=1e-3),
]  # fmt: skip
