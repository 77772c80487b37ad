"""Singular values, by one-sided Jacobi rotations of a triangular factor;
without vectors by bisection.

`jax_plugins/ipu/lowerings.py` lowers JAX's `svd` to `ipu_svd`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, NUMPY, PLANE, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import (
  _jacobi,
  _matrices,
  _spectral,
  bisection,
  hessenberg,
  householder,
)
from jaxlib.ipu.ops._matrices import adjoint, broadcast, part, put

# Rows multiplied by eigenvectors of their products rarely need more rotations
# [D]. If they do, only small ones are not orthogonal: so many sweeps [G].
_SWEEPS_LEFT = 1
# The rounding of products of rows, relative to the longer one and the longest
# of all, in units of the last place [G].
_ROUNDING = 8


def _read(operation: Any) -> bool:
  """Whether the vectors are used."""
  return any(True for v in list(operation.results)[1:] for _ in v.uses)


def _check(node: Node) -> str | None:
  wrong = _matrices.operands()(node)
  if wrong is None and len(node.results) not in (1, 3):
    return "the values, or the values, U and V^H, as results"
  return wrong


def _decompose(e: Emitter, node: Node) -> list[Value]:
  """(a) -> (descending values), or (values, U, V^H) of the requested sizes."""
  (matrix,) = node.inputs
  dtype = matrix.dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  a = e.convert(matrix, wide)
  *batch, m, n = a.shape
  vectors: bool = node.attributes
  if 0 in a.shape:
    return [_empty(e, v) for v in node.results]
  if m < n:
    a = _matrices.transpose(e, a)
  full = vectors and node.results[1 if m >= n else 2].shape[-2:] == (
    max(m, n),
    max(m, n),
  )
  s, u, vt = factorise(e, a, vectors, full)
  if not vectors:  # unused results of any value
    unused = [e.constant(0, wide, v.shape) for v in node.results[1:]]
    return [e.convert(x, v.dtype) for x, v in zip([s, *unused], node.results)]
  if m < n:
    u, vt = _matrices.transpose(e, vt), _matrices.transpose(e, u)
  return [e.convert(x, v.dtype) for x, v in zip((s, u, vt), node.results)]


def _empty(e: Emitter, value: Value) -> Value:
  """The factors of a matrix without elements."""
  if len(value.shape) < 2:
    return e.constant(0, value.dtype, value.shape)
  return _matrices.identity(e, value.shape, value.dtype)


def factorise(
  e: Emitter, matrix: Value, vectors: bool, full: bool
) -> tuple[Value, Value, Value]:
  """S [..., n], U [..., m, n or m] and V^H [..., n, n] of [..., m, n], m >= n.

  With A = Q R, a unitary J makes the rows of R orthogonal: J R = S V^H, and U
  is Q J^H. Without vectors U and V^H are unspecified.

  Rotations find small singular values of graded matrices to high relative
  accuracy if R is a diagonal matrix times a well-conditioned one, and the
  longest rows come first (Drmac and Veselic, "New fast and accurate Jacobi SVD
  algorithm", 2008). Sorting rows and columns makes R so if A is the product of
  a well-conditioned matrix and a diagonal one. J of other matrices begins with
  the eigenvectors of R R^H, which are found faster, and are wrong by rounding
  relative to the largest singular value.

  A complex R, or a square complex A, is Q B P^H with a real bidiagonal B, which
  takes its place, unless there are many small ones.
  """
  *batch, m, n = matrix.shape
  row_order, order, graded, largest = _orders(e, matrix)
  a, scale = _matrices.scaled(e, matrix, largest)
  scale = e.reshape(scale, (*batch, 1))
  a = _jacobi.moved_rows(e, a, row_order)
  a = _jacobi.moved_rows(e, _matrices.transpose(e, a), order)
  a = _matrices.transpose(e, a)
  bidiagonal = a.dtype in COMPLEX and n > 1
  if bidiagonal and vectors:
    bidiagonal = _spectral.suits(e, part(e, a, (0, n), (0, n)), _SWEEPS_LEFT)
  reflectors, sides = None, None
  if m > n or not bidiagonal:
    reflectors, a = _triangular(e, a)
  values: Value | None
  if bidiagonal:
    orders = (row_order if reflectors is None else None, order)
    a, sides = _bidiagonal(e, a, orders if vectors else None)
    values = None if vectors else bisection.bidiagonal_values(e, a)
  else:
    values = None if vectors else bisection.singular_values(e, a)
  if values is None:
    values, u, v = _of_square(e, a, graded, bidiagonal)
  values = e.multiply(values, broadcast(e, scale, values.shape))
  if not vectors:
    return values, matrix, matrix
  if sides is None:
    v = _reordered(e, v, order)
  else:
    u, v = (e.matmul(x, e.convert(y, x.dtype)) for x, y in zip(sides, (u, v)))
  vt = adjoint(e, v)
  if reflectors is not None:
    if m > n:
      rest = _matrices.identity(e, (*batch, m, m if full else n), u.dtype)
      u = put(e, rest, u, 0, 0)
    u = _reordered(e, householder.product(e, *reflectors, u), row_order)
  return values, u, vt


def _triangular(e: Emitter, a: Value) -> tuple[tuple[Value, Value], Value]:
  """Q as reflectors and their factors, and R [..., n, n]."""
  n = a.shape[-1]
  a, power = _equilibrated(e, a)
  packed, tau = householder.reflected(e, a)
  r = part(e, packed, (0, n), (0, n))
  r = _matrices.scale(e, r, broadcast(e, power, r.shape))
  rows, columns = _matrices.rows_columns(e, r.shape)
  return (packed, tau), e.select(e.compare(rows, columns, "LE"), r, 0)


def _bidiagonal(
  e: Emitter, a: Value, orders: tuple[Value | None, Value] | None
) -> tuple[Value, tuple[Value, Value] | None]:
  """A real bidiagonal B, and Q and P, for square complex matrices Q B P^H.

  Given `orders`, rows of Q and P are moved back from these places [..., n], as
  by `_reordered`; None for a side that stays. Without, there is neither.
  """
  # Squares of small elements do not underflow if large ones are near overflow.
  dtype = PLANE[a.dtype]
  large = bisection.LARGE[dtype]
  a = _matrices.scale(e, a, e.constant(large, dtype, a.shape))
  sides = None
  if orders is not None:
    left, right = (_permutation(e, p, a.shape, dtype) for p in orders)
    sides = left, right
  b, q, p = hessenberg.bidiagonal(e, a, sides)
  return e.multiply(b, 1 / large), None if orders is None else (q, p)


def _of_square(
  e: Emitter, matrix: Value, graded: Value, bidiagonal: bool
) -> tuple[Value, Value, Value]:
  """Descending S [..., n], U and V [..., n, n] of a triangular matrix;
  `bidiagonal` if it is real and bidiagonal."""
  *batch, n, _ = matrix.shape
  rank = len(batch)
  rows, turns = _orthogonal(e, matrix, graded, bidiagonal)
  s = _lengths(e, rows)
  column = e.convert(e.reshape(s, (*batch, n, 1)), rows.dtype)
  rows = e.concatenate([rows, turns, column], rank + 1)
  rows = _jacobi.sort_rows(e, s, rows, descending=True)
  s = e.real(part(e, rows, (0, n), (2 * n, 2 * n + 1)))
  least = float(np.finfo(NUMPY[s.dtype]).tiny)
  inverse = e.divide(1, e.maximum(s, least))
  v = part(e, rows, (0, n), (0, n))
  v = adjoint(e, _matrices.scale(e, v, broadcast(e, inverse, v.shape)))
  u = adjoint(e, part(e, rows, (0, n), (n, 2 * n)))
  # Columns of length 0 become vectors orthogonal to the others.
  return e.reshape(s, (*batch, n)), u, householder.orthonormal(e, v)


def _orthogonal(
  e: Emitter, r: Value, graded: Value, bidiagonal: bool
) -> list[Value]:
  """J R with orthogonal rows, and the unitary J, of triangular R [..., n, n];
  J of graded and of diagonal matrices is found by rotations alone."""
  *batch, n, _ = r.shape
  unit = _matrices.identity(e, r.shape, r.dtype)
  if n < 2:
    return [r, unit]
  if not _spectral.suits(e, r, _SWEEPS_LEFT):
    return _rotated(e, r, unit, rare=False)
  graded = e.or_(graded, _jacobi.diagonal(e, r))
  graded = broadcast(e, e.reshape(graded, (*batch, 1, 1)), r.shape)
  products = e.matmul(r, adjoint(e, r))
  vectors, values = _spectral.eigenvectors(e, products, bidiagonal)
  turns = adjoint(e, e.select(graded, unit, vectors))
  rows = e.matmul(turns, r)
  return e.case(
    _skew(e, rows, e.slice_in_dim(values, n - 1, n, len(batch)), graded),
    [lambda: [rows, turns], lambda: _rotated(e, rows, turns, rare=True)],
  )


def _rotated(e: Emitter, rows: Value, turns: Value, rare: bool) -> list[Value]:
  """Rows J R, rotated until they are orthogonal, and the new J, given J as
  `turns`; `rare` as in `_jacobi.sweeps`."""
  *batch, n, _ = rows.shape
  rank = len(batch)
  # Squares of small rows do not underflow if large ones are near overflow.
  large = bisection.LARGE[PLANE.get(rows.dtype, rows.dtype)]
  both = e.concatenate([e.multiply(rows, large), turns], rank + 1)
  pad = [0] * rank + [n % 2, 0]
  both = e.pad(both, 0, [0] * len(pad), pad)
  both = _jacobi.orthogonal_rows(e, both, n, rare)
  rows = e.multiply(part(e, both, (0, n), (0, n)), 1 / large)
  return [rows, _jacobi.closer(e, part(e, both, (0, n), (n, 2 * n)))]


def _lengths(e: Emitter, rows: Value) -> Value:
  """The lengths [..., m] of rows [..., m, n], whatever their magnitude."""
  *batch, m, _ = rows.shape
  rank = len(batch)
  largest = e.reduce(e.abs(rows), 0, (rank + 1,), "maximum")
  # The inverse of a smaller number would be infinite.
  unit = e.maximum(largest, float(np.finfo(NUMPY[largest.dtype]).tiny))
  inverse = e.reshape(e.divide(1, unit), (*batch, m, 1))
  rows = _matrices.scale(e, rows, broadcast(e, inverse, rows.shape))
  total = e.reduce(_matrices.square(e, rows), 0, (rank + 1,), "add")
  return e.multiply(e.sqrt(total), unit)


def _orders(e: Emitter, a: Value) -> tuple[Value, Value, Value, Value]:
  """The place of each row [..., m] and of each column [..., n] if the longest
  come first; whether the lengths of rows or of columns, other than 0, differ
  much; and the largest size of an element [...]."""
  *batch, m, n = a.shape
  rank, size = len(batch), e.abs(a)
  rows, columns = (e.reduce(size, 0, (d,), "maximum") for d in (rank + 1, rank))
  largest = e.reduce(columns, 0, (rank,), "maximum")
  lengths = [e.reshape(x, (*batch, 1, x.shape[-1])) for x in (rows, columns)]
  if m == n:  # both at once take fewer steps
    lengths = [e.concatenate(lengths, rank)]
  # Equal keys for rows that are not finite: none may be lost.
  lengths = [e.select(e.is_finite(x), x, np.inf) for x in lengths]
  places = [_jacobi.places(e, x, descending=True) for x in lengths]
  graded = [_jacobi.graded(e, x) for x in lengths]
  if m == n:
    places = [e.slice_in_dim(places[0], k, k + 1, rank) for k in (0, 1)]
    graded = [e.slice_in_dim(graded[0], k, k + 1, rank) for k in (0, 1)]
  down, across = (
    e.reshape(x, (*batch, k)) for x, k in zip(places, (m, n), strict=True)
  )
  some = e.or_(*(e.reshape(x, batch) for x in graded))
  return down, across, some, largest


def _reordered(e: Emitter, rows: Value, place: Value) -> Value:
  """Rows [..., m, n] moved back from their places [..., m]."""
  rank = len(rows.shape) - 2
  index = e.iota(DType.I32, place.shape, rank)
  # Where the row of each place came from.
  column = (*place.shape, 1)
  origin = _jacobi.moved_rows(e, e.reshape(index, column), place)
  return _jacobi.moved_rows(e, rows, e.reshape(origin, place.shape))


def _permutation(
  e: Emitter, place: Value | None, shape: Shape, dtype: DType
) -> Value:
  """The matrices that move rows back from their places [..., n]; None for the
  identity."""
  rows, columns = _matrices.rows_columns(e, shape)
  if place is not None:
    rows = broadcast(e, e.reshape(place, (*place.shape, 1)), shape)
  return e.convert(e.compare(rows, columns, "EQ"), dtype)


def _equilibrated(e: Emitter, matrix: Value) -> tuple[Value, Value]:
  """Columns divided by powers of two, so that none is so short that its squares
  underflow, and these powers [..., 1, n]."""
  *batch, _, n = matrix.shape
  rank = len(batch)
  largest = e.reduce(e.abs(matrix), 0, (rank,), "maximum")
  bits = 11 if largest.dtype is DType.F64 else 8
  least = float(np.finfo(NUMPY[largest.dtype]).tiny)
  power = e.maximum(e.reduce_precision(largest, bits, 0), least)
  power = e.select(e.is_finite(power), power, 1)
  power = e.reshape(power, (*batch, 1, n))
  inverse = broadcast(e, e.divide(1, power), matrix.shape)
  return _matrices.scale(e, matrix, inverse), power


def _skew(e: Emitter, rows: Value, square: Value, graded: Value) -> Value:
  """1 if products of rows [..., n, n], of which the longest has this `square`
  [..., 1], exceed rounding, or a matrix is graded [..., n, n], else 0."""
  *batch, n, _ = rows.shape
  shape = rows.shape
  gram = e.abs(e.matmul(rows, adjoint(e, rows)))
  norm = e.sqrt(_matrices.diagonal(e, gram, 0, n))
  most = e.sqrt(e.maximum(square, 0))
  longer = e.maximum(
    broadcast(e, e.reshape(norm, (*batch, n, 1)), shape),
    broadcast(e, e.reshape(norm, (*batch, 1, n)), shape),
  )
  bound = e.multiply(
    longer, broadcast(e, e.reshape(most, (*batch, 1, 1)), shape)
  )
  eps = float(np.finfo(NUMPY[gram.dtype]).eps)
  skew = e.compare(gram, e.multiply(bound, _ROUNDING * eps), "GT")
  skew = e.or_(skew, graded)
  r, c = _matrices.rows_columns(e, shape)
  skew = e.and_(skew, e.compare(r, c, "NE"))
  return _jacobi.largest(e, e.convert(skew, DType.I32))


define(
  Operation(
    "stablehlo.custom_call @ipu_svd",
    read=_read,
    check=_check,
    decompose=_decompose,
  )
)
