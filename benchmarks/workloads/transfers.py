"""Transfers to the device and back."""

from __future__ import annotations

import numpy as np

import jax
from benchmarks.workload import Case, Workload, blocking, prepared
from benchmarks.workloads.movement import values


def to_device(size: int):
  def make(device: jax.Device) -> Case:
    (x,) = values(size)()
    return blocking(lambda: jax.device_put(x, device))

  return make


def to_host(size: int):
  """Reads a fresh array each time, because JAX caches what it has copied."""

  def make(device: jax.Device) -> Case:
    x = jax.device_put(values(size)()[0], device)
    add = jax.jit(lambda x: x + 1)
    fresh = lambda: jax.block_until_ready(add(x))
    return prepared(fresh, np.asarray, lambda: np.asarray(fresh()))

  return make


WORKLOADS = [
  Workload(family="transfers", name=f"{name} {what}", make=make(size))
  for name, size in (("4 KB", 1000), ("4 MB", 10**6), ("64 MB", 16 * 10**6))
  for what, make in (("to the device", to_device), ("to the host", to_host))
]
