"""Gathers, scatters and updates whose indices are known at compile time."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL

import jax
import jax.numpy as jnp
from jax import lax

X = np.arange(84, dtype=np.float32).reshape(12, 7)

STATIC = {
  "inside": lambda x: x.at[1:-1].set(0.5),
  "a row": lambda x: x.at[3].set(x[4]),
  "the last element": lambda x: x.at[-1, -1].multiply(3),
  "a block": lambda x: x.at[2:5, 1:4].add(x[:3, :3]),
  "every other row": lambda x: x.at[::2].set(-x[::2]),
  "every third column": lambda x: x.at[:, 1::3].max(30.0),
  "backwards": lambda x: x.at[::-1].set(x),
  "rows by number": lambda x: x.at[np.array([1, 4, 7])].min(x[:3] - 20),
  "rows downwards": lambda x: x[np.array([9, 6, 3])],
  "a part of rows": lambda x: x[np.array([1, 5, 9]), 2:5],
  "a column of rows": lambda x: x[np.array([1, 5, 9]), 3],
  "an update": lambda x: lax.dynamic_update_slice(x, x[:2, :3], (30, -2)),
  "gradient of a slice": jax.grad(lambda x: (x[2:9:3, 1:] ** 2).sum()),
}


@pytest.mark.parametrize("name", STATIC)
def test_constant_indices_become_copies(check, name):
  check(STATIC[name], X)
  graph = lowering_kit.phases(STATIC[name], [X], 16).module.graph
  indexed = {"stablehlo.gather", "stablehlo.scatter"}
  assert not indexed & {node.op for node in graph.nodes}


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_types(check, dtype):
  x = util.sample(dtype, (12, 7))
  check(lambda x: (x.at[2:-1:3, 1].set(x[0, 0]), x.at[1:].set(x[:-1])), x)


OUTSIDE = {
  "dropped": lambda x: x.at[12].set(1.0, mode="drop"),
  "some dropped": lambda x: x.at[np.array([8, 10, 12])].set(1, mode="drop"),
  "clipped": lambda x: x.at[np.array([10, 12])].get(mode="clip"),
  "filled": lambda x: x.at[np.array([10, 12])].get(mode="fill"),
  "uneven": lambda x: x.at[np.array([1, 2, 4])].add(1),
  "twice": lambda x: x.at[np.array([3, 3])].add(1),
  "empty": lambda x: x.at[5:5].set(1.0),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_indices_out_of_bounds_uneven_or_equal(check, name):
  check(OUTSIDE[name], X)


def test_indices_computed_by_many_operations(check):
  """The compiler does not evaluate long index computations, least of all
  repeatedly."""

  def f(x):
    i = lax.iota(jnp.int32, 12)
    for _ in range(400):
      i = i + i
    return x.at[i].get(mode="clip", wrap_negative_indices=False)

  check(f, X)


@given(st.data())
def test_drawn(check, data):
  def index(extent):
    kind = data.draw(st.sampled_from(["slice", "int", "array"]))
    if kind == "slice":
      bound = st.one_of(st.none(), st.integers(-extent - 1, extent + 1))
      step = data.draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
      return slice(data.draw(bound), data.draw(bound), step)
    if kind == "int":
      return data.draw(st.integers(-extent, extent - 1))
    first = data.draw(st.integers(0, extent - 1))
    step = data.draw(st.sampled_from([-2, -1, 1, 2]))
    count = data.draw(st.integers(1, 4))
    return np.clip(first + step * np.arange(count), 0, extent - 1)

  at = (index(12), index(7))
  if all(isinstance(i, np.ndarray) for i in at):
    at = (at[0][:, None], at[1])
  method = data.draw(st.sampled_from(["set", "add", "max"]))

  def f(x):
    part = x[at]
    return part, getattr(x.at[at], method)(part * 2 - 30)

  # If an element is set twice, the order is undefined.
  numbers = np.arange(84).reshape(12, 7)[at].reshape(-1)
  if method == "add" or len(set(numbers.tolist())) == numbers.size:
    check(f, X)
  check(lambda x: jnp.asarray(x[at]), X)
