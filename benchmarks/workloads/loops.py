"""While loops and scans with small bodies."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import lax

# XLA:CPU compiles a loop over a few scalars to one native loop, at some 10 ns
# per iteration; a tile program pays for each compute set.
SCALAR_LIMIT = 3.0


def scalars(x, n):
  return lax.fori_loop(0, n, lambda i, x: x * 1.0001 + 0.5, x)


def collatz(x, n):
  del x

  def step(s):
    n, steps = s
    return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

  return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))


def vector(x, n):
  return lax.fori_loop(0, n, lambda i, x: jnp.tanh(x) + i * 1e-3, x)


def recurrence(x, n):
  return lax.fori_loop(0, n, lambda i, x: x * 0.99 + 0.5, x)


def lorenz(x, n):
  """Runge-Kutta steps on three numbers that are sliced and stacked."""

  def slope(s):
    x, y, z = s
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

  def step(i, s, h=1e-3):
    a = slope(s)
    b = slope(s + h / 2 * a)
    c = slope(s + h / 2 * b)
    return s + h / 6 * (a + 2 * b + 2 * c + slope(s + h * c))

  return lax.fori_loop(0, n, step, x)


def newton(x, n):
  del n

  def more(s):
    y, i = s
    return (i < 60) & (jnp.abs(y * y - x) > 1e-6 * x).any()

  return lax.while_loop(more, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1),
                        (x, 0))[0]  # fmt: skip


def branches(x, n):
  def step(i, x):
    return lax.cond(i % 3 == 0, jnp.sin, lambda x: x * 0.9, x)

  return lax.fori_loop(0, n, step, x)


def cheap_branches(x, n):
  def step(i, x):
    return lax.cond(i % 3 == 0, lambda x: x * 1.01, lambda x: x * 0.9 + 0.5, x)

  return lax.fori_loop(0, n, step, x)


def scan(xs, w):
  def cell(h, x):
    h = jnp.tanh(h @ w + x)
    return h, h

  return lax.scan(cell, xs[0], xs)[1]


def scan_gradient(xs, w):
  return jax.grad(lambda w: (scan(xs, w) ** 2).sum())(w)


def sequence(length: int, batch: int, width: int):
  def make():
    rng = np.random.default_rng(0)
    xs = rng.normal(0, 0.5, (length, batch, width)).astype(np.float32)
    w = rng.normal(0, width**-0.5, (width, width)).astype(np.float32)
    return [xs, w]

  return make


def state(n: int, *shape: int):
  return lambda: [np.full(shape, 2, np.float32), np.int32(n)]


WORKLOADS = [
  jitted("loops", "2 scalars, 10000 trips", scalars, state(10_000),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "collatz of 97", collatz, state(97), limit=SCALAR_LIMIT),
  jitted("loops", "vector of 8, 10000 trips", recurrence,
         state(10_000, 8), limit=SCALAR_LIMIT),
  jitted("loops", "lorenz, 1000 trips", lorenz, state(1000, 3),
         limit=SCALAR_LIMIT, tolerance=1e-3),
  jitted("loops", "vector of 16, 1000 trips", vector, state(1000, 16)),
  jitted("loops", "vector of 4096, 100 trips", vector, state(100, 4096)),
  jitted("loops", "newton, 1024", newton, state(0, 1024)),
  jitted("loops", "cond in a loop, 256, 300 trips", branches, state(300, 256)),
  jitted("loops", "cond in a loop, 8, 1000 trips", cheap_branches,
         state(1000, 8), limit=SCALAR_LIMIT),
  jitted("scan", "RNN, 64 steps, 8x32", scan, sequence(64, 8, 32)),
  jitted("scan", "RNN, 32 steps, 32x128", scan, sequence(32, 32, 128)),
  jitted("scan", "gradient, 64 steps, 8x32", scan_gradient,
         sequence(64, 8, 32), tolerance=1e-3),
]  # fmt: skip
