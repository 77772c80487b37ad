"""How steps whose places are only known at run time are split over tiles.

An exchange is fixed when a program is compiled, so whoever has an element has
to find out for itself that it is wanted. As PopLibs plans it (popops/
DynamicSlice.cpp): all tiles that share a tensor along what the indices name
get the indices. For slices each picks what it has; its candidates then go to
the tiles of the same cell, which share the cell's results between them and
know from the indices whose candidate to take. For updates each applies those
that fall on its elements; where tiles take a part of the lookups each, a team
of them shares a block of elements: each adds up partial results for all of it,
and combines the team's for its own share.

A split has parts of the lookups, of the dimension that the indices name and of
the others (popops: lookupParallelSplit, slicedDimSplit, unslicedDimSplit;
updates in several rounds: lookupSerialSplit). It is chosen by cost, in which
leaving the tensor where it is competes with bringing it elsewhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.reduce import Order, cell_cycles
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.indexed_split import (
  Blocks,
  Counts,
  IndexedPlan,
  Windows,
  largest_cell,
  slice_blocks,
  slices_in_place,
  split_slices,
  split_updates,
  update_blocks,
  updates_in_place,
  walked,
)
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.target import Target

# The share of a tile's SRAM that a step is planned to stay within, and of this
# the share of what arrives at once, beside a tile's own elements [G].
_STEP, _ROUND = 0.6, 0.25

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Cycles of a tile with so many lookups of so many elements each, on one of so
# many tiles (`parts`) that share the tensor, each with so many entries. Takes
# numbers or arrays, and can be hashed.
LookupCycles = Callable[[Any, Any, Any, Any], Cycles]


class Partials(NamedTuple):
  """Partial results of updates.

  Attributes:
    item_bytes: of one; 0 where an element's updates have to be applied one
      after the other.
    each: a worker's cycles to combine one more.
  """

  item_bytes: int
  each: Cycles


class _Tile(NamedTuple):
  """What the busiest tile has, of each of several splits.

  Attributes:
    lookups: how many.
    window: elements of a lookup that it looks for.
    parts: tiles that share the tensor along what indices name.
    entries: places along what indices name.
    share: elements that it owns of its cell's, or of its team's.
    team: tiles that share an element's updates.
    block: elements of the tensor that its cell, or its team, has.
    comes: of those it has, elements that do not stay where they are.
  """

  lookups: Floats
  window: Floats
  parts: Floats
  entries: Floats
  share: Floats
  team: Floats
  block: Floats
  comes: Floats


class Estimate(NamedTuple):
  """What a split takes, by the estimate that it was chosen by.

  Attributes:
    cycles: all of them.
    room: bytes on the fullest tile, beside the tensor where it was and results.
  """

  cycles: Floats
  room: Floats


class Found(NamedTuple):
  """The cheapest split, and what it takes."""

  plan: IndexedPlan
  estimate: Estimate


_Estimating = Callable[[_Tile], Estimate]


@functools.lru_cache(maxsize=4096)
def slicing(
  target: Target, w: Windows, own: Layout, stays: bool, cycles: LookupCycles
) -> Found:
  """The cheapest split of slices.

  Args:
    target: the machine.
    w: what is walked.
    own: where the tensor is.
    stays: whether it can be sliced where it is.
    cycles: of the vertices.
  """

  def estimate(t: _Tile) -> Estimate:
    return _slicing_cycles(target, w, own.max_elements, cycles, t)

  def tile(parts: Counts, groups: Counts, others: Counts) -> _Tile:
    found = slice_blocks(w, parts, groups, others)
    return _of_blocks(w, found, found.window)

  there = slices_in_place(w, own) if stays else None
  return _cheapest(target, w, True, estimate, tile, split_slices, there)


@functools.lru_cache(maxsize=4096)
def updating(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  partial: Partials,
  cycles: LookupCycles,
) -> Found:
  """The cheapest split of updates.

  Args:
    target, w, own, cycles: as for `slicing`.
    stays: whether the tensor can be updated where it is.
    partial: what a team's tiles add up.
  """

  def estimate(t: _Tile) -> Estimate:
    return _updating_cycles(target, w, own.max_elements, partial, cycles, t)

  def tile(parts: Counts, groups: Counts, others: Counts) -> _Tile:
    found = update_blocks(w, parts, groups, others)
    return _of_blocks(w, found, found.shared.elements)

  there = updates_in_place(w, own) if stays else None
  teams = partial.item_bytes > 0
  plan, taken = _cheapest(
    target, w, teams, estimate, tile, split_updates, there
  )
  return Found(plan._replace(rounds=_rounds(target, w, plan)), taken)


# --- Estimates ---------------------------------------------------------------


def _cheapest(
  target: Target,
  w: Windows,
  splits_lookups: bool,
  estimate: _Estimating,
  tile: Callable[[Counts, Counts, Counts], _Tile],
  split: Callable[[Windows, int, int, int], IndexedPlan],
  there: IndexedPlan | None,
) -> Found:
  """The cheapest split: of the tensor where it is (`there`), or elsewhere."""
  free = math.prod(w.shape[d] for d in w.free)
  rest = math.prod(w.shape[to] for to in w.along if to >= 0)
  parts, groups = _choices(
    target.num_tiles, w.places, free if splits_lookups else 1
  )
  others = np.minimum(np.maximum(target.num_tiles // (parts * groups), 1), rest)
  cycles, room = estimate(tile(parts, groups, others))
  i = int(np.argmin(_fitting(target, cycles, room)))
  elsewhere = Estimate(cycles[i : i + 1], room[i : i + 1])
  if there is not None:
    stays = estimate(_of_plan(w, there))
    if _fitting(target, *stays) <= _fitting(target, *elsewhere):
      return Found(there, stays)
  return Found(
    split(w, int(parts[i]), int(groups[i]), int(others[i])), elsewhere
  )


def _of_blocks(w: Windows, found: Blocks, comes: Counts) -> _Tile:
  """Of tensors that are brought to where their splits have them."""
  lookups = math.prod(found.cell[d] for d in w.free if d < w.num_batch)
  each = math.prod(found.cell) // lookups
  entries = -(-found.window // walked(w, found.cell))
  figures = (
    lookups, each, found.parts, entries, found.shared.elements, found.team,
    found.window,
    comes,
  )  # fmt: skip
  both = np.broadcast_arrays(*figures)
  return _Tile(*(np.asarray(n, np.float64) for n in both))


def _of_plan(w: Windows, plan: IndexedPlan) -> _Tile:
  """Of a tensor where it is."""
  lookups, window = largest_cell(w, plan.partition)
  figures = (
    lookups, window, plan.parts, plan.entries, plan.result.max_elements, 1,
    plan.windowed.max_elements, 0,
  )  # fmt: skip
  return _Tile(*(np.array([float(n)]) for n in figures))


@functools.lru_cache(maxsize=1024)
def _choices(tiles: int, sliced: int, free: int) -> tuple[Array, Array]:
  """Parts of the sliced axis and of the free dimensions worth trying."""

  def powers(extent: int) -> list[int]:
    most = min(extent, tiles)
    tried = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return sorted({-(-extent // -(-extent // n)) for n in (*tried, most)})

  pairs = [
    (s, n) for s in powers(sliced) for n in powers(free) if s * n <= tiles
  ]
  both = np.array(pairs, np.int64)
  return both[:, 0], both[:, 1]


def _exchange(target: Target, received: Floats, sent: Any) -> Floats:
  """Cycles of an exchange, 0 where there is none."""
  cycles = cost.exchange_cycles(target, received, sent)
  return cycles + np.where(received > 0, target.sync_cycles, 0.0)


def _slicing_cycles(
  target: Target, w: Windows, own: int, cycles: LookupCycles, t: _Tile
) -> Estimate:
  item = w.item_bytes
  cell = t.lookups * t.window
  indices = t.lookups * w.index_bytes
  total = _exchange(target, t.comes * item, (t.comes > 0) * own * item)
  total += _exchange(target, indices, 0.0)
  total += cycles(t.lookups, t.window, t.parts, t.entries).total
  others = t.parts - 1
  total += _exchange(
    target, others * t.share * item, (others > 0) * (cell - t.share) * item
  )
  total += (others > 0) * _select_cycles(t.share, t.window, cycles).total
  candidates = (others > 0) * (cell + others * t.share)
  return Estimate(total, (t.comes + candidates) * item + indices)


def _select_cycles(share: Any, window: Any, cycles: LookupCycles) -> Cycles:
  """A second slice, of the candidates of a share (popops: slice.1)."""
  return cycles(np.ceil(share / window), np.minimum(share, window), 1.0, 1.0)


def _updating_cycles(
  target: Target,
  w: Windows,
  own: int,
  partial: Partials,
  cycles: LookupCycles,
  t: _Tile,
) -> Estimate:
  item = w.item_bytes
  # It comes, and goes back where it was (popops: rearrangeBase).
  total = 2 * _exchange(target, t.comes * item, (t.comes > 0) * own * item)
  arrives = t.lookups * (w.index_bytes + t.window * item)
  total += _exchange(target, arrives, 0.0)
  total += cycles(t.lookups, t.window, t.parts, t.entries).total
  # One tile's lookups may come in rounds.
  at_once = np.minimum(arrives, _round_bytes(target))
  arrives = np.where((t.team == 1) & (t.lookups > 1), at_once, arrives)
  combines = t.team > 1
  sent = combines * (t.block - t.share) * partial.item_bytes
  others = t.share * (t.team - 1) * partial.item_bytes
  total += _exchange(target, others, sent)
  combine = _combine_cycles(target, t.share, t.team, partial)
  total += combines * combine.total
  partials = combines * t.block * partial.item_bytes + others
  return Estimate(total, t.comes * item + arrives + partials)


def _combine_cycles(
  target: Target, share: Any, fan: Any, partial: Partials
) -> Cycles:
  """Combining `fan` partial results, side by side, of each of `share`
  elements."""
  width = max(target.data_path_bytes // max(partial.item_bytes, 1), 1)
  return cell_cycles(target, share, fan, partial.each, width, Order.COLUMNS)


def _fitting(target: Target, cycles: Floats, room: Floats) -> Floats:
  """What has no room is worse than all that does, the larger the worse."""
  limit = target.bytes_per_tile * _STEP
  return np.where(room <= limit, cycles, 1e18 + 1e6 * room)


def _rounds(target: Target, w: Windows, plan: IndexedPlan) -> int:
  """In how many steps what arrives has room beside a tile's own elements."""
  lookups, window = largest_cell(w, plan.partition)
  if plan.team > 1 or lookups <= 1:
    return 1
  arrives = lookups * (w.index_bytes + window * w.item_bytes)
  return min(math.ceil(arrives / _round_bytes(target)), lookups)


