"""The compiler as a whole: its side effects and its limits."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.ipu_only


@pytest.fixture
def collecting():
  """Garbage collection is enabled, as for most users."""
  gc.enable()
  yield
  gc.enable()


def test_garbage_collection_is_on_after_a_compilation(ipu, collecting):
  x = jax.device_put(np.ones(3, np.float32), ipu)
  jax.jit(lambda x: x * 3 + 1)(x)
  assert gc.isenabled()


def test_garbage_collection_is_on_after_a_refusal(ipu, collecting):
  call = jax.ffi.ffi_call("no_such", jax.ShapeDtypeStruct((3,), np.float32))
  x = jax.device_put(np.ones(3, np.float32), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError, match="no_such"):
    jax.jit(lambda x: call(x))(x)
  assert gc.isenabled()


def test_garbage_collection_that_is_off_stays_off(ipu, collecting):
  gc.disable()
  x = jax.device_put(np.ones(3, np.float32), ipu)
  jax.jit(lambda x: x * 5 + 1)(x)
  assert not gc.isenabled()


def test_a_compilation_leaves_no_garbage(ipu, collecting):
  f, x = jax.jit(lambda x: x.sum() * 7), jax.device_put(np.ones(3), ipu)
  lowered = f.lower(x)
  gc.collect()
  compiled = lowered.compile()
  assert gc.collect() == 0
  assert compiled(x) == 21


def test_thousands_of_operations_need_no_deep_recursion(ipu):
  def f(np_, x):
    for i in range(1200):
      x = np_.sin(x + i)
      if i % 100 == 50:
        x = x + np_.sum(x)  # prevents fusion into one group
    return x

  x = np.linspace(0, 1, 50, dtype=np.float32)
  actual = jax.jit(lambda x: f(jnp, x))(jax.device_put(x, ipu))
  np.testing.assert_allclose(actual, f(np, x.astype(np.float64)), atol=0.01)
