"""Splits of a product that its operands' places and shapes suggest, beside the
one that plan/matmul.py finds for operands that come from anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.lower.builder import Builder, Operand
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost, matmul
from jaxlib.ipu.plan.layout import Layout, overlapping, project
from jaxlib.ipu.plan.traffic import traffic
from jaxlib.ipu.plan.walk import Side

_Way = tuple[Layout, tuple[bool, bool]]


def cheaper(
  builder: Builder,
  shape: tuple[int, ...],
  counts: tuple[int, int, int],
  sides: Sequence[Operand],
  plan: matmul.MatmulPlan,
  partition: Layout,
  kept: tuple[int, ...],
  node: Node,
) -> matmul.Split | None:
  """A split that costs less than bringing both operands to the plan's.

  Either operand may stay where it is, or where an earlier product had it: the
  backward products of a layer read what its forward product has read. Or the
  result is made where it is wanted, as a gradient is beside its parameter; or
  windows are whole and other dimensions are cut.

  Args:
    builder: of the program.
    shape: the iteration space; its first `counts` dimensions are those of b, m
      and n, the others those of k.
    counts: see `shape`.
    sides: both operands.
    plan: the plan, and `partition` its mapping of `shape`.
    kept: the dimensions of the result, in its order.
    node: the product.
  """
  if 0 in shape:
    return None
  lhs, rhs = (side.view.dtype for side in sides)
  (value,) = node.results
  dtypes = (lhs, rhs, value.dtype)
  wanted = builder.wanted(value)

  def leaving(way: Layout, partial: bool) -> float:
    """Cycles to bring the result where it is wanted."""
    here = result_layout(builder, shape, way, partial, kept, value.dtype)
    if wanted is None or here == wanted:
      return 0.0
    sides = Side(here, 0, (1,)), Side(wanted, 0, (1,))
    move = traffic(*sides, (math.prod(value.shape),), SIZE[value.dtype])
    return cost.cycles(cost.exchange(builder.target, [move]))

  def bringing(way: Layout) -> float:
    return cost.cycles(builder.bringing(shape, way, sides))

  best, chosen = math.inf, None
  by_plan = plan.steps == 1 and plan.fits
  if by_plan:
    left = leaving(partition, plan.parts[3] > 1)
    best = plan.cycles + left
  elif plan.fits:
    best = plan.cycles
  ways = itertools.chain(
    _in_place(builder, shape, sides),
    _made_there(wanted, shape, kept),
    _whole_windows(shape, counts, sides, plan),
  )
  for way, brought in ways:
    found = matmul.split(
      builder.target,
      way,
      shape,
      counts,
      dtypes,
      brought,
      node.attributes.f16_sums,
      best,
    )
    if found is None or not found.fits or found.cycles >= best:
      continue
    if by_plan:
      # The plan counts all that the operands' blocks hold.
      by_plan = False
      best = plan.at_hand + bringing(partition) + left
    cycles = found.cycles + bringing(way) + leaving(way, found.partial)
    if cycles < best:
      best, chosen = cycles, found
  return chosen


def result_layout(
  builder: Builder,
  shape: tuple[int, ...],
  partition: Layout,
  partial: bool,
  kept: tuple[int, ...],
  dtype: DType,
) -> Layout:
  """Where the products are made, or evenly spread if they are partial."""
  if not partial and 0 not in shape:
    own = project(partition, shape, kept)
    if own is not None and not own.replicas:
      return own
  return builder.default_layout(tuple(shape[d] for d in kept), dtype)


def windowed(view: View) -> set[int]:
  """Dimensions of windows that overlap."""
  groups = overlapping(view.shape, view.strides)
  return {d for group in groups for d in group}


def _in_place(
  builder: Builder, shape: tuple[int, ...], sides: Sequence[Operand]
) -> Iterator[_Way]:
  """Partitions by where operands are, and which operands have to be brought."""
  for number, side in enumerate(sides):
    for home in builder.homes(side):
      way = matmul.in_place(*home, shape)
      if way is not None:
        yield way, (number != 0, number != 1)


def _made_there(
  wanted: Layout | None, shape: tuple[int, ...], kept: tuple[int, ...]
) -> Iterator[_Way]:
  """The partition that makes a result where it is wanted."""
  way = matmul.in_place(wanted, kept, shape) if wanted is not None else None
  if way is not None:
    yield way, (True, True)


def _whole_windows(
  shape: tuple[int, ...],
  counts: tuple[int, int, int],
  sides: Sequence[Operand],
  plan: matmul.MatmulPlan,
) -> Iterator[_Way]:
  """About the plan's parts, but cut along windows last: what a tile needs of
  several windows that overlap is little more than what it needs of one."""
  last = {o.dims.index(d) for o in sides for d in windowed(o.view)}
  if not last or plan.steps > 1:
    return
  starts = [0, *itertools.accumulate(counts), len(shape)]
  ways = []
  for count, ends in zip(plan.parts, itertools.pairwise(starts), strict=True):
    dims = range(*ends)
    first = [d for d in dims if d not in last]
    orders = [[list(dims)], [first, [d for d in dims if d in last]]]
    ways.append([_parts(count, shape, order) for order in orders])
  for found in itertools.product(*ways):
    parts = dict(p for group in found for p in group.items())
    ordered = [parts[d] for d in range(len(shape))]
    yield matmul.partition(shape, ordered, counts), (True, True)


def _parts(
  count: int, shape: tuple[int, ...], order: Sequence[Sequence[int]]
) -> dict[int, int]:
  """Parts of each dimension, those of the first dimensions first."""
  parts = {}
  for dims in order:
    found = matmul.distribute(count, tuple(shape[d] for d in dims))
    parts.update(zip(dims, found, strict=True))
    count //= math.prod(found)
  return parts
