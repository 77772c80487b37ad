"""Eigenvalues of symmetric and Hermitian matrices, by Jacobi's method.

`ipu_eigh` is what `jax_plugins/ipu/lowerings.py` makes of JAX's `eigh`.
"""

from __future__ import annotations

from jaxlib.ipu.dtypes import COMPLEX, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _jacobi, _matrices
from jaxlib.ipu.ops._matrices import diagonal, part, spread


def _decompose(e: Emitter, node: Node) -> list[Value]:
  """(Hermitian a) -> (vectors as columns, ascending values)."""
  (matrix,) = node.inputs
  dtype = matrix.dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  found = factorise(e, e.convert(matrix, wide))
  return [e.convert(x, v.dtype) for x, v in zip(found, node.results)]


def factorise(e: Emitter, matrix: Value) -> tuple[Value, Value]:
  """Eigenvectors [..., n, n] and eigenvalues [..., n] of [..., n, n]."""
  *batch, n, _ = matrix.shape
  rank = len(batch)
  if n < 2 or 0 in batch:
    values = e.real(e.reshape(matrix, (*batch, n)))
    return _matrices.identity(e, matrix.shape, matrix.dtype), values
  even = n + n % 2  # an extra row of zeros never rotates
  pad = [0] * rank + [even - n] * 2
  a, scale = _matrices.scaled(e, matrix)
  a = e.pad(a, 0, [0] * len(pad), pad)
  norm = e.sqrt(e.reduce(_matrices.square(e, a), 0, (rank, rank + 1), "add"))
  norm = e.select(e.compare(norm, 0, "GT"), norm, 1)
  half = even // 2
  norm = spread(e, e.reshape(norm, (*batch, 1)), (*batch, half))

  def turn(a: Value, v: Value) -> list[Value]:
    p, q = _jacobi.halves(e, e.real(diagonal(e, a, 0, even)), rank)
    between = diagonal(e, a, half, half)
    if a.dtype in COMPLEX:
      a, v = _make_real(e, a, v, between)
      between = e.abs(between)
    angles = _jacobi.rotation(e, p, q, between)
    met = _jacobi.largest(e, e.divide(e.abs(between), norm))
    down = [e.reshape(x, (*batch, half, 1)) for x in angles]
    across = [e.reshape(x, (*batch, 1, half)) for x in angles]
    rows = []
    for rows_ in _jacobi.halves(e, a, rank):
      left, right = _jacobi.halves(e, rows_, rank + 1)
      rows.append(_jacobi.rotate(e, left, right, *across))
    (left, right), (low_left, low_right) = rows
    left, low_left = _jacobi.rotate(e, left, low_left, *down)
    right, low_right = _jacobi.rotate(e, right, low_right, *down)
    a = _jacobi.move_on(
      e,
      _jacobi.move_on(e, left, right, rank + 1),
      _jacobi.move_on(e, low_left, low_right, rank + 1),
      rank,
    )
    v = _jacobi.move_on(
      e, *_jacobi.rotate(e, *_jacobi.halves(e, v, rank), *down), rank
    )
    return [met, a, v]

  v = _matrices.identity(e, a.shape, a.dtype)
  a, v = _jacobi.sweeps(e, [a, v], even - 1, turn)
  v = part(e, v, (0, n), (0, n))
  values = e.slice(diagonal(e, a, 0, even), [0] * (rank + 1), (*batch, n))
  values = e.real(values)
  column = e.reshape(values, (*batch, n, 1))
  column = e.multiply(column, spread(e, scale, column.shape))
  rows = e.concatenate([v, e.convert(column, v.dtype)], rank + 1)
  rows = _jacobi.sort_rows(e, values, rows, descending=False)
  vectors = _matrices.transpose(e, part(e, rows, (0, n), (0, n)))
  values = e.real(part(e, rows, (0, n), (n, n + 1)))
  return vectors, e.reshape(values, (*batch, n))


def _make_real(
  e: Emitter, a: Value, v: Value, between: Value
) -> tuple[Value, Value]:
  """Turns the second of each pair so that what is between them is real: with
  D of their phases, D^H A D and V D, of which `v` is the transpose."""
  *batch, even, _ = a.shape
  rank = len(batch)
  turned = _matrices.conjugate(e, _matrices.phase(e, between))
  d = e.concatenate([e.constant(1, a.dtype, turned.shape), turned], rank)
  down, across = (
    e.reshape(d, (*batch, even, 1)),
    e.reshape(d, (*batch, 1, even)),
  )
  back = spread(e, _matrices.conjugate(e, down), a.shape)
  a = e.multiply(e.multiply(a, spread(e, across, a.shape)), back)
  return a, e.multiply(v, spread(e, down, v.shape))


define(Operation("stablehlo.custom_call @ipu_eigh", decompose=_decompose))
