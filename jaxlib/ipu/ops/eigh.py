"""Eigenvalues of symmetric and Hermitian matrices, by the tridiagonal form; of
many small matrices with vectors, and of graded ones, by Jacobi's method.

`jax_plugins/ipu/lowerings.py` lowers JAX's `eigh` to `ipu_eigh`.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import DType
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
  if node.attributes or matrix.shape[-1] < 2 or 0 in matrix.shape:
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
