"""Jacobi rotations in parallel, for eigenvalues and singular values.

In a round each row has a partner, and all pairs are rotated at once; then the
rows move on as in a tournament, so that after n - 1 rounds, a sweep, each row
has met each other one and all are back in place (Brent and Luk, "The solution
of singular-value and symmetric eigenvalue problems on multiprocessor arrays",
1985). The first half of the rows meets the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxlib.ipu.dtypes import COMPLEX, NUMPY, PLANE, DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Value
from jaxlib.ipu.ops import _matrices
from jaxlib.ipu.ops._matrices import broadcast, halves

# Sweeps converge quadratically: one that meets nothing larger than this,
# relative to what it rotates, leaves only rounding errors.
_CONVERGED = {DType.F32: 1e-5, DType.F64: 1e-11}
# A limit for matrices that never converge, such as those with NaN.
_MOST_SWEEPS = 40
# A matrix is graded if the lengths of its rows or columns differ by more: fewer
# digits than these are lost by an error relative to the longest [G].
_GRADED = 16


def rotation(
  e: Emitter, p: Value, q: Value, between: Value
) -> tuple[Value, Value]:
  """The sine of the angle that makes [[p, between], [between, q]] diagonal, and
  the tangent of half the angle."""
  t = tangent(e, p, q, between)
  root = e.sqrt(e.add(e.multiply(t, t), 1))
  # With c = 1 / root: s / (1 + c) is t / (1 + root).
  return e.divide(t, root), e.divide(t, e.add(root, 1))


def tangent(e: Emitter, p: Value, q: Value, between: Value) -> Value:
  """The tangent of that angle, which is at most 1: the diagonal elements become
  p - t * between and q + t * between."""
  none = e.compare(between, 0, "EQ")
  twice = e.select(none, 1, e.multiply(between, 2))
  zeta = e.divide(e.subtract(q, p), twice)
  root = e.sqrt(e.add(e.multiply(zeta, zeta), 1))
  t = e.divide(1, e.add(e.abs(zeta), root))
  t = e.select(e.compare(zeta, 0, "LT"), e.negate(t), t)
  return e.select(none, 0, t)


def rotate(
  e: Emitter, first: Value, second: Value, s: Value, h: Value
) -> tuple[Value, Value]:
  """Rotates two arrays, real or complex; results of `rotation` have extent 1
  where they are broadcast.

  c * first - s * second and s * first + c * second in Rutishauser's form, which
  avoids the rounding of c that would add up over the rounds.
  """
  s, h = broadcast(e, s, first.shape), broadcast(e, h, first.shape)
  times = _matrices.scale
  up = times(e, e.add(second, times(e, first, h)), s)
  down = times(e, e.subtract(first, times(e, second, h)), s)
  return e.subtract(first, up), e.add(second, down)


def move_on(e: Emitter, first: Value, second: Value, dimension: int) -> Value:
  """Both halves, arranged for the next round; the very first row stays."""
  n = first.shape[dimension]
  if n == 1:
    return e.concatenate([first, second], dimension)
  pieces = [
    e.slice_in_dim(first, 0, 1, dimension),
    e.slice_in_dim(second, 0, 1, dimension),
    e.slice_in_dim(first, 1, n - 1, dimension),
    e.slice_in_dim(second, 1, n, dimension),
    e.slice_in_dim(first, n - 1, n, dimension),
  ]
  return e.concatenate(pieces, dimension)


def sweeps(
  e: Emitter,
  values: Sequence[Value],
  rounds: int,
  turn: Callable[..., Sequence[Value]],
  rare: bool,
) -> list[Value]:
  """Runs sweeps until one meets nothing that is left to rotate.

  Args:
    values: changed by rounds.
    rounds: of a sweep.
    turn: (values) -> the largest element to rotate, a scalar relative to what
      it rotates; then the new values.
    rare: whether the cost analysis, which counts one iteration of a loop whose
      end data decide, is to count a round, since few matrices need any.
      Otherwise it counts a sweep, and each round is a little cheaper.
  """
  dtype = PLANE.get(values[0].dtype, values[0].dtype)
  zero = e.constant(0, DType.I32, ())

  def left(met: Value) -> Value:
    return e.compare(met, _CONVERGED[dtype], "GT")

  def some(_: Value, ahead: Value, *__: Value) -> Value:
    return e.compare(ahead, 0, "GT")

  def a_round(i: Value, ahead: Value, *values: Value) -> list[Value]:
    met, *values_ = turn(*values)
    # The rounds ahead are those of this sweep, or also those of the next.
    last = e.compare(ahead, rounds, "LE")
    last = e.and_(last, e.compare(i, (_MOST_SWEEPS - 1) * rounds, "LT"))
    more = e.constant(rounds - 1, DType.I32, ())
    more = e.select(
      e.and_(last, left(met)), more, e.constant(-1, DType.I32, ())
    )
    return [e.add(i, 1), e.add(ahead, more), *values_]

  if rare:
    first = [zero, e.constant(rounds, DType.I32, ())]
    return e.while_loop([*first, *values], some, a_round)[2:]

  def unfinished(i: Value, met: Value, *_: Value) -> Value:
    return e.and_(left(met), e.compare(i, _MOST_SWEEPS, "LT"))

  def sweep(i: Value, _: Value, *values: Value) -> list[Value]:
    def one(_: Value, most: Value, *values: Value) -> list[Value]:
      met, *values_ = turn(*values)
      return [e.maximum(most, met), *values_]

    start = e.constant(0, dtype, ())
    return [e.add(i, 1), *e.fori_loop(rounds, [start, *values], one)]

  first = [zero, e.constant(1, dtype, ())]
  return e.while_loop([*first, *values], unfinished, sweep)[2:]


def largest(e: Emitter, value: Value) -> Value:
  """The largest of all elements, which are nonnegative."""
  return e.reduce(value, 0, range(len(value.shape)), "maximum")


def orthogonal_rows(e: Emitter, rows: Value, n: int, rare: bool) -> Value:
  """Rotates rows until their first n elements are orthogonal; `rare` as in
  `sweeps`."""
  *batch, even, width = rows.shape
  rank = len(batch)
  half = even // 2

  def turn(rows: Value) -> list[Value]:
    first, second = halves(e, rows, rank)
    x, y = (_matrices.part(e, v, (0, half), (0, n)) for v in (first, second))
    products = [_matrices.square(e, v) for v in (x, y)]
    products.append(e.multiply(x, _matrices.conjugate(e, y)))
    p, q, between = (e.reduce(v, 0, (rank + 1,), "add") for v in products)
    if rows.dtype in COMPLEX:  # multiply by a phase to make the product real
      phase = e.reshape(_matrices.phase(e, between), (*batch, half, 1))
      second = e.multiply(second, broadcast(e, phase, second.shape))
      between = e.abs(between)
    norm = e.multiply(e.sqrt(p), e.sqrt(q))
    norm = e.select(e.compare(norm, 0, "GT"), norm, 1)
    met = largest(e, e.divide(e.abs(between), norm))
    angles = (
      e.reshape(v, (*batch, half, 1)) for v in rotation(e, p, q, between)
    )
    moved = rotate(e, first, second, *angles)
    return [met, move_on(e, *moved, rank)]

  (rows,) = sweeps(e, [rows], even - 1, turn, rare)
  return rows


def graded(e: Emitter, lengths: Value) -> Value:
  """Whether the lengths [..., n] of rows, other than 0, differ much: [...].
  Matrices that are not finite are not graded."""
  rank = len(lengths.shape) - 1
  most = e.reduce(lengths, 0, (rank,), "maximum")
  least = e.select(e.compare(lengths, 0, "GT"), lengths, np.inf)
  least = e.reduce(least, np.inf, (rank,), "minimum")
  found = e.compare(e.multiply(least, _GRADED), most, "LT")
  return e.and_(found, e.is_finite(most))


def diagonal(e: Emitter, matrix: Value) -> Value:
  """Whether all elements of [..., n, n] off the diagonal are 0: [...]."""
  rank = len(matrix.shape) - 2
  r, c = _matrices.rows_columns(e, matrix.shape)
  other = e.and_(e.compare(r, c, "NE"), e.compare(matrix, 0, "NE"))
  other = e.convert(other, DType.I32)
  most = e.reduce(other, 0, (rank, rank + 1), "maximum")
  return e.compare(most, 0, "EQ")


def diagonal_rows(e: Emitter, rows: Value, rare: bool) -> tuple[Value, Value]:
  """Rotates rows and columns of Hermitian matrices A until they are diagonal.

  Args:
    rows: [A, V^H], of shape [..., n, 2 n].
    rare: as in `sweeps`.

  Returns:
    The diagonal [..., n], and the rotated rows of V^H [..., n, n].
  """
  *batch, n, _ = rows.shape
  rank = len(batch)
  if n % 2:  # one more row and column of zeros
    a, v = (_matrices.part(e, rows, (0, n), (i, i + n)) for i in (0, n))
    pad = [0] * rank
    a, v = (e.pad(x, 0, [0] * (rank + 2), [*pad, 1, 1]) for x in (a, v))
    rows = e.concatenate([a, v], rank + 1)
  even = n + n % 2
  half = even // 2
  dtype = PLANE.get(rows.dtype, rows.dtype)
  eps = float(np.finfo(NUMPY[dtype]).eps)

  def turn(rows: Value) -> list[Value]:
    a = _matrices.part(e, rows, (0, even), (0, even))
    p, q = halves(e, e.real(_matrices.diagonal(e, a, 0, even)), rank)
    between = _matrices.diagonal(e, a, half, half)
    phase = None
    if rows.dtype in COMPLEX:  # multiply by a phase to make the element real
      phase = _matrices.phase(e, between)
      between = e.abs(between)
    p_size, q_size = e.abs(p), e.abs(q)
    norm = e.multiply(e.sqrt(p_size), e.sqrt(q_size))
    norm = e.maximum(norm, e.multiply(e.maximum(p_size, q_size), eps))
    norm = e.select(e.compare(norm, 0, "GT"), norm, 1)
    met = largest(e, e.divide(e.abs(between), norm))
    s, h = rotation(e, p, q, between)

    def rotated(value: Value, dimension: int, phase: Value | None) -> Value:
      wide = list(value.shape[:rank]) + [1, 1]
      wide[dimension] = half
      first, second = halves(e, value, dimension)
      if phase is not None:
        phase = broadcast(e, e.reshape(phase, wide), second.shape)
        second = e.multiply(second, phase)
      angles = (e.reshape(v, wide) for v in (s, h))
      return move_on(e, *rotate(e, first, second, *angles), dimension)

    rows = rotated(rows, rank, phase)
    a = _matrices.part(e, rows, (0, even), (0, even))
    v = _matrices.part(e, rows, (0, even), (even, 2 * even))
    if phase is not None:
      phase = _matrices.conjugate(e, phase)
    a = rotated(a, rank + 1, phase)
    return [met, e.concatenate([a, v], rank + 1)]

  (rows,) = sweeps(e, [rows], even - 1, turn, rare)
  a = _matrices.part(e, rows, (0, even), (0, even))
  values = e.real(_matrices.diagonal(e, a, 0, n))
  return values, _matrices.part(e, rows, (0, n), (even, even + n))


def sort_rows(e: Emitter, keys: Value, rows: Value, descending: bool) -> Value:
  """Rows [..., n, m] in the order of their keys [..., n]."""
  return moved_rows(e, rows, places(e, keys, descending))


def places(e: Emitter, keys: Value, descending: bool) -> Value:
  """The place of each key [..., n] in their order."""
  *batch, n = keys.shape
  rank = len(batch)
  shape = (*batch, n, n)
  mine = broadcast(e, e.reshape(keys, (*batch, n, 1)), shape)
  other = broadcast(e, e.reshape(keys, (*batch, 1, n)), shape)
  if descending:
    mine, other = other, mine
  r, c = _matrices.rows_columns(e, shape)
  earlier = e.and_(e.not_(e.compare(mine, other, "LT")), e.compare(c, r, "LT"))
  before = e.or_(e.compare(other, mine, "LT"), earlier)
  return e.reduce(e.convert(before, DType.I32), 0, (rank + 1,), "add")


def moved_rows(e: Emitter, rows: Value, place: Value) -> Value:
  """Rows [..., n, m], each at its place [..., n]: a permutation."""
  *batch, n = place.shape
  rank = len(batch)
  if rows.dtype in COMPLEX:  # both parts at once
    m = rows.shape[-1]
    both = e.concatenate([e.real(rows), e.imag(rows)], rank + 1)
    both = moved_rows(e, both, place)
    parts = (e.slice_in_dim(both, k, k + m, rank + 1) for k in (0, m))
    return e.complex(*parts)
  dims = tuple(range(rank))
  to_rows = Indexing(
    (rank + 1,), (rank,), dims, dims, (rank,), rank + 1, unique=True
  )
  index = e.reshape(place, (*batch, n, 1))
  return e.scatter(rows, index, rows, to_rows, "set")


def closer(e: Emitter, rows: Value) -> Value:
  """Rows that are orthonormal up to rounding of many rotations, without it: a
  step of Newton's iteration for the closest unitary matrix."""
  stack = _matrices.stacked(e, rows)
  whole = _matrices.embedded(e, stack, rows.dtype)
  gram = e.matmul(whole, stack, transpose_lhs=True)
  change = e.matmul(whole, e.multiply(gram, -0.5))
  stack = e.add(e.multiply(stack, 1.5), change)
  return _matrices.unstacked(e, stack, rows.dtype)
