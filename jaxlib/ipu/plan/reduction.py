"""Plans how a reduction is split over tiles.

Parallel elements go to tiles first; if there are fewer of them than tiles, the
reduced dimension is split too and the partial results are combined: a second
superstep in which each result's owner receives and reduces its partials.
As in PopLibs' reduction planner (ReductionSplit.cpp) the cost of a split is the
exchange of its elements, the slowest tile's vertices, and the stages that
combine partial results: the formulas by which the step is charged.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.reduce import Order, cell_cycles
from jaxlib.ipu.layout import Factor, Layout, grid, linear, project, refine
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.combine import (
  REDUCTIONS,
  ReduceCycles,
  combination,
  combination_cycles,
)
from jaxlib.ipu.plan.cuts import distribute
from jaxlib.ipu.target import Target


class ReductionSplit(NamedTuple):
  """The extents of blocks along the parallel (kept) and the reduced elements,
  and the numbers of blocks."""

  kept_block: int
  reduced_block: int
  kept_parts: int
  reduced_parts: int


class ReductionCosts(NamedTuple):
  """Parameters of a reduction's cost.

  Attributes:
    item_bytes: bytes of an element, over all operands.
    each: cycles to combine one more element.
    partial_bytes: bytes of a partial result.
    combine: cycles to combine one more partial result.
    width: elements that the vertex for columns takes at a time; 0 if there is
      no such vertex.
    made: cycles in which a fused producer computes an element.
  """

  item_bytes: int
  each: Cycles
  partial_bytes: int
  combine: Cycles
  width: int = 0
  made: Cycles = Cycles(0.0)


@functools.lru_cache(maxsize=4096)
def plan(
  target: Target,
  kept: int,
  reduced: int,
  work: ReductionCosts,
  row_bytes: int = WORD,
) -> tuple[ReductionSplit, float, float]:
  """The cheapest split of (kept, reduced) elements. A block has at least
  `row_bytes` along the kept elements.

  Returns:
    The split, and its cycles with and without the exchange that moves all
    elements to it.
  """
  if kept == 0 or reduced == 0:
    return ReductionSplit(max(kept, 1), max(reduced, 1), 1, 1), 0.0, 0.0
  tiles = target.num_tiles
  parts = np.unique(
    np.geomspace(1, min(tiles, reduced), num=32).astype(np.int64)
  )
  reduced_block = -(-reduced // parts)
  parts = -(-reduced // reduced_block)
  kept_parts = np.minimum(kept, np.maximum(1, tiles // parts))
  # Whole words, as in PopLibs (`Target::getAtomicStoreGranularity`) [S].
  grain = max(row_bytes // work.item_bytes, 1)
  kept_block = -(-kept // (kept_parts * grain)) * grain
  cycles = cell_cycles(
    target, kept_block, reduced_block, work.each, work.width, made=work.made
  ).total
  moving = target.sync_cycles + cost.exchange_cycles(
    target, kept_block * reduced_block * work.item_bytes, 0
  )
  cycles += moving
  # The first candidate has one part, so no partial results. Those that save
  # less than the launch of the stage that combines them are not considered.
  least = target.sync_cycles + target.launch_cycles
  split = np.flatnonzero((parts > 1) & (cycles + least < cycles[0]))
  combined = np.where(parts > 1, np.inf, 0.0)
  if len(split):
    combined[split] = combination_cycles(
      target,
      kept_block[split],
      parts[split],
      work.partial_bytes,
      combining_cycles(target, work),
      REDUCTIONS,
    )
  cycles += combined
  best = int(np.argmin(cycles))
  block = int(kept_block[best])
  chosen = ReductionSplit(
    block, int(reduced_block[best]), -(-kept // block), int(parts[best])
  )
  return chosen, float(cycles[best]), float(cycles[best] - moving[best])


def combining_cycles(target: Target, work: ReductionCosts) -> ReduceCycles:
  """The cycles of combining partial results. If the partials of several
  elements fit in a vector, they are combined at once."""
  width = max(target.data_path_bytes // work.partial_bytes, 1)

  def cycles(share: Any, fan: Any) -> Cycles:
    return cell_cycles(target, share, fan, work.combine, width)

  return cycles


@functools.lru_cache(maxsize=4096)
def in_place(
  target: Target,
  layout: Layout,
  shape: tuple[int, ...],
  order: tuple[int, ...],
  num_kept: int,
  work: ReductionCosts,
) -> tuple[ReductionSplit, Layout, Order, float] | None:
  """The split that reduces elements where they are.

  Args:
    target: the machine.
    layout: the elements' mapping.
    shape: their shape.
    order: its dimensions, first those that are kept, then those that are
      reduced.
    num_kept: number of dimensions that are kept.
    work: the parameters of the cost.

  Returns:
    The split, its mapping, the storage order on a tile, and the cycles; None if
    the layout has replicas or its blocks straddle dimensions.
  """
  groups = refine(layout.factors, shape)
  if groups is None or layout.replicas:
    return None
  halves = [
    tuple(f for d in dims for f in groups[d])
    for dims in (order[:num_kept], order[num_kept:])
  ]
  blocks = [math.prod(min(f.block, f.extent) for f in h) for h in halves]
  parts = [math.prod(f.parts for f in h) for h in halves]
  split = ReductionSplit(blocks[0], blocks[1], parts[0], parts[1])
  factors = halves[0] + halves[1]
  mapping = Layout(factors or (Factor(1, 1, 0),), base=layout.base)
  inner = [
    d
    for d, factors in enumerate(groups)
    if math.prod(min(f.block, f.extent) for f in factors) > 1
  ]
  columns = bool(inner) and inner[-1] in order[:num_kept]
  beside = Order.COLUMNS if columns else Order.ROWS
  cycles = float(
    cell_cycles(
      target, blocks[0], blocks[1], work.each, work.width, beside, work.made
    ).total
  )
  if split.reduced_parts > 1:
    cycles += combination(
      target,
      split.kept_block,
      split.reduced_parts,
      work.partial_bytes,
      combining_cycles(target, work),
      REDUCTIONS,
    )
  return split, mapping, beside, cycles


def partition(
  shape: tuple[int, ...], num_kept: int, p: ReductionSplit
) -> Layout:
  """The plan as a mapping of the iteration space (kept..., reduced...)."""
  kept = math.prod(shape[:num_kept])
  reduced = math.prod(shape[num_kept:])
  stride = p.reduced_parts if p.kept_parts > 1 else 0
  return Layout(
    (
      Factor(kept, p.kept_block, stride),
      Factor(reduced, p.reduced_block, 1 if p.reduced_parts > 1 else 0),
    )
  )


def boxes(
  shape: tuple[int, ...], num_kept: int, p: ReductionSplit, num_tiles: int
) -> tuple[ReductionSplit, Layout]:
  """About the same plan, with blocks that are boxes of all dimensions.
  Overlapping windows then have most of their elements in common with others on
  their tile.
  """
  halves = (shape[:num_kept], shape[num_kept:])
  parts = [
    count
    for half, most in zip(halves, (p.kept_parts, p.reduced_parts), strict=True)
    for count in distribute(most, half, num_tiles)
  ]
  blocks = [-(-n // count) for n, count in zip(shape, parts, strict=True)]
  used = [-(-n // block) for n, block in zip(shape, blocks, strict=True)]
  return ReductionSplit(
    math.prod(blocks[:num_kept]),
    math.prod(blocks[num_kept:]),
    math.prod(used[:num_kept]),
    math.prod(used[num_kept:]),
  ), grid(shape, parts)


def result_layout(
  target: Target,
  split: Layout,
  p: ReductionSplit,
  shape: tuple[int, ...],
  num_kept: int,
  item_bytes: int,
) -> Layout:
  """The results' mapping: with their partials if there is only one part,
  otherwise distributed evenly in whole words of the smallest result, as in
  PopLibs (`Target::getAtomicStoreGranularity`) [S]."""
  kept, reduced = math.prod(shape[:num_kept]), math.prod(shape[num_kept:])
  if p.reduced_parts <= 1:
    own = project(split, (kept, reduced), (0,))
    if own is not None:
      return own
  return linear(kept, target.num_tiles, max(WORD // item_bytes, 1))
