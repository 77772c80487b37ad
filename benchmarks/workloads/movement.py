"""Transposes, gathers and scatters."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import lax


def values(*shape: int):
  return lambda: [np.random.default_rng(0).random(shape, dtype=np.float32)]


def table_and_rows(rows: int, width: int, count: int):
  """A table f32[rows, width], indices i32[count], and values to add."""

  def make():
    rng = np.random.default_rng(0)
    return [
      rng.random((rows, width), dtype=np.float32),
      rng.integers(0, rows, count).astype(np.int32),
      rng.random((count, width), dtype=np.float32),
    ]

  return make


def scalars(size: int, count: int, width: int | None = None):
  """f32[size], indices i32[count] into it, and f32[count] or [count, width]."""

  def make():
    rng = np.random.default_rng(0)
    return [
      rng.random(size, dtype=np.float32),
      rng.integers(0, size, count).astype(np.int32),
      rng.random((count, width) if width else count, dtype=np.float32),
    ]

  return make


def embedding_gradient(table, rows, values):
  return jax.grad(lambda t: (t[rows] * values).sum())(table)


def one_column(table, rows, values):
  del values
  return table[rows, rows % table.shape[1]]


def many_small_updates(table, rows, values):
  """Updates ten elements of a large array at a time, in a loop."""

  def step(i, table):
    return lax.dynamic_update_slice(table, values[i], (rows[i],))

  return lax.fori_loop(0, rows.shape[0], step, table)


def bilinear(image, points):
  return jax.scipy.ndimage.map_coordinates(image, list(points), 1)


def image_and_points(size: int):
  def make():
    rng = np.random.default_rng(0)
    return [
      rng.random((size, size), dtype=np.float32),
      np.float32(rng.uniform(0, size - 1, (2, size, size))),
    ]

  return make


TABLE = table_and_rows(10_000, 256, 4096)
MILLION = 1_000_000

WORKLOADS = [
  jitted("transpose", "128x128", lambda x: x.T + 0, values(128, 128)),
  jitted("transpose", "1024x1024", lambda x: jnp.transpose(x),
         values(1024, 1024)),
  jitted("transpose", "2048x512", lambda x: jnp.transpose(x),
         values(2048, 512)),
  jitted("transpose", "(0 2 1 3) of 8x128x12x64",
         lambda x: x.transpose(0, 2, 1, 3), values(8, 128, 12, 64)),
  jitted("transpose", "(2 1 0) of 64x128x64",
         lambda x: x.transpose(2, 1, 0), values(64, 128, 64)),
  jitted("movement", "concatenate and slice, 4 MiB",
         lambda x: jnp.concatenate([x[512:], x[:512]]), values(1024, 1024)),
  jitted("movement", "each element twice, 64x1024",
         lambda x: jnp.repeat(x, 2, 1), values(64, 1024)),
  jitted("movement", "each pixel four times, 8x32x32x16",
         lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2),
         values(8, 32, 32, 16)),
  jitted("movement", "reverse and pad, 4 MiB",
         lambda x: jnp.pad(x[::-1, ::-1], 1), values(1024, 1024)),
  jitted("gather", "4096 rows of 256", lambda t, i, v: t[i], TABLE,
         memory=True),
  jitted("gather", "4096 elements", one_column, TABLE),
  jitted("scatter", "add 4096 rows of 256",
         lambda t, i, v: t.at[i].add(v), TABLE),
  jitted("scatter", "gradient of an embedding", embedding_gradient, TABLE,
         tolerance=1e-3),
  jitted("scatter", "set 64 rows of 256",
         lambda t, i, v: t.at[:64].set(v), table_and_rows(10_000, 256, 64)),
  jitted("gather", "10^6 scalars of 10^6", lambda t, i, v: t[i],
         scalars(MILLION, MILLION)),
  jitted("gather", "500 columns of 1000x1000", lambda t, i, v: t[:, i],
         table_and_rows(1000, 1000, 500)),
  jitted("gather", "bins of 10^5 among 50",
         lambda x: jnp.digitize(x[0], jnp.linspace(0, 1, 50)),
         values(1, 10**5)),
  jitted("gather", "nearest pixels, 8x32x32x16 to 64x64",
         lambda x: jax.image.resize(x, (8, 64, 64, 16), "nearest"),
         values(8, 32, 32, 16)),
  jitted("gather", "bilinear, 256x256 points", bilinear,
         image_and_points(256)),
  jitted("scatter", "add 10^6 scalars into 1000",
         lambda t, i, v: t.at[i].add(v), scalars(1000, MILLION),
         tolerance=1e-3),
  jitted("scatter", "count 10^5 numbers below 10",
         lambda x: jnp.bincount(x, length=10),
         lambda: [np.random.default_rng(0).integers(0, 10, 10**5, np.int32)]),
  jitted("scatter", "add 10^6 scalars into 10^6",
         lambda t, i, v: t.at[i].add(v), scalars(MILLION, MILLION)),
  jitted("scatter", "add 10^5 rows of 3 into 10^5",
         lambda t, i, v: t.at[i].add(v), table_and_rows(10**5, 3, 10**5)),
  jitted("scatter", "10^4 updates of 10 of 10^6 in a loop",
         many_small_updates, scalars(MILLION, 10_000, 10)),
]  # fmt: skip
