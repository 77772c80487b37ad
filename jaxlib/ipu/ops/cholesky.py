"""cholesky: panels of columns from left to right, in place."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _matrices
from jaxlib.ipu.ops._matrices import broadcast, part
from jaxlib.ipu.ops.factorise import factors, panel_width
from jaxlib.ipu.program.schema import FactorKind

_KIND = FactorKind.CHOLESKY


def _read(operation: Any) -> bool:
  """Whether the lower factor is requested, from the lower triangle."""
  attributes = operation.attributes
  return "lower" in attributes and attributes["lower"].value


def _decompose(e: Emitter, node: Node) -> list[Value]:
  (matrix,) = node.inputs
  lower: bool = node.attributes
  wide = matrix.dtype if matrix.dtype in _matrices.COMPUTED else DType.F32
  a = e.convert(matrix, wide)
  if not lower:
    a = _matrices.adjoint(e, a)
  factor = factorise(e, a)
  if not lower:
    factor = _matrices.adjoint(e, factor)
  return [e.convert(factor, matrix.dtype)]


def factorise(e: Emitter, matrix: Value) -> Value:
  """The lower Cholesky factors of [..., n, n]; NaN in the whole triangle if a
  matrix is not positive definite."""
  n = matrix.shape[-1]
  b = panel_width(e, _KIND, matrix.shape, matrix.dtype, _matrices.block_size(n))
  a = matrix
  for begin in range(0, n, b):
    end = min(n, begin + b)
    panel = part(e, a, (begin, n), (begin, end))
    if begin:
      done = part(e, a, (begin, n), (0, begin))
      beside = part(e, a, (begin, end), (0, begin))
      panel = e.subtract(panel, e.matmul(done, _matrices.adjoint(e, beside)))
    size = end - begin
    top = _factorise_block(e, part(e, panel, (0, size), (0, size)))
    pieces = [top]
    if end < n:
      below = part(e, panel, (size, n - begin), (0, size))
      inverse = _matrices.lower_inverse(e, top)
      pieces.append(e.matmul(below, _matrices.adjoint(e, inverse)))
    whole = e.concatenate(pieces, len(a.shape) - 2)
    a = _matrices.put(e, a, whole, begin, begin)
  r, c = _matrices.rows_columns(e, a.shape)
  # A NaN in any column reaches the last diagonal element.
  last = part(e, a, (n - 1, n), (n - 1, n)) if n else a
  failed = broadcast(e, e.compare(last, last, "NE"), a.shape)
  a = e.select(failed, e.constant(float("nan"), a.dtype, ()), a)
  return e.select(e.compare(r, c, "GE"), a, 0)


def _factorise_block(e: Emitter, block: Value) -> Value:
  """Column by column: scales it, and subtracts its outer square."""
  found = factors(e, _KIND, block)
  if found is not None:
    return found[0]
  shape = block.shape

  def step(j: Value, a: Value) -> Value:
    r, c = _matrices.rows_columns(e, shape)
    column = _matrices.column(e, a, j)
    tall = column.shape
    pivot = e.real(_matrices.row(e, column, j))
    positive = e.compare(pivot, 0, "GT")
    pivot = e.select(positive, e.sqrt(pivot), float("nan"))
    pivot = broadcast(e, e.convert(pivot, a.dtype), tall)
    place = e.iota(DType.I32, tall, len(tall) - 2)
    column = e.select(e.compare(place, j, "EQ"), pivot, e.divide(column, pivot))
    column = e.select(e.compare(place, j, "GE"), column, 0)
    across = broadcast(e, _matrices.adjoint(e, column), shape)
    column = broadcast(e, column, shape)
    rest = e.subtract(a, e.multiply(column, across))
    a = e.select(e.compare(c, j, "GT"), rest, a)
    return e.select(e.compare(c, j, "EQ"), column, a)

  (a,) = e.fori_loop(shape[-1], [block], step)
  return a


define(Operation("stablehlo.cholesky", read=_read, decompose=_decompose))
