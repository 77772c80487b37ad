"""How a reduction is split over tiles.

Kept elements go to tiles first; when there are fewer of them than tiles, the
reduced dimension is split too and the partial results are combined: a second
superstep in which each result's owner receives and reduces its partials.
Follows PopLibs' reduction planner (ReductionPlan.cpp): the cost of a stage is
`bytes / exchange + elements / vector width + sync`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import (
  Factor,
  Layout,
  grid,
  linear,
  project,
  refine,
)
from jaxlib.ipu.plan.matmul import distribute
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


class ReductionPlan(NamedTuple):
  """Blocks of kept and of reduced elements, and the parts they make."""

  kept_block: int
  reduced_block: int
  kept_parts: int
  reduced_parts: int


@functools.lru_cache(maxsize=4096)
def plan(
  target: Target, kept: int, reduced: int, item_bytes: int
) -> tuple[ReductionPlan, float]:
  """The cheapest split of (kept, reduced) elements, each of `item_bytes`.

  Returns:
    The split and about how many cycles it takes, the exchange that brings
    the elements there included.
  """
  if kept == 0 or reduced == 0:
    return ReductionPlan(max(kept, 1), max(reduced, 1), 1, 1), 0.0
  tiles = target.num_tiles
  parts = np.unique(
    np.geomspace(1, min(tiles, reduced), num=32).astype(np.int64)
  )
  reduced_block = -(-reduced // parts)
  parts = -(-reduced // reduced_block)
  kept_parts = np.minimum(kept, np.maximum(1, tiles // parts))
  kept_block = -(-kept // kept_parts)
  cycles = _cycles(target, kept, kept_block, reduced_block, parts, item_bytes)
  cycles += target.sync_cycles + cost.exchange_cycles(
    target, kept_block * reduced_block * item_bytes, 0
  )
  best = int(np.argmin(cycles))
  block = int(kept_block[best])
  chosen = ReductionPlan(
    block, int(reduced_block[best]), -(-kept // block), int(parts[best])
  )
  return chosen, float(cycles[best])


def _cycles(
  target: Target,
  kept: int,
  kept_block: Any,
  reduced_block: Any,
  parts: Any,
  item_bytes: int,
) -> Any:
  """Reducing one block on each tile, and combining the parts: each owner
  receives the partials of its share of the results."""
  width = target.data_path_bytes / item_bytes
  compute = kept_block * np.ceil(reduced_block / width)
  share = np.ceil(kept / target.num_tiles)
  combine = (
    share * parts * item_bytes / target.exchange_bytes_per_cycle
    + share * parts
    + target.sync_cycles
    + target.launch_cycles
  )
  return compute + np.where(np.asarray(parts) > 1, combine, 0.0)


@functools.lru_cache(maxsize=4096)
def in_place(
  target: Target,
  layout: Layout,
  shape: tuple[int, ...],
  order: tuple[int, ...],
  num_kept: int,
  item_bytes: int,
) -> tuple[ReductionPlan, Layout, float] | None:
  """Reducing elements where they are.

  Args:
    layout: where they are.
    shape: theirs; `order` permutes it to the kept and the reduced
      dimensions, of which the first `num_kept` are kept.

  Returns:
    The split, its mapping and its cycles; None if the layout's blocks
    straddle dimensions.
  """
  groups = refine(layout.factors, shape)
  if groups is None or layout.replicas:
    return None
  halves = [
    tuple(f for d in dims for f in groups[d])
    for dims in (order[:num_kept], order[num_kept:])
  ]
  kept, reduced = (math.prod(f.extent for f in h) for h in halves)
  blocks = [math.prod(min(f.block, f.extent) for f in h) for h in halves]
  parts = [math.prod(f.parts for f in h) for h in halves]
  split = ReductionPlan(blocks[0], blocks[1], parts[0], parts[1])
  factors = halves[0] + halves[1]
  mapping = Layout(factors or (Factor(1, 1, 0),), base=layout.base)
  cycles = _cycles(target, kept, blocks[0], blocks[1], parts[1], item_bytes)
  return split, mapping, float(cycles)


def partition(
  shape: tuple[int, ...], num_kept: int, p: ReductionPlan
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
  shape: tuple[int, ...], num_kept: int, p: ReductionPlan
) -> tuple[ReductionPlan, Layout]:
  """About the same plan in blocks that are boxes: what overlapping windows
  need on a tile is then the elements that they cover."""
  halves = (shape[:num_kept], shape[num_kept:])
  parts = [
    count
    for half, most in zip(halves, (p.kept_parts, p.reduced_parts), strict=True)
    for count in distribute(most, half)
  ]
  blocks = [-(-n // count) for n, count in zip(shape, parts, strict=True)]
  used = [-(-n // block) for n, block in zip(shape, blocks, strict=True)]
  return ReductionPlan(
    math.prod(blocks[:num_kept]),
    math.prod(blocks[num_kept:]),
    math.prod(used[:num_kept]),
    math.prod(used[num_kept:]),
  ), grid(shape, parts)


def result_layout(
  target: Target,
  split: Layout,
  p: ReductionPlan,
  shape: tuple[int, ...],
  num_kept: int,
) -> Layout:
  """Where the results are: with their partials' first part if there is only
  one part, spread evenly otherwise."""
  kept, reduced = math.prod(shape[:num_kept]), math.prod(shape[num_kept:])
  if p.reduced_parts <= 1:
    own = project(split, (kept, reduced), (0,))
    if own is not None:
      return own
  return linear(kept, target.num_tiles)


def combine_cost(
  target: Target, p: ReductionPlan, item_bytes: int
) -> schema.Cost | None:
  """The superstep that combines partial results; None if there are none."""
  if p.reduced_parts <= 1:
    return None
  kept = p.kept_block * p.kept_parts
  share = -(-kept // target.num_tiles)
  received = share * p.reduced_parts * item_bytes
  total = kept * p.reduced_parts * item_bytes
  workers = target.num_workers
  return cost.superstep(
    target,
    # A strided reduction of `parts` vectors: PopLibs' STRIDED_REDUCE,
    # 16 + outputs * (3 + 2 + (parts - 1)), on the slowest worker.
    compute_cycles=workers
    * (16 + -(-share // workers) * (5 + p.reduced_parts - 1)),
    bytes_in=received,
    bytes_out=p.kept_block * item_bytes,
    total_bytes=total,
  )
