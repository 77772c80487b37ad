"""Host functions, and arguments for them."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np

import jax
import jax.numpy as jnp
from jaxlib.ipu import internals


def typed(x):
  """The shape and type of an array."""
  return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


def host_sin(x):
  """The sine, computed by a host function."""
  return jax.pure_callback(np.sin, typed(x), x, vmap_method="expand_dims")


def drawn(dtype, shape):
  """Values of any type, including complex and narrow ones."""
  x = util.sample(np.float32, shape, low=0, high=1.9)
  if dtype is np.complex64:
    return x + 1j * util.sample(np.float32, shape, low=-2, high=2)
  return x.astype(dtype)


def forget_effects():
  """Clears failed effects, so that the process does not wait for them at
  exit."""
  internals.resolve("jax._src.dispatch.runtime_tokens").clear()
