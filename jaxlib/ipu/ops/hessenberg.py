"""Hessenberg and tridiagonal form, and QR with column pivoting: reflectors in
sequence, as each depends on the result of the last.

`jax_plugins/ipu/lowerings.py` lowers JAX's `hessenberg`, `tridiagonal` and
`geqp3` to `ipu_gehrd`, `ipu_sytrd` and `ipu_geqp3`; results are packed as in
LAPACK.
"""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, PLANE, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Decompose, Operation, define
from jaxlib.ipu.ops import _matrices
from jaxlib.ipu.ops._matrices import adjoint, broadcast, conjugate
from jaxlib.ipu.ops.factorise import factors
from jaxlib.ipu.ops.householder import reflector
from jaxlib.ipu.program.schema import FactorKind

I32 = DType.I32


def _gehrd(e: Emitter, node: Node) -> list[Value]:
  """(a) -> (the Hessenberg matrix and the reflectors below it, tau)."""
  (matrix,) = node.inputs
  wide = matrix.dtype if matrix.dtype in _matrices.COMPUTED else DType.F32
  packed, tau = hessenberg(e, e.convert(matrix, wide))
  return [e.convert(v, matrix.dtype) for v in (packed, tau)]


def hessenberg(
  e: Emitter, matrix: Value, kind: FactorKind = FactorKind.HESSENBERG
) -> tuple[Value, Value]:
  """Q^H A Q and the reflectors of Q [..., n, n], and tau [..., n - 1]. For
  symmetric matrices `kind` may be TRIDIAGONAL: the result above the diagonal
  is then unspecified."""
  *batch, n, _ = matrix.shape
  if n < 2 or 0 in batch:
    return matrix, e.constant(0, matrix.dtype, (*batch, max(n - 1, 0)))
  a, scale = _matrices.scaled(e, matrix)
  a, tau = reduced(e, a, kind)
  r, c = _matrices.rows_columns(e, a.shape)
  stored = e.compare(r, e.add(c, 1), "GT")
  a = e.select(stored, a, _matrices.scale(e, a, broadcast(e, scale, a.shape)))
  return a, tau


def reduced(e: Emitter, a: Value, kind: FactorKind) -> tuple[Value, Value]:
  """Like `hessenberg`, for matrices of at least two rows whose squares do not
  overflow."""
  found = factors(e, kind, a)
  if found is not None:
    return found[0], found[1]
  *batch, n, _ = a.shape
  rank = len(batch)
  shape, tall, wide = a.shape, (*batch, n, 1), (*batch, 1, n - 1)
  place = e.iota(I32, tall, rank)

  def step(j: Value, a: Value, taus: Value) -> list[Value]:
    _, c = _matrices.rows_columns(e, shape)
    right_of = e.compare(c, j, "GT")
    x = _matrices.column(e, a, j)
    v, tau, packed = reflector(e, x, place, e.add(j, 1))
    down, across = broadcast(e, v, shape), broadcast(e, adjoint(e, v), shape)
    turned = e.multiply(e.matmul(a, v), broadcast(e, tau, tall))
    a = e.subtract(a, e.multiply(broadcast(e, turned, shape), across))
    turned = e.matmul(adjoint(e, v), a)
    turned = e.multiply(turned, broadcast(e, conjugate(e, tau), turned.shape))
    rest = e.subtract(a, e.multiply(down, broadcast(e, turned, shape)))
    a = e.select(right_of, rest, a)
    a = e.select(e.compare(c, j, "EQ"), broadcast(e, packed, shape), a)
    here = e.compare(e.iota(I32, wide, rank + 1), j, "EQ")
    return [a, e.select(here, broadcast(e, tau, wide), taus)]

  def symmetric(j: Value, a: Value, taus: Value) -> list[Value]:
    """Updates from both sides at once: A - w v^H - v w^H, with
    w = tau A v - |tau|^2 / 2 (v^H A v) v."""
    _, c = _matrices.rows_columns(e, shape)
    x = _matrices.column(e, a, j)
    v, tau, packed = reflector(e, x, place, e.add(j, 1))
    turned = e.matmul(a, v)
    w = e.multiply(turned, broadcast(e, tau, tall))
    both = e.real(e.multiply(conjugate(e, v), turned))
    both = e.reshape(e.reduce(both, 0, (rank,), "add"), (*batch, 1, 1))
    both = e.multiply(both, e.multiply(_matrices.square(e, tau), 0.5))
    both = _matrices.scale(e, v, broadcast(e, both, tall))
    w = e.select(e.compare(place, j, "GT"), e.subtract(w, both), 0)

    def outer(column: Value, row: Value) -> Value:
      row = broadcast(e, adjoint(e, row), shape)
      return e.multiply(broadcast(e, column, shape), row)

    a = e.subtract(e.subtract(a, outer(w, v)), outer(v, w))
    zero = e.constant(0, I32, ())
    a = e.dynamic_update_slice(a, packed, [*[zero] * (rank + 1), j])
    here = e.compare(e.iota(I32, wide, rank + 1), j, "EQ")
    return [a, e.select(here, broadcast(e, tau, wide), taus)]

  first = [a, e.constant(0, a.dtype, wide)]
  body = symmetric if kind is FactorKind.TRIDIAGONAL else step
  a, tau = e.fori_loop(n - 1, first, body)
  return a, e.reshape(tau, (*batch, n - 1))


