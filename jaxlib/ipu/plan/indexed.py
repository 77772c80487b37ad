"""Plans how steps with run-time indices (gather, scatter, dynamic slices and
updates) are split over tiles.

An exchange is fixed when a program is compiled, so the elements that indices
name at run time cannot be requested. Instead, as PopLibs plans it (popops/
DynamicSlice.cpp), all tiles that share a tensor along the indexed dimensions
receive the indices:

- For slices, each tile picks the elements that it holds. These candidates go to
  the tiles of the same cell, which divide the cell's results among them and
  know from the indices which tile's candidate to take.
- For updates, each tile applies those that fall on its elements. If the lookups
  are divided as well, a team of tiles shares a block of elements. Each of them
  adds up partial results for the whole block from its part of the lookups, then
  receives and combines the partial results of its own share of the block.

A split divides the lookups, the indexed dimensions and the other dimensions
(popops: lookupParallelSplit, slicedDimSplit, unslicedDimSplit). If a step's
candidates, indices and updates take too much memory at once, lookups are taken
in several rounds (popops: lookupSerialSplit; ops/_rounds.py runs them). The
tensor is either moved to the mapping that a split wants, or stays in place.

The search estimates the cost of all splits by closed forms, including the
packing of the tensor's messages. For the best ones the builder then computes
what their exchanges will be charged, and the cheapest is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves import messages
from jaxlib.ipu.plan import indexed_cycles
from jaxlib.ipu.plan.indexed_blocks import (
  Counts,
  Lookups,
  largest_cell,
  slice_blocks,
  update_blocks,
)
from jaxlib.ipu.plan.indexed_split import (
  IndexedSplit,
  one_by_one,
  slices_in_place,
  split_slices,
  split_updates,
  updates_in_place,
)
from jaxlib.ipu.target import Target

# Splits for which the builder computes the exchanges' charges. [G]
_TRIED = 3
# If the computed cycles exceed the estimate by no more than this factor, the
# search ends: the order of the estimates is then trusted. [G]
_AS_ESTIMATED = 1.05
# The fraction of a tile's SRAM that a step may use together with the tensor
# that it indexes, at first (ROOMY) and after a program did not fit (FRUGAL);
# and the fraction of what is left for updates that arrive at once [G].
ROOMY, FRUGAL = 0.6, 1 / 32
_ARRIVES = 0.25

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Given the windows and the plan of a round: cycles that a split's exchanges
# will be charged, once for moving the tensor (and back, if it is updated), and
# in each round for updates and their indices.
Exchanges = Callable[[Lookups, IndexedSplit], tuple[float, float]]


class Found(NamedTuple):
  """The cheapest split.

  Attributes:
    plan: the plan of a round.
    size: the size of a round, in indices along `Lookups.rounds_along`.
    estimate: the cost of a round, moving the tensor included.
    split: numbers of parts of the sliced axis, of the free dimensions and of
      the other dimensions; None if the tensor stays in place.
    alone: for the lookups that remain after full rounds, the size of a round in
      which lookups are not divided among tiles.
  """

  plan: IndexedSplit
  size: int
  estimate: indexed_cycles.Estimate
  split: tuple[int, int, int] | None
  alone: int

  def slices(self, w: Lookups, own: Layout) -> IndexedSplit:
    """The same split for the slices of another round."""
    if self.split:
      return split_slices(w, *self.split)
    there = slices_in_place(w, own)
    assert there is not None, "it could stay there in other rounds"
    return there

  def updates(self, w: Lookups, own: Layout) -> IndexedSplit:
    """The same split for the updates of another round."""
    if self.split:
      return split_updates(w, *self.split)
    there = updates_in_place(w, own)
    assert there is not None, "it could stay there in other rounds"
    return there


class _Candidate(NamedTuple):
  """A candidate for the cheapest split.

  Attributes:
    split: see `Found`.
    rounds: number of rounds.
    cycles: estimate for all rounds.
    inside: of these, the cycles of vertices and of the exchanges between them.
  """

  split: tuple[int, int, int] | None
  rounds: int
  cycles: float
  inside: float


class _Problem(NamedTuple):
  """A search problem: the limits of a split, its cost, and how to make it.

  Attributes:
    room: bytes that a round may take on a tile, the moved tensor included.
    arrives: of these, bytes that the lookups may take.
    teams: whether the lookups may be divided among tiles.
    estimate: computes the cost of splits from the busiest tile's figures.
    tile: computes these figures for splits that move the tensor.
    split: makes the plan of a split with so many parts.
    there: makes the plan that leaves the tensor in place; None if it has to
      move.
  """

  room: float
  arrives: float
  teams: bool
  estimate: Callable[[indexed_cycles.Tile], indexed_cycles.Estimate]
  tile: Callable[[Lookups, Counts, Counts, Counts], indexed_cycles.Tile]
  split: Callable[[Lookups, int, int, int], IndexedSplit]
  there: Callable[[Lookups], IndexedSplit | None]


def slicing(
  target: Target,
  w: Lookups,
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
    stays: whether the tensor can be sliced in place.
    cycles: computes the cycles of the vertices.
    share: fraction of a tile's SRAM for the step and its tensor.
    exchanges: computes what exchanges are charged; None trusts the estimate.
  """
  p, ways = _slicing_ways(target, w, own, stays, cycles, share)
  return _cheapest(w, p, ways, exchanges)