def _round_bytes(target: Target) -> float:
  """What may arrive at a tile for one step; the rest is for its elements."""
  return target.bytes_per_tile * _STEP * _ROUND


# --- What a step costs beside its vertices -----------------------------------


@functools.lru_cache(maxsize=512)
def candidates(
  target: Target, w: Windows, plan: IndexedPlan, cycles: LookupCycles
) -> cost.Handed | None:
  """Candidates go to the tiles that own them; None if each picks its own.

  Every tile sends its cell but for its share, and receives its share from all
  others that picked of the cell.
  """
  if plan.parts <= 1:
    return None
  tiles = np.arange(plan.partition.last_tile + 1)
  cell = plan.partition.elements(tiles)
  own = plan.result.elements(tiles)
  others = own * (plan.parts - 1)
  _, window = largest_cell(w, plan.partition)
  select = _select_cycles(float(own.max()), float(window), cycles)
  return _handed(
    target, w.item_bytes, others, cell - own, cell + others, select
  )


@functools.lru_cache(maxsize=512)
def partials(
  target: Target, plan: IndexedPlan, partial: Partials
) -> cost.Handed | None:
  """A team's partial results go to the elements' owners; None if there is
  none."""
  if plan.team <= 1:
    return None
  last = max(plan.partition.last_tile, plan.windowed.last_tile)
  span = plan.team * plan.apart
  own = plan.windowed.elements(np.arange(-(-(last + 1) // span) * span))
  by_team = own.reshape(-1, plan.team, plan.apart)
  block = np.broadcast_to(by_team.sum(1, keepdims=True), by_team.shape)
  block = block.reshape(-1)
  others = own * (plan.team - 1)
  combine = _combine_cycles(target, int(own.max()), plan.team, partial)
  return _handed(
    target, partial.item_bytes, others, block - own, block + others, combine,
    float(others.sum()),
  )  # fmt: skip


def _handed(
  target: Target,
  item_bytes: int,
  received: Array,
  sent: Array,
  held: Array,
  compute: Cycles,
  flops: float = 0.0,
) -> cost.Handed:
  return cost.Handed(
    cost.superstep(
      target,
      compute=compute,
      bytes_in=int(received.max()) * item_bytes,
      bytes_out=int(sent.max()) * item_bytes,
      total_bytes=int(received.sum()) * item_bytes,
      flops=flops,
    ),
    held * item_bytes,
  )
