"""Programs with large constants: arrays that a function closes over.

What they take is mostly memory: while compiling, and as long as they live.
"""

from __future__ import annotations

import numpy as np

import jax
from benchmarks.workload import Case, Workload, blocking

_MEGABYTES = 100


def programs(name: str, count: int) -> Workload:
  """Compiles `count` programs with a constant each, keeps them, and times a run
  of all."""

  def make(device: jax.Device) -> Case:
    x = jax.device_put(np.float32(0.5), device)
    compiled = []
    for seed in range(count):
      random = np.random.default_rng(seed)
      c = random.standard_normal(_MEGABYTES * 250_000, np.float32)
      compiled.append(jax.jit(lambda x, c=c: (c * x).max()).lower(x).compile())
      jax.clear_caches()  # JAX keeps the lowered module
    return blocking(lambda: [f(x) for f in compiled])

  return Workload(family="constants", name=name, make=make, memory=True)


WORKLOADS = [
  programs(f"{_MEGABYTES} MB", 1),
  programs(f"5 of {_MEGABYTES} MB", 5),
]
