"""Calls your own C++ function from a program on the IPU.

  python ipu/examples/custom_kernel.py

Compiles rms_norm.cc with g++ against the headers in jaxlib and registers it for
the IPU and the CPU, as for any JAX platform. For a program on an IPU it runs on
the host: the compiler charges the streams to the host and back.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import jax
import jax.numpy as jnp


def build(source: Path, folder: str) -> ctypes.CDLL:
  """Compiles a source file into a library and loads it."""
  library = Path(folder) / source.with_suffix(".so").name
  command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC"]
  command += ["-isystem", jax.ffi.include_dir()]
  subprocess.run([*command, source, "-o", library], check=True)
  return ctypes.CDLL(str(library))


def rms_norm(x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
  """x / sqrt(mean(x^2) + epsilon) over the last dimension of an f32 array."""
  call = jax.ffi.ffi_call(
    "rms_norm",
    jax.ShapeDtypeStruct(x.shape, x.dtype),
    vmap_method="broadcast_all",
  )
  return call(x, epsilon=np.float32(epsilon))


def main() -> None:
  with tempfile.TemporaryDirectory() as folder:
    library = build(Path(__file__).with_name("rms_norm.cc"), folder)
  for platform in ("ipu", "cpu"):
    jax.ffi.register_ffi_target(
      "rms_norm", jax.ffi.pycapsule(library.rms_norm), platform=platform
    )
  x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
  for platform in ("ipu", "cpu"):
    device = jax.devices(platform)[0]
    step = jax.jit(lambda x: rms_norm(x) * 2)
    print(f"on {device}:\n{step(jax.device_put(x, device))}")
    if platform == "ipu":
      costs = step.lower(jax.device_put(x, device)).compile().cost_analysis()
      print(f"modelled: {costs['ipu cycles']:,.0f} cycles")


if __name__ == "__main__":
  main()
