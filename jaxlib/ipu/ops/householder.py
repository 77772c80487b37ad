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
_AT_ONCE = 64


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
  size = panel_width(
    e, FactorKind.QR, a.shape, a.dtype, _matrices.block_size(k)
  )
  taus = []
  for begin in range(0, k, size):
    end = min(k, begin + size)
    panel = part(e, a, (begin, m), (begin, end))
    panel, tau = _panel(e, panel)
    a = put(e, a, panel, begin, begin)
    taus.append(e.reshape(tau, (*batch, end - begin)))
    if end < n:
      rest = part(e, a, (begin, m), (end, n))
      v, factor, v_rest = _reflectors(e, panel, tau, rest)
      inner = e.matmul(_matrices.conjugate(e, factor), v_rest)
      rest = e.subtract(rest, e.matmul(v, inner))
      a = put(e, a, rest, begin, end)
  if not k:
    return a, e.constant(0, a.dtype, (*batch, 0))
  return a, e.concatenate(taus, len(batch))


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
  e: Emitter, panel: Value, tau: Value, rest: Value | int
) -> tuple[Value, Value, Value]:
  """V [..., m, b] and T^T [..., b, b] of the product of a panel's reflectors,
  and V^H times the `rest` [..., m, p]: a number p for an identity's columns.

  With D = diag(tau) and S the part of V^H V above the diagonal, T is
  (I + D S)^-1 D, which allows zeros in tau.
  """
  rank, b = len(panel.shape) - 2, panel.shape[-1]
  r, c = _matrices.rows_columns(e, panel.shape)
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
  *batch, m, n = matrix.shape
  k = tau.shape[-1]
  size = max(min(k, _AT_ONCE), _matrices.block_size(k))
  q = factor
  if q is None:
    q = _matrices.identity(e, matrix.shape, matrix.dtype)
  width = q.shape[-1]
  for begin in range(0, k, size)[::-1]:
    # The reflectors so far leave earlier columns of the identity unchanged.
    left = begin if factor is None else 0
    end = min(k, begin + size)
    panel = part(e, matrix, (begin, m), (begin, end))
    own = e.slice(tau, [*[0] * len(batch), begin], [*batch, end])
    own = e.reshape(own, (*batch, 1, end - begin))
    rest = part(e, q, (begin, m), (left, width))
    # The first ones are applied to an identity.
    whole = factor is None and end == k
    v, triangle, v_rest = _reflectors(
      e, panel, own, width - left if whole else rest
    )
    inner = e.matmul(triangle, v_rest, transpose_lhs=True)
    q = put(e, q, e.subtract(rest, e.matmul(v, inner)), begin, left)
  return q


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
