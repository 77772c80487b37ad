"""Eigenvalues of symmetric and Hermitian matrices, by the tridiagonal form; of
many small matrices with vectors, and of graded ones, by Jacobi's method.

`jax_plugins/ipu/lowerings.py` lowers JAX's `eigh` to `ipu_eigh`.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import COMPLEX, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _jacobi, _matrices, _spectral, bisection
from jaxlib.ipu.ops._matrices import broadcast, part


def _read(operation: Any) -> bool:
  """Whether the vectors are used."""
  return any(True for _ in operation.results[0].uses)


def _decompose(e: Emitter, node: Node) -> list[Value]:
  """(Hermitian a) -> (vectors as columns, ascending values)."""
  (matrix,) = node.inputs
  dtype = matrix.dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  a = e.convert(matrix, wide)
  if matrix.shape[-1] == 2 and 0 not in matrix.shape:
    found = _of_two(e, a)
  elif node.attributes or matrix.shape[-1] < 2 or 0 in matrix.shape:
    found = factorise(e, a)
  else:
    found = a, bisection.eigenvalues(e, a)
  return [e.convert(x, v.dtype) for x, v in zip(found, node.results)]


def factorise(e: Emitter, matrix: Value) -> tuple[Value, Value]:
  """Eigenvectors [..., n, n] and eigenvalues [..., n] of [..., n, n]."""
  *batch, n, _ = matrix.shape
  if n < 2 or 0 in batch:
    values = e.real(e.reshape(matrix, (*batch, n)))
    return _matrices.identity(e, matrix.shape, matrix.dtype), values
  a, scale = _matrices.scaled(e, matrix)
  if _spectral.suits(e, a):
    vectors, values = _of_graded(e, a, *_spectral.eigenvectors(e, a))
  else:
    unit = _matrices.identity(e, a.shape, a.dtype)
    vectors, values = _rotated(e, a, unit, rare=False)
  scale = broadcast(e, e.reshape(scale, (*batch, 1)), values.shape)
  return vectors, e.multiply(values, scale)


def _of_two(e: Emitter, matrix: Value) -> tuple[Value, Value]:
  """Like `factorise`, of [..., 2, 2]: one rotation, element-wise over the
  batch."""
  *batch, _, _ = matrix.shape
  rank = len(batch)
  a, b, d = (
    part(e, matrix, (i, i + 1), (j, j + 1)) for i, j in ((0, 0), (0, 1), (1, 1))
  )
  p, q = e.real(a), e.real(d)
  phase = None
  if matrix.dtype in COMPLEX:  # multiply by a phase to make the element real
    phase = _matrices.conjugate(e, _matrices.phase(e, b))
    b = e.abs(b)
  size = e.maximum(e.maximum(e.abs(p), e.abs(q)), e.abs(b))
  scale = _matrices.power_below(e, size)
  p, q, b = (e.divide(v, scale) for v in (p, q, b))
  t = _jacobi.tangent(e, p, q, b)
  # A NaN beside a zero reaches all results, too.
  t = e.add(t, e.multiply(e.subtract(q, p), 0))
  first = e.multiply(e.subtract(p, e.multiply(t, b)), scale)
  second = e.multiply(e.add(q, e.multiply(t, b)), scale)
  c = e.divide(1, e.sqrt(e.add(e.multiply(t, t), 1)))
  s = e.multiply(t, c)
  swap = e.compare(second, first, "LT")
  values = [e.minimum(first, second), e.maximum(first, second)]
  # The vectors are (c, -s) and (s, c).
  top = [e.select(swap, s, c), e.select(swap, c, s)]
  bottom = [e.select(swap, c, e.negate(s)), e.select(swap, e.negate(s), c)]
  if phase is not None:
    top = [e.convert(v, matrix.dtype) for v in top]
    bottom = [_matrices.scale(e, phase, v) for v in bottom]
  rows = [e.concatenate(row, rank + 1) for row in (top, bottom)]
  return (
    e.concatenate(rows, rank),
    e.reshape(e.concatenate(values, rank), (*batch, 2)),
  )


def _of_graded(
  e: Emitter, a: Value, vectors: Value, values: Value
) -> list[Value]:
  """The eigenvectors and values of graded and diagonal matrices by rotations,
  those of others as they are.

  Errors of the tridiagonal form are relative to the largest elements. Rotations
  are relative to what they rotate, so blocks of small elements keep their
  digits, and the vectors of a diagonal matrix are exact, whichever of its
  elements are equal. Other matrices beside these are not rotated.
  """
  *batch, n, _ = a.shape
  rank = len(batch)
  graded = _jacobi.graded(e, e.reduce(e.abs(a), 0, (rank + 1,), "maximum"))
  graded = e.or_(graded, _jacobi.diagonal(e, a))
  some = e.reduce(e.convert(graded, DType.I32), 0, range(rank), "maximum")

  def rotated() -> list[Value]:
    unit = _matrices.identity(e, a.shape, a.dtype)
    across = broadcast(e, e.reshape(values, (*batch, n, 1)), a.shape)
    which = broadcast(e, e.reshape(graded, (*batch, 1, 1)), a.shape)
    start = e.select(which, a, _matrices.scale(e, unit, across))
    turns = e.select(which, unit, _matrices.adjoint(e, vectors))
    return list(_rotated(e, start, turns, rare=True))

  return e.case(some, [lambda: [vectors, values], rotated])


def _rotated(
  e: Emitter, a: Value, turns: Value, rare: bool
) -> tuple[Value, Value]:
  """Eigenvectors and ascending eigenvalues of V A V^H, given V^H as `turns`;
  `rare` as in `_jacobi.sweeps`."""
  *batch, n, _ = a.shape
  rank = len(batch)
  rows = e.concatenate([a, turns], rank + 1)
  values, rows = _jacobi.diagonal_rows(e, rows, rare)
  rows = _jacobi.closer(e, rows)
  column = e.convert(e.reshape(values, (*batch, n, 1)), rows.dtype)
  rows = e.concatenate([rows, column], rank + 1)
  rows = _jacobi.sort_rows(e, values, rows, descending=False)
  vectors = _matrices.adjoint(e, part(e, rows, (0, n), (0, n)))
  values = e.real(part(e, rows, (0, n), (n, n + 1)))
  return vectors, e.reshape(values, (*batch, n))


define(
  Operation(
    "stablehlo.custom_call @ipu_eigh",
    read=_read,
    check=_matrices.operands(square=True),
    decompose=_decompose,
  )
)
