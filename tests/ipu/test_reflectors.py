"""Hessenberg and tridiagonal form and QR with pivoting, packed as in LAPACK."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from test_linalg import F32, matrices, on_tiles

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import internals

geqp3 = internals.resolve("jax._src.lax.linalg.geqp3")

DTYPES = (np.float32, np.complex64)
SQUARES = [(1, 1), (2, 2), (7, 7), (2, 3, 5, 5), (40, 40)]


def parts(f):
  """The function with real and imaginary parts as separate results."""
  return lambda *a: jax.tree.map(lambda x: (x.real, x.imag), f(*a))


def drawn(dtype, *shape):
  real, imaginary = (matrices(*shape, key=k) for k in range(2))
  return (real + 1j * imaginary).astype(dtype) if dtype != F32 else real


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", SQUARES)
def test_hessenberg(check, shape, dtype):
  check(
    parts(lax.linalg.hessenberg), drawn(dtype, *shape), rtol=1e-3, atol=2e-4
  )


def rebuilt(packed, d, e, taus, lower):
  """Q T Q^H in double precision, from reflectors packed by LAPACK's sytrd and
  the diagonals of a tridiagonal matrix."""
  n = len(d)
  t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
  q = np.eye(n)
  for i, tau in enumerate(taus):
    v = np.eye(n, dtype=packed.dtype)[i + lower]
    if lower:
      v[i + 2 :] = packed[i + 2 :, i]
    else:
      v[:i] = packed[:i, i + 1]
    reflector = np.eye(n) - tau * np.outer(v, v.conj())
    q = q @ reflector if lower else reflector @ q
  return q @ t @ q.conj().T


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("lower", (True, False))
@pytest.mark.parametrize("shape", SQUARES)
def test_tridiagonal(check, ipu, shape, lower, dtype):
  """The other triangle and imaginary parts of the diagonal are not read."""
  a = drawn(dtype, *shape)
  # For a large upper triangle, LAPACK leaves the last imaginary part in its
  # result.
  a[..., -1, -1] = a[..., -1, -1].real
  f = lambda a: lax.linalg.tridiagonal(a, lower=lower)
  if shape[-1] < 40:  # for large matrices two good results differ
    check(parts(f), a, rtol=1e-3, atol=2e-4)
  found = util.run_on(ipu, f, a)
  for at in np.ndindex(shape[:-2]):
    one = a[at].astype(np.result_type(dtype, np.float64))
    one = np.tril(one) if lower else np.triu(one)
    strict = one - np.diag(np.diag(one))
    one = strict + strict.conj().T + np.diag(np.diag(one).real)
    again = rebuilt(*(part[at] for part in found), lower)
    np.testing.assert_allclose(again, one, atol=3e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize(
  "shape", [(1, 1), (7, 7), (9, 4), (4, 9), (2, 3, 5, 4), (40, 30)]
)
def test_pivoted_qr(check, shape, dtype):
  def f(a):
    return geqp3(a, jnp.zeros((*a.shape[:-2], a.shape[-1]), jnp.int32))

  check(parts(f), drawn(dtype, *shape), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("fixed", [[], [2], [1, 4], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("shape", [(6, 6), (2, 9, 6), (3, 6)])
def test_columns_that_pivoting_leaves_in_front(check, shape, fixed):
  flags = np.zeros((*shape[:-2], shape[-1]), np.int32)
  flags[..., fixed] = 1
  check(parts(geqp3), drawn(F32, *shape), flags, rtol=1e-3, atol=2e-4)


def test_pivoted_qr_shows_the_rank(ipu):
  a = matrices(9, 3) @ matrices(3, 7)

  def f(a):
    return jax.scipy.linalg.qr(a, pivoting=True)

  q, r, p = util.run_on(ipu, f, a)
  np.testing.assert_allclose(q @ r, a[:, p], atol=1e-5)
  np.testing.assert_allclose(q.T @ q, np.eye(9), atol=1e-5)
  assert np.abs(r[3:]).max() < 1e-5 < np.abs(np.diag(r)[:3]).min()


def test_empty_matrices(check):
  f = lambda a: jax.scipy.linalg.qr(a, pivoting=True)
  check(f, np.zeros((0, 3), F32))
  check(f, np.zeros((3, 0), F32))


@pytest.mark.ipu_only
def test_reflectors_on_tiles(cpu):
  def f(a):
    zeros = jnp.zeros(5, jnp.int32)
    return lax.linalg.hessenberg(a), geqp3(a, zeros)

  on_tiles(cpu, f, matrices(5, 5), tiles=(1, 16))
