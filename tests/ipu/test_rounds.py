"""Large slices at places known at run time, which go in rounds."""

from __future__ import annotations

import numpy as np
import pytest

import jax
from jax import lax

N = 2_000_000
BATCHED = lax.GatherDimensionNumbers(
  offset_dims=(2,),
  collapsed_slice_dims=(),
  start_index_map=(1,),
  operand_batching_dims=(0,),
  start_indices_batching_dims=(0,),
)


@pytest.fixture(scope="module")
def x():
  return np.arange(N, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.int64])
@pytest.mark.parametrize("start", [-5, 0, 1234, N])
def test_slice_and_update(check, x, start, dtype):
  """Starts are clamped once, not in each round."""
  start = np.array(start).astype(dtype)
  update = -x[: N // 2 + 1]

  def f(x, update, start):
    return (
      lax.dynamic_slice(x, (start,), (N // 2 + 3,)),
      lax.dynamic_update_slice(x, update, (start,)),
    )

  check(f, x, update, start)


def test_in_two_dimensions(check, x):
  grid = x.reshape(1000, 2000)

  def f(x, update, i, j):
    update = lax.dynamic_update_slice(x, update, (i, j))
    return update, lax.dynamic_slice(x, (j, i), (999, 1500))

  check(f, grid, -grid[:997, :1801], np.int32(2), np.int32(150))


def test_lookups(check, x):
  indices = np.random.default_rng(0).integers(-N, N, N).astype(np.int32)
  check(lambda x, i: x[i], x, indices)
  check(lambda x, i: x[i], x, indices.reshape(2, -1))


def test_lookups_of_batches(check, x):
  """The dimension that goes with the operand's is not cut."""
  table = x.reshape(4, -1)
  indices = np.random.default_rng(0).integers(0, N // 4, (4, N // 4, 1))

  def f(table, indices):
    return lax.gather(table, indices, BATCHED, (1, 1))

  check(f, table, indices.astype(np.int32))


@pytest.mark.parametrize(
  "f",
  [
    lambda x, i, u: jax.numpy.roll(x, i),
    lambda x, i, u: lax.dynamic_update_slice(x, u, (i,)),
    lambda x, i, u: x[u.astype(np.int32)],
  ],
  ids=["roll", "update", "lookups"],
)
def test_they_fit(ipu, f):
  shapes = [((10**7,), np.float32), ((), np.int32), ((5 * 10**6,), np.float32)]
  arguments = [jax.ShapeDtypeStruct(*s) for s in shapes]
  with jax.default_device(ipu):
    jax.jit(f).lower(*arguments).compile()