@functools.lru_cache(maxsize=4096)
def _slicing_ways(
  target: Target,
  w: Lookups,
  own: Layout,
  stays: bool,
  cycles: indexed_cycles.LookupCycles,
  share: float,
) -> tuple[_Problem, list[_Candidate]]:
  def estimate(t: indexed_cycles.Tile) -> indexed_cycles.Estimate:
    return indexed_cycles.slicing(target, w, own, cycles, t)

  def tile(
    w: Lookups, parts: Counts, groups: Counts, others: Counts
  ) -> indexed_cycles.Tile:
    found = slice_blocks(w, parts, groups, others)
    return indexed_cycles.of_blocks(
      w, own, found, found.window, found.side_by_side(w, False)
    )

  room = _room(target, w, own, share)
  there = (lambda w: slices_in_place(w, own)) if stays else _must_move
  problem = _Problem(room, room, True, estimate, tile, split_slices, there)
  return problem, _ways(target, w, problem)


def updating(
  target: Target,
  w: Lookups,
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
    partial: the partial results that the tiles of a team add up.
  """
  p, ways = _updating_ways(target, w, own, stays, partial, cycles, share)
  return _cheapest(w, p, ways, exchanges)


@functools.lru_cache(maxsize=4096)
def _updating_ways(
  target: Target,
  w: Lookups,
  own: Layout,
  stays: bool,
  partial: indexed_cycles.Partials,
  cycles: indexed_cycles.LookupCycles,
  share: float,
) -> tuple[_Problem, list[_Candidate]]:
  def estimate(t: indexed_cycles.Tile) -> indexed_cycles.Estimate:
    return indexed_cycles.updating(target, w, own, partial, cycles, t)

  def tile(
    w: Lookups, parts: Counts, groups: Counts, others: Counts
  ) -> indexed_cycles.Tile:
    found = update_blocks(w, parts, groups, others)
    comes = found.shared.elements
    return indexed_cycles.of_blocks(
      w, own, found, comes, found.side_by_side(w, True)
    )

  room = _room(target, w, own, share)
  there = (lambda w: updates_in_place(w, own)) if stays else _must_move
  teams = partial.item_bytes > 0
  problem = _Problem(
    room, room * _ARRIVES, teams, estimate, tile, split_updates, there
  )
  return problem, _ways(target, w, problem)


def _must_move(w: Lookups) -> None:
  """`_Problem.there` of a tensor that cannot stay in place."""


def _room(target: Target, w: Lookups, own: Layout, share: float) -> float:
  """Bytes that a round may take on a tile, in addition to the tensor in place
  and an even share of the indices and of the slices or updates."""
  lookups = math.prod(w.shape[: w.num_batch])
  elsewhere = math.prod(w.shape) * w.item_bytes + lookups * w.index_bytes
  taken = own.max_elements * w.item_bytes + elsewhere / target.num_tiles
  return target.bytes_per_tile * share - min(
    taken, target.bytes_per_tile * (share - FRUGAL)
  )


# --- The search --------------------------------------------------------------


def _ways(target: Target, w: Lookups, p: _Problem) -> list[_Candidate]:
  """The candidates, cheapest first: the split that leaves the tensor in place,
  if possible, and the cheapest ones that move it."""
  free = math.prod(w.shape[d] for d in w.free)
  rest = math.prod(w.shape[to] for to in w.along if to >= 0)
  parts, groups = _choices(target.num_tiles, w.places, free if p.teams else 1)
  others = np.minimum(np.maximum(target.num_tiles // (parts * groups), 1), rest)
  # The same splits with blocks of at least `messages.WIDE` contiguous bytes,
  # which need no packing.
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
    ways.append(_Candidate(None, int(count), cycles, cycles - moving))
  for i in np.argsort(rated, kind="stable")[: 2 * _TRIED].tolist():
    split = int(parts[i]), int(groups[i]), int(others[i])
    cycles = float(rated[i])
    inside = cycles - float(before[i])
    ways.append(_Candidate(split, int(rounds[i]), cycles, inside))
  return sorted(ways, key=lambda way: way.cycles)


def _cheapest(
  w: Lookups, p: _Problem, ways: list[_Candidate], exchanges: Exchanges | None
) -> Found:
  """The cheapest of several candidates by the actual cost of their exchanges.
  This is computed for one candidate after the other, those with the lowest
  estimates first."""
  least, best = math.inf, ways[0]
  plans: set[IndexedSplit] = set()
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
  w: Lookups, p: _Problem, way: _Candidate, size: int
) -> tuple[Lookups, IndexedSplit]:
  """The windows and the plan of a round of some size."""
  some = w.of_round(size)
  plan = p.split(some, *way.split) if way.split else p.there(some)
  assert plan is not None, "it could stay where it is with all lookups"
  return some, plan


@functools.lru_cache(maxsize=4096)
def _found(w: Lookups, p: _Problem, best: _Candidate) -> Found:
  """The split of a candidate, in rounds that fit."""
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
  target: Target, w: Lookups, p: _Problem, t: indexed_cycles.Tile
) -> tuple[Floats, Floats, Floats]:
  """Cycles of splits, each in as many rounds as it needs; their numbers of
  rounds; and the cycles of those exchanges that `Exchanges` computes.

  Splits that do not fit follow all that do, in the order of the bytes that they
  take: a large number of cycles is added.
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
  """Numbers of parts of the sliced axis and of the free dimensions to try."""

  def powers(extent: int) -> list[int]:
    """Powers of two and the maximum, each reduced to the number of parts that
    equal blocks give."""
    most = min(extent, tiles)
    tried = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return sorted({-(-extent // -(-extent // n)) for n in (*tried, most)})

  pairs = [
    (s, n) for s in powers(sliced) for n in powers(free) if s * n <= tiles
  ]
  both = np.array(pairs, np.int64)
  return both[:, 0], both[:, 1]
