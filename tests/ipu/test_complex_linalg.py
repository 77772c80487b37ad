"""Linear algebra on complex matrices, against XLA:CPU or by definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ipu_test_util import rng_of, run_on

import jax
import jax.numpy as jnp
from jax.scipy import linalg


def sample(*shape: int) -> np.ndarray:
  parts = rng_of("linalg", shape).normal(size=(*shape, 2)).astype(np.float32)
  return parts.view(np.complex64).reshape(shape)


def hermitian(*shape: int) -> np.ndarray:
  """A positive definite matrix."""
  a = sample(*shape)
  identity = np.eye(shape[-1], dtype=np.complex64)
  return a @ np.swapaxes(a.conj(), -1, -2) + 3 * identity


def adjoint(a: jax.Array) -> jax.Array:
  return jnp.swapaxes(a.conj(), -1, -2)


@pytest.fixture
def check_norm(ipu, cpu) -> Callable[..., None]:
  """The largest error, relative to the largest number."""

  def check(f, *args, tol=2e-5):
    got, want = (jax.tree.leaves(run_on(d, f, *args)) for d in (ipu, cpu))
    for a, b in zip(got, want, strict=True):
      assert (a.dtype, a.shape) == (b.dtype, b.shape)
      if b.dtype == bool:
        np.testing.assert_array_equal(a, b)
        continue
      assert np.abs(a - b).max(initial=0.0) <= tol * np.abs(b).max(initial=1.0)

  return check


SIZES = ((1, 1), (5, 5), (2, 6, 6), (70, 70))


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_cholesky(check_norm, shape):
  check_norm(jnp.linalg.cholesky, hermitian(*shape))


def test_cholesky_of_what_is_not_positive_definite(check_norm):
  check_norm(lambda a: jnp.isnan(jnp.linalg.cholesky(a)), -hermitian(5, 5))


@pytest.mark.parametrize("lower", (True, False))
@pytest.mark.parametrize("trans", (0, 1, 2))
def test_triangular_solve(check_norm, lower, trans):
  a = sample(70, 70) / 20 + 2 * np.eye(70, dtype=np.complex64)
  f = lambda a, b: linalg.solve_triangular(a, b, lower=lower, trans=trans)
  check_norm(f, a, sample(70, 3))


def test_solve_and_inverse(check_norm):
  a = sample(2, 6, 6) + 3 * np.eye(6, dtype=np.complex64)

  def f(a, b):
    return (
      jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a),
      linalg.expm(a[0] / 4), jnp.linalg.slogdet(a),
    )  # fmt: skip

  check_norm(f, a, sample(2, 6, 3))


@pytest.mark.parametrize(
  "shape", ((5, 5), (2, 9, 4), (4, 9), (80, 70)), ids=str
)
def test_qr(ipu, shape):
  a = sample(*shape)
  q, r = run_on(ipu, jnp.linalg.qr, a)
  np.testing.assert_allclose(q @ r, a, atol=3e-5)
  gram = adjoint(q) @ q
  np.testing.assert_allclose(gram, np.eye(q.shape[-1]) + 0 * gram, atol=1e-5)
  assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("n", (1, 5, 8))
def test_eigh(check_norm, n):
  def f(a):
    w, v = jnp.linalg.eigh(a)
    return w, v @ (w[..., None] * adjoint(v)), adjoint(v) @ v

  check_norm(f, hermitian(2, n, n))


def test_eigenvalues_that_coincide(check_norm):
  q, _ = np.linalg.qr(sample(6, 6))
  a = (q * np.array([2, 2, 2, 1, 1, -1])) @ adjoint(q)

  def f(a):
    w, v = jnp.linalg.eigh(a)
    return w, v @ (w[..., None] * adjoint(v)), adjoint(v) @ v

  check_norm(f, np.asarray(a, np.complex64))


@pytest.mark.parametrize("shape", ((5, 5), (2, 7, 3), (3, 7)), ids=str)
@pytest.mark.parametrize("full", (True, False))
def test_svd(check_norm, shape, full):
  def f(a):
    u, s, v = jnp.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    whole = (u[..., :k] * s[..., None, :]) @ v[..., :k, :]
    return s, whole, adjoint(u) @ u, v @ adjoint(v)

  check_norm(f, sample(*shape))


def test_what_follows_from_the_singular_values(check_norm):
  def f(a, b):
    return (
      jnp.linalg.pinv(a), jnp.linalg.lstsq(a, b)[0], jnp.linalg.cond(a),
      jnp.linalg.matrix_rank(a), jnp.linalg.norm(a, "nuc"),
    )  # fmt: skip

  check_norm(f, sample(6, 4), sample(6, 2))


def test_gradients(check_norm):
  def f(a):
    value = lambda a: (
      jnp.linalg.cholesky(a).real.sum() + (jnp.linalg.eigvalsh(a) ** 3).sum()
    )
    return jax.grad(value)(a)

  check_norm(f, hermitian(5, 5), tol=1e-4)
