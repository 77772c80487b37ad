"""Dot: a batched matrix product over the iteration space (b, m, n, k).

Each tile multiplies one block. The fastest vertex is charged that PopLibs'
planner has for a block, with the rows of either operand as its field: the
matrix unit (ConvPartial1x1Out), dot products on the vector unit
(ConvPartialHorizontalMac), for a single term OuterProduct; or dot products that
the workers share. Types that none of
them can take run a multiply-add loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import _inner_loops, reduce
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  all_derived,
  choose,
  derived,
  guessed,
  least,
  most,
  plain,
  up,
)
from jaxlib.ipu.codelets._instructions import (
  NUMPY_REGISTER,
  load,
  register_type,
)
from jaxlib.ipu.codelets._kinds import ReducingCodelet
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import Opcode
from jaxlib.ipu.target import Target

# Weights of a convolution unit: a chain of 4, each 64 bits wide
# (poplin/PerformanceEstimation.hpp) [S].
_CHAIN = 4


class Block(NamedTuple):
  """The extents of what a tile multiplies; arrays for many candidates.

  Attributes:
    batch: products.
    rows: rows of the left operands, a vertex's field.
    columns: columns of the right operands, its output channels.
    depth: terms of a sum, its input channels.
  """

  batch: Any
  rows: Any
  columns: Any
  depth: Any

  def turned(self) -> Block:
    """The transposed product's."""
    return Block(self.batch, self.columns, self.rows, self.depth)


