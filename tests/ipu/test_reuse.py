"""Operations that are lowered like an earlier one: their steps are copied, and
the program is the same as if each had been lowered."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu.ir.registry import REGISTRY
from jaxlib.ipu.lower import reuse, tensors
from jaxlib.ipu.lower.reuse import Reuse

pytestmark = pytest.mark.ipu_only

LAYERS = 4


def layer(p, x):
  y = x @ p["up"] + p["bias"]
  y = jax.nn.softmax(jnp.tanh(y)) @ p["down"]
  return y + x / jnp.max(x, -1, keepdims=True)


def layers(x, params):
  for p in params:
    x = layer(p, x)
  return x


def step(x, params):
  """A step of training."""
  grads = jax.grad(lambda p: layers(x, p).sum())(params)
  return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def slices(x, params):
  """Products of parts of one array, each of which is moved."""
  whole = params[0]["up"] @ params[0]["down"]
  return [x[:, 4 * i : 4 * i + 8] @ whole[4 * i : 4 * i + 8] for i in range(6)]


def scaled(x, params):
  """The same products, but for a constant in between."""
  for i, p in enumerate(params):
    x = (x @ p["up"] * (i % 2 + 1.5)) @ p["down"]
  return x


def again(x, params):
  """Operands that were moved before are moved no more."""
  (p, *_) = params
  return [x @ p["up"], x @ p["up"][:, ::-1], (x * 2) @ p["up"], x @ p["up"]]


def starts(x, params):
  """Reductions that differ in what they start with."""
  return [
    jax.lax.reduce(p["up"] + x[:16, :1], np.float32(i), jax.lax.add, (1,))
    for i, p in enumerate(params)
  ]


def on_both_sides(x, params):
  """A function of its operands' order, and of one operand twice."""
  squares = [p["up"] @ p["down"] for p in params]
  return [a @ b for a in squares for b in squares]


FUNCTIONS = [layers, step, slices, scaled, again, starts, on_both_sides]


def arguments(count: int = LAYERS):
  params = {
    "up": np.ones((16, 48), np.float32),
    "down": np.ones((48, 16), np.float32),
    "bias": np.ones(48, np.float32),
  }
  return [np.ones((32, 16), np.float32), [params] * count]


def without_reuse(self, node, lower):
  lower(self._builder, node)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("tiles", [7, 1472])
def test_programs_are_the_same_without(monkeypatch, f, tiles):
  programs = []
  for lower in (Reuse.lower, without_reuse):
    monkeypatch.setattr(Reuse, "lower", lower)
    programs.append(lowering_kit.compiled(f, arguments(), tiles))
  assert programs[0] == programs[1]


def lowered(monkeypatch, f, count: int) -> int:
  """How many of the nodes that could be copied are lowered."""
  found = []

  def noted(self, node, lower):
    lower_noted = lambda *args: (found.append(node), lower(*args))
    reused(self, node, lower_noted)

  reused = Reuse.lower
  with monkeypatch.context() as patch:
    patch.setattr(Reuse, "lower", noted)
    lowering_kit.phases(f, arguments(count), 64)
  return len([n for n in found if REGISTRY[n.op].context is not None])


@pytest.mark.parametrize("f", [layers, step])
def test_further_layers_are_not_lowered(monkeypatch, f):
  """But for the first and the last ones, whose neighbours differ."""
  some, more = (lowered(monkeypatch, f, n) for n in (4, 9))
  assert more == some


def test_other_operands_are_lowered_anew(monkeypatch):
  """Four products of different parts, of which one was moved before."""
  assert lowered(monkeypatch, again, 1) >= 4


@pytest.mark.parametrize(
  ("owner", "name", "each"), [(tensors, "resolve", 0), (reuse, "_kind", 1)]
)
def test_nodes_are_looked_at_once(monkeypatch, owner, name, each):
  """What they have in common with others; their lines, once for all layers."""
  calls = []
  looked_at = getattr(owner, name)

  def noted(*args):
    calls.append(args)
    return looked_at(*args)

  monkeypatch.setattr(owner, name, noted)
  found = []
  for count in (4, 9):
    calls.clear()
    state = lowering_kit.phases(layers, arguments(count), 64)
    found.append(len(calls) - each * len(state.module.graph.nodes))
  assert found[0] == found[1]
