"""QR by Householder reflectors: the custom calls of `geqrf` and
`householder_product`.

A panel's reflectors are found column by column; they are applied to the rest of
the matrix together, as I - V T V^H (Schreiber and Van Loan, "A
storage-efficient WY representation for products of Householder
transformations", 1989).
"""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, NUMPY, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _matrices
from jaxlib.ipu.ops._matrices import broadcast, part, put
from jaxlib.ipu.ops.factorise import factors, panel_width
from jaxlib.ipu.program.schema import FactorKind

# Minimum number of a product's reflectors that are applied together: fewer take
# more steps, and no fewer cycles, up to matrices of 300 rows [D].
_AT_ONCE = 128
# Fewer panels or blocks than these are unrolled [G].
_MANY = 6


def _geqrf(e: Emitter, node: Node) -> list[Value]:
  """(a) -> (R and below it the reflectors, their factors tau)."""
  (matrix,) = node.inputs
  dtype = matrix.dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  packed, tau = factorise(e, e.convert(matrix, wide))
  return [e.convert(packed, dtype), e.convert(tau, dtype)]


def _product(e: Emitter, node: Node) -> list[Value]:
  """(reflectors, tau) -> the first columns of their product."""
  matrix, tau = node.inputs
  dtype = matrix.dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  q = product(e, e.convert(matrix, wide), e.convert(tau, wide))
  return [e.convert(q, dtype)]


def _check_product(node: Node) -> str | None:
  if len(node.inputs) != 2:
    return "2 operands"
  matrix, tau = (v.shape for v in node.inputs)
  if (
    len(matrix) < 2
    or tau[:-1] != matrix[:-2]
    or not tau
    or not tau[-1] <= matrix[-1] <= matrix[-2]
  ):
    return "matrices of at least as many rows as columns, and their factors"
  return None


def factorise(e: Emitter, matrix: Value) -> tuple[Value, Value]:
  """R with the reflectors below it, [..., m, n], and tau [..., min(m, n)]."""
  if 0 in matrix.shape[-2:]:
    return reflected(e, matrix)
  a, scale = _matrices.scaled(e, matrix)
  a, tau = reflected(e, a)
  r, c = _matrices.rows_columns(e, a.shape)
  upper = _matrices.scale(e, a, broadcast(e, scale, a.shape))
  return e.select(e.compare(r, c, "GT"), a, upper), tau


def reflected(e: Emitter, a: Value) -> tuple[Value, Value]:
  """Like `factorise`, for matrices whose squares do not overflow."""
  *batch, m, n = a.shape
  k = min(m, n)
  if not k:
    return a, e.constant(0, a.dtype, (*batch, 0))
  size = panel_width(
    e, FactorKind.QR, a.shape, a.dtype, _matrices.block_size(k)
  )
  a, taus = _panels(e, a, size)
  return a, e.reshape(taus, (*batch, k))


def orthonormal(e: Emitter, a: Value, signs: bool = True) -> Value:
  """Q of A = Q R, [..., n, n], for square matrices whose squares do not
  overflow; the diagonal of R is nonnegative if `signs`."""
  n = a.shape[-1]
  found = factors(e, FactorKind.ORTHONORMAL, a)
  if found is not None:
    return found[0]
  otherwise = _matrices.block_size(n)
  size = panel_width(e, FactorKind.QR, a.shape, a.dtype, otherwise)
  if size < n and not _looped(n, size):
    q, diagonal = _by_panels(e, a, size)
  else:
    packed, tau = reflected(e, a)
    q = product(e, packed, tau)
    diagonal = _matrices.diagonal(e, part(e, packed, (0, n), (0, n)), 0, n)
  if not signs:
    return q
  diagonal = e.real(diagonal)
  one = e.constant(1, diagonal.dtype, ())
  negative = e.compare(diagonal, 0, "LT")
  sign = e.select(negative, e.constant(-1, one.dtype, ()), 1)
  sign = e.reshape(sign, (*a.shape[:-2], 1, n))
  return _matrices.scale(e, q, broadcast(e, sign, q.shape))


def _by_panels(e: Emitter, a: Value, size: int) -> tuple[Value, Value]:
  """Q and the diagonal of R, of square A = Q R, by panels of `size` columns.

  Their reflectors also turn an identity beside A, a panel's rows of which are
  then those of Q^H: this takes fewer steps than a product of reflectors.
  """
  n, rank = a.shape[-1], len(a.shape) - 2
  unit = _matrices.identity(e, a.shape, a.dtype)
  rest = e.concatenate([a, unit], rank + 1)
  rows, diagonals = [], []
  for begin in range(0, n, size):
    left, b = n - begin, min(size, n - begin)
    panel, tau = _panel(e, part(e, rest, (0, left), (0, b)))
    rest = part(e, rest, (0, left), (b, left + n))
    v, factor, v_rest = _reflectors(e, panel, tau, rest)
    inner = e.matmul(_matrices.conjugate(e, factor), v_rest)
    rest = e.subtract(rest, e.matmul(v, inner))
    rows.append(part(e, rest, (0, b), (left - b, left - b + n)))
    rest = part(e, rest, (b, left), (0, left - b + n))
    head = part(e, panel, (0, b), (0, b))
    diagonals.append(_matrices.diagonal(e, head, 0, b))
  q = _matrices.adjoint(e, e.concatenate(rows, rank))
  return q, e.concatenate(diagonals, rank)