def tridiagonal(e: Emitter, matrix: Value) -> Value:
  """Makes the first n rows of complex matrices [..., m, n] tridiagonal, and
  real; squares of their elements must not overflow.

  Given [A, X] along the rows, A Hermitian, the result is [Q^H A Q, X Q]:
  reflectors are accumulated as they are found. What is above the diagonal of
  the first rows is unspecified.
  """
  *batch, m, n = matrix.shape
  rank, shape, tall = len(batch), matrix.shape, (*batch, m, 1)
  beside = e.concatenate([e.real(matrix), e.imag(matrix)], rank + 1)
  found = factors(e, FactorKind.COMPLEX_TRIDIAGONAL, beside)
  if found is not None:
    return _complex(e, found[0], (0, m))
  place = e.iota(I32, tall, rank)

  def step(j: Value, planes: Value) -> list[Value]:
    """Updates from both sides at once, as in `reduced`."""
    a, head = _pair(e, planes), e.add(j, 1)
    v, tau = _reflector(e, planes, place, n, j, head)
    own = _matrices.part(e, v, (0, n), (0, 1))
    w = e.matmul(a, own)
    both = _matrices.part(e, w, (0, n), (0, 1))
    both = e.real(e.multiply(conjugate(e, own), both))
    both = e.reshape(e.reduce(both, 0, (rank,), "add"), (*batch, 1, 1))
    both = e.multiply(both, e.multiply(_matrices.square(e, tau), 0.5))
    w = e.multiply(w, broadcast(e, tau, tall))
    w = e.subtract(w, _matrices.scale(e, v, broadcast(e, both, tall)))

    def outer(column: Value, row: Value) -> Value:
      row = adjoint(e, _matrices.part(e, row, (0, n), (0, 1)))
      return e.multiply(*(broadcast(e, x, shape) for x in (column, row)))

    return [_planes(e, e.subtract(e.subtract(a, outer(w, v)), outer(v, w)))]

  return _pair(e, e.fori_loop(n - 1, [_planes(e, matrix)], step)[0])


def bidiagonal(
  e: Emitter, a: Value, sides: tuple[Value, Value] | None = None
) -> tuple[Value, Value, Value]:
  """B of A = Q B P^H, real and upper bidiagonal, for square complex matrices
  whose elements' squares do not overflow; and X Q and Y P, given `sides` X and
  Y, which are real and as large as A. Without, these two are unspecified.

  Reflectors are accumulated as they are found.
  """
  *batch, n, _ = a.shape
  rank = len(batch)
  planes = [e.real(a), e.imag(a)]
  if sides is not None:
    left, right = sides
    planes[0] = e.concatenate([planes[0], right, left], rank)
    high = [*[0] * rank, 2 * n, 0]
    planes[1] = e.pad(planes[1], 0, [0] * len(high), high)
  beside = e.concatenate(planes, rank + 1)
  found = factors(e, FactorKind.COMPLEX_BIDIAGONAL, beside)
  if found is not None:
    (whole,) = found
    b = _matrices.part(e, whole, (0, n), (0, n))
    if sides is None:
      return b, b, b
    q, p = (_complex(e, whole, (k * n, (k + 1) * n)) for k in (2, 1))
    return b, q, p
  if sides is not None:
    left, right = (e.convert(x, a.dtype) for x in sides)
    zero = e.constant(0, a.dtype, a.shape)
    rows = ((a, _matrices.transpose(e, left)), (right, zero))
    a = e.concatenate([e.concatenate(r, rank + 1) for r in rows], rank)
  whole = _bidiagonal(e, a, n)
  b = e.real(_matrices.part(e, whole, (0, n), (0, n)))
  b = _matrices.transpose(e, b)
  r, c = _matrices.rows_columns(e, b.shape)
  upper = e.or_(e.compare(c, r, "EQ"), e.compare(c, e.add(r, 1), "EQ"))
  b = e.select(upper, b, 0)  # others are only small
  if sides is None:
    return b, b, b
  q = _matrices.part(e, whole, (n, 2 * n), (0, n))
  p = _matrices.part(e, whole, (0, n), (n, 2 * n))
  return b, q, adjoint(e, p)


