"""Cheap conditionals become selects; the others decide at run time."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax

X = util.sample(np.float32, (8,))


def decisions(f, *arguments) -> int:
  """The number of conditionals that a program decides at run time."""
  graphs = [lowering_kit.phases(f, list(arguments), 1472).module.graph]
  found = 0
  while graphs:
    for node in graphs.pop().nodes:
      found += node.op in ("stablehlo.case", "stablehlo.if")
      graphs += node.regions
  return found


def in_a_loop(x):
  def step(i, x):
    return lax.cond(i % 3 == 0, lambda x: x * 1.5, lambda x: x - 0.5, x)

  return lax.fori_loop(0, 20, step, x)


def nested(i, x):
  def inner(x):
    return lax.cond(i > 2, lambda x: x + 1, lambda x: -x, x)

  return lax.cond(i > 1, inner, lambda x: x * 2, x)


def of_several_types(i, x):
  def first():
    return x, i, jnp.bool_(True), x.astype(jnp.float16), x

  def second():
    return x + 1, i * 2, i > 2, x.astype(jnp.float16) * 2, x

  return lax.cond(i == 1, first, second)


DTYPES = (
  jnp.bfloat16, jnp.float16, jnp.float32, jnp.float8_e4m3fn, jnp.int4,
  jnp.int8, jnp.uint8, jnp.int16, jnp.uint32, jnp.bool_, jnp.complex64,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_results_of_every_type(check, dtype):
  values = jnp.arange(8).astype(dtype)

  def f(i, x):
    return lax.cond(i == 1, lambda: x, lambda: x[::-1]), lax.cond(
      i == 1, lambda: x[0], lambda: x[1]
    )

  for i in (0, 1):
    check(f, np.int32(i), np.asarray(values), rtol=0)


def with_an_empty_result(i, x):
  return lax.cond(i == 1, lambda: x[:0], lambda: x[:0] + 1), x + 1


def guarded_division(i, x):
  """The branch that is not taken divides by zero."""
  return lax.cond(i != 0, lambda: x / i, lambda: jnp.zeros_like(x))


@pytest.mark.parametrize(
  "f", [nested, of_several_types, with_an_empty_result, guarded_division]
)
def test_cheap_branches_are_selected(check, f):
  assert decisions(f, np.int32(1), X) == 0
  for i in (-1, 0, 1, 2, 3):
    check(f, np.int32(i), X)


def test_in_a_loop(check):
  assert decisions(in_a_loop, X) == 0
  check(in_a_loop, X)


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 3, 2**31 - 1])
def test_an_index_out_of_range_takes_the_last_branch(check, index):
  branches = [lambda x, k=k: x * k for k in range(1, 4)]

  def clamped(i, x):
    return lax.switch(i, branches, x)

  assert decisions(clamped, np.int32(index), X) == 0
  check(clamped, np.int32(index), X)


def expensive(i, x):
  return lax.cond(i == 1, jnp.sin, lambda x: x, x)


def integer_division(i, x):
  return lax.cond(i != 0, lambda: 7 // i, lambda: -1), x


def large(i, x):
  x = jnp.tile(x, 200_000)
  return lax.cond(i == 1, lambda x: x + 1, lambda x: x * 2, x)[:8]


def with_a_product(i, x):
  return lax.cond(i == 1, lambda x: jnp.outer(x, x) @ x, lambda x: x, x)


def with_a_loop(i, x):
  def loop(x):
    return lax.while_loop(lambda x: x[0] < 9, lambda x: x + 1, x)

  return lax.cond(i == 1, loop, lambda x: x, x)


@pytest.mark.parametrize(
  "f", [expensive, integer_division, large, with_a_product, with_a_loop]
)
def test_branches_that_cost_more_than_a_decision_stay(check, f):
  assert decisions(f, np.int32(1), X) == 1
  for i in (0, 1):
    check(f, np.int32(i), X, rtol=1e-5, atol=1e-6)


def test_callbacks_run_in_their_branch_only(ipu):
  seen = []

  def f(i, x):
    def shown(x):
      jax.debug.callback(lambda: seen.append(1))
      return x + 1

    return lax.cond(i == 1, shown, lambda x: x, x)

  for i in (0, 1, 0):
    jax.block_until_ready(jax.jit(f)(*jax.device_put((np.int32(i), X), ipu)))
  jax.effects_barrier()
  assert seen == [1]
