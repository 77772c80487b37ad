"""Decompositions and solvers; Fourier transforms."""

from __future__ import annotations

import numpy as np

import jax.numpy as jnp
from benchmarks.workload import jitted
from benchmarks.workloads.movement import values
from jax import lax

# The limit where LAPACK, called by XLA:CPU, iterates over single columns.
ITERATIVE_LIMIT = 5.0


def square(n: int, columns: int = 8):
  """A well-conditioned f32[n, n], and f32[n, columns] to solve it for."""

  def make():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, n)) / n**0.5 + 2 * np.eye(n)
    return [a.astype(np.float32), values(n, columns)()[0]]

  return make


def positive(n: int):
  def make():
    a = square(n)()[0]
    return [a @ a.T]

  return make


def symmetric(n: int):
  def make():
    a = square(n)()[0]
    return [(a + a.T) / 2]

  return make


def symmetric_ones(count: int, n: int):
  def make():
    (a,) = values(count, n, n)()
    return [(a + a.mT) / 2]

  return make


def hermitian(n: int):
  def make():
    a, b = square(n, n)()
    a = a + 1j * b / np.float32(n**0.5)
    return [(a + a.conj().T) / 2]

  return make


def numbers(*shape: int):
  """Complex ones."""

  def make():
    x, y = (values(*shape)()[0] for _ in range(2))
    return [x + 1j * y[::-1]]

  return make


def systems(count: int, n: int):
  """Well-conditioned complex ones."""

  def make():
    (a,) = numbers(count, n, n)()
    (b,) = numbers(count, n, 1)()
    return [a + n * np.eye(n, dtype=np.complex64), b]

  return make


def triangular_solve(a, b):
  return lax.linalg.triangular_solve(
    a, b, left_side=True, lower=True, transpose_a=False
  )


def absolute(x):
  """The absolute values of R, the signs of whose rows are arbitrary."""
  return jnp.abs(jnp.linalg.qr(x)[1])


def eigenspaces(a):
  """Eigenvalues and absolute values of eigenvectors, whose phases are
  arbitrary."""
  w, v = jnp.linalg.eigh(a)
  return w, jnp.abs(v)


def fourier(name: str, f, *shape: int):
  return jitted("fft", name, f, values(*shape), tolerance=1e-3)


WORKLOADS = [
  *[
    jitted("linear algebra", f"{name}, {n}", f, make(n), tolerance=1e-3, **o)
    for sizes, name, f, make, o in (
      ((64, 512), "cholesky", jnp.linalg.cholesky, positive, {}),
      ((64, 512), "triangular solve", triangular_solve, square, {}),
      ((64, 256), "solve", jnp.linalg.solve, square, {}),
      ((64, 256), "lu", lambda a, b: lax.linalg.lu(a)[0], square, {}),
      ((64, 256), "inverse", lambda a, b: jnp.linalg.inv(a), square, {}),
      ((64, 256), "qr", lambda a, b: absolute(a), square, {}),
      ((64, 128), "eigh", jnp.linalg.eigvalsh, symmetric,
       {"limit": ITERATIVE_LIMIT}),
      ((64, 128), "eigh with vectors", lambda a: jnp.abs(jnp.linalg.eigh(a)[1]),
       symmetric, {"limit": ITERATIVE_LIMIT}),
      ((64, 128), "eigh of complex64", eigenspaces, hermitian,
       {"limit": ITERATIVE_LIMIT}),
      ((64, 128), "svd", lambda a, b: jnp.linalg.svd(a)[1], square,
       {"limit": ITERATIVE_LIMIT}),
    )
    for n in sizes
  ],
  fourier("1024", lambda x: jnp.abs(jnp.fft.fft(x)), 1024),
  fourier("real, 64 rows of 1024",
          lambda x: jnp.abs(jnp.fft.rfft(x)), 64, 1024),
  fourier("1000 rows of 1000", lambda x: jnp.abs(jnp.fft.fft(x)), 1000, 1000),
  fourier("2^18", lambda x: jnp.abs(jnp.fft.fft(x)), 2**18),
  fourier("256x256 and back",
          lambda x: jnp.fft.ifft2(jnp.fft.fft2(x)).real, 256, 256),
  fourier("convolution of 8 rows of 16384",
          lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(x[::-1])),
          8, 16384),
  jitted("fft", "complex, 1024 rows of 128", jnp.fft.fft, numbers(1024, 128),
         tolerance=1e-3),
  jitted("fft", "complex, columns of 64x1024",
         lambda x: jnp.fft.fft(x, axis=0), numbers(64, 1024), tolerance=1e-3),
  jitted("linear algebra", "eigh with vectors, 256 of 4x4",
         lambda a: jnp.abs(jnp.linalg.eigh(a)[1]), symmetric_ones(256, 4),
         tolerance=1e-3),
  jitted("linear algebra", "solve, 1000 of complex64 4x4", jnp.linalg.solve,
         systems(1000, 4), tolerance=1e-3),
]  # fmt: skip
