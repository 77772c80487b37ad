"""Helpers of factorisations. Matrices are the last two dimensions; those before
them are batches.

Factorisations work on blocks: narrow panels of columns (factorise.py, or a loop
over the columns), and matrix products for the rest, at which tiles are
efficient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, NUMPY, PLANE, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Check
from jaxlib.ipu.ops import factorise
from jaxlib.ipu.program.schema import FactorKind

# Matrices up to this size are one block. [G]
_ONE_BLOCK = 64
# Blocks are unrolled; above this number they get larger. [G]
_MOST_BLOCKS = 16
_LEAST_BLOCK = 32
# Real systems of one block and this many rows or more are solved by halves,
# whose inverses and products take fewer multiplications than an inverse of the
# whole. Measured, of 1 to 4000 matrices of 20 to 64 rows and 1 to 64 columns:
# from 32 rows on it takes 0.41 to 1.04 times the cycles, of 20 rows up to 1.28,
# and of few complex matrices, which have further steps, 1.3.
_LEAST_HALVED = 32

# Matrices for each tile from which on `element_wise` takes fewer cycles, and
# rows and columns up to which it does for any number of complex matrices, which
# otherwise take loops, or real forms of twice the size. Measured, of 1, 20,
# 1000, 3000, 6000 and 10000 matrices of 2, 4, 6 and 8 rows: triangular solves
# take 0.02 to 0.95 times the cycles, LU factors of up to 4 rows 0.16 to 0.86,
# those of more rows up to 2.5, and those of few complex128 matrices of 4 rows
# 1.6.
_WORTH_ELEMENT_WISE = 2
_FEW_COMPLEX_ROWS = {DType.C64: 4, DType.C128: 2}
# Rows up to which systems are solved element-wise; measured, as above.
_MOST_SUBSTITUTED = 8

# Element types for computation; others are converted to f32.
COMPUTED = frozenset({DType.F32, DType.F64}) | COMPLEX


def operands(*shapes: Callable[[Shape], Shape], square: bool = False) -> Check:
  """A check that a node's first operand has matrices.

  Args:
    *shapes: of further operands, from the first one's.
    square: whether the matrices have to be square.
  """

  def check(node: Node) -> str | None:
    count = 1 + len(shapes)
    found = [v.shape for v in node.inputs]
    if len(found) != count:
      return f"{count} operands"
    matrix, *others = found
    if len(matrix) < 2 or (square and matrix[-1] != matrix[-2]):
      return f"{'square ' * square}matrices as the first operand"
    for i, (shape, other) in enumerate(zip(shapes, others), 1):
      if other != shape(matrix):
        return f"operand {i} to have shape {list(shape(matrix))}"
    return None

  return check


def block_size(n: int) -> int:
  """The columns of a panel of a factorisation of n columns."""
  if n <= _ONE_BLOCK:
    return max(n, 1)
  return max(_LEAST_BLOCK, -(-n // _MOST_BLOCKS))


def rows_columns(e: Emitter, shape: Shape) -> tuple[Value, Value]:
  """Each element's row and column."""
  rank = len(shape)
  return e.iota(DType.I32, shape, rank - 2), e.iota(DType.I32, shape, rank - 1)


def broadcast(e: Emitter, operand: Value, shape: Sequence[int]) -> Value:
  """Broadcasts dimensions of extent 1."""
  return e.broadcast_in_dim(operand, shape, range(len(shape)))


def transpose(e: Emitter, matrix: Value) -> Value:
  """The transposed matrices."""
  rank = len(matrix.shape)
  return e.transpose(matrix, [*range(rank - 2), rank - 1, rank - 2])


def conjugate(e: Emitter, value: Value) -> Value:
  """The complex conjugate; real values are unchanged."""
  if value.dtype not in COMPLEX:
    return value
  return e.complex(e.real(value), e.negate(e.imag(value)))


