"""Plans how many tiles share the rows of a matrix factorisation, and what it
costs."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets._factor_cycles import INVERSES, factoring
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves import messages
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.target import Target


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
    room = 2 * each * -(-m // parts) * n + (parts > 1) * (parts + 1) * (n + 2)
    if room * SIZE[dtype] > target.bytes_for_products:
      continue
    took = factoring(target, kind, m, n, dtype, parts)
    exchange = epilogue(target, kind, m, n, dtype, parts, 1).cost
    cycles = each * (took.cycles + cost.cycles(exchange))
    if best is None or cycles < best.cycles:
      best = Teams(teams, parts, cycles)
  return best


def _candidates(target: Target, kind: FactorKind, m: int) -> list[int]:
  """Numbers of tiles per matrix to try: one tile, or so many that each worker
  has one row, two, four and so on. An inverse, whose columns are independent,
  is made on one tile."""
  found = {1}
  own = target.num_workers
  while own < m and kind not in INVERSES:
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
) -> cost.Epilogue:
  """The exchanges between tiles that share matrices, in all supersteps.

  Args:
    target: the machine.
    kind, m, n, dtype, parts: see `factoring`.
    each: number of matrices that a tile factors one after the other.
    layout: the mapping of the matrices. If given, buffers are counted, too.
    count: number of matrices.
  """
  took = factoring(target, kind, m, n, dtype, parts)
  supersteps = len(took.received)
  if not supersteps:
    return cost.Epilogue(cost.superstep(target))
  size = SIZE[dtype]
  exchanged = each * float(
    cost.exchange_cycles(target, took.received * size, took.sent * size).sum()
  )
  sync = float(each * supersteps * target.sync_cycles)
  total = cost.Sourced(
    compute_cycles=0.0,
    exchange_cycles=exchanged,
    sync_cycles=sync,
    exchange_bytes=float(took.received.sum()) * size * parts * count,
    flops=0.0,
    derived=sync + each * supersteps * target.route_cycles,
  )
  buffers = None
  if layout is not None:
    buffers = np.zeros(target.num_tiles, np.int64)
    buffers[layout.tiles()] = int(took.received.max()) * size
  # In each superstep a tile sends one message, which all others listen to, and
  # receives at most one from each of them, of at least one element.
  words = sum(
    messages.row_words(1, min(parts - 1, int(x)))
    for x in took.received.tolist()
  )
  return cost.Epilogue(total, buffers, supersteps, words)
