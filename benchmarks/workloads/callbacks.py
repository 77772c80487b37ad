"""Host callbacks within programs."""

from __future__ import annotations

import numpy as np

import jax
from benchmarks.workload import jitted
from benchmarks.workloads.movement import values
from jax import lax


def double(x):
  return np.asarray(x) * 2


def pure(x):
  return jax.pure_callback(double, x, x) + 1


def loop(x):
  return lax.fori_loop(0, 20, lambda i, x: pure(x) * 0.25, x)


def ordered(x):
  return jax.experimental.io_callback(double, x, x, ordered=True)


WORKLOADS = [
  jitted("callbacks", "pure, 4 floats", pure, values(4)),
  jitted("callbacks", "pure, 1 Mi", pure, values(2**20)),
  jitted("callbacks", "20 in a loop, 256", loop, values(256)),
  jitted("callbacks", "ordered, 256", ordered, values(256)),
]
