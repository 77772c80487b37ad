"""Bitcasts between all types of a width, before and after each operation that
runs a register program of its own: the engine renames values across bitcasts,
which must not change the type that an operation sees.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import jax
import jax.numpy as jnp
from jax import lax

TYPES = {
  1: ("int8", "uint8"),
  2: ("int16", "uint16", "float16", "bfloat16"),
  4: ("int32", "uint32", "float32"),
  8: ("int64", "uint64", "float64"),
}
PAIRS = [p for ts in TYPES.values() for p in itertools.permutations(ts, 2)]


@pytest.fixture(autouse=True)
def x64_on_ipu(ipu):
  with jax.enable_x64(True), jax.default_device(ipu):
    yield


def cast(x, dtype):
  return lax.bitcast_convert_type(x, dtype)


def values(shape, dtype, *, seed):
  """Random bits without NaNs: one bit of the exponent is 0 in all of them, and
  so in their unions and differences."""
  bits = 8 * dtype.itemsize
  rng = np.random.default_rng(seed)
  drawn = rng.integers(0, 1 << bits, shape, np.uint64, endpoint=False)
  drawn &= np.uint64(~(1 << (bits - 2)) & ((1 << bits) - 1))
  return drawn.astype(f"uint{bits}").view(dtype)


def as_bits(operation, dtype):
  """An operation on the bits of values of a type."""
  bits = f"uint{8 * dtype.itemsize}"
  return lambda x, y: cast(operation(cast(x, bits), cast(y, bits)), dtype)


def compare(programs, expected, x):
  """Compares bits. Runs each program alone: fused, it would not see the
  bitcast."""
  for name, program in programs.items():
    got = jax.tree.leaves(jax.jit(program)(x))
    for g, w in zip(got, jax.tree.leaves(expected[name]), strict=True):
      assert g.dtype == w.dtype, name
      bits = f"uint{8 * w.dtype.itemsize}"
      np.testing.assert_array_equal(
        np.asarray(g).view(bits), w.view(bits), err_msg=name
      )


@pytest.mark.parametrize("source, target", PAIRS)
def test_reductions(source, target):
  a, b = jnp.dtype(source), jnp.dtype(target)
  bits = f"uint{8 * a.itemsize}"
  x = values((40, 50), a, seed=1)
  xor = {t: as_bits(jnp.bitwise_xor, t) for t in (a, b)}
  union = as_bits(jnp.bitwise_or, b)
  zero = {t: np.zeros((), t) for t in (a, b)}

  def both(x, y):
    return xor[b](x[0], y[0]), xor[a](x[1], y[1])

  programs = {
    "rows": lambda x: lax.reduce(cast(x, b), zero[b], xor[b], (1,)),
    "columns": lambda x: lax.reduce(cast(x, b), zero[b], xor[b], (0,)),
    "then cast": lambda x: cast(
      lax.reduce(cast(x, b), zero[b], xor[b], (0,)), a
    ),
    "both": lambda x: lax.reduce(
      (cast(x, b), x), (zero[b], zero[a]), both, (1,)
    ),
    "windows": lambda x: cast(
      lax.reduce_window(cast(x, b), zero[b], union, (3, 2), (2, 2), "valid"),
      a,
    ),
    "argmax": lambda x: jnp.argmax(cast(x, b), axis=1),
    "max": lambda x: jnp.max(cast(x, b), axis=0),
  }
  u, v = x.view(bits), x.view(b)
  rows, columns = (np.bitwise_xor.reduce(u, axis=d) for d in (1, 0))
  windows = sliding_window_view(u, (3, 2))[::2, ::2]
  expected = {
    "rows": rows.view(b),
    "columns": columns.view(b),
    "then cast": columns.view(a),
    "both": (rows.view(b), rows.view(a)),
    "windows": np.bitwise_or.reduce(windows, axis=(2, 3)).view(a),
    "argmax": v.argmax(axis=1),
    "max": v.max(axis=0),
  }
  compare(programs, expected, x)


@pytest.mark.parametrize("source, target", PAIRS)
def test_other_operations(source, target):
  a, b = jnp.dtype(source), jnp.dtype(target)
  bits = f"uint{8 * a.itemsize}"
  x, update = values((40, 50), a, seed=2), values((60, 50), a, seed=3)
  mask = x.view(bits) % 2 == 0
  index = np.random.default_rng(4).integers(0, 40, (60, 1))
  rows = lax.ScatterDimensionNumbers((1,), (0,), (0,))

  def swap(i, state):
    y, z = state
    return cast(cast(z, bits) + jnp.array(3, bits), a), cast(y, b)

  programs = {
    "map": lambda x: (cast(x, b), x),
    "there and back": lambda x: cast(cast(x, b), a),
    "select": lambda x: jnp.where(mask, cast(x, b), jnp.zeros((), b)),
    "scan": lambda x: lax.cummax(cast(x, b), axis=1),
    "sort": lambda x: lax.sort((cast(x, b), x), dimension=1, num_keys=1),
    "scatter": lambda x: lax.scatter_max(
      cast(x, b), index, cast(jnp.asarray(update), b), rows
    ),
    "loop": lambda x: lax.fori_loop(0, 7, swap, (x, cast(x, b))),
    "scalars": lambda x: lax.fori_loop(0, 7, swap, (x[3, 4], cast(x[3, 4], b))),
  }
  u, v = x.view(bits), x.view(b)
  most = v.copy()
  for row, i in enumerate(index[:, 0]):
    most[i] = np.maximum(most[i], update.view(b)[row])
  order = np.argsort(v, axis=1, kind="stable")
  y = z = u
  for _ in range(7):
    y, z = z + np.array(3, bits), y
  loop = y.view(a), z.view(b)
  expected = {
    "map": (v, x),
    "there and back": x,
    "select": np.where(mask, v, np.zeros((), b)),
    "scan": np.maximum.accumulate(v, axis=1),
    "sort": [np.take_along_axis(k, order, 1) for k in (v, x)],
    "scatter": most,
    "loop": loop,
    "scalars": [k[3, 4] for k in loop],
  }
  compare(programs, expected, x)
