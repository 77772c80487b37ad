"""Definitions of `isa.FactorKind` for one matrix, in NumPy; those of complex
matrices are in _factor_complex.py.

Each takes a copy that it may overwrite, and returns the vertex' results.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.program.schema import FactorKind


def _cholesky(a: Array) -> list[Array]:
  n = len(a)
  for j in range(n):
    if not a[j, j] > 0:
      a[:] = np.nan
      break
    a[j, j] = np.sqrt(a[j, j])
    a[j + 1 :, j] /= a[j, j]
    x = a[j + 1 :, j]
    a[j + 1 :, j + 1 :] -= np.outer(x, x)
  return [np.tril(a)]


def _lu(a: Array) -> list[Array]:
  m, n = a.shape
  k = min(m, n)
  pivots, order = np.zeros(k, np.int32), np.arange(m, dtype=np.int32)
  for j in range(k):
    size = np.abs(a[j:, j])
    pivot = j if np.isnan(size).any() else j + int(np.argmax(size))
    pivots[j] = pivot
    a[[j, pivot]] = a[[pivot, j]]
    order[[j, pivot]] = order[[pivot, j]]
    if a[j, j] != 0:
      a[j + 1 :, j] /= a[j, j]
    a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])
  return [a, pivots, order]


def small(x: Array) -> Array:
  """The divisor of numbers before they are squared: squares of small ones have
  few digits, if any."""
  limits = np.finfo(x.dtype)
  if (x * x).sum(dtype=x.dtype) < limits.tiny / limits.eps:
    return np.abs(x).max(initial=0) or limits.tiny
  return x.dtype.type(1)


def reflector(x: Array) -> tuple[Array, Array, Array]:
  """v, tau and the first element after I - tau v v^T, for a vector."""
  unit = small(x)
  v = x / unit
  alpha, square = v[0], (v[1:] * v[1:]).sum(dtype=x.dtype)
  v[0] = 1
  if square == 0:
    v[1:] = 0
    return v, square * 0, x[0]
  norm = np.sqrt(alpha * alpha + square)
  beta = -norm if alpha >= 0 else norm
  v[1:] /= alpha - beta
  return v, (beta - alpha) / beta, beta * unit


def pack(x: Array, v: Array, beta: Array) -> None:
  """Stores a column as LAPACK does."""
  x[0], x[1:] = beta, v[1:]


def _reflect(a: Array, v: Array, tau: Array) -> None:
  """Multiplies columns by (I - tau v v^T); no-op for a tau of 0."""
  if tau != 0:
    a -= tau * np.outer(v, v @ a)


def _qr(a: Array) -> list[Array]:
  k = min(a.shape)
  taus = np.zeros(k, a.dtype)
  for j in range(k):
    v, taus[j], beta = reflector(a[j:, j])
    pack(a[j:, j], v, beta)
    _reflect(a[j:, j + 1 :], v, taus[j])
  return [a, taus]


def _inverse(unit: bool) -> Callable[[Array], list[Array]]:
  def invert(a: Array) -> list[Array]:
    n = len(a)
    x = np.eye(n, dtype=a.dtype)
    for i in range(n):
      if not unit:
        x[i, : i + 1] /= a[i, i]
      x[i + 1 :, : i + 1] -= np.outer(a[i + 1 :, i], x[i, : i + 1])
    return [x]

  return invert


def _hessenberg(a: Array) -> list[Array]:
  n = len(a)
  taus = np.zeros(n - 1, a.dtype)
  for j in range(n - 1):
    v, taus[j], beta = reflector(a[j + 1 :, j])
    pack(a[j + 1 :, j], v, beta)
    _reflect(a[:, j + 1 :].T, v, taus[j])
    _reflect(a[j + 1 :, j + 1 :], v, taus[j])
  return [a, taus]


def _tridiagonal(a: Array) -> list[Array]:
  n = len(a)
  a = np.tril(a) + np.tril(a, -1).T
  taus = np.zeros(n - 1, a.dtype)
  for j in range(n - 1):
    v, taus[j], beta = reflector(a[j + 1 :, j])
    pack(a[j + 1 :, j], v, beta)
    if taus[j] == 0:
      continue
    low = a[j + 1 :, j + 1 :]
    w = low @ v
    w = taus[j] * (w - taus[j] / 2 * (v @ w) * v)
    low -= np.outer(v, w) + np.outer(w, v)
  return [np.tril(a), taus]


def _bidiagonal(a: Array) -> list[Array]:
  n = a.shape[1]
  for j in range(n):
    v, tau, beta = reflector(a[j:, j])
    a[j:, j] = 0
    a[j, j] = beta
    _reflect(a[j:, j + 1 :], v, tau)
    if j + 1 < n:
      v, tau, beta = reflector(a[j, j + 1 :])
      a[j, j + 1 :] = 0
      a[j, j + 1] = beta
      _reflect(a[j + 1 :, j + 1 :].T, v, tau)
  return [a]


def _orthonormal(a: Array) -> list[Array]:
  n = a.shape[1]
  packed, taus = _qr(a.copy())
  for j in range(n)[::-1]:
    v = np.append(np.ones(1, a.dtype), packed[j + 1 :, j])
    _reflect(a[j:, j + 1 :], v, taus[j])
    sign = a.dtype.type(-1 if packed[j, j] < 0 else 1)
    a[:j, j], a[j:, j] = 0, -sign * taus[j] * v
    a[j, j] += sign
  return [a]


DEFINITIONS: dict[FactorKind, Callable[[Array], list[Array]]] = {
  FactorKind.CHOLESKY: _cholesky,
  FactorKind.LU: _lu,
  FactorKind.QR: _qr,
  FactorKind.INVERSE: _inverse(unit=False),
  FactorKind.UNIT_INVERSE: _inverse(unit=True),
  FactorKind.HESSENBERG: _hessenberg,
  FactorKind.TRIDIAGONAL: _tridiagonal,
  FactorKind.BIDIAGONAL: _bidiagonal,
  FactorKind.ORTHONORMAL: _orthonormal,
}
