"""Combining the partial results of a split sum, in stages.

Several tiles hold a partial result for each element of a block. In a stage the
tiles of a group divide the block's elements between them: each receives the
others' partials of its share and reduces them; the next stage does the same
with the groups' results. There are as many stages as poplin takes for products
(ConvReducePlan.cpp) and popops for reductions (ReductionSplit.hpp) [S], with
about equal fan-in [D]. Finally the results are sent to the tiles that own
them; where that saves a superstep, the owners receive the last stage's
partials directly.

A step's cost (`epilogue`) and the interpreter use `stages`; planners use
`combination`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.dot import CODELET as DOT
from jaxlib.ipu.codelets.reduce import CODELET as REDUCE
from jaxlib.ipu.layout import Layout, refine
from jaxlib.ipu.moves import messages
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target

PRODUCTS, REDUCTIONS = DOT.many_partials, REDUCE.many_partials

# A tile may receive this many extra elements to save a superstep: about what
# arrives in the time of a synchronisation [D].
_WORTH = 100

# Given (share, fan): cycles of a tile that reduces `fan` partials of each of
# `share` elements.
ReduceCycles = Callable[[Any, Any], Cycles]


def combination(
  target: Target,
  block: int,
  parts: int,
  item_bytes: int,
  reduce_cycles: ReduceCycles,
  many: tuple[int, ...] = PRODUCTS,
) -> float:
  """Cycles of all stages while the results' mapping is unknown: the tiles that
  reduce last count as their owners.

  Args:
    target: the machine.
    block: elements that each tile holds partial results of.
    parts: number of tiles with partials of the same elements; at least 2.
    item_bytes: of a partial.
    reduce_cycles: cycles of a tile's share of a stage, launch included.
    many: ascending numbers of partials; each of them that `parts` reaches adds
      a stage.
  """
  total = 0.0
  # With so many results on one tile, no stage sends directly to the owners.
  far = block + _WORTH + 1
  for s in stages(block, parts, far, many)[:-1]:
    total += float(reduce_cycles(s.share, s.fan).total) + target.sync_cycles
    received, sent = s.received * item_bytes, s.sent * item_bytes
    total += cost.exchange_cycles(target, received, sent)
  return total


def combination_cycles(
  target: Target,
  block: npt.NDArray[Any],
  parts: npt.NDArray[Any],
  item_bytes: int,
  reduce_cycles: ReduceCycles,
  many: tuple[int, ...] = PRODUCTS,
) -> npt.NDArray[np.float64]:
  """`combination` for arrays of candidates; 0 where there is one part."""
  total = np.zeros(len(parts))
  # Candidates whose partials are not combined yet.
  todo = np.flatnonzero(parts > 1)
  share, left = block[todo], parts[todo]
  stages = np.searchsorted(many, left, side="right") + 1
  while todo.size:
    fan = np.ceil(left ** (1 / stages) - 1e-9)
    groups = np.where(stages > 1, np.ceil(left / fan), 1)
    largest = np.ceil(left / groups)
    sent = share * item_bytes
    share = np.ceil(share / np.maximum(left // groups, 1))
    received = share * (largest - 1) * item_bytes
    cycles = reduce_cycles(share, largest).total + target.sync_cycles
    cycles += cost.exchange_cycles(target, received, sent)
    total[todo] += cycles
    more = groups > 1
    todo, share, left = todo[more], share[more], groups[more]
    stages = stages[more] - 1
  return total


class Stage(NamedTuple):
  """An exchange of partials and the reduction that follows it.

  Attributes:
    groups: number of groups of the tiles that hold partials of an element.
    shares: number of shares into which each group cuts its elements; 0 if all
      tiles send their partials directly to the results' owners.
    sent: maximum elements that a tile sends.
    received: maximum elements that a tile receives.
    fan: maximum partials of an element that a tile reduces.
    share: elements that a tile reduces.
    moved: maximum partials of an element that change tile.
  """

  groups: int
  shares: int
  sent: int
  received: int
  fan: int
  share: int
  moved: int


def stages(
  block: int, parts: int, owned: int, many: tuple[int, ...]
) -> list[Stage]:
  """The stages that combine the partials.

  Args:
    block: elements that each tile holds partial results of.
    parts: number of tiles with partials of the same elements.
    owned: results on the fullest tile.
    many: see `combination`.
  """
  found = []
  share, left = block, parts
  count = 1 + sum(parts >= n for n in many) if parts > 1 else 0
  for stage in range(count):
    last = stage == count - 1
    fan = math.ceil(left ** (1 / (count - stage)) - 1e-9)
    groups = 1 if last else -(-left // fan)
    shares, largest = left // groups, -(-left // groups)
    mine = -(-share // shares)
    if last and (left - 1) * (owned - mine) <= _WORTH:
      found.append(Stage(1, 0, share, left * owned, left, owned, left))
      return found
    received = (largest - 1) * mine
    found.append(
      Stage(groups, shares, share, received, largest, mine, left - groups)
    )
    share, left = mine, groups
  found.append(Stage(1, 0, share, owned, 1, owned, 1))
  return found


def cell(
  partition: Layout, shape: tuple[int, ...], num_kept: int
) -> tuple[int, int]:
  """The elements of the largest block of results, and its number of parts."""
  extents = math.prod(shape[:num_kept]), math.prod(shape[num_kept:])
  halves = refine(partition.factors, extents)
  if halves is None:
    return extents[0], 1  # nothing is computed
  kept, reduced = halves
  return (
    math.prod(min(f.block, f.extent) for f in kept),
    math.prod(f.parts for f in reduced),
  )


def epilogue(
  target: Target,
  partition: Layout,
  shape: tuple[int, ...],
  num_kept: int,
  owner: Layout,
  item_bytes: int,
  reduce_cycles: ReduceCycles,
  many: tuple[int, ...],
) -> cost.Epilogue | None:
  """The supersteps that combine a step's partial results; None if it has none.

  Args:
    target: the machine.
    partition: of the iteration space `shape`, of which the first `num_kept`
      dimensions are parallel.
    owner: the results' mapping.
    item_bytes: of a partial.
    reduce_cycles, many: see `combination`.
  """
  block, parts = cell(partition, shape, num_kept)
  if parts <= 1:
    return None
  results = math.prod(shape[:num_kept])
  total = cost.superstep(target)
  most = words = 0
  todo = stages(block, parts, owner.max_elements, many)
  for s in todo:
    copies = owner.num_replicas if not s.shares else 1
    most = max(most, s.received)
    words += _words(s)
    total = cost.add(
      total,
      cost.superstep(
        target,
        compute=reduce_cycles(s.share, s.fan) if s.fan > 1 else None,
        bytes_in=s.received * item_bytes,
        bytes_out=s.sent * item_bytes,
        total_bytes=results * s.moved * copies * item_bytes,
        flops=float(results * (s.moved - (s.fan == 1))),
      ),
    )
  tiles = np.arange(max(partition.last_tile, owner.last_tile) + 1)
  room = np.full(len(tiles), (block + most) * item_bytes, np.int64)
  return cost.Epilogue(total, room, len(todo), words)


def _words(s: Stage) -> int:
  """Upper bound of a tile's words of exchange code in a stage.

  A share goes to one tile of its group. Partials that go directly to the
  results' owners are cut where the owners' blocks begin, which may be anywhere
  in a block of partials.
  """
  if s.shares:
    return messages.row_words(s.shares, s.fan - 1)
  owners = -(-s.sent // s.share) + 1
  others = s.fan * (-(-s.share // s.sent) + 1)
  return messages.row_words(min(owners, s.sent), min(others, s.received))
