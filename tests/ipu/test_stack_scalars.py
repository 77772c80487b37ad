"""Equal functions of scalars, side by side (passes/stack_scalars.py)."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ir.map_program import MAP

pytestmark = pytest.mark.ipu_only


def corrections(count):
  """Adam's, and a third that is not of the same form."""
  dtype = count.dtype
  first, second = (1 - jnp.asarray(b, dtype) ** count for b in (0.9, 0.999))
  return count + 1, first, 1 - second**count, second


def in_a_loop(x):
  def step(i, state):
    x, y = state
    return x / (1 - 0.9 ** (y + 1)), x / (1 - 0.99 ** (y + 1))

  return lax.fori_loop(0, 5, step, (x, x))


def stacked(f, *arguments):
  """The numbers of functions that maps compute side by side."""
  graphs = [lowering_kit.phases(f, list(arguments), 1472).module.graph]
  found = []
  for graph in graphs:
    for node in graph.nodes:
      graphs += node.regions
      if node.op == MAP:
        found += node.attributes.shape
  return found


@pytest.mark.parametrize(
  "dtype", (np.float32, np.float16, jnp.bfloat16), ids=lambda d: d.__name__
)
def test_results(check, dtype):
  check(corrections, dtype(7), rtol=4 * float(jnp.finfo(dtype).eps))


def test_integers(check):
  def f(n):
    return [lax.div(jnp.int32(c), n) for c in (1_000_003, -700_001)]

  assert stacked(f, np.int32(9)) == [2]
  check(f, np.int32(9))


def test_in_a_loop(check):
  assert stacked(in_a_loop, np.float32(1)) == [2]
  check(in_a_loop, np.float32(1), rtol=1e-5)


def test_only_expensive_functions_of_the_same_operands():
  def f(x, y):
    cheap = [x * c for c in (2.0, 3.0)]
    return *cheap, 0.9**x, 0.8**x, 0.7**y, jnp.exp(0.6**y)

  assert stacked(f, np.float32(3), np.float32(4)) == [2]


def test_side_by_side_they_take_as_long_as_one(ipu):
  count = jax.device_put(np.float32(3), ipu)

  def cycles(bases):
    f = jax.jit(lambda count: [1 - b**count for b in bases])
    return f.lower(count).compile().cost_analysis()["ipu cycles"]

  assert cycles((0.9, 0.99, 0.999)) < 1.2 * cycles((0.9,))
