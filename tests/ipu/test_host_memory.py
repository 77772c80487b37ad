"""Values that a program keeps in the host's memory while it runs."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu.check import interp
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.tile import text

pytestmark = pytest.mark.ipu_only
X = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
WARNING = "puts values into host memory and uses them there"
OFFLOADED = jax.checkpoint_policies.save_and_offload_only_these_names(
  names_which_can_be_saved=[],
  names_which_can_be_offloaded=["h"],
  offload_src="device",
  offload_dst="pinned_host",
)


@pytest.fixture
def places(ipu):
  return [
    SingleDeviceSharding(ipu, memory_kind=kind)
    for kind in ("device", "pinned_host")
  ]


def run(caplog, f, *args):
  """The results of a function, its costs and its warnings."""
  with caplog.at_level("WARNING", logger="jaxlib.ipu"):
    compiled = jax.jit(f).lower(*args).compile()
  messages = [r.message for r in caplog.records if WARNING in r.message]
  return compiled(*args), compiled.cost_analysis(), messages


def test_values_there_and_back(caplog, places):
  device, host = places

  def f(x):
    y = jax.device_put(jnp.sin(x), host)
    z = jax.device_put(jnp.cos(x), host)
    return jax.device_put(y, device) * 2 + jax.device_put(z, device)

  x = jax.device_put(X, device)
  result, costs, messages = run(caplog, f, x)
  assert not messages
  np.testing.assert_allclose(result, 2 * np.sin(X) + np.cos(X), rtol=1e-6)
  assert costs["ipu host bytes"] == 2 * 2 * X.nbytes
  assert costs["ipu host cycles"] > 0
  assert costs["ipu host calls"] == 0


def test_a_loop_reads_what_was_put_before_it(caplog, places):
  device, host = places

  def f(x):
    y = jax.device_put(x + 1, host)

    def step(c, _):
      return c + jax.device_put(y, device), None

    return jax.lax.scan(step, x, None, length=3)[0]

  result, costs, messages = run(caplog, f, jax.device_put(X, device))
  assert not messages
  np.testing.assert_allclose(result, X + 3 * (X + 1), rtol=1e-6)
  assert costs["ipu host bytes"] == 4 * X.nbytes


def test_inside_a_loop(caplog, places):
  device, host = places

  def f(x):
    def step(x, _):
      y = jax.device_put(x * 2, host)
      return jax.device_put(y, device), None

    return jax.lax.scan(step, x, None, length=3)[0]

  result, costs, messages = run(caplog, f, jax.device_put(X, device))
  assert not messages
  np.testing.assert_array_equal(result, 8 * X)
  assert costs["ipu host bytes"] == 2 * 3 * X.nbytes


def layer(c, w):
  return jnp.sin(checkpoint_name(jnp.tanh(c @ w), "h"))


def scanned(x, ws, policy=OFFLOADED, **options):
  step = jax.checkpoint(layer, policy=policy)
  return jax.lax.scan(lambda c, w: (step(c, w), None), x, ws, **options)[
    0
  ].sum()


WS = np.random.default_rng(0).normal(size=(4, 8, 8)).astype(np.float32) / 3


@pytest.mark.parametrize("reverse", [False, True])
def test_residuals_of_a_scan(caplog, places, reverse):
  def f(x, ws):
    return jax.grad(scanned, argnums=(0, 1))(x, ws, reverse=reverse)

  x, ws = jax.device_put((X, WS), places[0])
  results, costs, messages = run(caplog, f, x, ws)
  assert not messages
  for result, expected in zip(results, jax.jit(f)(X, WS), strict=True):
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
  assert costs["ipu host bytes"] == 2 * 4 * X.nbytes


def test_residuals_take_no_sram(places):
  x = jax.device_put(np.ones((64, 256), np.float32), places[0])
  ws = jax.device_put(np.ones((16, 256, 256), np.float32), places[0])

  def peak(policy):
    f = jax.jit(jax.grad(lambda x: scanned(x, ws, policy)))
    return f.lower(x).compile().cost_analysis()["ipu peak tile bytes"]

  saved = jax.checkpoint_policies.save_only_these_names("h")
  residuals = 16 * x.nbytes / 1472
  assert peak(saved) - peak(OFFLOADED) > 0.8 * residuals


def test_the_interpreter_agrees():
  def f(x, ws):
    return jax.grad(scanned, argnums=(0, 1))(x, ws)

  state = lowering_kit.phases(f, [X, WS], 16)
  program, _ = container.read(state.data)
  assert "HostMove(" in text.program_text(state.tiles)
  assert any(t.space == schema.HOST for t in program.tensors)
  result = interp.run(state.data, [X, WS])
  assert result.host_bytes == 2 * 4 * X.nbytes
  for actual, expected in zip(result.outputs, jax.jit(f)(X, WS), strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_residuals_that_a_policy_offloads(caplog, places):
  device, _ = places
  policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims(
    "device", "pinned_host"
  )

  def loss(w, x):
    return jnp.sum(jnp.sin(jnp.sin(x @ w) @ w))

  def f(w, x):
    return jax.grad(jax.checkpoint(loss, policy=policy))(w, x)

  w, x = jax.device_put((X, X + 1), device)
  result, costs, messages = run(caplog, f, w, x)
  assert not messages
  assert costs["ipu host bytes"] >= 2 * X.nbytes
  np.testing.assert_allclose(result, jax.grad(loss)(X, X + 1), rtol=1e-4)


def test_narrow_types(caplog, places):
  device, host = places
  import ml_dtypes

  def f(x):
    y = jax.device_put(x, host)
    return jax.device_put(y, device)

  x = X.astype(ml_dtypes.float8_e4m3fn)
  result, costs, messages = run(caplog, f, jax.device_put(x, device))
  assert not messages and costs["ipu host bytes"] == 2 * x.size
  np.testing.assert_array_equal(np.asarray(result), x)


def test_values_that_are_used_on_the_host_stay(caplog, places):
  device, host = places

  def f(x):
    y = jax.device_put(jnp.sin(x), host)
    return jax.device_put(jax.lax.rev(y, (0,)), device)

  result, costs, (message,) = run(caplog, f, jax.device_put(X, device))
  assert "program jit_f" in message and "test_host_memory.py:" in message
  assert costs["ipu host bytes"] == 0
  np.testing.assert_allclose(result, np.sin(X)[::-1], rtol=1e-6)


@pytest.mark.parametrize("trips", [2, 3])
def test_a_stack_that_a_loop_does_not_fill_stays(caplog, places, trips):
  device, host = places

  def f(x):
    def fill(i, stack):
      part = jax.device_put(x * 2, host)
      return jax.lax.dynamic_update_slice(stack, part[None], (i, 0, 0))

    ones = jax.device_put(jnp.ones((3, 8, 8), jnp.float32), host)
    stack = jax.lax.fori_loop(0, trips, fill, ones)

    def take(i, total):
      part = jax.lax.dynamic_slice(stack, (i, 0, 0), (1, 8, 8))
      return total + jax.device_put(part.reshape(8, 8), device)

    return jax.lax.fori_loop(0, 3, take, jnp.zeros_like(x))

  result, costs, messages = run(caplog, f, jax.device_put(X, device))
  if trips == 3:
    assert not messages and costs["ipu host bytes"] == 2 * 3 * X.nbytes
  else:
    assert len(messages) == 1 and costs["ipu host bytes"] == 0
  np.testing.assert_allclose(result, 2 * trips * X + (3 - trips), rtol=1e-6)


def test_arguments_and_results_are_no_reason(caplog, places):
  device, host = places

  def f(x):
    y = jnp.sin(jax.device_put(x, device))
    return jax.device_put(y, host), y

  (on_host, y), _, messages = run(caplog, f, jax.device_put(X, host))
  assert not messages and on_host.sharding.memory_kind == "pinned_host"
  np.testing.assert_array_equal(on_host, y)
