"""Plans how steps with run-time indices (gather, scatter, dynamic slices and
updates) are split over tiles.

An exchange is fixed when a program is compiled, so a tile has to find out for
itself which of its elements are needed. As PopLibs plans it (popops/
DynamicSlice.cpp): all tiles that share a tensor along the indexed dimensions
get the indices. For slices each picks the elements it has; its candidates then
go to the tiles of the same cell, which divide the cell's results between them
and know from the indices whose candidate to take. For updates each applies
those that fall on its elements; where tiles take a part of the lookups each, a
team of them shares a block of elements: each adds up partial results for all of
it, and combines the team's for its own share.

A split has parts of the lookups, of the indexed dimension and of the others
(popops: lookupParallelSplit, slicedDimSplit, unslicedDimSplit; lookups in
several rounds: lookupSerialSplit). It is chosen by cost, where leaving the
tensor in place competes with moving it; and by the memory that a step's
candidates, indices and updates take, in as many rounds as they need
(ops/_rounds.py runs them).

The search estimates all splits by closed forms, including the packing of the
tensor's messages; for the best ones the builder computes what their exchanges
will be charged, and the cheapest is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.plan import indexed_cycles, messages
from jaxlib.ipu.plan.indexed_blocks import (
  Counts,
  Windows,
  largest_cell,
  slice_blocks,
  update_blocks,
)
from jaxlib.ipu.plan.indexed_split import (
  IndexedPlan,
  one_by_one,
  slices_in_place,
  split_slices,
  split_updates,
  updates_in_place,
)
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.target import Target

# Splits for which the builder computes the exchanges' charges. [G]
_TRIED = 3
# An estimate that is exceeded by no more than this is accepted, and so is the
# order of estimates. [G]
_AS_ESTIMATED = 1.05
# The shares of a tile's SRAM that a step may use together with the tensor that
# it indexes: at first, and after a program did not fit; and the share of the
# rest for updates that arrive at once [G].
ROOMY, FRUGAL = 0.6, 1 / 32
_ARRIVES = 0.25

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# What a split's exchanges will be charged: once, for moving the tensor (and
# back, if it is updated); and per round, for updates and their indices. The
# plan is that of a round.
Exchanges = Callable[[Windows, IndexedPlan], tuple[float, float]]


class Found(NamedTuple):
  """The cheapest split.

  Attributes:
    plan: of a round.
    size: of a round, along `Windows.rounds_along`.
    estimate: of a round, moving the tensor included.
    split: parts of the sliced axis, of the free dimensions and of the others;
      None if the tensor stays in place.
    alone: the size of a round in which no lookups are shared, for the remainder
      after full rounds.
  """

  plan: IndexedPlan
  size: int
  estimate: indexed_cycles.Estimate
  split: tuple[int, int, int] | None
  alone: int

  def slices(self, w: Windows, own: Layout) -> IndexedPlan:
    """The same split for the slices of another round."""
    if self.split:
      return split_slices(w, *self.split)
    there = slices_in_place(w, own)
    assert there is not None, "it could stay there in other rounds"
    return there

  def updates(self, w: Windows, own: Layout) -> IndexedPlan:
    """The same split for the updates of another round."""
    if self.split:
      return split_updates(w, *self.split)
    there = updates_in_place(w, own)
    assert there is not None, "it could stay there in other rounds"
    return there


class _Way(NamedTuple):
  """A candidate for the cheapest split.

  Attributes:
    split: see `Found`.
    rounds: how many.
    cycles: of all of them, by the estimate.
    inside: of these, cycles of its vertices and the exchanges between them.
  """

  split: tuple[int, int, int] | None
  rounds: int
  cycles: float
  inside: float


class _Problem(NamedTuple):
  """A search problem: how to split, and the cost of a split.

  Attributes:
    room: bytes that a round may take, the tensor included.
    arrives: of these, bytes that the lookups may take.
    teams: whether lookups may be split over tiles.
    estimate: the cost of splits.
    tile: figures of the busiest tile if the tensor is moved.
    split: makes the split with so many parts.
    there: makes the split of the tensor in place, if it can stay there.
  """

  room: float
  arrives: float
  teams: bool
  estimate: Callable[[indexed_cycles.Tile], indexed_cycles.Estimate]
  tile: Callable[[Windows, Counts, Counts, Counts], indexed_cycles.Tile]
  split: Callable[[Windows, int, int, int], IndexedPlan]
  there: Callable[[Windows], IndexedPlan | None]


def slicing(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  cycles: indexed_cycles.LookupCycles,
  share: float = ROOMY,
  exchanges: Exchanges | None = None,
) -> Found:
  """The cheapest split of slices.

  Args:
    target: the machine.
    w: the windows.
    own: the tensor's mapping.
    stays: whether it can be sliced in place.
    cycles: of the vertices.
    share: of a tile's SRAM, for the step and its tensor.
    exchanges: computes their charges; None uses the estimate.
  """
  p, ways = _slicing_ways(target, w, own, stays, cycles, share)
  return _cheapest(w, p, ways, exchanges)


@functools.lru_cache(maxsize=4096)
def _slicing_ways(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  cycles: indexed_cycles.LookupCycles,
  share: float,
) -> tuple[_Problem, list[_Way]]:
  def estimate(t: indexed_cycles.Tile) -> indexed_cycles.Estimate:
    return indexed_cycles.slicing(target, w, own, cycles, t)

  def tile(
    w: Windows, parts: Counts, groups: Counts, others: Counts
  ) -> indexed_cycles.Tile:
    found = slice_blocks(w, parts, groups, others)
    return indexed_cycles.of_blocks(
      w, own, found, found.window, found.side_by_side(w, False)
    )

  room = _room(target, w, own, share)
  there = (lambda w: slices_in_place(w, own)) if stays else _nowhere
  problem = _Problem(room, room, True, estimate, tile, split_slices, there)
  return problem, _ways(target, w, problem)


def updating(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  partial: indexed_cycles.Partials,
  cycles: indexed_cycles.LookupCycles,
  share: float = ROOMY,
  exchanges: Exchanges | None = None,
) -> Found:
  """The cheapest split of updates.

  Args:
    target, w, own, cycles, share, exchanges: see `slicing`.
    stays: whether the tensor can be updated in place.
    partial: the partial results that a team's tiles add up.
  """
  p, ways = _updating_ways(target, w, own, stays, partial, cycles, share)
  return _cheapest(w, p, ways, exchanges)


@functools.lru_cache(maxsize=4096)
def _updating_ways(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  partial: indexed_cycles.Partials,
  cycles: indexed_cycles.LookupCycles,
  share: float,
) -> tuple[_Problem, list[_Way]]:
  def estimate(t: indexed_cycles.Tile) -> indexed_cycles.Estimate:
    return indexed_cycles.updating(target, w, own, partial, cycles, t)

  def tile(
    w: Windows, parts: Counts, groups: Counts, others: Counts
  ) -> indexed_cycles.Tile:
    found = update_blocks(w, parts, groups, others)
    comes = found.shared.elements
    return indexed_cycles.of_blocks(
      w, own, found, comes, found.side_by_side(w, True)
    )

  room = _room(target, w, own, share)
  there = (lambda w: updates_in_place(w, own)) if stays else _nowhere
  teams = partial.item_bytes > 0
  problem = _Problem(
    room, room * _ARRIVES, teams, estimate, tile, split_updates, there
  )
  return problem, _ways(target, w, problem)


def _nowhere(w: Windows) -> None:
  """For a tensor that is a part of another one: it cannot stay in place."""


def _room(target: Target, w: Windows, own: Layout, share: float) -> float:
  """Bytes that a round may take in addition to the tensor in place, the lookups
  and their slices or updates."""
  lookups = math.prod(w.shape[: w.num_batch])
  elsewhere = math.prod(w.shape) * w.item_bytes + lookups * w.index_bytes
  taken = own.max_elements * w.item_bytes + elsewhere / target.num_tiles
  return target.bytes_per_tile * share - min(
    taken, target.bytes_per_tile * (share - FRUGAL)
  )


# --- The search --------------------------------------------------------------


def _ways(target: Target, w: Windows, p: _Problem) -> list[_Way]:
  """Splits, cheapest first: the tensor in place, if possible, and the cheapest
  ones that move it."""
  free = math.prod(w.shape[d] for d in w.free)
  rest = math.prod(w.shape[to] for to in w.along if to >= 0)
  parts, groups = _choices(target.num_tiles, w.places, free if p.teams else 1)
  others = np.minimum(np.maximum(target.num_tiles // (parts * groups), 1), rest)
  # The same with blocks that are a few words wide, which need no packing.
  wide = max(messages.WIDE // w.item_bytes, 1)
  few = np.maximum(-(-rest // (-(-rest // (others * wide)) * wide)), 1)
  cut = few != others
  parts, groups, others = (
    np.append(n, m[cut])
    for n, m in ((parts, parts), (groups, groups), (others, few))
  )
  rated, rounds, before = _rated(target, w, p, p.tile(w, parts, groups, others))
  ways = []
  there = p.there(w)
  if there is not None:
    found = (
      float(x[0])
      for x in _rated(target, w, p, indexed_cycles.of_plan(w, there))
    )
    cycles, count, moving = found
    ways.append(_Way(None, int(count), cycles, cycles - moving))
  for i in np.argsort(rated, kind="stable")[: 2 * _TRIED].tolist():
    split = int(parts[i]), int(groups[i]), int(others[i])
    cycles = float(rated[i])
    inside = cycles - float(before[i])
    ways.append(_Way(split, int(rounds[i]), cycles, inside))
  return sorted(ways, key=lambda way: way.cycles)


def _cheapest(
  w: Windows, p: _Problem, ways: list[_Way], exchanges: Exchanges | None
) -> Found:
  """The cheapest of several ways, tried in the order of their estimates."""
  least, best = math.inf, ways[0]
  plans: set[IndexedPlan] = set()
  for way in ways:
    if exchanges is None:
      break
    if way.cycles >= least or len(plans) == _TRIED:
      break
    if way.inside >= least:
      continue
    some, plan = _of_round(w, p, way, max(w.most_rounds // way.rounds, 1))
    if plan in plans:
      continue
    plans.add(plan)
    once, again = exchanges(some, plan)
    cycles = way.inside + once + way.rounds * again
    if cycles < least:
      least, best = cycles, way
    if cycles <= _AS_ESTIMATED * way.cycles:
      break
  return _found(w, p, best)


@functools.lru_cache(maxsize=4096)
def _of_round(
  w: Windows, p: _Problem, way: _Way, size: int
) -> tuple[Windows, IndexedPlan]:
  """The windows of a round of some size, and its split."""
  some = w.of_round(size)
  plan = p.split(some, *way.split) if way.split else p.there(some)
  assert plan is not None, "it could stay where it is with all lookups"
  return some, plan


@functools.lru_cache(maxsize=4096)
def _found(w: Windows, p: _Problem, best: _Way) -> Found:
  """The split of one way, in rounds that fit."""
  cut, count, stays = best.split or (), best.rounds, best.split is None
  extent = w.most_rounds
  size = max(extent // count, 1)
  while True:
    some, plan = _of_round(w, p, best, size)
    tile = indexed_cycles.of_plan(some, plan) if stays else p.tile(some, *cut)
    taken = p.estimate(tile)
    # Rounding up to whole blocks may exceed the share.
    if count == 1 or size == 1 or taken.held + taken.step <= p.room:
      break
    size //= 2
  alone = float(size)
  if size < extent and plan.team > 1:
    one = w.of_round(1)
    lookups, window = largest_cell(one, one_by_one(some, one, plan).partition)
    alone = p.arrives // (lookups * (w.index_bytes + window * w.item_bytes))
  return Found(plan, size, taken, best.split, max(int(alone), 1))


def _rated(
  target: Target, w: Windows, p: _Problem, t: indexed_cycles.Tile
) -> tuple[Floats, Floats, Floats]:
  """Cycles of splits, in as many rounds as each needs; the number of rounds;
  and the cycles of the exchanges that `Exchanges` covers.

  A split that does not fit ranks after all that do, larger ones last.
  """
  taken = p.estimate(t)
  held, step = taken.held, taken.step
  left = np.clip(p.room - held, p.room / 64, p.arrives)
  rounds = np.clip(np.ceil(step / left), 1, w.most_rounds)
  room = held + step / rounds
  cycles = taken.cycles + taken.packing + (rounds - 1) * taken.again
  cycles = np.where(room <= p.room, cycles, 1e18 + 1e6 * room)
  return cycles, rounds, taken.before + taken.packing


@functools.lru_cache(maxsize=1024)
def _choices(tiles: int, sliced: int, free: int) -> tuple[Array, Array]:
  """Parts of the sliced axis and of the free dimensions to try."""

  def powers(extent: int) -> list[int]:
    most = min(extent, tiles)
    tried = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return sorted({-(-extent // -(-extent // n)) for n in (*tried, most)})

  pairs = [
    (s, n) for s in powers(sliced) for n in powers(free) if s * n <= tiles
  ]
  both = np.array(pairs, np.int64)
  return both[:, 0], both[:, 1]