def _panels(e: Emitter, a: Value, size: int) -> tuple[Value, Value]:
  """The packed matrix [..., m, n], m, n > 0, and tau [..., 1, min(m, n)], by
  panels of `size` columns.

  The first half of many panels is a loop: its program is that of one panel. The
  others have half of the rows and columns at most, and are done alike.
  """
  *batch, m, n = a.shape
  rank, k = len(batch), min(m, n)
  looped = _looped(k, size)
  if looped:
    a, first = _panel_loop(e, a, size, looped)
    begin = size * looped
    rows, columns = m - begin, n - begin
    rest, others = _panels(e, part(e, a, (0, rows), (0, columns)), size)
    low = [part(e, a, (0, rows), (columns, n)), rest]
    high = [
      part(e, a, (rows, m), (columns, n)),
      part(e, a, (rows, m), (0, columns)),
    ]
    both = [e.concatenate(pieces, rank + 1) for pieces in (high, low)]
    return e.concatenate(both, rank), e.concatenate([first, others], rank + 1)
  taus = []
  for begin in range(0, k, size):
    end = min(k, begin + size)
    panel = part(e, a, (begin, m), (begin, end))
    panel, tau = _panel(e, panel)
    a = put(e, a, panel, begin, begin)
    taus.append(tau)
    if end < n:
      rest = part(e, a, (begin, m), (end, n))
      v, factor, v_rest = _reflectors(e, panel, tau, rest)
      inner = e.matmul(_matrices.conjugate(e, factor), v_rest)
      rest = e.subtract(rest, e.matmul(v, inner))
      a = put(e, a, rest, begin, end)
  return a, e.concatenate(taus, rank + 1)


