"""Plans how a matrix product is split over tiles.

The iteration space (b, m, n, k) is cut into a grid; each tile multiplies one
block and receives its block of either operand. Cutting k gives partial
products, which the tiles of one result block exchange and add up. As in
PopLibs' planner (ConvPlan.cpp, ConvModel.cpp) the cost of a candidate is the
exchange of its inputs, the slowest tile's vertices, and the exchange and
addition of partials, or their cast (plan/partials.py); blocks must fit in a
share of a tile's SRAM, the planner's `availableMemoryProportion` [S]. The
library ranks all candidates by lower bounds (plan/product_splits.py); only the
first ones are priced.

A product whose blocks do not fit is made in several steps, one after the other
(poplin's serial splits). Steps along k receive their part of the operands and
add to the tiles' sums, so operands take less SRAM and no more exchange. If the
sums themselves take too much, the result is made in parts as well, along m or
n, each with its own sums; then one operand is exchanged for each part.

An operand can also stay in place (`in_place`): its own mapping is then the
split, only the other operand moves, and partial products are added up. This is
best for a large matrix times a vector.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets.dot import CODELET, DotHints
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Factor, Layout, grid, refine
from jaxlib.ipu.plan import alternatives, cost
from jaxlib.ipu.plan.combine import combination
from jaxlib.ipu.plan.partials import adding_cycles
from jaxlib.ipu.plan.product_splits import Candidates, Split
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# Narrow floats are summed in f32 and rounded once. Sums kept between steps are
# at least as wide.
_ACCUMULATE = {DType.F16: DType.F32, DType.BF16: DType.F32}
_KEPT = {
  **_ACCUMULATE,
  DType.I8: DType.I32,
  DType.I16: DType.I32,
  DType.U8: DType.U32,
  DType.U16: DType.U32,
}
# Numbers of steps along k to try if one step does not fit, and numbers of parts
# of the result if these do not.
_STEPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_RESULT_PARTS = (2, 4, 8, 16)
# More steps, for loops. [G]
_TRIPS = (*_STEPS, 96, 128, 192, 256, 384, 512)
# The most loops that share the steps of one sum (ops/_dot_repeat.py): each has
# exchange code of its own. [G]
MOST_LOOPS = 8
# Further synchronisations of an iteration: slices, and a counter that is added
# to and sent to all tiles.
_SYNCS = 4
# Candidates that reports choose from: there are several for some splits.
_LISTED = 40


class Steps(NamedTuple):
  """The numbers of serial steps along m, n and k."""

  rows: int = 1
  columns: int = 1
  terms: int = 1

  @property
  def total(self) -> int:
    """The number of all steps."""
    return self.rows * self.columns * self.terms

  @property
  def results(self) -> int:
    """The number of parts into which the result is cut."""
    return self.rows * self.columns


ONE = Steps()


@dataclasses.dataclass(frozen=True)
class MatmulSplit:
  """A split and what it costs.

  Attributes:
    steps: serial steps.
    accumulate_dtype: of the partial products, and of sums kept between steps.
    parts: blocks of a step along (b, m, n, k).
    cycles: all cycles: of the operands' exchange, products and partials.
    at_hand: the same without the operands' exchange.
    tile_bytes: bytes of operand and result blocks on one tile.
    fits: whether they fit in the share of SRAM that a product may use.
  """

  steps: Steps
  accumulate_dtype: DType
  parts: tuple[int, int, int, int]
  cycles: float
  at_hand: float
  tile_bytes: int
  fits: bool


class GivenSplit(NamedTuple):
  """A split given by a mapping.

  Attributes:
    partition: of the iteration space.
    partial: whether several tiles have partial products of the same result.
    accumulate: the type of the partial products.
    cycles: of products and partials, without the operands' exchange; infinite
      if blocks do not fit in the share of SRAM that a product may use.
  """

  partition: Layout
  partial: bool
  accumulate: DType
  cycles: float


@functools.lru_cache(maxsize=4096)
def plan(
  target: Target,
  b: int,
  m: int,
  n: int,
  k: int,
  lhs_dtype: DType,
  rhs_dtype: DType,
  out_dtype: DType,
  f16_sums: bool = False,
  charged_fractions: tuple[float, float] = (1.0, 1.0),
  grains: tuple[int, int, int] = (1, 1, 1),
  repeats: bool = False,
) -> MatmulSplit:
  """The cheapest split of result[b, m, n] = sum over k of lhs * rhs.

  With `f16_sums` the matrix unit adds up in f16, where it can.
  `charged_fractions` is the charged fraction of each operand's exchange: a
  loop's iterations share a loop-invariant one. Blocks of m, n and k are
  multiples of `grains`. With `repeats` the steps of a sum are iterations of a
  loop.
  """
  accumulate_dtype = _ACCUMULATE.get(out_dtype, out_dtype)
  if not b * m * n * k:
    one = (1, 1, 1, 1)
    return MatmulSplit(ONE, accumulate_dtype, one, 0.0, 0.0, 0, True)
  space = (b, m, n, k)
  dtypes = (lhs_dtype, rhs_dtype, out_dtype, accumulate_dtype)
  best = _plan_step(
    target, space, dtypes, ONE, f16_sums, charged_fractions, grains
  )
  if best.fits or out_dtype is DType.BOOL:
    return best
  kept = _KEPT.get(out_dtype, out_dtype)
  for count in (1, *_RESULT_PARTS):
    results = dict.fromkeys([Steps(rows=count), Steps(columns=count)])
    for result, terms in itertools.product(
      results, (1, *(_TRIPS if repeats else _STEPS))
    ):
      steps = result._replace(terms=terms)
      if steps == ONE or not all(a <= b for a, b in zip(steps, space[1:])):
        continue
      sums = kept if terms > 1 else accumulate_dtype
      dtypes = (lhs_dtype, rhs_dtype, out_dtype, sums)
      found = _plan_step(
        target, space, dtypes, steps, f16_sums, repeats=repeats
      )
      if count == 1 or found.fits:  # many steps only if they help
        best = min(best, found, key=_rank)
    if best.fits:
      break
  return best


def _rank(plan: MatmulSplit) -> tuple[bool, float]:
  """Sort key: plans that fit, by their cycles, then the others by their
  bytes."""
  return not plan.fits, plan.cycles if plan.fits else plan.tile_bytes


def _plan_step(
  target: Target,
  space: tuple[int, int, int, int],
  dtypes: tuple[DType, DType, DType, DType],
  steps: Steps,
  f16_sums: bool,
  charged_fractions: tuple[float, float] = (1.0, 1.0),
  grains: tuple[int, int, int] = (1, 1, 1),
  repeats: bool = False,
) -> MatmulSplit:
  """The cheapest split of each of a product's steps."""
  b, m, n, k = (-(-x // s) for x, s in zip(space, (1, *steps), strict=True))
  lhs_dtype, rhs_dtype, out_dtype, sum_dtype = dtypes
  fields = schema.Dot(sum_dtype, int(steps.terms > 1))
  hints = functools.partial(
    DotHints,
    f16_sums=f16_sums,
    vector=min(m, n) == 1,
    stored=out_dtype if steps.terms == 1 else sum_dtype,
  )
  partial_bytes = SIZE[sum_dtype]
  cast_bytes = SIZE[out_dtype] if SIZE[out_dtype] < partial_bytes else 0
  tiles = target.num_tiles
  further, looping, room = 0.0, 0.0, target.bytes_for_products
  if steps.results > 1:  # the whole result, which is made part by part
    further += math.prod(space[:3]) * SIZE[out_dtype] / tiles
  if repeats and steps.terms > 1:
    # Both operands, a slice of each, and copies of those that do not stay.
    each = (b * m * k * SIZE[lhs_dtype] + b * n * k * SIZE[rhs_dtype]) / tiles
    further += each
    room -= steps.terms * each / MOST_LOOPS
    looping = _SYNCS * target.sync_cycles + each / target.data_path_bytes
  sizes = SIZE[lhs_dtype], SIZE[rhs_dtype]
  charged = tuple(map(operator.mul, sizes, charged_fractions))
  candidates = Candidates(
    target, (b, m, n, k), grains, fields, (lhs_dtype, rhs_dtype),
    hints(whole=True),
    (*sizes, partial_bytes, cast_bytes), charged, further, room,
  )  # fmt: skip
  adding = adding_cycles(target, sum_dtype, sourced=False)

  def price(split: Split) -> tuple[float, float]:
    """The cycles of a candidate, and those without the operands' exchange."""
    extents = zip((b, m, n, k), split.parts, strict=True)
    bb, mb, nb, kb = block = tuple(-(-x // p) for x, p in extents)
    gk = split.parts[3]
    at_hand = CODELET.cycles(
      target, fields, [lhs_dtype, rhs_dtype], [out_dtype], block,
      hints(whole=gk == 1),
    ).total  # fmt: skip
    if gk > 1:
      outputs = bb * mb * nb
      at_hand += combination(target, outputs, gk, partial_bytes, adding)
    paid = charged[0] * bb * kb * mb, charged[1] * bb * kb * nb
    received = _received(target, split.parts, *paid)
    exchanged = cost.exchange_cycles(target, received, 0.0)
    return at_hand + target.sync_cycles + exchanged, at_hand

  alternatives.note(lambda: _considered(steps, candidates, price, looping))
  best, (total, at_hand) = _cheapest(candidates, price)
  return MatmulSplit(
    steps,
    sum_dtype,
    best.parts,
    steps.total * float(total + looping),
    steps.total * float(at_hand),
    int(best.bytes),
    best.bytes <= room,
  )


# Given a candidate: its cycles, and those without the operands' exchange.
_Price = Callable[[Split], tuple[float, float]]


def _cheapest(
  candidates: Candidates, price: _Price
) -> tuple[Split, tuple[float, float]]:
  """The first of the cheapest candidates that fit, or the smallest one if none
  does, with its price. Only those are priced whose lower bound is not above the
  price of another one."""
  ranked = iter(candidates)
  best = next(ranked)
  cycles = price(best)
  if best.bytes > candidates.room:
    return best, cycles
  for split in ranked:
    if split.bytes > candidates.room or split.cycles > cycles[0]:
      break
    found = price(split)
    if (found[0], split.number) < (cycles[0], best.number):
      best, cycles = split, found
  return best, cycles


def _considered(
  steps: Steps, candidates: Candidates, price: _Price, looping: float
) -> alternatives.Considered:
  splits, count = candidates.first(_LISTED)
  best = [
    (
      split.parts,
      steps.total * (price(split)[0] + looping),
      split.bytes,
      split.bytes <= candidates.room,
    )
    for split in splits
  ]
  return alternatives.Considered(steps, count, best)


def _received(
  target: Target, parts: tuple[int, int, int, int], lhs: float, rhs: float
) -> float:
  """Bytes of both operands as carried by a tile's bus.

  Tiles with the same rows are adjacent (`partition`), as are poplin's output
  channels, and a pair that receives the same data does so at twice the rate
  (poplin/ExchangeEstimator.hpp) [S].
  """
  _, m, n, k = parts
  if target.tiles_per_bus == 1:
    return lhs + rhs
  if n > 1 and n % 2 == 0:
    lhs /= 2
  if n == 1 and k == 1 and m % 2 == 0:
    rhs /= 2
  return lhs + rhs


@functools.lru_cache(maxsize=4096)
def partition(
  shape: tuple[int, ...],
  parts: tuple[int, ...],
  counts: tuple[int, int, int],
  grains: tuple[int, ...] | None = None,
) -> Layout:
  """A plan's mapping of the iteration space; its first `counts` dimensions are
  those of b, m and n, the others those of k. Parts along n are on adjacent
  tiles, and blocks are multiples of `grains`."""
  first, last = sum(counts[:2]), sum(counts)
  dims = range(len(shape))
  order = [*dims[:first], *dims[last:], *dims[first:last]]
  return grid(shape, parts, order, grains)


@functools.lru_cache(maxsize=4096)
def in_place(
  mapping: Layout, along: tuple[int, ...], shape: tuple[int, ...]
) -> Layout | None:
  """The partition of an iteration space in which an operand stays in place.

  Args:
    mapping: the mapping of the operand or of a copy of it.
    along: the iteration space's dimensions of the operand, in the order of the
      mapping's factors.
    shape: the iteration space.

  Returns:
    None if the mapping's blocks straddle dimensions, or if it has replicas and
    these could split several dimensions.
  """
  groups = refine(mapping.factors, tuple(shape[d] for d in along))
  if groups is None:
    return None
  own = dict(zip(along, groups, strict=True))
  if mapping.replicas:
    # Replicas split the one dimension along which the operand is broadcast.
    rest = [d for d, n in enumerate(shape) if n > 1 and d not in along]
    if len(rest) != 1 or len(mapping.replicas) != 1:
      return None
    ((count, stride),) = mapping.replicas
    block = -(-shape[rest[0]] // count)
    if block < shape[rest[0]]:
      own[rest[0]] = (Factor(shape[rest[0]], block, stride),)
  factors = [
    f for d, n in enumerate(shape) for f in own.get(d, (Factor(n, n, 0),))
  ]
  flat = tuple(f for f in factors if f.extent != 1)
  return Layout(flat or (Factor(1, 1, 0),), base=mapping.base)


@functools.lru_cache(maxsize=4096)
def _block(
  partition: Layout, shape: tuple[int, ...], counts: tuple[int, int, int]
) -> tuple[int, int, int, int, int]:
  """The extents (b, m, n, k) of the largest block, and the parts along k."""
  factors = refine(partition.factors, shape)
  assert factors is not None, "partitions keep to dimensions"
  sizes = [math.prod(min(f.block, f.extent) for f in fs) for fs in factors]
  b, m, n, k = (math.prod(sizes[s]) for s in spans(len(shape), counts))
  terms = factors[sum(counts) :]
  return b, m, n, k, math.prod(f.parts for fs in terms for f in fs)


@functools.lru_cache(maxsize=4096)
def spans(rank: int, counts: tuple[int, int, int]) -> tuple[slice, ...]:
  """The dimensions of b, m, n and k in an iteration space."""
  ends = [0, *itertools.accumulate(counts), rank]
  return tuple([slice(a, b) for a, b in itertools.pairwise(ends)])


def least_cycles(
  target: Target,
  partition: Layout,
  shape: tuple[int, ...],
  counts: tuple[int, int, int],
  dtypes: Sequence[DType],
) -> float:
  """A lower bound of the cycles of `split`, whose arguments it takes: those of
  the largest block's multiplications at the best rate."""
  *operands, out_dtype = dtypes
  fields = schema.Dot(_ACCUMULATE.get(out_dtype, out_dtype), 0)
  macs = math.prod(_block(partition, shape, counts)[:4])
  return CODELET.least_cycles(target, fields, operands, macs)


@functools.lru_cache(maxsize=4096)
def split(
  target: Target,
  partition: Layout,
  shape: tuple[int, ...],
  counts: tuple[int, int, int],
  dtypes: tuple[DType, DType, DType],
  moved: tuple[bool, bool] = (True, True),
  f16_sums: bool = False,
) -> GivenSplit:
  """The cost of a partition of the iteration space.

  Args:
    target: the machine.
    partition: its blocks do not straddle dimensions.
    shape: the iteration space; its first `counts` dimensions are those of b, m
      and n, the others those of k.
    counts: see `shape`.
    dtypes: of both operands and of the result.
    moved: which operands take SRAM for their own blocks.
    f16_sums: see `plan`.
  """
  b, m, n, k, parts = _block(partition, shape, counts)
  *operands, out_dtype = dtypes
  accumulate_dtype = _ACCUMULATE.get(out_dtype, out_dtype)
  outputs, partial_bytes = b * m * n, SIZE[accumulate_dtype]
  memory = outputs * partial_bytes * (2 if parts > 1 else 1)
  if parts == 1 and SIZE[out_dtype] < partial_bytes:
    memory += outputs * SIZE[out_dtype]  # cast result
  for size, dtype, counts_here in zip((m, n), operands, moved, strict=True):
    memory += counts_here * b * k * size * SIZE[dtype]
  if memory > target.bytes_for_products:
    return GivenSplit(partition, parts > 1, accumulate_dtype, math.inf)
  cycles = CODELET.cycles(
    target,
    schema.Dot(accumulate_dtype, 0),
    operands,
    [out_dtype],
    (b, m, n, k),
    DotHints(
      f16_sums=f16_sums,
      vector=1 in (math.prod(shape[s]) for s in spans(shape, counts)[1:3]),
      stored=out_dtype,
      whole=parts == 1,
    ),
  ).total
  if parts > 1:
    adding = adding_cycles(target, accumulate_dtype, sourced=False)
    cycles += combination(target, outputs, parts, partial_bytes, adding)
  return GivenSplit(partition, parts > 1, accumulate_dtype, float(cycles))