def _bidiagonal(e: Emitter, matrix: Value, n: int) -> Value:
  """Makes the first n rows and columns of complex matrices [..., m, m] upper
  bidiagonal, and real, by a loop.

  Given [[A, X], [Y, 0]], the result is the adjoint of [[Q^H A P, Q^H X],
  [Y P, 0]].
  """
  *batch, m, _ = matrix.shape
  shape, tall = matrix.shape, (*batch, m, 1)
  place = e.iota(I32, tall, len(batch))

  def step(i: Value, planes: Value) -> list[Value]:
    """Reflects from the left and takes the adjoint, so that the next step does
    the same from the right."""
    j, head = e.divide(i, 2), e.divide(e.add(i, 1), 2)
    a = _pair(e, planes)
    v, tau = _reflector(e, planes, place, n, j, head)
    across = broadcast(e, e.matmul(adjoint(e, v), a), shape)
    v = e.multiply(v, broadcast(e, conjugate(e, tau), tall))
    a = e.subtract(a, e.multiply(broadcast(e, v, shape), across))
    return [_planes(e, adjoint(e, a))]

  return _pair(e, e.fori_loop(2 * n - 1, [_planes(e, matrix)], step)[0])


def _complex(e: Emitter, beside: Value, rows: tuple[int, int]) -> Value:
  """Rows [from, to) of matrices with both parts beside each other."""
  n = beside.shape[-1] // 2
  parts = (_matrices.part(e, beside, rows, (k, k + n)) for k in (0, n))
  return e.complex(*parts)


def _reflector(
  e: Emitter, planes: Value, place: Value, n: int, column: Value, head: Value
) -> tuple[Value, Value]:
  """v and tau for the first n elements of a column."""
  *batch, m, _ = place.shape
  start = [0] * (len(batch) + 1)
  x = e.dynamic_slice(planes, [*start, 0, column], (2, *batch, m, 1))
  alpha = e.dynamic_slice(planes, [*start, head, column], (2, *batch, 1, 1))
  x = e.select(e.compare(place, n, "LT"), _pair(e, x), 0)
  v, tau, _ = reflector(e, x, place, head, _pair(e, alpha))
  return v, tau


def _planes(e: Emitter, value: Value) -> Value:
  """Both parts of a complex array as one array [2, ...], of which slices take
  one step."""
  parts = (e.real(value), e.imag(value))
  return e.concatenate([e.reshape(p, (1, *p.shape)) for p in parts], 0)


def _pair(e: Emitter, planes: Value) -> Value:
  """The complex array of such planes."""
  parts = (e.slice_in_dim(planes, k, k + 1, 0) for k in (0, 1))
  return e.complex(*(e.reshape(p, planes.shape[1:]) for p in parts))


def _sytrd(lower: bool) -> Decompose:
  """(a) -> (the reduced triangle and its reflectors, d, e, tau). The upper
  triangle is the lower one in reverse order."""

  def rule(e: Emitter, node: Node) -> list[Value]:
    (matrix,) = node.inputs
    *batch, n, _ = matrix.shape
    rank = len(batch)
    wide = matrix.dtype if matrix.dtype in _matrices.COMPUTED else DType.F32
    ends = (rank, rank + 1)
    a = matrix if lower else e.reverse(matrix, ends)
    a = e.convert(a, wide)
    r, c = _matrices.rows_columns(e, a.shape)
    if wide in COMPLEX:  # only the real part of a diagonal counts
      real = e.complex(e.real(a), e.constant(0, PLANE[wide], a.shape))
      a = e.select(e.compare(r, c, "EQ"), real, a)
    own = e.compare(r, c, "GE")
    whole = e.select(own, a, adjoint(e, a))
    packed, tau = hessenberg(e, whole, FactorKind.TRIDIAGONAL)
    diagonal = e.real(_matrices.diagonal(e, packed, 0, n))
    beside = _matrices.diagonal(e, _matrices.transpose(e, packed), 1, n - 1)
    beside = e.real(beside)
    packed = e.select(own, packed, a)
    results = [packed, diagonal, beside, tau]
    if not lower:
      results = [e.reverse(packed, ends)] + [
        e.reverse(v, (rank,)) for v in results[1:]
      ]
    return [e.convert(v, w.dtype) for v, w in zip(results, node.results)]

  return rule


