"""Singular values, by one-sided Jacobi rotations of a triangular factor;
without vectors by bisection.

`jax_plugins/ipu/lowerings.py` lowers JAX's `svd` to `ipu_svd`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _jacobi, _matrices, _spectral, bisection, householder
from jaxlib.ipu.ops._matrices import adjoint, broadcast, conjugate, part

# Rows multiplied by eigenvectors of their products rarely need more rotations
# [D]. If they do, only small ones are not orthogonal: so many sweeps [G].
_SWEEPS_LEFT = 1
# The rounding of products of rows, relative to the longer one and the longest
# of all, in units of the last place [G].
_ROUNDING = 8


def _read(operation: Any) -> bool:
  """Whether the vectors are used."""
  return any(True for v in list(operation.results)[1:] for _ in v.uses)


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

  With A = Q R, rotations J make the rows of R orthogonal: J R = S V^H. The
  columns of A V are those of U times S, up to the rounding of A. The columns of
  J^H are the eigenvectors of R R^H, except for digits lost by squaring. Without
  vectors U and V^H are unspecified.
  """
  *batch, m, n = matrix.shape
  rank = len(batch)
  a, scale = _matrices.scaled(e, matrix)
  packed, _ = householder.factorise(e, a)
  r = part(e, packed, (0, n), (0, n))
  rows_, columns = _matrices.rows_columns(e, r.shape)
  rows = e.select(e.compare(rows_, columns, "LE"), r, 0)
  if not vectors:
    found = bisection.singular_values(e, rows)
    if found is not None:
      back = e.reshape(scale, (*batch, 1))
      return e.multiply(found, broadcast(e, back, found.shape)), matrix, matrix
  skew = None
  if n > 1 and _spectral.suits(e, rows, _SWEEPS_LEFT):
    gram = e.matmul(rows, adjoint(e, rows))
    turns, _ = _spectral.eigenvectors(e, gram)
    rows = e.matmul(conjugate(e, turns), rows, transpose_lhs=True)
    skew = _skew(e, rows)
  if n > 1:
    pad = [0] * rank + [n % 2, 0]
    rows = e.pad(rows, 0, [0] * len(pad), pad)
    rows = _jacobi.orthogonal_rows(e, rows, n, skew)
    rows = part(e, rows, (0, n), (0, n))
  s = e.sqrt(e.reduce(_matrices.square(e, rows), 0, (rank + 1,), "add"))
  column = e.reshape(s, (*batch, n, 1))
  rows = e.concatenate([rows, e.convert(column, rows.dtype)], rank + 1)
  rows = _jacobi.sort_rows(e, s, rows, descending=True)
  column = e.real(part(e, rows, (0, n), (n, n + 1)))
  s = e.reshape(
    e.multiply(column, broadcast(e, scale, column.shape)), (*batch, n)
  )
  if not vectors:
    return s, matrix, matrix
  rows = part(e, rows, (0, n), (0, n))
  v = _directions(e, _matrices.transpose(e, rows), n)
  # V^H of the rows S V^H: their transpose has conj(V) for columns.
  vt = _matrices.transpose(e, v)
  u = _directions(e, e.matmul(a, _matrices.adjoint(e, vt)), m if full else n)
  return s, u, vt


def _skew(e: Emitter, rows: Value) -> Value:
  """1 if products of rows [..., n, n] exceed rounding, else 0."""
  *batch, n, _ = rows.shape
  rank, shape = len(batch), rows.shape
  gram = e.abs(e.matmul(rows, adjoint(e, rows)))
  norm = e.sqrt(_matrices.diagonal(e, gram, 0, n))
  most = e.reduce(norm, 0, (rank,), "maximum")
  longer = e.maximum(
    broadcast(e, e.reshape(norm, (*batch, n, 1)), shape),
    broadcast(e, e.reshape(norm, (*batch, 1, n)), shape),
  )
  bound = e.multiply(
    longer, broadcast(e, e.reshape(most, (*batch, 1, 1)), shape)
  )
  eps = float(np.finfo(NUMPY[gram.dtype]).eps)
  skew = e.compare(gram, e.multiply(bound, _ROUNDING * eps), "GT")
  r, c = _matrices.rows_columns(e, shape)
  skew = e.and_(skew, e.compare(r, c, "NE"))
  return _jacobi.largest(e, e.convert(skew, gram.dtype))


def _directions(e: Emitter, columns: Value, count: int) -> Value:
  """Normalises columns [..., m, n], orthogonal up to rounding, longest first.
  Those of length 0, and the last of `count` > n, become arbitrary vectors
  orthogonal to the others."""
  *batch, _, n = columns.shape
  packed, tau = householder.factorise(e, columns)
  pad = [0] * (len(batch) + 1) + [count - n]
  wide = e.pad(packed, 0, [0] * len(pad), pad)
  q = householder.product(e, wide, tau)
  r = part(e, packed, (0, n), (0, n))
  diagonal = e.real(_matrices.diagonal(e, r, 0, n))
  one = e.constant(1, diagonal.dtype, ())
  sign = e.select(
    e.compare(diagonal, 0, "LT"), e.constant(-1, one.dtype, ()), 1
  )
  sign = e.pad(sign, one, [0] * len(pad[1:]), pad[1:])
  sign = e.reshape(sign, (*batch, 1, count))
  return _matrices.scale(e, q, broadcast(e, sign, q.shape))


define(
  Operation("stablehlo.custom_call @ipu_svd", read=_read, decompose=_decompose)
)
