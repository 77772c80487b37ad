"""Chains of jnp calls without jit: dispatch, caches and small programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import Case, Workload, blocking


def eager(name: str, function: Callable, shape: tuple[int, ...]) -> Workload:
  def make(device: jax.Device) -> Case:
    values = np.random.default_rng(0).random(shape, dtype=np.float32)
    x = jax.device_put(values, device)

    def call():
      with jax.default_device(device):
        return function(x)

    return blocking(call)

  return Workload(family="eager", name=name, make=make)


def arithmetic(x):
  y = x
  for _ in range(10):
    y = (y * 2 - x) / 1.5 + 0.25
  return y


def numpy_calls(x):
  y = jnp.where(x > 0.5, jnp.sin(x), x)
  y = jnp.concatenate([y, y[:1]]).T.reshape(-1)
  return y.sum() + jnp.max(y), jnp.clip(y, 0, 0.5), jnp.mean(x, 0)


def normalise(x):
  y = x - x.mean(0)
  return y / jnp.sqrt((y * y).mean(0) + 1e-5)


WORKLOADS = [
  eager("40 operators, 4 floats", arithmetic, (4,)),
  eager("40 operators, 1 MiB", arithmetic, (512, 512)),
  eager("numpy calls, 8x8", numpy_calls, (8, 8)),
  eager("normalise, 256x256", normalise, (256, 256)),
]
