"""What the figures of `cost_analysis()` count, and what they leave out."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax

pytestmark = pytest.mark.ipu_only


@pytest.fixture
def figures(ipu):
  def find(f, *arguments):
    with jax.default_device(ipu):
      return jax.jit(f).lower(*arguments).compile().cost_analysis()

  return find


def unequal_steps(x):
  """Sorts, gathers and scatters that are all different, with much code."""
  for _ in range(40):
    x = jnp.pad(x, (0, 1))
    i = jnp.argsort(x)
    x = x.at[i].add(x[::-1])[i]
  return x


def test_all_code_counts(ipu, caplog):
  """No figure hides code that has no room."""
  x = jax.ShapeDtypeStruct(
    (800,), np.float32, sharding=jax.sharding.SingleDeviceSharding(ipu)
  )
  lowered = jax.jit(unequal_steps).lower(x)
  found = lowered.compile({"ipu_allow_out_of_memory": True}).cost_analysis()
  code, limit = (found[f"ipu executable tile {k}"] for k in ("bytes", "limit"))
  assert limit == 208 * 1024 < code
  assert found["ipu always live tile bytes"] > code
  assert found["ipu peak tile bytes"] > found["ipu always live tile bytes"]
  assert found["ipu peak tile bytes with gaps"] >= found["ipu peak tile bytes"]
  (record,) = caplog.records
  assert f"{int(code - limit):,} more than" in record.getMessage()


def test_loops_that_data_decide_are_counted_once(figures):
  def loop(x, n):
    return lax.fori_loop(0, n, lambda _, y: jnp.sin(y), x)

  x = np.ones(64, np.float32)
  known = figures(lambda x: loop(x, 1000), x)
  decided = figures(loop, x, np.int32(1000))
  assert known["ipu loops counted once"] == 0
  assert decided["ipu loops counted once"] == 1
  assert decided["ipu cycles"] < known["ipu cycles"] / 100
  # However often a loop around it runs, and in whichever branch it is.
  nested = figures(
    lambda x, n: lax.cond(
      n > 0, lambda: lax.fori_loop(0, 9, lambda _, y: loop(y, n), x), lambda: x
    ),
    x,
    np.int32(3),
  )
  assert nested["ipu loops counted once"] == 1


def test_conditionals_count_their_costliest_branch(figures):
  def dear(x):
    return jnp.sin(x @ x)

  def either(x, p):
    return lax.cond(p, dear, lambda x: x + 1, x)

  x = np.ones((64, 64), np.float32)
  found, alone = figures(either, x, True), figures(dear, x)
  assert found["ipu cycles"] > alone["ipu cycles"]
  assert found["flops"] == pytest.approx(alone["flops"], rel=0.01)


def test_element_types(figures):
  """An IPU has no bfloat16 arithmetic, and PopLibs' float32 sine is slow."""
  each = 60  # elements on each tile
  for function in (jnp.sin, jnp.cos):
    cycles = {
      dtype: figures(function, np.ones(1472 * each, dtype))["ipu cycles"] / each
      for dtype in (jnp.float32, jnp.float16, jnp.bfloat16)
    }
    assert cycles[jnp.float32] == pytest.approx(2300, rel=0.02)
    assert cycles[jnp.float16] == pytest.approx(31, rel=0.1)
    assert cycles[jnp.bfloat16] > cycles[jnp.float32]
  product = {
    dtype: figures(lambda x: x @ x, np.ones((512, 512), dtype))["ipu cycles"]
    for dtype in (jnp.float16, jnp.bfloat16)
  }
  assert product[jnp.bfloat16] > 1.5 * product[jnp.float16]