def _looped(k: int, size: int) -> int:
  """How many of the panels or blocks of k columns are in a loop: half of them,
  if they are many."""
  count = -(-k // size)
  return min(count // 2, 4) if count >= _MANY else 0


def _panel_loop(
  e: Emitter, a: Value, size: int, count: int
) -> tuple[Value, Value]:
  """The matrix [..., m, n] after `count` panels, and their tau.

  In each iteration the panel is at the top left, and rows and columns then move
  on by a panel: those that are finished go to the end. They stay there.
  """
  *batch, m, n = a.shape
  rank = len(batch)

  def step(i: Value, a: Value, taus: Value) -> list[Value]:
    done = e.multiply(i, size)
    old = part(e, a, (0, m), (0, size))
    rest = part(e, a, (0, m), (size, n))
    r, _ = _matrices.rows_columns(e, old.shape)
    own = e.compare(r, e.subtract(m, done), "LT")
    panel, tau = _panel(e, e.select(own, old, 0))
    v, factor, v_rest = _reflectors(e, panel, tau, rest)
    inner = e.matmul(_matrices.conjugate(e, factor), v_rest)
    r, c = _matrices.rows_columns(e, rest.shape)
    left = e.compare(r, e.subtract(m, done), "LT")
    left = e.and_(left, e.compare(c, e.subtract(n - size, done), "LT"))
    rest = e.select(left, e.subtract(rest, e.matmul(v, inner)), rest)
    pieces = [rest, e.select(own, panel, old)]
    pieces = [_moved_up(e, v, size, rank) for v in pieces]
    a = e.concatenate(pieces, rank + 1)
    taus = e.concatenate([taus, tau], rank + 1)
    return [a, part(e, taus, (0, 1), (size, taus.shape[-1]))]

  taus = e.constant(0, a.dtype, (*batch, 1, size * count))
  a, taus = e.fori_loop(count, [a, taus], step)
  return a, taus


def _moved_up(e: Emitter, a: Value, size: int, dimension: int) -> Value:
  """The first elements along a dimension behind the others."""
  n = a.shape[dimension]
  pieces = ((size, n), (0, size))
  return e.concatenate(
    [e.slice_in_dim(a, *piece, dimension) for piece in pieces], dimension
  )


def _panel(e: Emitter, panel: Value) -> tuple[Value, Value]:
  """The reflectors of a panel [..., m, b], and tau [..., 1, b]."""
  *batch, m, b = panel.shape
  rank = len(batch)
  wide = (*batch, 1, b)
  dtype = panel.dtype
  found = factors(e, FactorKind.QR, panel)
  if found is not None:
    return found[0], e.reshape(found[1], wide)
  place = e.iota(DType.I32, (*batch, m, 1), rank)

  def step(j: Value, a: Value, taus: Value) -> list[Value]:
    x = _matrices.column(e, a, j)
    v, tau, packed = reflector(e, x, place, j)
    across = e.matmul(_matrices.conjugate(e, v), a, transpose_lhs=True)
    turned = _matrices.conjugate(e, tau)
    across = e.multiply(across, broadcast(e, turned, wide))
    rest = e.subtract(
      a, e.multiply(broadcast(e, v, a.shape), broadcast(e, across, a.shape))
    )
    _, c = _matrices.rows_columns(e, a.shape)
    a = e.select(e.compare(c, j, "GT"), rest, a)
    a = e.select(e.compare(c, j, "EQ"), broadcast(e, packed, a.shape), a)
    here = e.compare(e.iota(DType.I32, wide, rank + 1), j, "EQ")
    return [a, e.select(here, broadcast(e, tau, wide), taus)]

  taus = e.constant(0, dtype, wide)
  a, taus = e.fori_loop(b, [panel, taus], step)
  return a, taus


def reflector(
  e: Emitter, x: Value, place: Value, head: Value, alpha: Value | None = None
) -> tuple[Value, Value, Value]:
  """The reflector I - tau v v^H that makes a column zero below an element.

  Args:
    x: columns [..., m, 1].
    place: the rows of their elements.
    head: the element's row, a scalar.
    alpha: the element [..., 1, 1], if the caller has it.

  Returns:
    v [..., m, 1], zero above `head` and one there; tau [..., 1, 1]; the column
    with the element's new value and v below it, packed as in LAPACK.
  """
  tall, rank = x.shape, len(x.shape) - 2
  one = (*tall[:-2], 1, 1)
  below = e.compare(place, head, "GT")
  at = e.compare(place, head, "EQ")
  alpha = _matrices.row(e, x, head) if alpha is None else alpha
  tail = e.select(below, x, 0)
  square = e.reduce(_matrices.square(e, tail), 0, (rank,), "add")
  square = e.reshape(square, one)
  norm = e.sqrt(e.add(_matrices.square(e, alpha), square))
  beta = e.select(e.compare(e.real(alpha), 0, "GE"), e.negate(norm), norm)
  rest = square
  if x.dtype in COMPLEX:  # even a purely imaginary alpha has to be rotated
    turned = e.imag(alpha)
    rest = e.add(rest, e.multiply(turned, turned))
  # Squares of smaller numbers have few digits, if any: these are left as is.
  tiny = float(np.finfo(NUMPY[square.dtype]).tiny)
  zero = e.compare(rest, tiny, "LT")
  diagonal = e.select(zero, alpha, e.convert(beta, x.dtype))
  shift = e.select(zero, 1, e.subtract(e.real(alpha), beta))
  tau = e.select(zero, 0, e.divide(e.negate(shift), beta))
  if x.dtype in COMPLEX:
    # With t = imag(alpha) / shift, alpha - beta is shift (1 + i t).
    t = e.select(zero, 0, e.divide(e.imag(alpha), shift))
    size = e.multiply(shift, e.add(e.multiply(t, t), 1))
    inverse = e.divide(1, size)
    inverse = e.complex(inverse, e.negate(e.multiply(t, inverse)))
    tail = e.multiply(tail, broadcast(e, inverse, tall))
    tau = e.complex(tau, e.multiply(tau, t))
  else:
    tail = e.divide(tail, broadcast(e, shift, tall))
  packed = e.select(at, broadcast(e, diagonal, tall), x)
  return e.select(at, 1, tail), tau, e.select(below, tail, packed)


def _reflectors(
  e: Emitter,
  panel: Value,
  tau: Value,
  rest: Value | int,
  begin: Value | int = 0,
) -> tuple[Value, Value, Value]:
  """V [..., m, b] and T^T [..., b, b] of the product of a panel's reflectors,
  of which the first has its one in row `begin`, and V^H times the `rest`
  [..., m, p]: a number p for an identity's columns.

  With D = diag(tau) and S the part of V^H V above the diagonal, T is
  (I + D S)^-1 D, which allows zeros in tau.
  """
  rank, b = len(panel.shape) - 2, panel.shape[-1]
  r, c = _matrices.rows_columns(e, panel.shape)
  if isinstance(begin, Value):
    c = e.add(c, begin)
  ones = e.select(e.compare(r, c, "EQ"), e.constant(1, panel.dtype, ()), 0)
  v = e.select(e.compare(r, c, "GT"), panel, ones)
  turned = _matrices.conjugate(e, v)
  if isinstance(rest, int):
    gram = e.matmul(v, turned, transpose_lhs=True)
    v_rest = part(e, _matrices.transpose(e, turned), (0, b), (0, rest))
  else:
    # One product takes fewer steps than two.
    both = e.concatenate([v, rest], rank + 1)
    both = e.matmul(turned, both, transpose_lhs=True)
    gram = _matrices.transpose(e, part(e, both, (0, b), (0, b)))
    v_rest = part(e, both, (0, b), (b, both.shape[-1]))
  scaled = e.multiply(gram, broadcast(e, tau, gram.shape))
  inverse = _matrices.lower_inverse(e, scaled, unit=True)
  down = _matrices.transpose(e, tau)
  return v, e.multiply(inverse, broadcast(e, down, gram.shape)), v_rest


def product(
  e: Emitter, matrix: Value, tau: Value, factor: Value | None = None
) -> Value:
  """The first n columns of the product Q of reflectors [..., m, n]; or Q times
  a `factor` [..., m, p]."""
  *batch, k = tau.shape
  size = max(min(k, _AT_ONCE), _matrices.block_size(k))
  return _blocks(e, matrix, e.reshape(tau, (*batch, 1, k)), factor, size)


def _blocks(
  e: Emitter, matrix: Value, tau: Value, factor: Value | None, size: int
) -> Value:
  """Like `product`, of `size` reflectors at a time, given tau [..., 1, k]. The
  last half of many blocks comes first, the others are a loop."""
  *_, m, n = matrix.shape
  k = tau.shape[-1]
  q = factor
  if q is None:
    q = _matrices.identity(e, matrix.shape, matrix.dtype)
  width = q.shape[-1]
  looped = _looped(k, size)
  if looped:
    begin = size * looped
    # The reflectors so far leave earlier columns of the identity unchanged.
    left = begin if factor is None else 0
    rest = None if factor is None else part(e, factor, (begin, m), (0, width))
    low = part(e, matrix, (begin, m), (begin, n))
    others = e.slice_in_dim(tau, begin, k, len(tau.shape) - 1)
    q = put(e, q, _blocks(e, low, others, rest, size), begin, left)
    return _block_loop(e, matrix, tau, q, size, looped, factor is None)
  for begin in range(0, k, size)[::-1]:
    left = begin if factor is None else 0
    end = min(k, begin + size)
    panel = part(e, matrix, (begin, m), (begin, end))
    own = part(e, tau, (0, 1), (begin, end))
    rest = part(e, q, (begin, m), (left, width))
    # The first ones are applied to an identity.
    whole = factor is None and end == k
    v, triangle, v_rest = _reflectors(
      e, panel, own, width - left if whole else rest
    )
    inner = e.matmul(triangle, v_rest, transpose_lhs=True)
    q = put(e, q, e.subtract(rest, e.matmul(v, inner)), begin, left)
  return q


def _block_loop(
  e: Emitter,
  matrix: Value,
  tau: Value,
  q: Value,
  size: int,
  count: int,
  square: bool,
) -> Value:
  """Applies the reflectors of the first blocks, the last one first, to a matrix
  [..., m, p], of which rows before a block's stay, and if `square` columns."""
  rank = len(matrix.shape) - 2

  def blocks(value: Value) -> Value:
    """[count, ..., m, size] of [..., m, n]."""
    *rows, _ = value.shape
    value = e.slice_in_dim(value, 0, count * size, rank + 1)
    value = e.reshape(value, (*rows, count, size))
    return e.transpose(value, [rank + 1, *range(rank + 1), rank + 2])

  panels, taus = blocks(matrix), blocks(tau)

  def step(i: Value, q: Value) -> list[Value]:
    at = e.subtract(count - 1, i)

    def own(value: Value) -> Value:
      shape = value.shape[1:]
      start: list[Value | int] = [at, *[0] * len(shape)]
      return e.reshape(e.dynamic_slice(value, start, (1, *shape)), shape)

    begin = e.multiply(at, size)
    v, triangle, v_rest = _reflectors(e, own(panels), own(taus), q, begin)
    inner = e.matmul(triangle, v_rest, transpose_lhs=True)
    own_rows, own_columns = (
      e.compare(x, begin, "GE") for x in _matrices.rows_columns(e, q.shape)
    )
    here = e.and_(own_rows, own_columns) if square else own_rows
    return [e.select(here, e.subtract(q, e.matmul(v, inner)), q)]

  return e.fori_loop(count, [q], step)[0]


define(
  Operation(
    "stablehlo.custom_call @Qr",
    check=_matrices.operands(),
    decompose=_geqrf,
  )
)
define(
  Operation(
    "stablehlo.custom_call @ProductOfElementaryHouseholderReflectors",
    check=_check_product,
    decompose=_product,
  )
)