def square(e: Emitter, value: Value) -> Value:
  """|value|**2 of each element, real."""
  if value.dtype not in COMPLEX:
    return e.multiply(value, value)
  parts = e.real(value), e.imag(value)
  return e.add(*(e.multiply(p, p) for p in parts))


def scale(e: Emitter, value: Value, factor: Value) -> Value:
  """Multiplies elements by real numbers."""
  if value.dtype not in COMPLEX:
    return e.multiply(value, factor)
  parts = e.real(value), e.imag(value)
  return e.complex(*(e.multiply(p, factor) for p in parts))


def phase(e: Emitter, value: Value) -> Value:
  """value / |value|, 1 for 0: dividing by it makes an element real and
  positive.

  Its absolute value is 1, so that a rotation with it loses nothing: that of a
  denormal number, which converging elements become, would be rounded by up to
  half of itself.
  """
  dtype = PLANE[value.dtype]
  tiny = float(np.sqrt(np.finfo(NUMPY[dtype]).tiny))  # a power of two
  size = e.maximum(e.abs(e.real(value)), e.abs(e.imag(value)))
  large = e.constant(1 / tiny, dtype, value.shape)
  unit = e.select(e.compare(size, tiny, "LT"), large, 1)
  one = e.constant(1, value.dtype, ())
  found = e.sign(scale(e, value, unit))
  return e.select(e.compare(value, 0, "EQ"), one, found)


def adjoint(e: Emitter, matrix: Value) -> Value:
  """The transposed conjugate matrices."""
  return transpose(e, conjugate(e, matrix))


def stacked(e: Emitter, matrix: Value) -> Value:
  """Complex matrices [..., m, n] as real ones [..., 2 m, n], the real parts
  above the imaginary ones; real ones unchanged. Products of matrices in this
  form take fewer steps: those with `embedded` ones are in it again."""
  if matrix.dtype not in COMPLEX:
    return matrix
  parts = [e.real(matrix), e.imag(matrix)]
  return e.concatenate(parts, len(matrix.shape) - 2)


def unstacked(e: Emitter, stack: Value, dtype: DType) -> Value:
  """The matrices of this type that `stacked` has made such ones of."""
  if dtype not in COMPLEX:
    return stack
  return e.complex(*halves(e, stack, len(stack.shape) - 2))


def halves(e: Emitter, value: Value, dimension: int) -> tuple[Value, Value]:
  """The first and the second half along a dimension."""
  half = value.shape[dimension] // 2
  return (
    e.slice_in_dim(value, 0, half, dimension),
    e.slice_in_dim(value, half, 2 * half, dimension),
  )


def embedded(e: Emitter, stack: Value, dtype: DType) -> Value:
  """The real representation [[x, -y], [y, x]] of stacked matrices x + i y of
  this type; its transpose is that of the adjoint."""
  if dtype not in COMPLEX:
    return stack
  rank = len(stack.shape) - 2
  x, y = halves(e, stack, rank)
  turned = e.concatenate([e.negate(y), x], rank)
  return e.concatenate([stack, turned], rank + 1)


def part(
  e: Emitter, matrix: Value, rows: tuple[int, int], columns: tuple[int, int]
) -> Value:
  """Rows [from, to) and columns [from, to)."""
  batch = matrix.shape[:-2]
  return e.slice(
    matrix,
    [0] * len(batch) + [rows[0], columns[0]],
    [*batch, rows[1], columns[1]],
  )


def put(
  e: Emitter, matrix: Value, piece: Value, row: int, column: int
) -> Value:
  """The matrix with a part replaced, in place."""
  start = [0] * (len(matrix.shape) - 2)
  return e.dynamic_update_slice(matrix, piece, [*start, row, column])


def column(e: Emitter, matrix: Value, index: Value) -> Value:
  """One column, of shape [..., m, 1]."""
  *batch, m, _ = matrix.shape
  start = [0] * len(batch)
  return e.dynamic_slice(matrix, [*start, 0, index], [*batch, m, 1])


