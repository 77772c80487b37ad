"""Functions of the host, and what programs hand to them."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np

import jax
import jax.numpy as jnp
from jaxlib.ipu import internals


def typed(x):
  """The shape and the type of an array."""
  return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


def host_sin(x):
  """The sine, by a function of the host."""
  return jax.pure_callback(np.sin, typed(x), x, vmap_method="expand_dims")


def drawn(dtype, shape):
  """Values of any type, complex and narrow ones too."""
  x = util.sample(np.float32, shape, low=0, high=1.9)
  if dtype is np.complex64:
    return x + 1j * util.sample(np.float32, shape, low=-2, high=2)
  return x.astype(dtype)


def forget_effects():
  """Effects that have failed are not waited for again, at the process' end."""
  internals.resolve("jax._src.dispatch.runtime_tokens").clear()
