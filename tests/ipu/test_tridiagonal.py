"""Tridiagonal systems of equations, and eigenvalues of tridiagonal matrices."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax
from jax import lax


def draw(shape, dtype, seed):
  rng = np.random.default_rng(seed)
  values = rng.standard_normal(shape)
  if np.issubdtype(dtype, np.complexfloating):
    values = values + 1j * rng.standard_normal(shape)
  return values.astype(dtype)


def dense(dl, d, du):
  """The matrices with these diagonals."""
  a = np.zeros((*d.shape, d.shape[-1]), d.dtype)
  at = np.arange(d.shape[-1])
  a[..., at, at] = d
  a[..., at[1:], at[:-1]] = dl[..., 1:]
  a[..., at[:-1], at[1:]] = du[..., :-1]
  return a


@given(
  batch=st.sampled_from([(), (3,), (2, 2)]),
  n=st.sampled_from([1, 2, 3, 17, 64]),
  k=st.sampled_from([1, 4]),
  dtype=st.sampled_from([np.float32, np.complex64]),
  seed=st.integers(0, 1000),
)
def test_solve(ipu, batch, n, k, dtype, seed):
  """Pivots are exchanged: the diagonal is no larger than the off-diagonals."""
  dl, d, du = (draw((*batch, n), dtype, seed + i) for i in range(3))
  dl[..., 0] = du[..., -1] = 0
  b = draw((*batch, n, k), dtype, seed + 3)
  x = util.run_on(ipu, lax.linalg.tridiagonal_solve, dl, d, du, b)
  assert x.dtype == dtype
  a = dense(dl, d, du).astype(np.complex128)
  size = abs(a) @ abs(x) + abs(b)
  assert (abs(a @ x - b) <= 2e-5 * size).all()


def test_gradients(check):
  dl, d, du = (draw((9,), np.float32, i) for i in range(3))
  b = draw((9, 2), np.float32, 3)

  def f(*arguments):
    return (lax.linalg.tridiagonal_solve(*arguments) ** 2).sum()

  check(jax.grad(f, (0, 1, 2, 3)), dl, d + 4, du, b, rtol=1e-4, atol=1e-4)


def test_a_zero_pivot(check):
  """The first pivot is 0; the matrix is not singular."""
  ones, d = np.ones(4, np.float32), np.zeros(4, np.float32)
  check(
    lax.linalg.tridiagonal_solve, ones, d, ones, draw((4, 1), np.float32, 0)
  )


def test_singular(check):
  zero = np.zeros((2, 3), np.float32)
  d = np.array([[1, 2, 0], [3, 4, 5]], np.float32)
  check(lax.linalg.tridiagonal_solve, zero, d, zero, np.ones_like(d)[..., None])


@pytest.mark.parametrize(
  "d, b",
  [
    ([1, 0, 2], [1, 2, 3]),
    ([1, 1, 1], [1, 2, 3]),
    # A matrix of rank 2: a solution where there is one.
    ([0, 0, 0], [1, 1, 1]),
    ([0, 0, 0], [1, 2, 3]),
  ],
)
def test_nearly_singular_systems_have_a_finite_solution(ipu, d, b):
  d, b = np.array(d, np.float32), np.array(b, np.float32)[:, None]
  dl, du = np.array([0, 1, 1], np.float32), np.array([1, 1, 0], np.float32)

  def f(dl, d, du, b):
    return lax.linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=True)

  x = util.run_on(ipu, f, dl, d, du, b)
  assert np.isfinite(x).all()
  if d.any() or b[0] == b[2]:
    np.testing.assert_allclose(dense(dl, d, du) @ x, b, atol=1e-6)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_eigenvalues(check, ipu, n):
  """With vectors, by inverse iteration."""
  d, e = draw((n,), np.float32, 0), draw((n - 1,), np.float32, 1)
  f = jax.scipy.linalg.eigh_tridiagonal
  check(lambda d, e: f(d, e, eigvals_only=True), d, e, rtol=1e-4, atol=1e-5)
  with jax.numpy_rank_promotion("raise"):  # does not rely on rank promotion
    w, v = util.run_on(ipu, f, d, e)
  a = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
  np.testing.assert_allclose(a @ v, v * w, atol=1e-4)
  np.testing.assert_allclose(v.T @ v, np.eye(n), atol=1e-4)