def row(e: Emitter, matrix: Value, index: Value) -> Value:
  """One row, of shape [..., 1, n]."""
  *batch, _, n = matrix.shape
  start = [0] * len(batch)
  return e.dynamic_slice(matrix, [*start, index, 0], [*batch, 1, n])


def identity(e: Emitter, shape: Shape, dtype: DType) -> Value:
  """Ones where row and column are equal."""
  r, c = rows_columns(e, shape)
  return e.convert(e.compare(r, c, "EQ"), dtype)


def scaled(
  e: Emitter, matrix: Value, largest: Value | None = None
) -> tuple[Value, Value]:
  """The matrices divided by powers of two, so that squares do not overflow, and
  these powers [..., 1, 1]; `largest` [...] is the largest size of an element,
  if the caller has it."""
  *batch, m, n = matrix.shape
  rank = len(batch)
  if largest is None:
    largest = e.reduce(e.abs(matrix), 0, (rank, rank + 1), "maximum")
  power = power_below(e, largest)
  power = e.reshape(power, (*batch, 1, 1))
  return scale(e, matrix, broadcast(e, e.divide(1, power), matrix.shape)), power


def power_below(e: Emitter, size: Value) -> Value:
  """The largest powers of two up to these sizes; 1 for those that are not
  finite."""
  bits = 11 if size.dtype is DType.F64 else 8
  # At least the smallest normal number, whose reciprocal is finite.
  least = float(np.finfo(NUMPY[size.dtype]).tiny)
  power = e.maximum(e.reduce_precision(size, bits, 0), least)
  return e.select(e.is_finite(power), power, 1)


def diagonal(e: Emitter, matrix: Value, offset: int, count: int) -> Value:
  """Elements (i, i + offset) of square matrices, as a strided view."""
  *batch, n, _ = matrix.shape
  flat = e.reshape(matrix, (*batch, n * n))
  end = offset + (count - 1) * (n + 1) + 1
  return e.slice(
    flat,
    [*[0] * len(batch), offset],
    [*batch, end],
    [*[1] * len(batch), n + 1],
  )


