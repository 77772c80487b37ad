"""Donated arrays over eight IPUs: which arguments, in which order, and how long
they stay where they are."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
# Their shapes differ, so that each result can take one argument's memory only.
VALUES = [
  np.arange(64, dtype=np.float32).reshape(8, 8),
  np.arange(32, dtype=np.float32).reshape(8, 4) / 8,
  np.float32(5),
]
SPECS = [P("x", "y"), P("y", "x"), P()]


def add(x, y, z):
  return x + 1, y + 2, z + 3


def add_reversed(x, y, z):
  return z + 3, y + 2, x + 1


def where(array):
  return [s.data.unsafe_buffer_pointer() for s in array.addressable_shards]


@pytest.fixture
def place(mesh):
  grid = mesh("ipu", GRID)
  return lambda: [
    jax.device_put(value, NamedSharding(grid, spec))
    for value, spec in zip(VALUES, SPECS)
  ]


@pytest.mark.parametrize("donated", [(0,), (2,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("f", [add, add_reversed])
def test_any_arguments_in_any_order(place, f, donated):
  args = place()
  before = [where(arg) for arg in args]
  shardings = [arg.sharding for arg in args]
  if f is add_reversed:
    shardings = shardings[::-1]
  call = jax.jit(f, donate_argnums=donated, out_shardings=tuple(shardings))
  results = call(*args)
  for result, expected in zip(results, f(*VALUES), strict=True):
    np.testing.assert_array_equal(result, expected)
  after = [where(result) for result in results]
  if f is add_reversed:
    after = after[::-1]
  for i, arg in enumerate(args):
    assert arg.is_deleted() == (i in donated)
    # Arrays that are not donated keep their memory, so no result has it.
    assert (after[i] == before[i]) == (i in donated)


def test_a_state_goes_through_several_functions(place):
  first = jax.jit(add, donate_argnums=(0, 1, 2))
  second = jax.jit(
    lambda x, y, z: (x * 2, y - x[:, :4], z), donate_argnums=(0, 1, 2)
  )
  state, expected = place(), VALUES
  memory = [where(array) for array in state]
  gc.collect()  # arrays of other tests
  used = jax.devices("ipu")[3].memory_stats()["bytes_in_use"]
  for _ in range(3):
    state = second(*first(*state))
    x, y, z = add(*expected)
    expected = x * 2, y - x[:, :4], z
  for array, value in zip(state, expected, strict=True):
    np.testing.assert_array_equal(array, value)
  assert [where(array) for array in state] == memory
  assert jax.devices("ipu")[3].memory_stats()["bytes_in_use"] == used


def test_arrays_of_the_same_shape_change_places(mesh):
  sharding = NamedSharding(mesh("ipu", GRID), P("x", "y"))
  a, b = (jax.device_put(VALUES[0] + i, sharding) for i in (0, 100))
  swap = jax.jit(lambda a, b: (b, a), donate_argnums=(0, 1))
  for _ in range(3):
    a, b = swap(a, b)
  np.testing.assert_array_equal(a, VALUES[0] + 100)
  np.testing.assert_array_equal(b, VALUES[0])


def test_the_carry_of_a_scan(mesh):
  sharding = NamedSharding(mesh("ipu", GRID), P("x", "y"))

  @jax.jit
  def whole(state):
    def step(s, i):
      return s.at[i].add(s.sum(0)), s[i, 0]

    return jax.lax.scan(step, state, jnp.arange(4))

  donated = jax.jit(whole, donate_argnums=0)
  x = jax.device_put(VALUES[0] % 3, sharding)
  expected = whole(x)
  memory = where(x)
  state, firsts = donated(x)
  assert x.is_deleted() and where(state) == memory
  np.testing.assert_array_equal(state, expected[0])
  np.testing.assert_array_equal(firsts, expected[1])


def test_a_state_that_is_given_twice_is_an_error(place):
  x = place()[0]
  f = jax.jit(lambda a, b: (a + 1, b), donate_argnums=0)
  with pytest.raises(jax.errors.JaxRuntimeError, match=r"f\(donate\(a\), a\)"):
    f(x, x)
  np.testing.assert_array_equal(x, VALUES[0])  # nothing was consumed