def _unit(target: Target, dtype: DType, accumulate: DType) -> tuple[int, int]:
  """Convolution units in use and the input channels that they take.

  f16 with f32 partials has half the units of f16 with f16 partials; the
  target's rates say how many there are.
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
  """The same for f32 operands [S]."""
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
  """Cycles of the six workers over all rows for one set of weights."""
  lowest = rows // workers
  highest = up(rows / workers)
  if dtype == DType.F32:
    a, b = (_f32_worker(r, units, zeroing) for r in (highest, lowest))
  else:
    a, b = (_f16_worker(r, zeroing) for r in (highest, lowest))
  # Two rows can take longer than three. A worker without rows leaves at once.
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
  partials it is what 128 points measured on a Bow are compared with.
  Coefficients are loaded at `Target.coefficient_load_bytes` per cycle.
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


def hmac_cycles(
  target: Target,
  dtype: DType,
  accumulate: DType,
  block: Block,
) -> Any:
  """ConvPartialHorizontalMac: dot products on the vector unit, one a row for
  each column, which the workers share.

  poplin/PerformanceEstimation.hpp [S], with all of the depth as one group. f16
  operands with f32 partials have the vertex for 1x1 kernels; it needs no
  zeroed partials. f16 partials come in pairs of columns.
  """
  batch, rows, columns, depth = block
  workers = target.num_workers
  dot = up(depth / _inner_loops.VECTOR[dtype])
  mine = up(rows / workers)
  if dtype == DType.F32 or accumulate == DType.F16:
    # Each column's partials are zeroed first.
    zeroed = workers * (up(mine / 2) + 5)
    if dtype == DType.F32:
      start, worker = 58 + 54, 16 + 19 + 16 + mine * (7 + 7 + dot)
    else:
      start, worker = 65 + 60 + 36, 10 + 19 + 16 + mine * (7 + 10 + dot)
      columns = up(columns / 2)
  else:
    zeroed = 0
    start, worker = 55 + 54 + 90, 1 + 13 + 1 + 16 + mine * (2 + 6 + dot)
  column = 10 + workers * worker + zeroed
  return start + batch * (23 + 15 + columns * column)


def shared_cycles(
  target: Target, dtype: DType, accumulate: DType, block: Block
) -> Any:
  """The same for one column, where each row is cut into as many parts as give
  all workers alike, however few rows there are. A second pass adds up the
  parts' sums, as reductions do whose outputs several workers share [D]."""
  workers = target.num_workers
  batch, rows, _, depth = block
  parts: Any
  if isinstance(rows, np.ndarray):
    parts = workers // np.gcd(rows.astype(np.int64), workers)
  else:
    parts = workers // math.gcd(int(rows), workers)
  cut = Block(batch, rows * parts, 1, up(depth / parts))
  outputs = up(batch * rows / workers)
  adding = reduce.region_cycles(
    outputs, up(parts / _inner_loops.VECTOR[accumulate])
  )
  dots = hmac_cycles(target, dtype, accumulate, cut)
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
  as a binary operation does (codelets/map.py) [D].

  Per step two loads, the two operations' own cycles, and two for the loop;
  eight to store an output.
  """
  step = Cycles(2 * _inner_loops.LOAD[dtype] + 2)
  for op in (Opcode.MUL, Opcode.ADD):
    step += _inner_loops.work(op, dtype).inside
  outputs = block.batch * block.rows * block.columns
  worker = (step * block.depth + 8) * up(outputs / target.num_workers) + 26
  return all_derived(target.num_workers * worker + MULTI_VERTEX)


class DotCodelet(ReducingCodelet):
  """Cycles: the cheapest of `amp_cycles`, `hmac_cycles`, `shared_cycles` and
  `outer_cycles`, each both ways around.

  bf16 is cast to f32 on the tile first and runs as f32; integers and f64 run
  `loop_cycles`. `vector` says that the product is a matrix times a vector:
  all of it, not only a tile's block, since a product has one kind of vertex.
  """

  record = schema.Dot
  has_weights = True
  # poplin's stages (ConvReducePlan.cpp) [S].
  many_partials = (16, 125)
  needs_boxes = True

  def cycles(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> Cycles:
    block = Block(*matrix_extents(fields, cell))
    launch = derived(_inner_loops.SUPERVISOR_LAUNCH)
    dtype, casting = _computed_in(operand_dtypes, block)
    if dtype not in (DType.F16, DType.F32):
      return launch + loop_cycles(target, dtype, block)
    accumulate = _accumulated_in(fields, dtype, extra)
    ways = _ways(target, dtype, accumulate, block, extra.get("vector", False))
    total = functools.reduce(least, (taken for taken, _ in ways))
    return launch + casting + total

  def weights(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> int | None:
    block = Block(*matrix_extents(fields, cell))
    dtype, _ = _computed_in(operand_dtypes, block)
    if dtype not in (DType.F16, DType.F32):
      return None
    accumulate = _accumulated_in(fields, dtype, extra)
    ways = _ways(target, dtype, accumulate, block, extra.get("vector", False))
    return min(ways, key=lambda way: plain(way[0]))[1]

  def flops(self, fields: schema.Dot, shape: Sequence[int]) -> float:
    return 2 * volume(shape)

  def vertex(
    self, fields: schema.Dot, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    cell.require_box("a matrix product")
    register = register_type(DType(fields.accumulate_dtype))
    b, m, n, k = matrix_extents(fields, cell.extents)
    left = _matrix(fields, cell, operands[0], 2).reshape(b, m, k)
    right = _matrix(fields, cell, operands[1], 1).reshape(b, n, k)
    left, right = (
      load(o, register).astype(NUMPY_REGISTER[register]) for o in (left, right)
    )
    with np.errstate(all="ignore"):
      return [np.einsum("bmk,bnk->bmn", left, right)]

  def combine(
    self, fields: schema.Dot, left: list[Array], right: list[Array]
  ) -> list[Array]:
    return [left[0] + right[0]]

  def num_kept(self, fields: schema.Dot, rank: int) -> int:
    return groups(fields, rank)[3].start

  def initial(
    self,
    fields: schema.Dot,
    registers: Sequence[np.dtype[Any]],
    shape: tuple[int, ...],
  ) -> list[Array]:
    register = register_type(DType(fields.accumulate_dtype))
    return [np.zeros(shape, NUMPY_REGISTER[register])]

  def partial_bytes(self, fields: schema.Dot, dtype: DType) -> int:
    return SIZE[DType(fields.accumulate_dtype)]

  def updates(self, fields: schema.Dot) -> bool:
    return bool(fields.adds)

  def check(self, fields: schema.Dot, step: schema.Execute, v: Checker) -> None:
    rank, operands, results = (
      len(x) for x in (step.shape, step.operands, step.results)
    )
    v.require(
      (operands, results) == (2, 1) and self.num_kept(fields, rank) <= rank,
      f"a product of {operands} operands over {rank} dimensions",
    )
    dtype = v.tensor(step.results[0].tensor).dtype
    v.require(
      not fields.adds or dtype == fields.accumulate_dtype,
      f"adds to element type {dtype} in {fields.accumulate_dtype}",
    )

  def example(self) -> tuple[schema.Dot, int]:
    return schema.Dot(DType.F32, 0), 4

  _CODE = 1024


def _accumulated_in(
  fields: schema.Dot, dtype: DType, extra: dict[str, Any]
) -> DType:
  """Partial sums are f32 (poplin's `partialsType`, ConvOptions.hpp) [S], unless
  the user asks for f16."""
  f16 = extra.get("f16_sums", False) and dtype is DType.F16
  return DType.F16 if f16 else DType(fields.accumulate_dtype)


def _ways(
  target: Target, dtype: DType, accumulate: DType, block: Block, vector: bool
) -> list[tuple[Any, int | None]]:
  """What each vertex takes for a block, and which operand is the weights of the
  matrix unit if it is that vertex."""
  several = any(isinstance(extent, np.ndarray) for extent in block)
  ways = _ways_of_several if several else _ways_of_one
  return ways(target, dtype, accumulate, block, vector)


def _ways_of_several(
  target: Target, dtype: DType, accumulate: DType, block: Block, vector: bool
) -> list[tuple[Any, int | None]]:
  how = target, dtype, accumulate
  turned = block.turned()
  ways: list[tuple[Any, int | None]] = [
    (amp_cycles(*how, block), 1),
    (amp_cycles(*how, turned), 0),
    (hmac_cycles(*how, block), None),
    (hmac_cycles(*how, turned), None),
  ]
  if np.min(block.depth) == 1:
    ways.append((outer_cycles(*how, block), None))
    ways.append((outer_cycles(*how, turned), None))
  if vector:
    shape = block if np.max(block.columns) == 1 else turned
    ways.append((derived(shared_cycles(*how, shape)), None))
  return ways


_ways_of_one = functools.lru_cache(maxsize=4096)(_ways_of_several)


def groups(fields: schema.Dot, rank: int) -> list[slice]:
  """The iteration dimensions behind b, m, n and k."""
  rows = fields.num_batch
  columns = rows + fields.num_rows
  terms = columns + fields.num_columns
  return [
    slice(0, rows),
    slice(rows, columns),
    slice(columns, terms),
    slice(terms, rank),
  ]


def matrix_extents(fields: schema.Dot, cell: Extents) -> list[Any]:
  """A cell's extents along (b, m, n, k)."""
  return [math.prod(cell[g]) for g in groups(fields, len(cell))]


def _matrix(
  fields: schema.Dot, cell: Cell, operand: Array, still: int
) -> Array:
  """An operand at all points of a cell, but for one of the groups."""
  extents = list(cell.extents)
  group = groups(fields, len(extents))[still]
  extents[group] = [1] * len(extents[group])
  return np.broadcast_to(operand, extents)


def _computed_in(dtypes: Sequence[DType], block: Block) -> tuple[DType, Any]:
  """The type that a block is multiplied in, and the cycles to get there."""
  b, m, n, k = block
  if dtypes[0] == dtypes[1] and dtypes[0] in (DType.F16, DType.F32):
    return dtypes[0], 0.0
  floats = (DType.F16, DType.BF16, DType.F32)
  if dtypes[0] in floats and dtypes[1] in floats:
    casting = Cycles(0.0)
    for dtype, elements in zip(dtypes, (b * m * k, b * n * k), strict=True):
      work = _inner_loops.conversion(dtype, DType.F32)
      each = work.proper + _inner_loops.LOAD[dtype] if work.proper else 0.0
      own = guessed(each) if work.guessed else Cycles(each)
      casting = casting + own * elements
    return DType.F32, casting
  return max(dtypes, key=lambda d: (d == DType.F64, SIZE[d])), 0.0


CODELET = DotCodelet()