def lower_inverse(e: Emitter, lower: Value, unit: bool = False) -> Value:
  """The inverses of lower triangular matrices [..., n, n].

  Elements above the diagonal are not read, nor is a unit diagonal. The inverses
  of diagonal blocks, computed together, are combined in pairs:
  inv([[A, 0], [C, D]]) = [[inv A, 0], [-inv(D) C inv(A), inv D]].
  """
  n = lower.shape[-1]
  kind = FactorKind.UNIT_INVERSE if unit else FactorKind.INVERSE
  found = factorise.factors(e, kind, lower)
  if found is not None:
    return found[0]
  if lower.dtype in COMPLEX:
    return _complex_inverse(e, lower, unit)
  if n <= factorise.DOUBLED:
    return _doubled_inverse(e, lower, unit)
  rank = len(lower.shape) - 2
  most = factorise.DOUBLED
  if n > 2 * most:  # one tile or a few make blocks of twice the size, too
    most *= 2
  count = 1
  while n > most * count:
    count *= 2
  size = -(-n // count)
  extra = size * count - n
  if extra:
    lower = _complete(e, lower, n + extra, extra)

  def blocks(down: int, step: int) -> Value:
    """[..., blocks, size, size] of every `step`-th block column, `down` blocks
    below the diagonal."""
    places = range(0, n + extra, step * size)
    parts = [
      part(e, lower, (c + down * size, c + (down + 1) * size), (c, c + size))
      for c in places
    ]
    shape = (*lower.shape[:-2], 1, size, size)
    return e.concatenate([e.reshape(p, shape) for p in parts], rank)

  inverse = lower_inverse(e, blocks(0, 1), unit)
  while count > 1:
    top, bottom = (
      e.slice(
        inverse,
        [*[0] * rank, k, 0, 0],
        inverse.shape,
        [*[1] * rank, 2, 1, 1],
      )
      for k in (0, 1)
    )
    corner = e.negate(e.matmul(bottom, e.matmul(blocks(1, 2), top)))
    zero = e.constant(0, lower.dtype, top.shape)
    upper = e.concatenate([top, zero], rank + 2)
    inverse = e.concatenate(
      [upper, e.concatenate([corner, bottom], rank + 2)], rank + 1
    )
    count //= 2
    size *= 2
  inverse = e.reshape(inverse, lower.shape)
  return part(e, inverse, (0, n), (0, n)) if extra else inverse


def _complex_inverse(e: Emitter, lower: Value, unit: bool) -> Value:
  """Like `lower_inverse`, of complex matrices as real ones of twice the size.

  With x + i y as [[x, -y], [y, x]], a unit triangular matrix remains one.
  """
  *batch, n, _ = lower.shape
  rank, one = len(batch), e.constant(1, lower.dtype, ())
  r, c = rows_columns(e, lower.shape)
  columns = None
  if not unit:
    inverse = e.reshape(e.divide(one, diagonal(e, lower, 0, n)), (*batch, n, 1))
    lower = e.multiply(lower, broadcast(e, inverse, lower.shape))
    columns = broadcast(e, transpose(e, inverse), lower.shape)
  lower = e.select(e.compare(r, c, "GT"), lower, 0)
  x, y = e.real(lower), e.imag(lower)

  def interleaved(values: Sequence[Value], shape: Sequence[int]) -> Value:
    """Values [..., n, n] joined along a new last dimension, as this shape."""
    values = [e.reshape(v, (*v.shape, 1)) for v in values]
    return e.reshape(e.concatenate(values, rank + 2), shape)

  rows = [
    interleaved(v, (*batch, n, 1, 2 * n)) for v in ((x, e.negate(y)), (y, x))
  ]
  real = e.reshape(e.concatenate(rows, rank + 1), (*batch, 2 * n, 2 * n))
  real = lower_inverse(e, real, unit=True)
  ends, steps = (*batch, 2 * n, 2 * n), [*[1] * rank, 2, 2]
  x, y = (e.slice(real, [*[0] * rank, k, 0], ends, steps) for k in (0, 1))
  inverse = e.complex(x, y)
  return inverse if columns is None else e.multiply(inverse, columns)


def _doubled_inverse(e: Emitter, lower: Value, unit: bool) -> Value:
  """Like `lower_inverse`, for small matrices: blocks of size 1, 2, 4, ... in
  place."""
  n = lower.shape[-1]
  r, c = rows_columns(e, lower.shape)
  differs = e.xor(r, c)
  one = e.constant(1, lower.dtype, ())
  diagonal = one if unit else e.divide(one, lower)
  inverse = e.select(
    e.compare(r, c, "EQ"), diagonal, e.constant(0, lower.dtype, ())
  )
  size = 1
  while size < n:
    # Row and column are in the two halves of one block of twice the size.
    beside = e.and_(
      e.compare(differs, size, "GE"), e.compare(differs, 2 * size, "LT")
    )
    below = e.and_(beside, e.compare(r, c, "GT"))
    between = e.matmul(e.select(below, lower, 0), inverse)
    inverse = e.subtract(inverse, e.matmul(inverse, between))
    size *= 2
  return inverse


def element_wise(e: Emitter, matrix: Value, most: int) -> bool:
  """Whether matrices are so small that each element is worth an array over the
  batch: an algorithm then is one element-wise function, without exchanges
  between its steps.

  Args:
    e: knows the machine.
    matrix: [..., m, n].
    most: the most rows and columns for which the algorithm is short enough.
  """
  *batch, m, n = matrix.shape
  if 0 in batch or not 1 < min(m, n) <= max(m, n) <= most:
    return False
  if max(m, n) <= _FEW_COMPLEX_ROWS.get(matrix.dtype, 0):
    return True
  return math.prod(batch) >= _WORTH_ELEMENT_WISE * e.machine.num_tiles


def _substituted(e: Emitter, lower: Value, rhs: Value, unit: bool) -> Value:
  """Like `solve_triangular`, of a lower triangle, row by row: element-wise over
  the batch."""
  *batch, n, m = rhs.shape
  rank = len(batch)
  if not unit:
    one = e.constant(1, lower.dtype, ())
    inverse = e.divide(one, diagonal(e, lower, 0, n))
  found: list[Value] = []
  for i in range(n):
    x = part(e, rhs, (i, i + 1), (0, m))
    for j, known in enumerate(found):
      factor = part(e, lower, (i, i + 1), (j, j + 1))
      product = e.multiply(broadcast(e, factor, x.shape), known)
      x = e.subtract(x, product)
    if not unit:
      own = e.slice_in_dim(inverse, i, i + 1, rank)
      own = broadcast(e, e.reshape(own, (*batch, 1, 1)), x.shape)
      x = e.multiply(x, own)
    found.append(x)
  return e.concatenate(found, rank)


def solve_triangular(
  e: Emitter, matrix: Value, rhs: Value, unit: bool, upper: bool
) -> Value:
  """X of A X = B, for A [..., n, n], of which one triangle is read, and B
  [..., n, m]."""
  n, m = rhs.shape[-2:]
  b = block_size(n)
  if _LEAST_HALVED <= n <= _ONE_BLOCK and matrix.dtype not in COMPLEX:
    b = -(-n // 2)
  count = -(-n // b)
  rank = len(rhs.shape) - 2
  if count <= 1 or element_wise(e, matrix, _MOST_SUBSTITUTED):
    if upper:  # in reverse order it is a lower triangle
      matrix = e.reverse(matrix, (rank, rank + 1))
      rhs = e.reverse(rhs, (rank,))
    if element_wise(e, matrix, _MOST_SUBSTITUTED):
      x = _substituted(e, matrix, rhs, unit)
    else:
      x = e.matmul(lower_inverse(e, matrix, unit), rhs)
    return e.reverse(x, (rank,)) if upper else x
  extra = count * b - n
  blocks = []
  for i in range(count):
    end = min(n, (i + 1) * b)
    block = part(e, matrix, (i * b, end), (i * b, end))
    if end < (i + 1) * b:
      block = _complete(e, block, b, extra)
    blocks.append(e.reshape(block, [*block.shape[:-2], 1, b, b]))
  stack = e.concatenate(blocks, rank)
  if upper:
    stack = e.reverse(stack, (rank + 1, rank + 2))
  inverses = lower_inverse(e, stack, unit)
  batch = rhs.shape[:-2]
  x = rhs
  for i in range(count)[:: -1 if upper else 1]:
    begin, end = i * b, min(n, (i + 1) * b)
    piece = part(e, x, (begin, end), (0, m))
    solved = (end, n) if upper else (0, begin)
    if solved[0] < solved[1]:
      beside = part(e, matrix, (begin, end), solved)
      known = part(e, x, solved, (0, m))
      piece = e.subtract(piece, e.matmul(beside, known))
    size = end - begin
    first = b - size if upper else 0  # what completes a block is in front
    own = e.slice(
      inverses,
      [*[0] * rank, i, first, first],
      [*batch, i + 1, first + size, first + size],
    )
    own = e.reshape(own, [*batch, size, size])
    if upper:  # large terms, those of the diagonal, are added last
      piece = e.matmul(own, e.reverse(piece, (rank,)))
      piece = e.reverse(piece, (rank,))
    else:
      piece = e.matmul(own, piece)
    x = put(e, x, piece, begin, 0)
  return x


def _complete(e: Emitter, block: Value, size: int, extra: int) -> Value:
  """A block [..., size - extra, size - extra] as one of `size`: the added
  diagonal is one, everything else that is added zero."""
  rank = len(block.shape)
  high = [0] * (rank - 2) + [extra, extra]
  padded = e.pad(block, 0, [0] * rank, high)
  r, c = rows_columns(e, padded.shape)
  new = e.and_(e.compare(r, c, "EQ"), e.compare(r, size - extra, "GE"))
  return e.select(new, 1, padded)
