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
  rank = len(batch)
  if n < 2 or 0 in batch:
    values = e.real(e.reshape(matrix, (*batch, n)))
    return _matrices.identity(e, matrix.shape, matrix.dtype), values
  a, scale = _matrices.scaled(e, matrix)
  start, met = a, None
  turns = _matrices.identity(e, a.shape, a.dtype)
  if _spectral.suits(e, a):
    # Errors of the tridiagonal form are relative to the largest elements.
    # Rotations of graded matrices are relative to what they rotate, so blocks
    # of small elements keep their digits; other matrices are not rotated.
    length = e.reduce(e.abs(a), 0, (rank + 1,), "maximum")
    graded = _jacobi.graded(e, length)
    vectors, values = _spectral.eigenvectors(e, a)
    across = broadcast(e, e.reshape(values, (*batch, n, 1)), a.shape)
    found = _matrices.scale(e, turns, across)
    rotated = broadcast(e, graded, a.shape)
    start = e.select(rotated, a, found)
    turns = e.select(rotated, turns, _matrices.adjoint(e, vectors))
    met = _jacobi.largest(e, e.convert(graded, values.dtype))
  rows = e.concatenate([start, turns], rank + 1)
  values, rows = _jacobi.diagonal_rows(e, rows, met)
  rows = _jacobi.closer(e, rows)
  column = e.reshape(values, (*batch, n, 1))
  column = e.multiply(column, broadcast(e, scale, column.shape))
  rows = e.concatenate([rows, e.convert(column, rows.dtype)], rank + 1)
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
