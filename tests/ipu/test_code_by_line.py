"""The code of a tile by source line adds up to the code of the plan."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.sram import code_by_line

pytestmark = pytest.mark.ipu_only


def layers(x, weights):
  for w in weights:
    x = jnp.tanh(x @ w) + jnp.sort(x, 0)
  return x


def loops(x, weights):
  def body(i, c):
    return lax.cond(i > 1, lambda c: c @ weights[0], jnp.sin, c)

  x = lax.fori_loop(0, 5, lambda _, c: jnp.sin(c) @ weights[1], x)
  return lax.while_loop(lambda c: c[0, 0] < 9, lambda c: body(2, c) + 1, x)


def callback(x, weights):
  y = jax.pure_callback(np.asarray, x, x, vmap_method="sequential")
  return y @ weights[0]


@pytest.mark.parametrize("f", [layers, loops, callback])
@pytest.mark.parametrize("budget", [None, 0])
def test_the_lines_of_a_tile_have_all_of_its_code(f, budget):
  arguments = [np.ones((8, 8), np.float32), [np.ones((8, 8), np.float32)] * 4]
  state = lowering_kit.phases(f, arguments, 3, code_budget=budget)
  code = state.memory.code
  for tile in range(3):
    found = code_by_line.code_by_line(state.tiles, tile)
    assert all((parts >= 0).all() for parts in found.values())
    sums = dict(zip(code_by_line.PARTS, sum(found.values()), strict=True))
    for part, size in sums.items():
      whole = int(getattr(code, part)[tile])
      # All copies on a tile share their code, calls of functions return.
      beside = {
        "vertices": 512,
        "control": 20 * len(code.functions),
        "exchange": 0,
        "host": 0,
      }
      assert whole - beside[part] <= size <= whole
