"""The overhead of a call."""

from __future__ import annotations

import numpy as np

import jax
from benchmarks.workload import Case, Workload, blocking, enqueuing

LIMIT = 1.5


def add(device: jax.Device):
  """A warm call of x + 1 on four floats."""
  x = jax.device_put(np.ones(4, np.float32), device)
  f = jax.jit(lambda x: x + 1)
  jax.block_until_ready(f(x))
  return lambda: f(x)


def eight(device: jax.Device):
  """A warm call with eight arguments and eight results."""
  xs = jax.device_put([np.full(4, i, np.float32) for i in range(8)], device)
  f = jax.jit(lambda *xs: [x + 1 for x in xs])
  jax.block_until_ready(f(*xs))
  return lambda: f(*xs)


def ahead_of_time(device: jax.Device):
  """A call of an executable from .lower().compile()."""
  x = jax.device_put(np.ones(4, np.float32), device)
  f = jax.jit(lambda x: x + 1).lower(x).compile()
  return lambda: f(x)


def chain(device: jax.Device) -> Case:
  """Ten dependent calls, blocking once."""
  call = jax.jit(lambda x: x + 1)
  x = jax.device_put(np.zeros(4, np.float32), device)

  def ten():
    y = x
    for _ in range(10):
      y = call(y)
    return y

  return blocking(ten)


WORKLOADS = [
  Workload(family="dispatch", name=name, make=make, limit=LIMIT)
  for name, make in {
    "add, enqueue": lambda d: enqueuing(add(d)),
    "add, block": lambda d: blocking(add(d)),
    "add, ahead of time": lambda d: blocking(ahead_of_time(d)),
    "8 in 8 out, enqueue": lambda d: enqueuing(eight(d)),
    "8 in 8 out, block": lambda d: blocking(eight(d)),
    "chain of 10": chain,
  }.items()
]
