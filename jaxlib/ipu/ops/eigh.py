"""Eigenvalues of symmetric and Hermitian matrices, by the tridiagonal form; of
many small matrices with vectors, by Jacobi's method.

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
  if _spectral.suits(e, matrix):
    return _spectral.eigenvectors(e, matrix)
  a, scale = _matrices.scaled(e, matrix)
  one = (*batch, 1, 1)
  shift = e.reshape(_bound(e, a), one)
  unit = _matrices.identity(e, a.shape, shift.dtype)
  unit = e.multiply(unit, broadcast(e, shift, a.shape))
  rows = e.add(a, e.convert(unit, a.dtype))
  pad = [0] * rank + [n % 2, 0]
  rows = e.pad(rows, 0, [0] * len(pad), pad)
  rows = part(e, _jacobi.orthogonal_rows(e, rows, n), (0, n), (0, n))
  length = e.reduce(_matrices.square(e, rows), 0, (rank + 1,), "add")
  length = e.reshape(e.rsqrt(length), (*batch, n, 1))
  rows = _matrices.scale(e, rows, broadcast(e, length, rows.shape))
  rows = _jacobi.closer(e, rows)
  values = e.multiply(e.matmul(rows, a), _matrices.conjugate(e, rows))
  values = e.reduce(e.real(values), 0, (rank + 1,), "add")
  column = e.reshape(values, (*batch, n, 1))
  column = e.multiply(column, broadcast(e, scale, column.shape))
  rows = e.concatenate([rows, e.convert(column, rows.dtype)], rank + 1)
  rows = _jacobi.sort_rows(e, values, rows, descending=False)
  vectors = _matrices.adjoint(e, part(e, rows, (0, n), (0, n)))
  values = e.real(part(e, rows, (0, n), (n, n + 1)))
  return vectors, e.reshape(values, (*batch, n))


def _bound(e: Emitter, matrix: Value) -> Value:
  """An upper bound of the largest |eigenvalue|, at most four times of it for up
  to thousands of rows: from the sum of their eighth powers."""
  rank = len(matrix.shape) - 2
  power = e.matmul(matrix, matrix)
  power = _matrices.square(e, e.matmul(power, power))
  total = e.reduce(power, 0, (rank, rank + 1), "add")
  for _ in range(3):
    total = e.sqrt(total)
  return e.select(e.compare(total, 0, "EQ"), 1, e.multiply(total, 1.25))


define(
  Operation("stablehlo.custom_call @ipu_eigh", read=_read, decompose=_decompose)
)
