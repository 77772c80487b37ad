"""Plans how many tiles share the rows of a matrix factorisation, and what it
costs.

Exchanges between these tiles have the same senders and receivers for all
columns, but for the owner of the column's row (`_WITH_ROW`), and never get
longer. They can therefore be a loop, whose iterations repeat the exchange of
the first: the code is that of one column, and later columns send some words
that nobody needs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets._factor_cycles import (
  INVERSES,
  ON_ONE_TILE,
  Factoring,
  copies,
  factoring,
)
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.moves import messages
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.target import Target

# How much longer a factorisation may take to have less code; and if the program
# has more than fits [G].
_LONGER, _MUCH_LONGER = 1.02, 1.1
# Larger inverses are made by blocks, whose products are faster than the longest
# rows [D]; and what those of several tiles may take of one's cycles, as the
# matrix has to be sent to all of them [G].
_MOST_ROWS, _WORTH_SENDING = 32, 0.75
# Kinds of which each column needs its row of the matrix from its owner.
_WITH_ROW = frozenset(
  {
    FactorKind.LU,
    FactorKind.QR,
    FactorKind.BIDIAGONAL,
    FactorKind.COMPLEX_BIDIAGONAL,
  }
)


class Teams(NamedTuple):
  """How matrices are distributed over tiles.

  Attributes:
    teams: number of matrices that are factored at a time.
    parts: number of tiles that share the rows of one matrix.
    cycles: of vertices and exchanges, for all matrices.
  """

  teams: int
  parts: int
  cycles: float


@functools.lru_cache(maxsize=4096)
def plan(
  target: Target, kind: FactorKind, count: int, m: int, n: int, dtype: DType
) -> Teams | None:
  """The cheapest distribution of `count` matrices [m, n]; None if none fits."""
  best = None
  for parts in _candidates(target, kind, m):
    teams = min(count, target.num_tiles // parts)
    each = -(-count // teams)
    # Elements on a tile: its rows of arguments and results, and the buffer for
    # what the other tiles send.
    own = -(-m // parts)
    room = 2 * each * own * n + (parts > 1) * (parts + 1) * (n + 2)
    if kind in INVERSES:
      room = each * (m + own) * n
    if room * SIZE[dtype] > target.bytes_for_products:
      continue
    took = factoring(target, kind, m, n, dtype, parts)
    exchange = epilogue(target, kind, m, n, dtype, parts, 1).cost
    cycles = each * (took.cycles + cost.cycles(exchange))
    share = _WORTH_SENDING if kind in INVERSES else 1.0
    if best is None or cycles < share * best.cycles:
      best = Teams(teams, parts, cycles)
  return best


def _candidates(target: Target, kind: FactorKind, m: int) -> list[int]:
  """Numbers of tiles per matrix to try: one tile, or so many that each worker
  has one row, two, four and so on."""
  found, own = {1}, target.num_workers
  if kind in ON_ONE_TILE and (kind not in INVERSES or m > _MOST_ROWS):
    return [1]
  while own < m:
    parts = -(-m // own)
    if parts <= target.num_tiles:
      found.add(parts)
    own *= 2
  return sorted(found)


def epilogue(
  target: Target,
  kind: FactorKind,
  m: int,
  n: int,
  dtype: DType,
  parts: int,
  each: int,
  layout: Layout | None = None,
  count: int = 1,
  repeats: bool = False,
) -> cost.Epilogue:
  """The exchanges between tiles that share matrices, in all supersteps.

  Args:
    target: the machine.
    kind, m, n, dtype, parts: see `factoring`.
    each: number of matrices that a tile factors one after the other.
    layout: the mapping of the matrices. If given, buffers are counted, too.
    count: number of matrices.
    repeats: whether less code is worth more cycles (`Choices.repeats`).
  """
  took = factoring(target, kind, m, n, dtype, parts)
  if not took.received.size:
    return cost.Epilogue(cost.superstep(target))
  size = SIZE[dtype]
  found = _schedule(target, kind, m, dtype, parts, took, repeats)
  supersteps = took.received.size
  sync = float(each * supersteps * target.sync_cycles)
  loop = each * found.loop_cycles
  total = cost.Sourced(
    compute_cycles=loop,
    exchange_cycles=each * found.exchange_cycles,
    sync_cycles=sync,
    exchange_bytes=float(found.received.sum()) * size * parts * count,
    flops=0.0,
    derived=loop + sync + each * supersteps * target.route_cycles,
  )
  buffers = None
  if layout is not None:
    buffers = np.zeros(target.num_tiles, np.int64)
    buffers[layout.tiles()] = int(took.received.max()) * size
  # In each superstep a tile sends one message, which all others listen to, and
  # receives at most one from each of them, of at least one element.
  received = found.received[found.starts].reshape(-1).tolist()
  words = sum(messages.row_words(1, min(parts - 1, int(x))) for x in received)
  return cost.Epilogue(total, buffers, len(received), words, found.loops)


class _Schedule(NamedTuple):
  """The exchanges of one matrix.

  Attributes:
    starts: columns whose exchanges have code, which the next columns repeat.
    loops: number of those that any others repeat.
    received: words of the busiest tile [columns, supersteps of each].
    exchange_cycles: of all columns.
    loop_cycles: of loops and of copies that unrolled exchanges do not need.
  """

  starts: Array
  loops: int
  received: Array
  exchange_cycles: float
  loop_cycles: float

  @property
  def cycles(self) -> float:
    """All of them."""
    return self.exchange_cycles + self.loop_cycles


def _schedule(
  target: Target,
  kind: FactorKind,
  m: int,
  dtype: DType,
  parts: int,
  took: Factoring,
  repeats: bool,
) -> _Schedule:
  """The longest loops that are not charged much more than none."""
  columns, supersteps = took.received.shape
  longest = -(-m // parts) if kind in _WITH_ROW else columns
  unrolled = _looped(target, dtype, took, columns, 1)
  most = took.cycles + columns * supersteps * target.sync_cycles
  longer = _MUCH_LONGER if repeats else _LONGER
  most = longer * (most + unrolled.cycles) - most
  length = longest = min(longest, columns)
  pieces = 1
  while length > 1:
    found = _looped(target, dtype, took, longest, length)
    if found.cycles <= most:
      return found
    pieces *= 2
    length = -(-longest // pieces)
  return unrolled


def _looped(
  target: Target, dtype: DType, took: Factoring, group: int, length: int
) -> _Schedule:
  """Loops over `length` columns each, and the rest of each `group`."""
  columns = len(took.received)
  j = np.arange(columns)
  starts = np.flatnonzero(j % group % length == 0)
  counts = np.diff(starts, append=columns)
  # The first column of each loop has most words.
  received, sent = (
    np.repeat(x[starts], counts, 0) for x in (took.received, took.sent)
  )
  size = SIZE[dtype]
  exchanged = cost.exchange_cycles(target, received * size, sent * size).sum()
  repeated = np.repeat(counts > 1, counts)
  # Exchanges in loops send from the same place in every iteration.
  loop = copies(target, dtype, took.copied[repeated])
  loop += target.branch_cycles * int(repeated.sum())
  loops = int((counts > 1).sum())
  return _Schedule(starts, loops, received, float(exchanged), loop)
