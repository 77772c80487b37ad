"""Arrays that are stacked only to be reduced are combined one by one."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.pipeline import Phase

SPECIAL = np.array(
  [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0], np.float32
)
# All pairs, and a third array.
X, Y = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
Z = np.roll(X, 3)


def nodes(f, *arguments, name: str) -> int:
  """How many operations of a name a fused program has."""
  state = lowering_kit.phases(f, list(arguments), 16, stop_after=Phase.FUSE)
  graph = state.module.graph
  return sum(n.op == f"stablehlo.{name}" for n in graph.nodes)


def check_combined(check, f, *arguments, **tolerances):
  assert not nodes(f, *arguments, name="reduce")
  assert not nodes(f, *arguments, name="concatenate")
  check(f, *arguments, **tolerances)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.bool_])
@pytest.mark.parametrize(
  "name", ["max", "min", "sum", "prod", "any", "all", "argmax", "argmin"]
)
@pytest.mark.parametrize("axis", [0, -1])
def test_reductions_of_stacks(check, name, dtype, axis):
  with np.errstate(invalid="ignore"):
    parts = [v.astype(dtype).reshape(8, 8) for v in (X, Y, Z)]

  def f(*parts):
    return getattr(jnp, name)(jnp.stack(parts, axis), axis)

  check_combined(check, f, *parts)


def test_a_sum_of_negative_zeros_is_positive(ipu):
  zeros = np.full(4, -0.0, np.float32)
  f = jax.jit(lambda a, b: jnp.stack([a, b]).sum(0))
  assert not np.signbit(f(*jax.device_put((zeros, zeros), ipu))).any()


def test_select(check):
  def f(x):
    conditions = [x < -1, x < 0, x < 1, x != x]
    return jnp.select(conditions, [x * 2, x * x, jnp.sqrt(jnp.abs(x)), 7.0], 3)

  check_combined(check, f, util.sample(np.float32, (300,)))
  check_combined(check, f, X)


def test_a_start_value_is_combined_once(ipu):
  """XLA:CPU drops it."""

  def f(start, a, b):
    return lax.reduce(jnp.stack([a, b]), start, lax.add, (0,))

  arguments = np.int32(5), *np.arange(6, dtype=np.int32).reshape(2, 3)
  assert not nodes(f, *arguments, name="reduce")
  result = jax.jit(f)(*jax.device_put(arguments, ipu))
  np.testing.assert_array_equal(result, [8, 10, 12])


def test_any_function(check):
  def f(a, b, c):
    def larger(x, y):
      (v, i), (w, j) = x, y
      return jnp.where(v > w, v, w), jnp.where(v > w, i, j + 1)

    operands = jnp.stack([a, b, c]), lax.iota(np.int32, 3)[:, None] * 2
    operands = operands[0], jnp.broadcast_to(operands[1], operands[0].shape)
    starts = np.float32(0), np.int32(-1)
    return lax.reduce(operands, starts, larger, (0,))

  a, b, c = util.sample(np.float32, (3, 50))
  check(f, a, b, c)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_sums_of_narrow_floats_are_rounded_once(check, dtype):
  parts = util.sample(np.float32, (5, 300)).astype(dtype)
  check_combined(check, lambda *v: jnp.stack(v).sum(0), *parts, rtol=0)


# Vertices for these take less time.
@pytest.mark.parametrize(
  ("name", "dtype", "count"),
  [
    ("max", np.uint8, 3),
    ("any", np.int8, 3),
    ("argmax", np.float32, 4),
    ("max", np.float32, 17),
  ],
)
def test_other_reductions_stay(check, name, dtype, count):
  def f(*parts):
    return getattr(jnp, name)(jnp.stack(parts), 0)

  parts = [np.arange(8).astype(dtype) + k % 3 for k in range(count)]
  assert nodes(f, *parts, name="reduce") == 1
  check(f, *parts)
