"""What every iteration of a loop would compute again is computed before it."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.passes import hoist_invariants
from jaxlib.ipu.pipeline import Phase

_LOOPS = ("ipu.repeat", "stablehlo.while")


def _inside(graph, loop=False):
  """Operations that are in loops, constants and views aside."""
  found = []
  for node in graph.nodes:
    if loop and (node.op in _STEPS or node.op == MAP):
      found.append(node.op.split(".")[1])
    for region in node.regions:
      if node.op in _LOOPS or node.op in ("stablehlo.if", "stablehlo.case"):
        found += _inside(region, loop or node.op in _LOOPS)
  return sorted(found)


_STEPS = hoist_invariants._STEPS


def _loop(element, trips=5):
  return lambda a, v: lax.fori_loop(0, trips, lambda i, v: element(a, v), v)


def _scaled(a, v):
  return 0.85 * a @ v


def _gram(a, v):
  return jnp.tanh((a @ a.T / 16 + jnp.eye(len(a))) @ v)


def _fused(a, v):
  """The product of a and 2 is a part of the loop's map."""
  return v * (a[0] * 2) + a[1]


def _distances(a, v):
  """Larger than what it is made of, but not a part of the loop's maps."""
  return jnp.exp(-jnp.abs(a[:, None, 0] - a[None, :, 1])) @ v


def _nested(a, v):
  return lax.fori_loop(0, 3, lambda i, w: (a * 2 + v) @ w + (a * 3) @ v, v)


def _mask(a, v):
  return jnp.where(a[0] > 0, v, v * 2)


def _until(a, v):
  """How often it runs depends on data."""
  return lax.while_loop(
    lambda v: jnp.abs(v).sum() > 0.1, lambda v: (0.1 * a) @ v, v
  )


def _never(a, v):
  return lax.while_loop(
    lambda v: jnp.abs(v).sum() < 0, lambda v: (1 / (a - a)) @ v, v
  )


def _constants_of_both(a, v):
  """Constants, indices and views that the loop uses, too."""

  def body(i, v):
    k = jnp.arange(len(v), dtype=jnp.float32)
    return (a * k) @ (v + k) * 0.1

  return lax.fori_loop(0, 4, body, v)


def _chosen(a, v):
  """What only a branch needs stays there."""
  return lax.fori_loop(
    0,
    4,
    lambda i, v: lax.cond(v[0] > 0, lambda: jnp.sort(a @ v), lambda: v * 0.5),
    v,
  )


CASES = {
  "scaled matrix": (_loop(_scaled), ["dot_general"]),
  "product": (_loop(_gram), ["dot_general", "map"]),
  "part of a map": (_loop(_fused), ["map"]),
  "outer": (_loop(_distances), ["dot_general"]),
  "mask": (_loop(_mask), ["map"]),
  "nested": (_loop(_nested), ["dot_general"] * 2 + ["map"] * 2),
  "once": (_loop(_scaled, 1), ["dot_general", "map"]),
  "until": (_until, ["dot_general", "map", "reduce"]),
  "never": (_never, ["dot_general", "map", "reduce"]),
  "constants": (_constants_of_both, ["dot_general", "map", "map"]),
  "branch": (_chosen, None),
}


def _arguments(n=6):
  rng = np.random.default_rng(0)
  draw = rng.standard_normal
  return [(draw(s) * 0.3).astype(np.float32) for s in ((n, n), (n,))]


@pytest.mark.parametrize("name", CASES)
def test_operations_in_loops(name):
  f, inside = CASES[name]
  state = lowering_kit.phases(f, _arguments(), 16, stop_after=Phase.FUSE)
  if inside is not None:
    assert _inside(state.module.graph) == inside


@pytest.mark.parametrize("name", CASES)
def test_results(name, ipu):
  f, _ = CASES[name]
  arguments = _arguments()
  expected = jax.jit(f)(*jax.device_put(arguments, jax.devices("cpu")[0]))
  found = jax.jit(f)(*jax.device_put(arguments, ipu))
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# JAX has no reverse mode of loops that run until something is so.
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"until", "never"}))
def test_gradients(name, ipu):
  f, _ = CASES[name]
  arguments = _arguments()
  gradient = jax.jit(jax.grad(lambda a, v: (f(a, v) ** 2).sum(), (0, 1)))
  expected = gradient(*jax.device_put(arguments, jax.devices("cpu")[0]))
  found = gradient(*jax.device_put(arguments, ipu))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
    found,
    expected,
  )


def test_maps_of_many_elements_leave_loops():
  """Of fewer, they stay where they are parts of other maps."""
  for n, inside in ((100, 3), (1000, 2)):
    state = lowering_kit.phases(
      lambda a, v: lax.fori_loop(0, 5, lambda i, w: jnp.sin(w + 2 * a), a),
      _arguments(n),
      1472,
      stop_after=Phase.FUSE,
    )
    (loop,) = [n for n in state.module.graph.nodes if n.op == "ipu.repeat"]
    (node,) = [n for n in loop.regions[0].nodes if n.op == MAP]
    code = [i.op.name for i in node.attributes.code]
    assert len(code) - code.count("LOAD") - code.count("CONST") == inside


def test_what_is_large_stays_in_loops():
  f, _ = CASES["scaled matrix"]
  for tiles, inside in ((16, ["dot_general"]), (2, ["dot_general", "map"])):
    state = lowering_kit.phases(
      f, _arguments(300), tiles, stop_after=Phase.FUSE
    )
    assert _inside(state.module.graph) == inside


def test_what_does_not_fit_stays_in_loops(monkeypatch):
  """In the loop, the scaled matrix is gone when the next one is computed."""
  monkeypatch.setattr(hoist_invariants, "_LARGEST_PART", 10)

  def element(a, v):
    u = (a * 0.5) @ v
    return jnp.cos(u[:, None] * u) @ u

  f = _loop(element)
  for size, maps in ((40_000, 1), (26_000, 2)):
    machine = lowering_kit.machines.Target(
      version="small", num_tiles=4, bytes_per_tile=size, clock_hz=1e9
    )
    state = lowering_kit.phases(f, _arguments(88), machine)
    assert _inside(state.module.graph) == ["dot_general"] * 2 + ["map"] * maps
    assert state.memory.addresses.fullest.needed <= machine.bytes_per_tile


def test_effects_stay_in_loops(ipu):
  seen = []

  def f(a, v):
    def body(i, v):
      jax.debug.callback(lambda x: seen.append(float(x)), (a * 2).sum())
      return v + 1

    return lax.fori_loop(0, 3, body, v)

  a, v = _arguments()
  jax.block_until_ready(jax.jit(f)(*jax.device_put([a, v], ipu)))
  jax.effects_barrier()
  np.testing.assert_allclose(seen, [(a * 2).sum()] * 3, rtol=1e-5)
