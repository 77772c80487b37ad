"""`ipu.bisect`: eigenvalues of symmetric tridiagonal matrices; eigenvalues and
singular values without vectors."""

from __future__ import annotations

import math

from jaxlib.ipu.dtypes import COMPLEX, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import grid, project
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops import _matrices, hessenberg
from jaxlib.ipu.ops._matrices import broadcast, diagonal, transpose
from jaxlib.ipu.ops.factorise import factors
from jaxlib.ipu.plan import cuts
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import FactorKind

BISECT = "ipu.bisect"

# Powers of two whose squares, added up, do not overflow: squares of elements
# that are much smaller than these do not underflow.
LARGE = {DType.F32: 2.0**50, DType.F64: 2.0**450}


def tridiagonal_values(
  e: Emitter, main: Value, beside: Value, first: int = 0
) -> Value:
  """The ascending eigenvalues of symmetric tridiagonal matrices, from number
  `first` on, given diagonals [..., n] and off-diagonals [..., n - 1]."""
  *batch, n = main.shape
  count = math.prod(batch)
  (found,) = e.node(
    BISECT,
    [e.reshape(main, (count, n)), e.reshape(beside, (count, n - 1))],
    [((count, n - first), main.dtype)],
    first,
  )
  return e.reshape(found, (*batch, n - first))


def eigenvalues(e: Emitter, matrix: Value) -> Value:
  """The ascending eigenvalues [..., n] of Hermitian matrices [..., n, n], by
  their tridiagonal form."""
  n = matrix.shape[-1]
  a, scale = _matrices.scaled(e, matrix)
  if a.dtype in COMPLEX:
    packed = hessenberg.tridiagonal(e, a)
  else:
    packed, _ = hessenberg.reduced(e, a, FactorKind.TRIDIAGONAL)
  main = e.real(diagonal(e, packed, 0, n))
  beside = e.real(diagonal(e, transpose(e, packed), 1, n - 1))
  return _scaled_back(e, tridiagonal_values(e, main, beside), scale)


def singular_values(e: Emitter, matrix: Value) -> Value | None:
  """The descending singular values [..., n] of matrices [..., m, n], m >= n, by
  the bidiagonal form B; None if rotations find them faster.

  [[0, B], [B^T, 0]], its rows and columns shuffled, is tridiagonal with a zero
  diagonal; its upper eigenvalues are B's singular values (Golub and Kahan,
  "Calculating the singular values and pseudo-inverse of a matrix", 1965).
  """
  n = matrix.shape[-1]
  a, scale = _matrices.scaled(e, matrix)
  found = factors(e, FactorKind.BIDIAGONAL, a)
  if found is None:
    return None
  square = _matrices.part(e, found[0], (0, n), (0, n))
  return _scaled_back(e, bidiagonal_values(e, square), scale)


def bidiagonal_values(e: Emitter, matrix: Value) -> Value:
  """The descending singular values [..., n] of upper bidiagonal matrices
  without large elements."""
  *batch, n, _ = matrix.shape
  rank = len(batch)
  main, beside = (diagonal(e, matrix, k, n - k) for k in (0, 1))
  main = e.reshape(main, (*batch, n, 1))
  beside = e.pad(beside, 0, [0] * (rank + 1), [0] * rank + [1])
  beside = e.reshape(beside, (*batch, n, 1))
  both = e.reshape(e.concatenate([main, beside], rank + 1), (*batch, 2 * n))
  both = e.slice_in_dim(both, 0, 2 * n - 1, rank)
  zero = e.constant(0, both.dtype, (*batch, 2 * n))
  large = LARGE[both.dtype]
  values = tridiagonal_values(e, zero, e.multiply(both, large), n)
  return e.multiply(e.reverse(values, (rank,)), 1 / large)


def _scaled_back(e: Emitter, values: Value, scale: Value) -> Value:
  scale = e.reshape(scale, (*values.shape[:-1], 1))
  return e.multiply(values, broadcast(e, scale, values.shape))


def _lower(builder: Builder, node: Node) -> None:
  first: int = node.attributes
  main, beside = (builder.view(v) for v in node.inputs)
  n, shape = main.shape[1], node.results[0].shape
  tiles = builder.target.num_tiles
  parts = cuts.distribute(tiles, shape, tiles)
  partition = grid(shape, parts)
  operands = []
  for view in (main, beside):
    # Whole rows of a tile's matrices.
    whole = (*shape, view.shape[1])
    layout = project(grid(whole, (*parts, 1)), whole, (0, 2))
    operands.append(Operand(view, (0, -1), layout))
  builder.execute(
    schema.Bisect(n, first),
    shape,
    partition,
    operands,
    [Written(builder.result(node, partition), (0, 1))],
  )


define(Operation(BISECT, _lower))
