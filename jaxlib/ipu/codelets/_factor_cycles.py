"""The cost of factorisations: cycles of the vertices, and the words that tiles
which share a matrix's rows exchange.

Such tiles (parts) take one or two supersteps for every column. All of them know
the reflector, the pivot's row or the column that the others' rows need; sums
are over each tile's own rows. On one tile nothing is exchanged, and a column is
a few steps of the tile's workers.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.target import Target

# A step of all workers: the supervisor starts them and waits for them,
# `runall` and `sync` (PerformanceEstimation.hpp) [S]; a worker begins as in a
# reduction of contiguous regions, and so does each of its columns
# (reduction/CycleEstimationFunctions.cpp) [D].
STEP, START, _COLUMN = 6 + 6, 17, 12
# The largest of some elements, and its index: ReduceMaxClassSparse
# (popnnCycleEstimators.cpp) [S]: 3 cycles an element.
_LARGEST = 3
# Two elements of a column swapped: two loads, two stores, addresses [D].
_SWAP = 6

INVERSES = (FactorKind.INVERSE, FactorKind.UNIT_INVERSE)
# Kinds of which no tiles share the rows. Several may make an inverse, each with
# all of the matrix.
ON_ONE_TILE = (*INVERSES, FactorKind.ORTHONORMAL)
COMPLEX_KINDS = (
  FactorKind.COMPLEX_TRIDIAGONAL,
  FactorKind.COMPLEX_BIDIAGONAL,
)


class Rates(NamedTuple):
  """A worker's cycles.

  Attributes:
    dot: an element of a dot product.
    add: an element of y += f x, or of a sum of another worker or tile.
    copy: an element of a copy.
    divide: an element divided by a number.
    largest: an element in the search of the largest.
    reflect: a reflector's scalars from a norm: a root and its quotients.
    beside: an element of one more operand of a sum of products.
  """

  dot: float
  add: float
  copy: float
  divide: float
  largest: float
  reflect: float
  beside: float


@functools.cache
def rates(dtype: DType) -> Rates:
  """Rates from the loops over elements [D]: floats multiply and add in parallel
  with their loads, others after them."""
  work = functools.partial(_inner_loops.work, dtype=dtype)
  load = _inner_loops.LOAD[dtype]
  add, divide = work(Opcode.ADD), work(Opcode.DIV)
  issue = _inner_loops.ISSUE.get(dtype)
  both = 0.0 if issue else work(Opcode.MUL).proper + add.proper
  store = issue or add.loop
  quotient = _inner_loops.work(Opcode.DIV, dtype, broadcast=True).proper
  compare = 0.0 if issue else work(Opcode.GT).proper
  return Rates(
    dot=2 * load + both,
    add=2 * load + both + store,
    copy=load + store,
    divide=load + quotient + store,
    largest=_LARGEST + work(Opcode.ABS).proper + compare,
    reflect=work(Opcode.SQRT).proper + 3 * divide.proper + 4 * add.proper,
    beside=load + both,
  )


class Factoring(NamedTuple):
  """The cost of factoring one matrix.

  Attributes:
    cycles: of the vertices, including the launches of all supersteps but one.
    received, sent: words of the busiest tile [columns, supersteps of each].
    copied: words of a column's messages that are elements of the matrix, not
      computed [columns].
  """

  cycles: float
  received: Array
  sent: Array
  copied: Array


@functools.lru_cache(maxsize=4096)
def factoring(
  target: Target,
  kind: FactorKind,
  m: int,
  n: int,
  dtype: DType,
  parts: int = 1,
) -> Factoring:
  """The cost for a matrix [m, n] with its rows on `parts` tiles, as many on
  each."""
  is_complex = kind in COMPLEX_KINDS
  if parts == 1 or kind in INVERSES:
    none = np.zeros((0, 1))
    if parts > 1:
      alone = _inverse_rows(target, kind, n, dtype, parts)
    elif is_complex:
      alone = _complex_alone(target, kind, m, n, dtype)
    else:
      alone = _alone(target, kind, m, n, dtype)
    return Factoring(alone, none, none, none[:, 0])
  if is_complex:
    return _complex_together(target, kind, m, n, dtype, parts)
  return _together(target, kind, m, n, dtype, parts)


class _Workers:
  """The workers of a tile."""

  def __init__(self, target: Target) -> None:
    self.count = target.num_workers

  def share(self, things: Any) -> Any:
    """The share of the busiest worker."""
    return np.ceil(things / self.count)

  def steps(self, *works: Any) -> float:
    """Cycles of all steps whose workers take so many cycles each; arrays hold
    those of all columns."""
    w = self.count
    each = (np.sum(STEP + w * (START + np.ceil(work))) for work in works)
    return float(sum(each))


def _alone(
  target: Target, kind: FactorKind, m: int, n: int, dtype: DType
) -> float:
  workers, rate = _Workers(target), rates(dtype)
  share, steps = workers.share, workers.steps
  both = rate.dot + rate.add
  j = np.arange(min(m, n), dtype=np.float64)
  rows, right = m - j, n - j - 1  # what is left: rows, and a row's elements
  known = workers.count * rate.add  # sums of all workers
  norm = share(rows) * rate.dot
  found = known + rate.reflect + share(rows) * rate.divide
  reflected = share(right) * (2 * _COLUMN + rows * both)
  total = steps(share(m * n) * rate.copy)
  if kind is FactorKind.CHOLESKY:
    mean = (right + 1) / 2  # only what is below the diagonal
    return total + steps(
      rate.reflect + share(right) * rate.divide,
      share(right) * (_COLUMN + mean * rate.add),
    )
  if kind is FactorKind.LU:
    return total + steps(
      share(rows) * rate.largest,
      known + share(n) * _SWAP + share(rows - 1) * rate.divide,
      share(right) * (_COLUMN + (rows - 1) * rate.add),
    )
  if kind is FactorKind.QR:
    return total + steps(norm, found + reflected)
  if kind is FactorKind.ORTHONORMAL:
    # The reflectors are found, then applied once more, the last one first.
    return total + steps(
      norm, found + reflected, reflected, share(rows) * rate.divide
    )
  if kind in INVERSES:
    # Columns are independent: there is one step. A sixth of the products of
    # rows with them is not zero.
    column = n / 2 * (_COLUMN + rate.divide) + n * n / 6 * rate.add
    return total + steps(share(n) * column)
  if kind is FactorKind.BIDIAGONAL:
    turned = share(rows - 1) * (2 * _COLUMN + right * both)
    return total + steps(
      norm,
      found + reflected,
      share(right) * rate.dot,
      known + rate.reflect + turned,
    )
  below = rows[:-1] - 1  # rows of a reflector
  norm = share(below) * rate.dot
  found = known + rate.reflect + share(below) * rate.divide
  if kind is FactorKind.HESSENBERG:
    each = 2 * _COLUMN + below * both
    return total + steps(norm, found + share(n) * each, share(below) * each)
  return total + steps(
    norm,
    found + share(below) * (_COLUMN + below * rate.dot),
    known + share(below) * (_COLUMN + below * (rate.add + rate.beside)),
  )


def _inverse_rows(
  target: Target, kind: FactorKind, n: int, dtype: DType, parts: int
) -> float:
  """Rows of an inverse, which are independent, too: x of x L = e_i, whose
  elements are dot products of those after them with a column of L. The last
  tile has the longest."""
  workers, rate = _Workers(target), rates(dtype)
  each = n * _COLUMN + n * n / 2 * rate.dot
  if kind is FactorKind.INVERSE:
    each += n * rate.divide
  return workers.steps(
    workers.share(n * n) * rate.copy, workers.share(-(-n // parts)) * each
  )


def _together(
  target: Target, kind: FactorKind, m: int, n: int, dtype: DType, parts: int
) -> Factoring:
  """Each tile keeps its rows to the end, even when all are finished."""
  workers, rate = _Workers(target), rates(dtype)
  share, steps = workers.share, workers.steps
  own = -(-m // parts)
  j = np.arange(min(m, n), dtype=np.float64)
  rows, right = m - j, n - j - 1
  total = steps(share(own * n) * rate.copy)
  columns = share(right) * _COLUMN
  # Sums of the tile's rows for the next column, and with the remaining ones.
  sums = columns + share(right) * own * rate.dot
  update = columns + share(right) * own * rate.add
  combined = share(right + 1) * parts * rate.add + rate.reflect
  if kind is FactorKind.CHOLESKY:
    received, sent = rows, np.minimum(rows, own)
    copied = sent
    mean = (right + 1) / 2
    total += steps(
      rate.reflect + share(rows) * rate.divide,
      share(own) * (_COLUMN + mean * rate.add),
    )
  elif kind is FactorKind.LU:
    # The tile's candidate with its row, and row j from its owner.
    received, sent = parts * (n + 2.0) + n + 0 * j, 2.0 * n + 2 + 0 * j
    copied = 2.0 * n + 0 * j
    total += steps(
      parts * rate.largest + share(n) * _SWAP + share(own) * rate.divide,
      update,
      share(own) * rate.largest,
    )
  elif kind in (FactorKind.QR, FactorKind.BIDIAGONAL):
    # Sums of all tiles with their units, and row j from its owner.
    received, sent = parts * (right + 2) + right + 1, 2 * right + 3
    copied = right + 1
    total += steps(combined, update, sums)
    if kind is FactorKind.BIDIAGONAL:
      # All tiles know row j, and need no other rows.
      each = 2 * _COLUMN + right * (rate.dot + rate.add)
      total += steps(share(right) * rate.dot, rate.reflect + share(own) * each)
  else:
    below = rows[:-1] - 1
    norm = share(below) * rate.dot
    divided = workers.count * rate.add + rate.reflect
    divided = divided + share(below) * rate.divide
    copied = np.minimum(below, own)
    if kind is FactorKind.HESSENBERG:
      # Column j of all tiles; then sums of v^T A over the tile's rows.
      received = np.stack([below, parts * below], 1)
      sent = np.stack([copied, below], 1)
      each = 2 * _COLUMN + below * (rate.dot + rate.add)
      column = share(below) * _COLUMN
      total += steps(
        norm,
        divided,
        share(own) * each,
        column + share(below) * own * rate.dot,
        share(below) * parts * rate.add,
        column + share(below) * own * rate.add,
      )
    else:
      # Column j of all tiles; then A v of all tiles.
      received = np.stack([below, below], 1)
      sent = np.minimum(received, own)
      total += steps(
        norm,
        divided,
        share(own) * (_COLUMN + below * rate.dot),
        share(below) * rate.dot,
        share(own) * (_COLUMN + below * (rate.add + rate.beside)),
      )
  shape = len(copied), -1
  launches = target.launch_cycles * (received.size - 1)
  return Factoring(
    total + launches, received.reshape(shape), sent.reshape(shape), copied
  )


class _ComplexRates(NamedTuple):
  """A worker's cycles, for an element of two parts.

  Attributes:
    square: of a sum of squares.
    divide: divided by a number.
    dot: of a dot product.
    add: of y += f x.
    twice: of y += f x + g z.
    reflect: a reflector's scalars from a norm.
  """

  square: float
  divide: float
  dot: float
  add: float
  twice: float
  reflect: float


def _complex_rates(dtype: DType) -> _ComplexRates:
  """Each part of a product is the sum of two real ones, which take what they
  take of real elements."""
  rate = rates(dtype)
  return _ComplexRates(
    square=2 * rate.dot,
    divide=2 * (rate.divide + rate.beside),
    dot=4 * rate.dot,
    add=2 * (rate.add + rate.beside),
    twice=2 * (rate.add + 3 * rate.beside),
    reflect=2 * rate.reflect,
  )


def _complex_alone(
  target: Target, kind: FactorKind, m: int, columns: int, dtype: DType
) -> float:
  workers, rate = _Workers(target), _complex_rates(dtype)
  share, steps = workers.share, workers.steps
  n = columns // 2
  known = workers.count * rates(dtype).add + rate.reflect
  total = steps(share(m * columns) * rates(dtype).copy)
  if kind is FactorKind.COMPLEX_TRIDIAGONAL:
    below = n - np.arange(n - 1, dtype=np.float64) - 1
    each = _COLUMN + below * rate.dot
    return total + steps(
      share(below) * rate.square,
      known + share(below) * rate.divide + share(below + m - n) * each,
      share(below) * rate.square,
      share(below) * (_COLUMN + below * rate.twice)
      + share(m - n) * (_COLUMN + below * rate.add),
    )
  rows = n - np.arange(n, dtype=np.float64)
  right, further = rows - 1, (m - n) // 2
  down, across = (
    2 * _COLUMN + x * (rate.dot + rate.add) for x in (rows, right)
  )
  return total + steps(
    share(rows) * rate.square,
    known + share(rows) * rate.divide,
    share(right) * down + share(further) * down,
    share(right) * rate.square,
    known + share(right) * rate.divide,
    share(right + further) * across,
  )


def _complex_together(
  target: Target,
  kind: FactorKind,
  m: int,
  columns: int,
  dtype: DType,
  parts: int,
) -> Factoring:
  """In a column's first superstep all tiles get to know the column."""
  workers, rate = _Workers(target), _complex_rates(dtype)
  share, steps = workers.share, workers.steps
  n, own = columns // 2, -(-m // parts)
  known = workers.count * rates(dtype).add + rate.reflect
  total = steps(share(own * columns) * rates(dtype).copy)
  if kind is FactorKind.COMPLEX_TRIDIAGONAL:
    # Then A v of all tiles.
    below = n - np.arange(n - 1, dtype=np.float64) - 1
    received = np.stack([2 * below, 2 * below], 1)
    sent = np.minimum(received, 2 * own)
    copied = sent[:, 0]
    total += steps(
      share(below) * rate.square,
      known + share(below) * rate.divide,
      share(own) * (_COLUMN + below * rate.dot),
      share(below) * rate.square,
      share(own) * (_COLUMN + below * rate.twice),
    )
  else:
    # Then sums of v^H A over the rows of each tile that has any of A, and row j
    # from its owner. Other tiles turn their rows in the meantime.
    rows = n - np.arange(n, dtype=np.float64)
    right, tiles = rows - 1, -(-n // own)
    received = np.stack([2 * rows, 2 * (tiles + 1) * right], 1)
    sent = np.stack([2 * np.minimum(rows, own), 4 * right], 1)
    copied = sent[:, 0] + 2 * right
    down, across = (
      share(own) * (2 * _COLUMN + x * (rate.dot + rate.add))
      for x in (rows, right)
    )
    sums = share(right) * (_COLUMN + own * rate.dot)
    total += steps(
      share(rows) * rate.square,
      known + share(rows) * rate.divide,
      np.maximum(sums, down if m > n else 0),
      share(2 * right) * tiles * rates(dtype).add,
      share(right) * (_COLUMN + own * rate.add),
      share(right) * rate.square,
      known + share(right) * rate.divide,
      across,
    )
  launches = target.launch_cycles * (received.size - 1)
  return Factoring(total + launches, received, sent, copied)


def copies(target: Target, dtype: DType, words: Array) -> float:
  """Cycles of copies of so many words each, by all workers of a tile in a step
  that they take anyway."""
  workers = _Workers(target)
  share = np.ceil(workers.share(words) * rates(dtype).copy)
  return float(workers.count * share.sum())
