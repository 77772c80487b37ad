"""LU factors with partial pivoting: panels of columns from left to right.

`jax_plugins/ipu/lowerings.py` lowers JAX's `lu` to `ipu_lu`.
"""

from __future__ import annotations

import functools

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _matrices
from jaxlib.ipu.ops._matrices import broadcast, part, put
from jaxlib.ipu.ops.factorise import factors, panel_width
from jaxlib.ipu.program.schema import FactorKind

I32 = DType.I32
# Rows and columns up to which all steps are element-wise; measured, see
# `_matrices.element_wise`.
_MOST_UNROLLED = 4


def _decompose(e: Emitter, node: Node) -> list[Value]:
  """(a) -> (L below the diagonal and U, pivots, permutation)."""
  (matrix,) = node.inputs
  wide = matrix.dtype if matrix.dtype in _matrices.COMPUTED else DType.F32
  lu, pivots, order = factorise(e, e.convert(matrix, wide))
  return [e.convert(lu, matrix.dtype), pivots, order]


def factorise(e: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
  """The factors [..., m, n]; the row that each step swapped with its own
  [..., min(m, n)]; the rows of the matrix in their final order [..., m]."""
  if _matrices.element_wise(e, matrix, _MOST_UNROLLED):
    return _unrolled(e, matrix)
  *batch, m, n = matrix.shape
  rank = len(batch)
  k = min(m, n)
  size = panel_width(
    e, FactorKind.LU, matrix.shape, matrix.dtype, _matrices.block_size(k)
  )
  a = rest = matrix
  order = e.iota(I32, (*batch, m, 1), rank)
  pivots = []
  for begin in range(0, k, size):
    end = min(k, begin + size)
    b = end - begin
    panel, own, swapped = _panel(e, part(e, rest, (0, m - begin), (0, b)))
    pivots.append(e.add(e.reshape(swapped, (*batch, b)), begin))
    if begin:
      left = _take_rows(e, part(e, a, (begin, m), (0, begin)), own)
      a = put(e, a, left, begin, 0)
    a = put(e, a, panel, begin, begin)
    known = part(e, order, (begin, m), (0, 1))
    order = put(e, order, _take_rows(e, known, own), begin, 0)
    if end < n:
      rest = part(e, rest, (0, m - begin), (b, n - begin))
      rest = _take_rows(e, rest, own)
      inverse = _matrices.lower_inverse(
        e, part(e, panel, (0, b), (0, b)), unit=True
      )
      right = e.matmul(inverse, part(e, rest, (0, b), (0, n - end)))
      a = put(e, a, right, begin, end)
      if end < m:
        below = part(e, panel, (b, m - begin), (0, b))
        rest = part(e, rest, (b, m - begin), (0, n - end))
        rest = e.subtract(rest, e.matmul(below, right))
  none = e.constant(0, I32, (*batch, 0))
  return a, e.concatenate([none, *pivots], rank), e.reshape(order, (*batch, m))


def _unrolled(e: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
  """Like `factorise`, element-wise over the batch."""
  *batch, m, n = matrix.shape
  rank, one = len(batch), (*batch, 1, 1)
  a = [
    [part(e, matrix, (i, i + 1), (j, j + 1)) for j in range(n)]
    for i in range(m)
  ]
  order = [e.constant(i, I32, one) for i in range(m)]
  pivots = []
  for j in range(min(m, n)):
    below = range(j + 1, m)
    sizes = [e.abs(a[i][j]) for i in range(j, m)]
    most = functools.reduce(e.maximum, sizes)
    # The first row that has it; this one if all are NaN.
    pivot = e.constant(j, I32, one)
    for i in (*reversed(below), j):
      found = e.compare(sizes[i - j], most, "EQ")
      pivot = e.select(found, e.constant(i, I32, one), pivot)
    pivots.append(pivot)
    swapped = {i: e.compare(pivot, i, "EQ") for i in below}

    def swap(column: list[Value], j: int, swapped: dict[int, Value]) -> None:
      mine = column[j]
      for i, here in swapped.items():
        column[j] = e.select(here, column[i], column[j])
        column[i] = e.select(here, mine, column[i])

    for c in range(n):
      column = [row[c] for row in a]
      swap(column, j, swapped)
      for row, x in zip(a, column, strict=True):
        row[c] = x
    swap(order, j, swapped)
    head = a[j][j]
    head = e.select(e.compare(head, 0, "EQ"), 1, head)
    for i in below:
      x = a[i][j] = e.divide(a[i][j], head)
      for c in range(j + 1, n):
        a[i][c] = e.subtract(a[i][c], e.multiply(x, a[j][c]))
  rows = [e.concatenate(row, rank + 1) for row in a]
  return (
    e.concatenate(rows, rank),
    e.reshape(e.concatenate(pivots, rank), (*batch, len(pivots))),
    e.reshape(e.concatenate(order, rank), (*batch, m)),
  )


def _panel(e: Emitter, panel: Value) -> tuple[Value, Value, Value]:
  """The factors of a panel [..., m, b], its rows' order [..., m, 1], and the
  pivots [..., 1, b]."""
  *batch, m, b = panel.shape
  rank = len(batch)
  shape, tall, wide = panel.shape, (*batch, m, 1), (*batch, 1, b)
  one = (*batch, 1, 1)
  found = factors(e, FactorKind.LU, panel)
  if found is not None:
    a, pivots, order = found
    return a, e.reshape(order, tall), e.reshape(pivots, wide)
  place = e.iota(I32, tall, rank)

  def step(j: Value, a: Value, order: Value, pivots: Value) -> list[Value]:
    r, c = _matrices.rows_columns(e, shape)
    x = _matrices.column(e, a, j)
    size = e.select(e.compare(place, j, "GE"), e.abs(x), -1)
    most = e.reduce(size, -1, (rank,), "maximum")
    most = broadcast(e, e.reshape(most, one), tall)
    found = e.select(e.compare(size, most, "EQ"), place, m)
    pivot = e.reshape(e.reduce(found, m, (rank,), "minimum"), one)
    pivot = e.select(e.compare(pivot, m, "EQ"), j, pivot)  # all are NaN
    mine = _matrices.row(e, a, j)
    theirs = _row_at(e, a, pivot)
    here = broadcast(e, pivot, shape)

    def swap(
      values: Value, r: Value, at: Value, up: Value, down: Value
    ) -> Value:
      other = e.select(e.compare(r, at, "EQ"), down, values)
      return e.select(e.compare(r, j, "EQ"), up, other)

    a = swap(a, r, here, broadcast(e, theirs, shape), broadcast(e, mine, shape))
    at = broadcast(e, pivot, tall)
    head = broadcast(e, _matrices.column(e, theirs, j), tall)
    x = swap(
      x, place, at, head, broadcast(e, _matrices.column(e, mine, j), tall)
    )
    zero = e.compare(head, 0, "EQ")
    x = e.divide(x, e.select(zero, 1, head))
    x = e.select(e.compare(place, j, "GT"), x, 0)
    x = broadcast(e, x, shape)
    rest = e.subtract(a, e.multiply(x, broadcast(e, theirs, shape)))
    a = e.select(e.compare(c, j, "GT"), rest, a)
    below = e.and_(e.compare(c, j, "EQ"), e.compare(r, j, "GT"))
    a = e.select(below, x, a)
    old = broadcast(e, _row_at(e, order, pivot), tall)
    order = swap(
      order, place, at, old, broadcast(e, _matrices.row(e, order, j), tall)
    )
    column = e.iota(I32, wide, rank + 1)
    pivots = e.select(
      e.compare(column, j, "EQ"), broadcast(e, pivot, wide), pivots
    )
    return [a, order, pivots]

  first = [panel, place, e.constant(0, I32, wide)]
  a, order, pivots = e.fori_loop(b, first, step)
  return a, order, pivots


def _row_at(e: Emitter, matrix: Value, index: Value) -> Value:
  """Row `index` [..., 1, 1] of each matrix, of shape [..., 1, n]."""
  *batch, m, n = matrix.shape
  if not batch:
    return _matrices.row(e, matrix, e.reshape(index, ()))
  return _take_rows(e, matrix, index)


def _take_rows(e: Emitter, matrix: Value, rows: Value) -> Value:
  """Rows [..., k, 1] of matrices [..., m, n]."""
  *batch, _, n = matrix.shape
  rank = len(batch)
  dims = tuple(range(rank))
  indexing = Indexing(
    window_dims=(rank + 1,),
    collapsed=(rank,),
    operand_batch=dims,
    index_batch=dims,
    index_map=(rank,),
    index_vector_dim=rank + 1,
    slice_sizes=(*[1] * rank, 1, n),
  )
  return e.gather(matrix, rows, indexing)


define(
  Operation(
    "stablehlo.custom_call @ipu_lu",
    check=_matrices.operands(),
    decompose=_decompose,
  )
)
