"""Eigenvectors of symmetric and Hermitian matrices from their tridiagonal form,
which is real.

Eigenvalues are found by bisection and vectors by inverse iteration, each
independently. Vectors of close values are therefore not orthogonal: QR makes
them orthonormal. They may still contain parts of other vectors, above rounding
where many values agree: their residuals show that, and a refinement by matrix
products then removes these.
"""

from __future__ import annotations

import math

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, NUMPY, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Shape, Value
from jaxlib.ipu.ops import _matrices, bisection, hessenberg, householder
from jaxlib.ipu.ops._matrices import (
  broadcast,
  diagonal,
  part,
  put,
  transpose,
)
from jaxlib.ipu.ops.inverse_iteration import tridiagonal_vectors
from jaxlib.ipu.program.schema import FactorKind

# Cycles charged by the model, fitted to compiled programs of several shapes;
# tests/ipu/test_fitted_prices.py recomputes them [D]. Of this method: a
# minimum; for each row; for each element of a tile, and that times the rows. Of
# rotations: the minimum of a round and for each element of a tile; how many
# more sweeps there are than the logarithm of n.
_CHARGED = {
  DType.F32: (22e3, 6e3, 1030.0, 0.0),
  DType.F64: (0.0, 250e3, 70e3, 5e3),
  DType.C64: (30e3, 7.5e3, 1200.0, 0.0),
  DType.C128: (0.0, 256e3, 40e3, 11.5e3),
}
_ROUND = {
  DType.F32: (6700.0, 27.0, 2),
  DType.F64: (62.7e3, 1390.0, 3),
  DType.C64: (10.4e3, 40.0, 2),
  DType.C128: (103e3, 3800.0, 3),
}
# How much more than rotations this may be charged, as it runs faster [G].
_NEARLY = 1.25

# A limit for matrices whose rotations never become small.
_MOST_STEPS = 4
# A limit of the angle between a vector and its correction, of which the step
# neglects third powers.
_LARGEST_ANGLE = 0.1
# The largest element of a residual that is left as it is, in units of eps times
# the largest value. Without clusters, matrices of up to 128 rows stay below
# this; below it a step improved columns by at most half. [D]
_RESIDUAL = 4


def suits(e: Emitter, matrix: Value, left: float = 0) -> bool:
  """Whether rotations (_jacobi.py) would not be charged much less, as they are
  for many very small matrices; `left`: sweeps still needed afterwards."""
  n = matrix.shape[-1]
  *_, sweeps = _ROUND[matrix.dtype]
  saved = (sweeps - left + math.log2(n)) * (n + n % 2 - 1)
  each = _round_cycles(e, matrix.shape, matrix.dtype)
  return _cycles(e, matrix.shape, matrix.dtype) <= _NEARLY * saved * each


def _cycles(e: Emitter, shape: Shape, dtype: DType) -> float:
  """Cycles of `eigenvectors` for matrices [..., n, n]."""
  n, share = shape[-1], math.prod(shape) / e.machine.num_tiles
  least, row, element, more = _CHARGED[dtype]
  return least + row * n + (element + more * n) * share


def _round_cycles(e: Emitter, shape: Shape, dtype: DType) -> float:
  """Cycles of a round of rotations of matrices [..., n, n]."""
  least, element, _ = _ROUND[dtype]
  return least + element * math.prod(shape) / e.machine.num_tiles


def eigenvectors(
  e: Emitter, matrix: Value, tridiagonal: bool = False
) -> tuple[Value, Value]:
  """Eigenvectors as columns [..., n, n] and ascending eigenvalues [..., n] of
  Hermitian matrices [..., n, n], n >= 2, whose squares do not overflow;
  `tridiagonal` if they are, and real."""
  *batch, n, _ = matrix.shape
  packed, tau, turned = matrix, None, None
  if matrix.dtype in COMPLEX:
    unit = _matrices.identity(e, matrix.shape, matrix.dtype)
    both = e.concatenate([matrix, unit], len(batch))
    both = hessenberg.tridiagonal(e, both)
    packed, turned = (part(e, both, (i, i + n), (0, n)) for i in (0, n))
  elif not tridiagonal:
    packed, tau = hessenberg.reduced(e, matrix, FactorKind.TRIDIAGONAL)
  main = e.real(diagonal(e, packed, 0, n))
  beside = e.real(diagonal(e, transpose(e, packed), 1, n - 1))
  values = bisection.tridiagonal_values(e, main, beside)
  rows = tridiagonal_vectors(e, main, beside, values)
  vectors = householder.orthonormal(e, transpose(e, rows), signs=False)
  vectors = _refined(e, main, beside, vectors, values)
  if turned is not None:
    # A real product of both parts takes half the multiplications of a complex
    # one.
    both = e.matmul(_matrices.stacked(e, turned), vectors)
    vectors = _matrices.unstacked(e, both, turned.dtype)
  if tau is not None:
    lower = householder.product(
      e,
      part(e, packed, (1, n), (0, n - 1)),
      tau,
      part(e, vectors, (1, n), (0, n)),
    )
    vectors = put(e, vectors, lower, 1, 0)
  return vectors, values


