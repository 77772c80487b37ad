"""Host memory inside a program is a warning that names the line."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

pytestmark = pytest.mark.ipu_only
X = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
WARNING = "puts values into host memory while it runs"


@pytest.fixture
def places(ipu):
  return [
    SingleDeviceSharding(ipu, memory_kind=kind)
    for kind in ("device", "pinned_host")
  ]


def warnings_of(caplog, f, *args):
  with caplog.at_level("WARNING", logger="jaxlib.ipu"):
    results = jax.jit(f)(*args)
  return results, [r.message for r in caplog.records if WARNING in r.message]


def test_values_inside_a_program(caplog, places):
  device, host = places

  def f(x):
    y = jax.device_put(jnp.sin(x), host)
    z = jax.device_put(jnp.cos(x), host)
    return jax.device_put(y, device) * 2 + jax.device_put(z, device)

  x = jax.device_put(X, device)
  result, messages = warnings_of(caplog, f, x)
  (message,) = messages
  assert (
    "program jit_f" in message and message.count("test_host_memory.py:") == 2
  )
  np.testing.assert_allclose(result, 2 * np.sin(X) + np.cos(X), rtol=1e-6)


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
  result, messages = warnings_of(caplog, f, w, x)
  assert len(messages) == 1
  np.testing.assert_allclose(result, jax.grad(loss)(X, X + 1), rtol=1e-4)


def test_inside_a_loop(caplog, places):
  device, host = places

  def f(x):
    def step(x, _):
      y = jax.device_put(x * 2, host)
      return jax.device_put(y, device), None

    return jax.lax.scan(step, x, None, length=3)[0]

  result, messages = warnings_of(caplog, f, jax.device_put(X, device))
  assert len(messages) == 1
  np.testing.assert_array_equal(result, 8 * X)


def test_arguments_and_results_are_no_reason(caplog, places):
  device, host = places

  def f(x):
    y = jnp.sin(jax.device_put(x, device))
    return jax.device_put(y, host), y

  (on_host, y), messages = warnings_of(caplog, f, jax.device_put(X, host))
  assert not messages and on_host.sharding.memory_kind == "pinned_host"
  np.testing.assert_array_equal(on_host, y)
