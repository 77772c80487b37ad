"""Writes compiled programs into a folder, for the mutation test of the engine.

  JAX_IPU_USE_MODEL=true python tests/ipu/write_programs.py FOLDER

`ipu/docs/build.md` says how the test is run on them.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import serialize_executable
from jaxlib.ipu.program import container

V = np.arange(12, dtype=np.float32)
M = np.arange(36, dtype=np.float32).reshape(6, 6) + 9 * np.eye(6, dtype="f")
I = np.array([3, 1, 0, 2], np.int32)
X = np.ones((1, 6, 6, 2), np.float32)
W = np.ones((3, 3, 2, 2), np.float32)


def _window(x):
  return lax.reduce_window(
    x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
  )


def _convolution(x, w):
  return lax.conv_general_dilated(
    x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )


def _train(w, x):
  return jax.value_and_grad(lambda w: jnp.tanh(x @ w).sum())(w)


PROGRAMS = {
  "argmax": (jnp.argmax, V),
  "branches": (lambda i, x: lax.switch(i[0], [jnp.sin, jnp.cos], x), I, V),
  "cholesky": (jnp.linalg.cholesky, M),
  "complex": (lambda x: jnp.exp(x * 1j), V),
  "convolution": (_convolution, X, W),
  "convolution_vjp": (jax.grad(lambda x, w: _convolution(x, w).sum()), X, W),
  "cumsum": (jnp.cumsum, V),
  "eigh": (jnp.linalg.eigh, M),
  "fft": (jnp.fft.fft, V),
  "gather": (lambda x, i: x[i, i[::-1]], M, I),
  "inverse": (jnp.linalg.inv, M),
  "loop": (lambda x: lax.fori_loop(0, 5, lambda i, y: y * x + i, x), V),
  "max_pool_vjp": (jax.grad(lambda x: _window(x).sum()), X),
  "qr": (jnp.linalg.qr, M),
  "random": (lambda i: jax.random.normal(jax.random.key(i[0]), (9,)), I),
  "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), 0.0, x), V),
  "scatter": (lambda x, i: x.at[i].add(x[:4]), M, I),
  "slice": (lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)), M, I),
  "sort": (lambda x: lax.sort((x, -x), num_keys=2), V),
  "svd": (jnp.linalg.svd, M),
  "top_k": (lambda x: lax.top_k(x, 3), V),
  "train": (_train, M, M),
  "update": (lambda x, i: lax.dynamic_update_slice(x, x[:2], (i[0], 0)), M, I),
  "while": (
    lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: y + 1, x),
    V,
  ),
}


def program_bytes(function, *arguments) -> bytes:
  """The program that a function is compiled to."""
  with jax.default_device(jax.devices("ipu")[0]):
    compiled = jax.jit(function).lower(*arguments).compile()
  payload, *_ = serialize_executable.serialize(compiled)
  start = payload.index(container.MAGIC)
  begin, size = struct.unpack_from("<QQ", payload, start + 32)
  return payload[start : start + begin + size]


def main(folder: Path) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  for name, (function, *arguments) in PROGRAMS.items():
    (folder / name).write_bytes(program_bytes(function, *arguments))


if __name__ == "__main__":
  main(Path(sys.argv[1]))
