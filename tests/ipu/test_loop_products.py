"""Products of scanned operands, which are computed before the loop."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.passes import hoist_products
from jaxlib.ipu.pipeline import Phase


def _products(graph, inside=False):
  """Whether each product of a graph is in a loop."""
  found = []
  for node in graph.nodes:
    if node.op == "stablehlo.dot_general":
      found.append(inside)
    for region in node.regions:
      found += _products(region, inside or node.op == "ipu.repeat")
  return found


def _scan(element, start):
  def f(xs, *weights):
    return lax.scan(lambda c, x: element(c, x, *weights), start, xs)

  return f


def _recurrent(h, x, w, u):
  h = jnp.tanh(x @ w + h @ u)
  return h, h


def _right(h, x, w, u):
  h = jnp.tanh(w @ x + u @ h)
  return h, h


def _changing(h, x, w, u):
  """The product's other operand is carried."""
  h = h + (x @ h) @ w
  return h, h


def _nested(h, x, w, u):
  """Each element is scanned in turn: its product leaves both loops."""
  return lax.scan(lambda h, row: (jnp.tanh(row @ w + h @ u), h), h, x)


def _other_index(xs, w):
  """Reads elements in another order than the loop counts."""
  return lax.fori_loop(
    0, len(xs), lambda i, t: t + xs[(i * 2) % len(xs)] @ w, jnp.zeros((3, 5))
  )


def _part(xs, w):
  """Runs over a part of the elements."""
  return lax.fori_loop(
    0, len(xs) - 1, lambda i, t: t + xs[i] @ w, jnp.zeros((3, 5))
  )


_ROWS = np.float32(np.zeros((3, 5)))
CASES = {
  "recurrent": (
    _scan(_recurrent, _ROWS), [(7, 3, 4), (4, 5), (5, 5)], [False, True],
  ),
  "right": (
    _scan(_right, _ROWS), [(7, 4, 5), (3, 4), (3, 3)], [False, True],
  ),
  "carried": (
    _scan(_changing, np.zeros((3, 5), np.float32)),
    [(7, 3, 3), (5, 5), (5, 5)], [True, True],
  ),
  "nested": (
    _scan(_nested, np.zeros(5, np.float32)),
    [(2, 7, 4), (4, 5), (5, 5)], [False, True],
  ),
  "other index": (_other_index, [(7, 3, 4), (4, 5)], [False]),
  "part": (_part, [(7, 3, 4), (4, 5)], [True]),
}  # fmt: skip


def _arguments(shapes):
  rng = np.random.default_rng(0)
  return [rng.standard_normal(s).astype(np.float32) * 0.3 for s in shapes]


@pytest.mark.parametrize("name", CASES)
def test_products_in_loops(name):
  f, shapes, inside = CASES[name]
  arguments = _arguments(shapes)
  state = lowering_kit.phases(f, arguments, 16, stop_after=Phase.FUSE)
  assert sorted(_products(state.module.graph)) == inside


@pytest.mark.parametrize("name", CASES)
def test_results(name, ipu):
  f, shapes, _ = CASES[name]
  arguments = _arguments(shapes)
  expected = jax.jit(f)(*jax.device_put(arguments, jax.devices("cpu")[0]))
  found = jax.jit(f)(*jax.device_put(arguments, ipu))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    found,
    expected,
  )


def test_large_products_stay_in_loops():
  """The product of all iterations would take too much of the SRAM."""
  f, _, _ = CASES["recurrent"]
  arguments = _arguments([(2000, 3, 4), (4, 5), (5, 5)])
  state = lowering_kit.phases(f, arguments, 1, stop_after=Phase.FUSE)
  assert _products(state.module.graph) == [True, True]


def test_products_stay_in_loops_if_the_program_does_not_fit(monkeypatch):
  monkeypatch.setattr(hoist_products, "_LARGEST_PART", 10)

  def f(xs, w):
    zeros = jnp.zeros((3, 50))
    return lax.scan(lambda t, x: (t + x @ w, None), zeros, xs)[0]

  machine = lowering_kit.machines.Target(
    version="small", num_tiles=4, bytes_per_tile=30_000, clock_hz=1e9
  )
  for elements, inside in ((10, False), (600, True)):
    arguments = _arguments([(elements, 3, 4), (4, 50)])
    state = lowering_kit.phases(f, arguments, machine)
    assert _products(state.module.graph) == [inside]
    assert state.memory.addresses.fullest.needed <= machine.bytes_per_tile
