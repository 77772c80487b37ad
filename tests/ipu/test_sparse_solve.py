"""Sparse systems of equations: `jax.experimental.sparse.linalg.spsolve`."""

from __future__ import annotations

import contextlib

import ipu_test_util as util
import numpy as np
import pytest

import jax
from jax.experimental.sparse import linalg


def system(n, dtype, seed=0):
  """A matrix with some diagonal elements left out, in compressed rows and
  dense, and a right-hand side."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
  a = np.where(rng.random((n, n)) < 0.15, draw(n, n), 0)
  a += np.eye(n, dtype=dtype)[rng.permutation(n)] * 3
  rows, indices = np.nonzero(a)
  indptr = np.searchsorted(rows, np.arange(n + 1))
  if np.issubdtype(dtype, np.complexfloating):
    a = a * np.exp(1j * rng.random((n, n))).astype(dtype)
  data = a[rows, indices]
  return data, indices.astype(np.int32), indptr.astype(np.int32), a, draw(n)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("n", [1, 2, 17, 60])
def test_solve(ipu, n, dtype):
  *csr, a, b = system(n, dtype)
  wide = dtype == "float64"
  with jax.enable_x64(True) if wide else contextlib.nullcontext():
    x = util.run_on(ipu, linalg.spsolve, *csr, b)
  assert x.dtype == dtype and x.shape == (n,)
  eps = np.finfo(dtype).eps
  assert (abs(a @ x - b) <= 60 * eps * (abs(a) @ abs(x) + abs(b))).all()


def test_duplicate_elements_are_added_and_padding_is_ignored(ipu):
  data = np.array([1, 3, 5, 2, 9, 9], np.float32)
  indices = np.array([0, 0, 1, 0, 1, 7], np.int32)
  indptr = np.array([0, 2, 4], np.int32)  # [[1 + 3, 0], [2, 5]]
  b = np.array([8, 9], np.float32)
  x = util.run_on(ipu, linalg.spsolve, data, indices, indptr, b)
  np.testing.assert_allclose(x, [2, 1], rtol=1e-6)


def test_rows_without_elements_make_it_singular(ipu):
  data, indices = np.ones(1, np.float32), np.ones(1, np.int32)
  indptr = np.array([0, 0, 1], np.int32)
  b = np.ones(2, np.float32)
  x = util.run_on(ipu, linalg.spsolve, data, indices, indptr, b)
  assert not np.isfinite(x).all()


def test_no_equations(ipu):
  nothing, none = np.zeros(0, np.float32), np.zeros(0, np.int32)
  indptr = np.zeros(1, np.int32)
  x = util.run_on(ipu, linalg.spsolve, nothing, none, indptr, nothing)
  assert x.shape == (0,)


def test_gradients(check):
  data, indices, indptr, _, b = system(12, "float32")

  def f(data, b):
    return (linalg.spsolve(data, indices, indptr, b) ** 2).sum()

  check(jax.grad(f, (0, 1)), data, b, rtol=1e-3, atol=1e-3)