def _times(e: Emitter, main: Value, beside: Value, x: Value) -> Value:
  """T X [..., n, m] of tridiagonal matrices with diagonals [..., n] and
  off-diagonals [..., n - 1]."""
  *batch, n, _ = x.shape
  rank = len(batch)

  def scaled(factor: Value, rows: Value) -> Value:
    factor = e.reshape(factor, (*factor.shape, 1))
    return e.multiply(rows, broadcast(e, factor, rows.shape))

  def moved(rows: Value, low: int) -> Value:
    edges = [0] * rank + [low, 0], [0] * rank + [1 - low, 0]
    return e.pad(rows, 0, *edges)

  above, below = (e.slice_in_dim(x, k, k + n - 1, rank) for k in (0, 1))
  others = moved(scaled(beside, above), 1), moved(scaled(beside, below), 0)
  return e.add(e.add(scaled(main, x), others[0]), others[1])


def _refined(
  e: Emitter, main: Value, beside: Value, vectors: Value, values: Value
) -> Value:
  """Orthonormal eigenvectors of tridiagonal matrices T, from columns that are
  orthonormal and nearly eigenvectors: these themselves if their residuals are
  rounding alone, as most are.

  A step of quadratic convergence (Ogita and Aishima, "Iterative refinement for
  symmetric eigenvalue decomposition", 2018). With R = I - X^T X and
  S = X^T T X, X becomes X (I + R / 2 + K + K^2 / 2), where the skew-symmetric
  K rotates vectors i and j by (s_ij + (x_i + x_j) r_ij / 2) / (x_j - x_i).
  Where values nearly agree, or the numerator may be rounding alone, they are
  not rotated. The first step is nearly always enough.
  """
  *batch, n, _ = vectors.shape
  rank, shape, one = len(batch), vectors.shape, (*batch, 1, 1)
  eps = float(np.finfo(NUMPY[values.dtype]).eps)
  norm = e.reduce(e.abs(values), 0, (rank,), "maximum")
  norm = broadcast(e, e.reshape(norm, one), shape)
  across = broadcast(e, e.reshape(values, (*batch, 1, n)), shape)
  rounding = e.multiply(norm, 2 * eps)
  unit = _matrices.identity(e, shape, vectors.dtype)

  def any_of(found: Value) -> Value:
    return e.reduce(e.convert(found, DType.I32), 0, range(rank + 2), "maximum")

  def unfinished(i: Value, left: Value, x: Value) -> Value:
    more = e.compare(left, 0, "GT")
    return e.and_(more, e.compare(i, _MOST_STEPS, "LT"))

  def step(i: Value, left: Value, x: Value) -> list[Value]:
    down = broadcast(e, e.reshape(values, (*batch, n, 1)), shape)
    gap = e.subtract(across, down)
    mean = e.multiply(e.add(across, down), 0.5)
    # Rotations of vectors that are further apart are eps ** (1 / 3) at most, so
    # third and higher powers are negligible.
    nearest = e.multiply(norm, 4 * eps ** (2 / 3))
    apart = e.compare(e.abs(gap), nearest, "GT")
    gap = e.select(apart, gap, np.inf)
    # One product takes fewer steps than two.
    both = e.concatenate([x, _times(e, main, beside, x)], rank + 1)
    both = e.matmul(x, both, transpose_lhs=True)
    r, s = (part(e, both, (0, n), (k, k + n)) for k in (0, n))
    r = e.subtract(unit, r)
    between = e.add(s, e.multiply(r, mean))
    certain = e.compare(e.abs(between), rounding, "GT")
    k = e.divide(e.select(certain, between, 0), gap)
    k = e.minimum(e.maximum(k, -_LARGEST_ANGLE), _LARGEST_ANGLE)
    k = e.multiply(e.subtract(k, transpose(e, k)), 0.5)
    change = e.add(r, e.matmul(k, k))
    change = e.add(e.multiply(change, 0.5), k)
    # Second-order terms of the residual and of the orthogonality.
    size = e.abs(k)
    residual = e.multiply(size, e.abs(between))
    large = e.compare(residual, rounding, "GT")
    large = e.or_(large, e.compare(size, 2 * eps ** (1 / 3), "GT"))
    return [e.add(i, 1), any_of(large), e.add(x, e.matmul(x, change))]

  residual = e.subtract(
    _times(e, main, beside, vectors), e.multiply(vectors, across)
  )
  most = e.multiply(norm, _RESIDUAL * eps)
  left = any_of(e.compare(e.abs(residual), most, "GT"))
  first = [e.constant(0, DType.I32, ()), left, vectors]
  return e.while_loop(first, unfinished, step, rare=True)[2]
