"""Cycles of the vertices for a block of a matrix product."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import _inner_loops, reduce
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  all_derived,
  choose,
  derived,
  least,
  most,
  up,
)
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.target import Target

# Weights of a convolution unit: a chain of 4, each 64 bits wide
# (poplin/PerformanceEstimation.hpp) [S].
_CHAIN = 4


class Block(NamedTuple):
  """The extents of a tile's block; arrays for many candidates.

  Attributes:
    batch: number of products.
    rows: rows of the left operands, a vertex's field.
    columns: columns of the right operands, its output channels.
    depth: terms of a sum, its input channels.
  """

  batch: Any
  rows: Any
  columns: Any
  depth: Any

  def turned(self) -> Block:
    """The block of the transposed product."""
    return Block(self.batch, self.columns, self.rows, self.depth)


def _unit(target: Target, dtype: DType, accumulate: DType) -> tuple[int, int]:
  """Convolution units in use and the input channels that they take.

  f16 with f32 partials has half the units of f16 with f16 partials; the
  target's rates determine their number.
  """
  if dtype == DType.F32:
    return target.fp32_macs, _CHAIN * 2
  units = target.fp16_macs // _CHAIN
  if accumulate == DType.F16 and target.coefficient_load_bytes >= 16:
    units *= 2
  return units, _CHAIN * 4


def _f16_worker(rows: Any, zeroing: bool) -> Any:
  """A worker's cycles on `rows` rows, f16 operands.

  createConvPartial1x1 in poplin/PerformanceEstimation.hpp [S]. Keeping state
  between calls saves 7.
  """
  few, many = ((21, 32, 41), 37) if zeroing else ((22, 33, 42), 38)
  long = many + 4 * (rows - 3)
  short = choose(rows == 0, few[0], choose(rows == 1, few[1], few[2]))
  return choose(rows >= 3, long, short) - 7


def _f32_worker(rows: Any, units: int, zeroing: bool) -> Any:
  """Like `_f16_worker`, for f32 operands [S]."""
  zero = (8 if units >= 16 else 4) if zeroing else 0
  z = 2 if zeroing else 0
  long = 46 + z + zero * rows + 8 * (rows - 3)
  short = choose(
    rows == 0,
    24,
    choose(rows == 1, 47 + z + zero, 46 + z + 2 * zero),
  )
  return choose(rows >= 3, long, short)


def _pass(
  rows: Any, dtype: DType, units: int, workers: int, zeroing: bool
) -> Any:
  """Cycles of all workers over all rows for one set of weights."""
  lowest = rows // workers
  highest = up(rows / workers)
  if dtype == DType.F32:
    a, b = (_f32_worker(r, units, zeroing) for r in (highest, lowest))
  else:
    a, b = (_f16_worker(r, zeroing) for r in (highest, lowest))
  # Two rows can take longer than three. A worker without rows exits at once.
  slow = most(a, choose(lowest == 0, 0, b))
  fast = choose(lowest == 0, 0, least(a, b))
  return most(workers * slow, workers * fast + 14)


def amp_cycles(
  target: Target,
  dtype: DType,
  accumulate: DType,
  block: Block,
) -> Any:
  """ConvPartial1x1Out: rows through weights of (depth, columns).

  poplin/PerformanceEstimation.hpp [S]; with one group of each kind and f16
  partials it is compared with 128 points measured on a Bow. Coefficients are
  loaded at `Target.coefficient_load_bytes` per cycle.
  """
  batch, rows, columns, depth = block
  units, chain = _unit(target, dtype, accumulate)
  item = 2 if dtype == DType.F16 else 4
  load_cycles = units * chain * item / target.coefficient_load_bytes
  in_groups = up(depth / chain)
  out_groups = up(columns / units)
  workers = target.num_workers
  first = _pass(rows, dtype, units, workers, True)
  others = _pass(rows, dtype, units, workers, False)
  launch = 50 + workers * (7 + 3 * (in_groups * batch - 1))
  accumulated = (in_groups - 1) * (
    15 + out_groups * (19 + 6 + load_cycles + others)
  )
  zeroed = 11 + out_groups * (18 + 7 + load_cycles + first)
  return launch + batch * (13 + accumulated + zeroed)


class _HorizontalMac(NamedTuple):
  """ConvPartialHorizontalMac: dot products on the vector unit.

  poplin/PerformanceEstimation.hpp [S], with all of the depth as one group. f16
  operands with f32 partials have the vertex for 1x1 kernels.

  Attributes:
    start: cycles of the supervisor.
    worker: of a worker, once for each column.
    row: of a dot product, without its terms.
    zeroes: whether each column's partials are zeroed first.
    columns: columns that a worker takes at a time.
  """

  start: int
  worker: int
  row: int
  zeroes: bool
  columns: int

  @classmethod
  def of(cls, dtype: DType, accumulate: DType) -> _HorizontalMac:
    if dtype == DType.F32:
      return cls(58 + 54, 16 + 19 + 16, 7 + 7, True, 1)
    if accumulate == DType.F16:
      return cls(65 + 60 + 36, 10 + 19 + 16, 7 + 10, True, 2)
    return cls(55 + 54 + 90, 1 + 13 + 1 + 16, 2 + 6, False, 1)

  def cycles(
    self, workers: int, batch: Any, columns: Any, rows: Any, terms: Any
  ) -> Any:
    """Cycles of `batch` products if in each of `columns` the slowest worker has
    `rows` dot products, `terms` vectors of terms in all."""
    column = 10 + workers * (self.worker + rows * self.row + terms)
    if self.zeroes:
      column = column + workers * (up(rows / 2) + 5)
    return self.start + batch * (23 + 15 + up(columns / self.columns) * column)


def hmac_cycles(
  target: Target,
  dtype: DType,
  accumulate: DType,
  block: Block,
) -> Any:
  """Dot products on the vector unit, one per row and column; the workers share
  the rows."""
  rows = up(block.rows / target.num_workers)
  terms = rows * up(block.depth / _inner_loops.VECTOR[dtype])
  vertex = _HorizontalMac.of(dtype, accumulate)
  return vertex.cycles(
    target.num_workers, block.batch, block.columns, rows, terms
  )


def shared_cycles(
  target: Target, dtype: DType, accumulate: DType, block: Block
) -> Any:
  """Like `hmac_cycles`, for one column, where each worker takes as many terms,
  wherever they begin and end in the rows, one after the other. A second pass
  adds up the sums of rows that several workers have terms of, as in reductions
  whose outputs several workers share [D]."""
  workers = target.num_workers
  batch, rows, _, depth = block
  row = up(depth / _inner_loops.VECTOR[dtype])
  share = up(rows * row / workers)
  started = [worker * share // row for worker in range(workers)]
  ended = [
    up(least((worker + 1) * share, rows * row) / row)
    for worker in range(workers)
  ]
  pieces = functools.reduce(
    most, (e - s for s, e in zip(started, ended, strict=True))
  )
  vertex = _HorizontalMac.of(dtype, accumulate)
  dots = vertex.cycles(workers, batch, 1, pieces, share)
  parts = up((row - 1) / share) + 1
  adding = reduce.region_cycles(
    up(batch * rows / workers), up(parts / _inner_loops.VECTOR[accumulate])
  )
  return dots + MULTI_VERTEX + workers * adding


def outer_cycles(
  target: Target, dtype: DType, accumulate: DType, block: Block
) -> Any:
  """OuterProduct: products of one term, a vector of columns at a time.

  poplin/PerformanceEstimation.hpp, the path for few channels [S].
  """
  del accumulate
  width = _inner_loops.VECTOR[dtype]
  mine = up(block.rows / target.num_workers)
  group = 11 + mine * 14 if dtype == DType.F32 else 10 + mine * 20
  groups = block.batch * up(block.columns / width)
  total = target.num_workers * (25 + groups * group)
  return choose(block.depth == 1, total, np.inf)


def loop_cycles(target: Target, dtype: DType, block: Block) -> Cycles:
  """A loop of multiplications and additions, the outputs shared, that starts
  like a binary operation (codelets/map.py) [D].

  Per step two loads, the two operations' own cycles, and two for the loop;
  eight to store an output.
  """
  step = Cycles(2 * _inner_loops.LOAD[dtype] + 2)
  for op in (Opcode.MUL, Opcode.ADD):
    step += _inner_loops.work(op, dtype).inside
  outputs = block.batch * block.rows * block.columns
  worker = (step * block.depth + 8) * up(outputs / target.num_workers) + 26
  return all_derived(target.num_workers * worker + MULTI_VERTEX)


class Way(NamedTuple):
  """A vertex for a block.

  Attributes:
    cycles: of the vertex.
    weights: which operand has the matrix unit's weights, if it is used.
    partials: whether it can only store sums in the type of partials.
    casts: whether these are cast after it.
  """

  cycles: Any
  weights: int | None = None
  partials: bool = False
  casts: bool = False


def ways_of(
  target: Target, dtype: DType, accumulate: DType, block: Block, vector: bool
) -> list[Way]:
  """The cycles of each vertex for a block."""
  several = any(isinstance(extent, np.ndarray) for extent in block)
  ways = _ways_of_several if several else _ways_of_one
  return ways(target, dtype, accumulate, block, vector)


def _ways_of_several(
  target: Target, dtype: DType, accumulate: DType, block: Block, vector: bool
) -> list[Way]:
  how = target, dtype, accumulate
  turned = block.turned()
  ways = [
    Way(amp_cycles(*how, block), 1, True),
    Way(amp_cycles(*how, turned), 0, True),
    Way(hmac_cycles(*how, block), partials=True),
    Way(hmac_cycles(*how, turned), partials=True),
  ]
  if np.min(block.depth) == 1:
    ways.append(Way(outer_cycles(*how, block)))
    ways.append(Way(outer_cycles(*how, turned)))
  if vector:
    shape = block if np.max(block.columns) == 1 else turned
    ways.append(Way(derived(shared_cycles(*how, shape))))
  return ways


_ways_of_one = functools.lru_cache(maxsize=4096)(_ways_of_several)


def rounding_once(target: Target, block: Block) -> list[Way]:
  """The vertices of f16 partials, for a block that they round once: the vector
  unit takes all terms at a time, the matrix unit those of a chain. Both add up
  in f32 until they store [D]."""
  chained = block.depth <= _unit(target, DType.F16, DType.F16)[1]
  ways = []
  for weights, shape in ((1, block), (0, block.turned())):
    how = target, DType.F16, DType.F16, shape
    ways.append(Way(derived(hmac_cycles(*how))))
    amp = choose(chained, amp_cycles(*how), np.inf)
    ways.append(Way(derived(amp), weights))
  return ways
