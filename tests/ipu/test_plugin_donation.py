"""Donated arguments pass their memory on to results."""

from __future__ import annotations

import numpy as np
import pytest

import jax

pytestmark = pytest.mark.ipu_only


@pytest.fixture
def put(ipu):
  return lambda x: jax.device_put(np.asarray(x, np.float32), ipu)


def increment(x):
  return x + 1


# The first runs immediately, the second goes through the device's queue.
SIZES = [4, 4_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_the_result_takes_the_arguments_memory(ipu, put, size):
  x = put(np.zeros(size))
  where = x.unsafe_buffer_pointer()
  before = ipu.memory_stats()["bytes_in_use"]
  f = jax.jit(increment, donate_argnums=0)
  for step in range(1, 4):
    old, x = x, f(x)
    assert old.is_deleted()
    assert x.unsafe_buffer_pointer() == where
    assert np.asarray(x + 0)[-1] == step
  assert ipu.memory_stats()["bytes_in_use"] == before


def test_every_leaf_of_a_state(put):
  state = {"w": put(np.ones((3, 4))), "n": put(0.0), "v": put(np.ones(7))}
  where = {k: x.unsafe_buffer_pointer() for k, x in state.items()}
  step = jax.jit(
    lambda s, x: {k: v + x for k, v in s.items()}, donate_argnums=0
  )
  for _ in range(3):
    state = step(state, put(2.0))
  assert {k: x.unsafe_buffer_pointer() for k, x in state.items()} == where
  np.testing.assert_array_equal(state["w"], np.full((3, 4), 7))
  np.testing.assert_array_equal(state["n"], 6)


def test_arguments_that_are_not_donated_stay(put):
  f = jax.jit(lambda x, y: x + y, donate_argnums=0)
  x, y = put([1, 2]), put([3, 4])
  f(x, y)
  assert x.is_deleted()
  assert not y.is_deleted()
  np.testing.assert_array_equal(y, [3, 4])


def test_swapped_results(put):
  f = jax.jit(lambda x, y: (y, x), donate_argnums=(0, 1))
  for _ in range(3):
    a, b = f(put([1, 2]), put([3, 4]))
    np.testing.assert_array_equal(a, [3, 4])
    np.testing.assert_array_equal(b, [1, 2])


def test_use_after_donation_is_an_error(put):
  f = jax.jit(increment, donate_argnums=0)
  x = put([1, 2])
  f(x)
  with pytest.raises(RuntimeError, match="deleted"):
    np.asarray(x)
  with pytest.raises((RuntimeError, ValueError), match="deleted"):
    f(x)


def test_an_array_donated_and_used_in_one_call_is_an_error(put):
  f = jax.jit(lambda x, y: (x + y, y), donate_argnums=0)
  x = put([1, 2])
  with pytest.raises((RuntimeError, ValueError), match=r"f\(donate\(a\), a\)"):
    f(x, x)
  # It was not consumed.
  np.testing.assert_array_equal(x, [1, 2])


@pytest.mark.parametrize("size", SIZES)
def test_memory_that_numpy_views_is_not_overwritten(put, size):
  f = jax.jit(increment, donate_argnums=0)
  x = put(np.zeros(size))
  view = np.asarray(x)
  y = jax.block_until_ready(f(x))
  assert x.is_deleted()
  assert y.unsafe_buffer_pointer() != view.ctypes.data
  assert view.max() == 0
  assert np.asarray(y).min() == 1


def test_donated_numpy_arrays_are_not_modified(ipu):
  f = jax.jit(increment, donate_argnums=0)
  x = np.zeros(4, np.float32)
  with jax.default_device(ipu):
    np.testing.assert_array_equal(f(x), np.ones(4))
  np.testing.assert_array_equal(x, np.zeros(4))


def test_an_unusable_donation_is_ignored(put):
  """JAX warns and donates nothing, as on the CPU."""
  f = jax.jit(lambda x: x.sum(), donate_argnums=0)
  x = put(np.ones(1000))
  with pytest.warns(UserWarning, match="not usable"):
    y = f(x)
  assert float(y) == 1000
  np.testing.assert_array_equal(x, np.ones(1000))
