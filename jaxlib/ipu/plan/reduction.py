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
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.dtypes import FLOATS, SIZE, DType
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import Factor, Layout, linear, project
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
) -> ReductionPlan:
  """The cheapest split of (kept, reduced) elements, each of `item_bytes`."""
  if kept == 0 or reduced == 0:
    return ReductionPlan(max(kept, 1), max(reduced, 1), 1, 1)
  tiles = target.num_tiles
  parts = np.unique(
    np.geomspace(1, min(tiles, reduced), num=32).astype(np.int64)
  )
  reduced_block = -(-reduced // parts)
  parts = -(-reduced // reduced_block)
  kept_parts = np.minimum(kept, np.maximum(1, tiles // parts))
  kept_block = -(-kept // kept_parts)
  width = target.data_path_bytes / item_bytes
  compute = kept_block * np.ceil(reduced_block / width)
  # Combining: each owner receives `parts` partials of its share of results.
  share = np.ceil(kept / tiles)
  combine = np.where(
    parts > 1,
    share * parts * item_bytes / target.exchange_bytes_per_cycle
    + share * parts
    + target.sync_cycles
    + target.launch_cycles,
    0,
  )
  best = int(np.argmin(compute + combine))
  block = int(kept_block[best])
  return ReductionPlan(
    block, int(reduced_block[best]), -(-kept // block), int(parts[best])
  )


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


def result_layout(
  target: Target, split: Layout, shape: tuple[int, ...], num_kept: int
) -> Layout:
  """Where the results are: with their partials' first part if there is only
  one part, spread evenly otherwise."""
  kept = math.prod(shape[:num_kept])
  reduced = split.factors[1]
  if reduced.parts <= 1:
    own = project(split, (kept, reduced.extent), (0,))
    if own is not None:
      return own
  return linear(kept, target.num_tiles)


def partial_bytes(dtype: DType) -> int:
  """Bytes of a partial result: narrow floats are summed as f32."""
  return max(SIZE[dtype], 4) if dtype in FLOATS else SIZE[dtype]


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
  return cost.superstep(
    target,
    # A strided reduction of `parts` vectors: PopLibs' STRIDED_REDUCE,
    # 16 + outputs * (3 + 2 + (parts - 1)), on the slowest worker.
    compute_cycles=6 * (16 + -(-share // 6) * (5 + p.reduced_parts - 1)),
    bytes_in=received,
    bytes_out=p.kept_block * item_bytes,
    total_bytes=total,
  )