def _geqp3(e: Emitter, node: Node) -> list[Value]:
  """(a, nonzero for columns that stay in front) -> (R and the reflectors,
  column order from 1, tau)."""
  matrix, fixed = node.inputs
  wide = matrix.dtype if matrix.dtype in _matrices.COMPUTED else DType.F32
  packed, order, tau = pivoted(e, e.convert(matrix, wide), fixed)
  return [
    e.convert(packed, matrix.dtype),
    e.convert(e.add(order, 1), fixed.dtype),
    e.convert(tau, matrix.dtype),
  ]


def pivoted(
  e: Emitter, matrix: Value, fixed: Value
) -> tuple[Value, Value, Value]:
  """R and the reflectors [..., m, n], the columns' order [..., n], and tau:
  each step takes the first fixed column (not 0, [..., n]), then the longest
  remaining one."""
  *batch, m, n = matrix.shape
  rank = len(batch)
  k = min(m, n)
  if not k or 0 in batch:
    return (
      matrix,
      e.iota(I32, (*batch, n), rank),
      e.constant(0, matrix.dtype, (*batch, k)),
    )
  shape, tall = matrix.shape, (*batch, m, 1)
  one, wide, narrow = (*batch, 1, 1), (*batch, 1, n), (*batch, 1, k)
  a, scale = _matrices.scaled(e, matrix)
  place, column = e.iota(I32, tall, rank), e.iota(I32, wide, rank + 1)

  def step(j: Value, a: Value, order: Value, taus: Value) -> list[Value]:
    r, c = _matrices.rows_columns(e, shape)
    left = e.select(e.compare(r, j, "GE"), a, 0)
    size = e.reduce(_matrices.square(e, left), 0, (rank,), "add")
    size = e.reshape(size, wide)
    size = e.select(e.compare(order, 0, "LT"), np.inf, size)
    size = e.select(e.compare(column, j, "GE"), size, -1)
    most = e.reshape(e.reduce(size, -1, (rank + 1,), "maximum"), one)
    found = e.compare(size, broadcast(e, most, wide), "EQ")
    found = e.select(found, column, n)
    pivot = e.reshape(e.reduce(found, n, (rank + 1,), "minimum"), one)
    pivot = e.select(e.compare(pivot, n, "EQ"), j, pivot)  # all are NaN

    def swapped(values: Value, c: Value) -> tuple[Value, Value]:
      """Exchanges columns j and `pivot`; also returns the new column j."""
      tall = (*values.shape[:-1], 1)
      chosen = e.compare(c, broadcast(e, pivot, values.shape), "EQ")
      theirs = e.select(chosen, values, 0)
      theirs = e.reshape(e.reduce(theirs, 0, (rank + 1,), "add"), tall)
      mine = broadcast(e, _matrices.column(e, values, j), values.shape)
      values = e.select(chosen, mine, values)
      here = e.compare(c, j, "EQ")
      return e.select(here, broadcast(e, theirs, values.shape), values), theirs

    a, x = swapped(a, c)
    order, _ = swapped(order, column)
    v, tau, packed = reflector(e, x, place, j)
    turned = e.matmul(adjoint(e, v), a)
    turned = e.multiply(turned, broadcast(e, conjugate(e, tau), wide))
    rest = e.multiply(broadcast(e, v, shape), broadcast(e, turned, shape))
    a = e.select(e.compare(c, j, "GT"), e.subtract(a, rest), a)
    a = e.select(e.compare(c, j, "EQ"), broadcast(e, packed, shape), a)
    here = e.compare(e.iota(I32, narrow, rank + 1), j, "EQ")
    return [a, order, e.select(here, broadcast(e, tau, narrow), taus)]

  # Numbers of fixed columns are negative.
  fixed = e.compare(e.reshape(fixed, wide), 0, "NE")
  numbers = e.select(fixed, e.subtract(column, n), column)
  first = [a, numbers, e.constant(0, a.dtype, narrow)]
  a, order, tau = e.fori_loop(k, first, step)
  order = e.select(e.compare(order, 0, "LT"), e.add(order, n), order)
  r, c = _matrices.rows_columns(e, shape)
  upper = _matrices.scale(e, a, broadcast(e, scale, shape))
  a = e.select(e.compare(r, c, "GT"), a, upper)
  return a, e.reshape(order, (*batch, n)), e.reshape(tau, (*batch, k))


_SQUARE = _matrices.operands(square=True)
for _name, _check, _rule in (
  ("ipu_gehrd", _SQUARE, _gehrd),
  ("ipu_sytrd_lower", _SQUARE, _sytrd(lower=True)),
  ("ipu_sytrd_upper", _SQUARE, _sytrd(lower=False)),
  ("ipu_geqp3", _matrices.operands(lambda a: (*a[:-2], a[-1])), _geqp3),
):
  define(
    Operation(f"stablehlo.custom_call @{_name}", check=_check, decompose=_rule)
  )
