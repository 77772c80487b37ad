"""Combining the partial results of a split sum, in stages.

Several tiles hold a partial result for each element of a block. In a stage the
tiles of a group share the block's elements between them: each receives the
others' partials of its share and reduces them; the next stage does the same
with the groups' results. There are as many stages as poplin takes for products
(ConvReducePlan.cpp) and popops for reductions (ReductionPlan.hpp) [S], each of
about as many partials [D].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# From so many partials on there is one stage more: poplin's for products, and
# popops', which never lets a piece have less than 64 partials.
PRODUCTS, REDUCTIONS = (16, 125), (65, 64 * 64 + 1)

# Cycles of a tile that reduces `fan` partials of each of `share` elements.
ReduceCycles = Callable[[Any, Any], Any]


class Combination(NamedTuple):
  """Cycles of all stages, and how often the partials of an element travel."""

  compute: float
  exchange: float
  sync: float
  trips: float
  derived: float

  def cost(self, results: int, parts: int, item_bytes: int) -> schema.Cost:
    """The step's, for `results` elements of `parts` partials each."""
    return cost.Sourced(
      self.compute,
      self.exchange,
      self.sync,
      results * self.trips * item_bytes,
      float(results * (parts - 1)),
      derived=self.derived,
    )


def combination(
  target: Target,
  block: float,
  parts: int,
  item_bytes: int,
  reduce_cycles: ReduceCycles,
  many: tuple[int, ...] = PRODUCTS,
) -> Combination:
  """What it takes.

  Args:
    target: the machine.
    block: elements that each tile holds partial results of.
    parts: how many tiles hold partials of the same elements; from 2.
    item_bytes: of a partial.
    reduce_cycles: what a tile's share of a stage takes, launch included.
    many: from how many partials on there is one stage more.
  """
  compute = exchange = sync = trips = derived = 0.0
  for share, fan, sent, received, left in _stages(
    block, parts, item_bytes, many
  ):
    compute += float(reduce_cycles(share, fan))
    exchange += cost.exchange_cycles(target, received, sent)
    sync += target.sync_cycles
    trips += left  # each partial leaves the tile that made it
    derived += target.launch_cycles + target.route_cycles + target.sync_cycles
  return Combination(compute, exchange, sync, trips, derived)


def combination_cycles(
  target: Target,
  block: npt.NDArray[Any],
  parts: npt.NDArray[Any],
  item_bytes: int,
  reduce_cycles: ReduceCycles,
  many: tuple[int, ...] = PRODUCTS,
) -> npt.NDArray[np.float64]:
  """All cycles of it for many candidates; 0 where there is one part."""
  share, left = block, parts
  stages = np.searchsorted(many, parts, side="right") + 1
  total = np.zeros(len(parts))
  for stage in range(int(stages.max())):
    fan = np.ceil(left ** (1 / np.maximum(stages - stage, 1)) - 1e-9)
    sent = share * item_bytes
    share = np.ceil(share / fan)
    received = share * (fan - 1) * item_bytes
    cycles = reduce_cycles(share, fan) + target.sync_cycles
    cycles += cost.exchange_cycles(target, received, sent)
    cycles[left <= 1] = 0.0
    total += cycles
    left = np.ceil(left / fan)
  return total


def _stages(
  block: float, parts: int, item_bytes: int, many: tuple[int, ...]
) -> Iterator[tuple[float, float, float, float, float]]:
  """Of each stage: a tile's elements, the partials of one, the bytes that it
  sends and receives, and how many partials each element had."""
  share, left = float(block), float(parts)
  stages = 1 + sum(parts >= n for n in many)
  for stage in range(stages):
    fan = float(math.ceil(left ** (1 / (stages - stage)) - 1e-9))
    sent = share * item_bytes
    share = float(math.ceil(share / fan))
    yield share, fan, sent, share * (fan - 1) * item_bytes, left
    left = float(math.ceil(left / fan))
