"""Chooses a product's split over tiles: by the plan for operands from anywhere
(plan/matmul.py), or by its operands' mappings and shapes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.attributes import FourierMatrix
from jaxlib.ipu.ir.graph import Value
from jaxlib.ipu.layout import Layout, project
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import WIDE, move_traffic
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.ops._dot_loops import windowed
from jaxlib.ipu.plan import cost, cuts, matmul
from jaxlib.ipu.plan.alternatives import Planned
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import LEAST_TRIPS
from jaxlib.ipu.tile.view import as_in_memory

# A partition, and which operands have to be moved to it.
_Way = tuple[Layout, tuple[bool, bool]]


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
  """A product as an iteration space.

  Attributes:
    shape: the iteration space; its first `counts` dimensions are those of b, m
      and n, the others those of k.
    counts: see `shape`.
    sides: both operands.
    kept: the dimensions of the result, in its order, without those of extent 1.
    value: the result.
    f16_sums: the matrix unit adds up in f16, where it can.
    fourier: what the right operand is known to be.
  """

  shape: tuple[int, ...]
  counts: tuple[int, int, int]
  sides: tuple[Operand, Operand]
  kept: tuple[int, ...]
  value: Value
  f16_sums: bool
  fourier: FourierMatrix | None = None

  @property
  def outer(self) -> int:
    """The number of parallel dimensions."""
    return sum(self.counts)

  @property
  def spans(self) -> tuple[slice, ...]:
    """The dimensions of b, m, n and k."""
    return matmul.spans(len(self.shape), self.counts)

  @property
  def dtypes(self) -> tuple[DType, DType, DType]:
    """The types of the operands and of the result."""
    left, right = (side.view.dtype for side in self.sides)
    return left, right, self.value.dtype


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
  """A split of a product.

  Attributes:
    steps: serial steps.
    first: the iteration space of the first step; the last of a dimension may be
      smaller.
    parts: of each dimension, for a step; empty if there is one step.
    partition: of the first step's iteration space.
    partial: whether tiles make partial products of a result.
    accumulate: the type of the partial products, and of sums kept between
      steps.
    cycles: of everything, the operands' exchange included.
    repeats: whether the steps of a sum are iterations of a loop.
    room: bytes of a tile for the copies that the loop slices.
  """

  steps: matmul.Steps
  first: tuple[int, ...]
  parts: tuple[int, ...]
  partition: Layout
  partial: bool
  accumulate: DType
  cycles: float
  repeats: bool = False
  room: float = 0.0


def choose(builder: Builder, product: Product) -> Choice:
  """The cheapest split."""
  target = builder.target
  question = _question(builder, product)
  plan = matmul.plan(*question)
  first, parts, partition = _partition(target, product, plan)
  found, cycles = _Cheaper(builder, product).than(plan, partition)
  steps = plan.steps if found is None else matmul.ONE
  repeats = builder.choices.repeats and steps.terms >= LEAST_TRIPS
  builder.used.steps = max(builder.used.steps, steps.terms)
  room = target.bytes_for_products
  share = 1.0 if repeats else plan.tile_bytes / max(room, 1)
  builder.used.products = max(builder.used.products, share)
  builder.used.planned.append(
    Planned(
      builder.location,
      question,
      () if found is not None else (*plan.steps, *plan.parts),
      cycles,
    )
  )
  if found is not None:
    return Choice(matmul.ONE, product.shape, (), *found[:3], cycles)
  return Choice(
    plan.steps,
    first,
    parts,
    partition,
    plan.parts[3] > 1,
    plan.accumulate_dtype,
    cycles,
    repeats,
    room - plan.tile_bytes,
  )


def preferred(target: Target, product: Product, number: int) -> Layout | None:
  """The mapping that the plan for operands from anywhere gives an operand that
  is a whole root; None if the operand has replicas there."""
  if 0 in product.shape:
    return None
  plan = matmul.plan(*_arguments(target, product))
  if plan.steps != matmul.ONE or not plan.fits:
    return None
  _, rows, columns, _ = plan.parts
  if (columns, rows)[number] > 1:
    return None
  shape, _, partition = _partition(target, product, plan)
  view, dims = as_in_memory(*product.sides[number][:2])
  if not view.is_dense():
    return None
  kept = tuple(dims.index(d) for d in range(len(view.shape)))
  return project(partition, shape, kept)


def _question(
  builder: Builder, product: Product, grains: Sequence[int] | None = None
) -> tuple[Any, ...]:
  """The arguments of `matmul.plan` at this place of a program."""
  left, right = product.sides
  fractions = builder.weight(left.view), builder.weight(right.view)
  repeats = builder.choices.repeats
  return _arguments(builder.target, product, fractions, grains, repeats)


def _arguments(
  target: Target,
  product: Product,
  charged_fractions: tuple[float, float] = (1.0, 1.0),
  grains: Sequence[int] | None = None,
  repeats: bool = False,
) -> tuple[Any, ...]:
  """The arguments of `matmul.plan` for operands from anywhere, in blocks of
  multiples of `grains` along each dimension; the others as for that."""
  shape, spans = product.shape, product.spans
  b, m, n, k = [math.prod(shape[s]) for s in spans]
  rows = columns = terms = 1
  if grains is not None:
    _, rows, columns, terms = [max(grains[s], default=1) for s in spans]
  return (
    target, b, m, n, k, *product.dtypes, product.f16_sums,
    charged_fractions, (rows, columns, terms), repeats,
  )  # fmt: skip


def _grains(product: Product, size: int) -> tuple[int, ...]:
  """Multiples along each dimension for which rows of the operands in memory are
  `size` bytes."""
  grains = [1] * len(product.shape)
  for side in product.sides:
    view = side.view
    for i, (stride, n) in enumerate(zip(view.strides, view.shape)):
      if abs(stride) == 1 and n > 1 and i in side.dims:
        d = side.dims.index(i)
        grains[d] = max(grains[d], size // SIZE[view.dtype])
  return tuple(grains)


def _partition(
  target: Target,
  product: Product,
  plan: matmul.MatmulSplit,
  grains: tuple[int, ...] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...], Layout]:
  """A plan's first step: its iteration space, the parts of each dimension, and
  its partition."""
  shape, spans = product.shape, product.spans
  parts: tuple[int, ...] = ()
  for count, span in zip(plan.parts, spans, strict=True):
    parts += cuts.distribute(count, shape[span], target.num_tiles)
  first = step_shape(target, product, plan.steps)
  split = matmul.partition(first, parts, product.counts, grains)
  return first, parts, split


def step_shape(
  target: Target, product: Product, steps: matmul.Steps
) -> tuple[int, ...]:
  """The iteration space of the first of several steps."""
  if steps == matmul.ONE:
    return product.shape
  found: list[int] = []
  for count, span in zip((1, *steps), product.spans, strict=True):
    extents = product.shape[span]
    counts = cuts.distribute(count, extents, target.num_tiles)
    found += (-(-n // c) for n, c in zip(extents, counts, strict=True))
  return tuple(found)


class _Cheaper:
  """Splits that may cost less than moving both operands to a plan's.

  Either operand may stay in place, or where an earlier product had it: the
  backward products of a layer read what its forward product has read. Or the
  result is computed where it is wanted, as a gradient is with its parameter;
  or windows are whole and other dimensions are cut.
  """

  def __init__(self, builder: Builder, product: Product) -> None:
    self._builder, self._product = builder, product
    self._wanted = builder.wanted(product.value)

  def than(
    self, plan: matmul.MatmulSplit, partition: Layout
  ) -> tuple[matmul.GivenSplit | None, float]:
    """The cheapest such split, if it is cheaper than a plan's, and the cycles
    of the cheaper one."""
    product = self._product
    if 0 in product.shape:
      return None, 0.0
    best, chosen, packs = math.inf, None, False
    if plan.fits and plan.steps == matmul.ONE:
      # The plan charges for all of the operands' blocks, wherever they are.
      moving = self._moving(partition)
      packs = moving.compute_cycles > 0
      best = plan.at_hand + cost.cycles(moving)
      best += self._leaving(partition, plan.parts[3] > 1)
    elif plan.fits:
      best = plan.cycles
    # Windows are whole in most variants, and copies have the same mappings.
    for way, moved in dict.fromkeys(self._ways(plan, packs)):
      split = (
        self._builder.target, way, product.shape, product.counts,
        product.dtypes,
      )  # fmt: skip
      if matmul.least_cycles(*split) > best:
        continue
      found = matmul.split(*split, moved, product.f16_sums)
      if found.cycles >= best:
        continue
      cycles = self._cycles(found, best)
      if cycles < best:
        best, chosen = cycles, found
    return chosen, best

  def _cycles(self, split: matmul.GivenSplit, most: float) -> float:
    """The cycles of a split and of all its moves; if they are no less than
    `most`, maybe only those of some of its moves, which take long to count."""
    leaving = self._leaving(split.partition, split.partial)
    sides = self._product.sides
    larger = max(sides, key=lambda side: side.view.size)
    cycles = split.cycles + leaving
    for some in (larger,), sides:
      if cycles >= most:
        break
      moving = cost.cycles(self._moving(split.partition, some))
      cycles = split.cycles + moving + leaving
    return cycles

  def _moving(
    self, way: Layout, sides: Sequence[Operand] | None = None
  ) -> schema.Cost:
    """The cost of moving both operands, or `sides`, to a partition."""
    return self._builder.exchange_cost(
      self._product.shape, way, sides or self._product.sides
    )

  def _leaving(self, way: Layout, partial: bool) -> float:
    """Cycles of moving the result to the mapping that its readers want."""
    product, wanted = self._product, self._wanted
    here = result_layout(self._builder, product, way, partial)
    if wanted is None or here == wanted:
      return 0.0
    sides = MoveEnd(here, 0, (1,)), MoveEnd(wanted, 0, (1,))
    size = SIZE[product.value.dtype]
    moved = move_traffic(*sides, (math.prod(product.value.shape),), size)
    return cost.cycles(cost.exchange(self._builder.target, [moved]))

  def _ways(self, plan: matmul.MatmulSplit, packs: bool) -> Iterator[_Way]:
    product, target = self._product, self._builder.target
    # Moving blocks that cut words, or of single words, requires packing.
    for size in (WORD, WIDE) if packs else ():
      grains = _grains(product, size)
      wide = matmul.plan(*_question(self._builder, product, grains))
      if wide.fits and wide.steps == matmul.ONE:
        ways = [_partition(target, product, wide, g)[2] for g in (grains, None)]
        yield from ((split, (True, True)) for split in dict.fromkeys(ways))
    for number, side in enumerate(product.sides):
      for mapping in self._builder.existing_mappings(side):
        way = matmul.in_place(*mapping, product.shape)
        if way is not None:
          yield way, (number != 0, number != 1)
    if self._wanted is not None:
      way = matmul.in_place(self._wanted, product.kept, product.shape)
      if way is not None:
        yield way, (True, True)
    yield from _whole_windows(target, product, plan)


def result_layout(
  builder: Builder,
  product: Product,
  partition: Layout,
  partial: bool,
  shape: tuple[int, ...] | None = None,
  dtype: DType | None = None,
) -> Layout:
  """The results' mapping: that of the computation, or the default one if they
  are partial.

  Args:
    builder: of the program.
    product: the product.
    partition: of its iteration space, or of that of a step, `shape`.
    partial: whether tiles make partial products of a result.
    shape: see `partition`.
    dtype: of the results, if not the product's.
  """
  shape = product.shape if shape is None else shape
  if not partial and 0 not in shape:
    own = project(partition, shape, product.kept)
    if own is not None and not own.replicas:
      return own
  return builder.default_layout(
    tuple(shape[d] for d in product.kept), dtype or product.value.dtype
  )


def _whole_windows(
  target: Target, product: Product, plan: matmul.MatmulSplit
) -> Iterator[_Way]:
  """Variants of the plan that cut along windows last: several overlapping
  windows on a tile need little more than one of them."""
  shape = product.shape
  last = {
    o.dims.index(d)
    for o in product.sides
    for d in windowed(o.view.shape, o.view.strides)
  }
  if not last or plan.steps != matmul.ONE:
    return
  ways = []
  for count, span in zip(plan.parts, product.spans, strict=True):
    dims = range(span.start, span.stop)
    first = [d for d in dims if d not in last]
    orders = [[list(dims)], [first, [d for d in dims if d in last]]]
    ways.append(
      [_parts(count, shape, order, target.num_tiles) for order in orders]
    )
  for found in itertools.product(*ways):
    parts = dict(p for group in found for p in group.items())
    ordered = tuple([parts[d] for d in range(len(shape))])
    yield matmul.partition(shape, ordered, product.counts), (True, True)


def _parts(
  count: int,
  shape: tuple[int, ...],
  order: Sequence[Sequence[int]],
  num_tiles: int,
) -> dict[int, int]:
  """Parts of each dimension, cutting the first group of dimensions first."""
  parts = {}
  for dims in order:
    found = cuts.distribute(count, tuple(shape[d] for d in dims), num_tiles)
    parts.update(zip(dims, found, strict=True))
    count //= math.prod(found)
  return parts
