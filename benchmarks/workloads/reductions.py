"""Sums, extrema and arg-reductions over rows, columns and whole arrays."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted


def values(*shape: int):
  return lambda: [np.random.default_rng(0).random(shape, dtype=np.float32)]


def over(function, axis):
  return lambda x: function(x, axis=axis)


def equal(size: int):
  return lambda: [np.full(size, 7, np.uint8)]


def pool(window: tuple[int, ...]):
  """A max-pool whose windows do not overlap."""
  return lambda x: jax.lax.reduce_window(
    x, -np.inf, jax.lax.max, window, window, "VALID"
  )


def intersections(boxes):
  """The shares that each two of these boxes have in common."""
  low = jnp.maximum(boxes[:, None, :2], boxes[None, :, :2])
  high = jnp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
  common = jnp.prod(jnp.clip(high - low, 0), -1)
  area = jnp.prod(boxes[:, 2:] - boxes[:, :2], -1)
  return common / (area[:, None] + area[None] - common)


def boxes(count: int):
  def make():
    corners = np.random.default_rng(0).random((count, 2, 2), dtype=np.float32)
    return [np.sort(corners, 1).reshape(count, 4)]

  return make


SQUARE = values(1024, 1024)

WORKLOADS = [
  jitted("reductions", "sum, 4 Mi", jnp.sum, values(2**22)),
  *[
    jitted("reductions", f"{name} of {what}, 1024x1024", over(f, axis), SQUARE)
    for name, f in (("sum", jnp.sum), ("max", jnp.max), ("argmax", jnp.argmax))
    for what, axis in (("rows", 1), ("columns", 0), ("all", None))
  ],
  jitted("reductions", "mean of the middle, 64x128x128",
         over(jnp.mean, 1), values(64, 128, 128)),
  jitted("reductions", "sum of two, 64x128x128",
         over(jnp.sum, (0, 2)), values(64, 128, 128)),
  jitted("reductions", "variance of rows, 1024x1024",
         over(jnp.var, 1), SQUARE),
  jitted("reductions", "short rows, 262144x4",
         over(jnp.sum, 1), values(2**18, 4)),
  jitted("reductions", "products of short rows, 500000x2",
         over(jnp.prod, 1), values(500_000, 2)),
  jitted("reductions", "any of short rows, 250000x4",
         over(jnp.any, 1), values(250_000, 4)),
  jitted("reductions", "intersections of 300 boxes", intersections,
         boxes(300)),
  jitted("reductions", "argmax of short rows, 20000x10",
         over(jnp.argmax, 1), values(20000, 10)),
  jitted("reductions", "long rows, 4x262144",
         over(jnp.max, 1), values(4, 2**18)),
  jitted("reductions", "argmax of 10^8 equal u8", jnp.argmax, equal(10**8)),
  jitted("reductions", "maxima of 9 along rows, 512x512",
         lambda x: jax.lax.reduce_window(
           x, -np.inf, jax.lax.max, (1, 9), (1, 1), "VALID"
         ), values(512, 512)),
  jitted("reductions", "max-pool 2x2, 64x28x28x32",
         pool((1, 2, 2, 1)), values(64, 28, 28, 32)),
  jitted("reductions", "max-pool 2x2, 64x32x28x28",
         pool((1, 1, 2, 2)), values(64, 32, 28, 28)),
]  # fmt: skip
