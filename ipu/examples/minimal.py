"""The smallest program: a function that is compiled for an IPU and runs there.

`backend="ipu"` and `output.device()` are how programs for JAX on IPU have
always said it; today's JAX spells them jax.default_device and output.device.
"""

import functools

import numpy as np

import jax


@functools.partial(jax.jit, backend="ipu")
def ipu_function(celsius):
  return celsius * 1.8 + 32


output = ipu_function(np.array([-40, 0, 37.5, 100], np.float32))
print(output, output.device())
