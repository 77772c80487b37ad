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
  IndexedPlan,
  Windows,
  largest_cell,
  slices_in_place,
  split_slices,
  split_updates,
  updates_in_place,
)
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.target import Target

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
  """What the busiest tile of each candidate has.

  Attributes:
    lookups: how many.
    window: elements of a lookup that it looks for.
    parts: tiles that share the tensor along what indices name.
    entries: places along what indices name.
    share: elements that it owns of its cell's.
    team: tiles that share an element's updates.
    block: elements of the tensor.
    brought: of these, elements that do not stay where they are.
  """

  lookups: Floats
  window: Floats
  parts: Floats
  entries: Floats
  share: Floats
  team: Floats
  block: Floats
  brought: Floats


_Estimate = Callable[[_Tile], Floats]


@functools.lru_cache(maxsize=4096)
def slicing(
  target: Target, w: Windows, own: Layout, stays: bool, cycles: LookupCycles
) -> IndexedPlan:
  """The cheapest split of slices.

  Args:
    target: the machine.
    w: what is walked.
    own: where the tensor is.
    stays: whether it can be sliced where it is.
    cycles: of the vertices.
  """

  def estimate(t: _Tile) -> Floats:
    return _slicing_cycles(target, w, own.max_elements, cycles, t)

  best, elsewhere = _best(target, w, True, estimate)
  found = slices_in_place(w, own) if stays else None
  if found is not None and _estimated(w, found, estimate) <= elsewhere:
    return found
  return split_slices(w, *best)


@functools.lru_cache(maxsize=4096)
def updating(
  target: Target,
  w: Windows,
  own: Layout,
  stays: bool,
  partial: Partials,
  cycles: LookupCycles,
) -> IndexedPlan:
  """The cheapest split of updates.

  Args:
    target, w, own, cycles: as for `slicing`.
    stays: whether the tensor can be updated where it is.
    partial: what a team's tiles add up.
  """

  def estimate(t: _Tile) -> Floats:
    return _updating_cycles(target, w, own.max_elements, partial, cycles, t)

  best, elsewhere = _best(target, w, partial.item_bytes > 0, estimate)
  plan = updates_in_place(w, own) if stays else None
  if plan is None or _estimated(w, plan, estimate) > elsewhere:
    plan = split_updates(w, *best)
  return plan._replace(rounds=_rounds(target, w, plan))


# --- Estimates ---------------------------------------------------------------


def _best(
  target: Target, w: Windows, splits_lookups: bool, estimate: _Estimate
) -> tuple[tuple[int, int, int], float]:
  """The cheapest (parts of the sliced dimension, of the free ones, of the
  others) if the tensor is brought to them, and its cycles."""
  sliced = max(w.windowed[w.sliced], 1) if w.sliced is not None else 1
  free = math.prod(w.shape[d] for d in w.free)
  batch = math.prod(w.shape[d] for d in w.free if d < w.num_batch)
  rest = math.prod(w.shape[to] for to in w.along if to >= 0)
  parts, groups = _choices(
    target.num_tiles, sliced, free if splits_lookups else 1
  )
  others = np.minimum(np.maximum(target.num_tiles // (parts * groups), 1), rest)
  window = np.ceil(rest / others)
  each = np.ceil(free / groups)
  lookups = np.ceil(batch / groups)
  entries = np.ceil(sliced / parts)
  block = np.ceil(math.prod(w.windowed) / sliced / others) * entries
  # The longer side of a cell is shared.
  share = np.ceil(each * window / np.minimum(parts, np.maximum(each, window)))
  total = estimate(
    _Tile(
      lookups, window * np.ceil(each / lookups), parts, entries, share, groups,
      block, block,
    )
  )  # fmt: skip
  i = int(np.argmin(total))
  return (int(parts[i]), int(groups[i]), int(others[i])), float(total[i])


@functools.lru_cache(maxsize=1024)
def _choices(tiles: int, sliced: int, free: int) -> tuple[Floats, Floats]:
  """Parts of the sliced and of the free dimensions worth trying."""

  def powers(most: int) -> list[int]:
    tried = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return sorted({-(-most // -(-most // n)) for n in (*tried, most)})

  pairs = [
    (s, n)
    for s in powers(min(sliced, tiles))
    for n in powers(min(free, tiles))
    if s * n <= tiles
  ]
  both = np.array(pairs, np.float64)
  return both[:, 0], both[:, 1]


def _estimated(w: Windows, plan: IndexedPlan, estimate: _Estimate) -> float:
  """Cycles where the tensor is."""
  lookups, window = largest_cell(w, plan.partition)
  figures = (
    lookups, window, plan.parts, plan.entries, plan.result.max_elements, 1,
    plan.windowed.max_elements, 0,
  )  # fmt: skip
  return float(estimate(_Tile(*(np.array([float(n)]) for n in figures)))[0])


def _exchange(target: Target, received: Floats, sent: Any) -> Floats:
  """Cycles of an exchange, 0 where there is none."""
  cycles = cost.exchange_cycles(target, received, sent)
  return cycles + np.where(received > 0, target.sync_cycles, 0.0)


def _slicing_cycles(
  target: Target, w: Windows, own: int, cycles: LookupCycles, t: _Tile
) -> Floats:
  item = w.item_bytes
  cell = t.lookups * t.window
  indices = t.lookups * w.index_bytes
  total = _exchange(target, t.brought * item, (t.brought > 0) * own * item)
  total += _exchange(target, indices, 0.0)
  total += cycles(t.lookups, t.window, t.parts, t.entries).total
  others = t.parts - 1
  total += _exchange(
    target, others * t.share * item, (others > 0) * cell * item
  )
  total += (others > 0) * _select_cycles(t.share, t.window, cycles).total
  room = t.brought + cell + others * t.share
  return _fitting(target, total, room * item + indices)


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
) -> Floats:
  item = w.item_bytes
  share = np.ceil(t.brought / t.team)
  # It comes, and goes back where it was (popops: rearrangeBase).
  total = 2 * _exchange(target, share * item, (share > 0) * own * item)
  arrives = t.lookups * (w.index_bytes + t.window * item)
  total += _exchange(target, arrives, 0.0)
  total += cycles(t.lookups, t.window, t.parts, t.entries).total
  # One tile's lookups may come in rounds.
  at_once = np.minimum(arrives, _round_bytes(target))
  arrives = np.where((t.team == 1) & (t.lookups > 1), at_once, arrives)
  partials = (t.team > 1) * t.block * partial.item_bytes
  others = share * (t.team - 1) * partial.item_bytes
  total += _exchange(target, others, partials)
  combine = _combine_cycles(target, share, t.team, partial)
  total += (t.team > 1) * combine.total
  return _fitting(target, total, share * item + arrives + partials + others)


def _combine_cycles(
  target: Target, share: Any, fan: Any, partial: Partials
) -> Cycles:
  """Combining `fan` partial results, side by side, of each of `share`
  elements."""
  width = max(target.data_path_bytes // max(partial.item_bytes, 1), 1)
  return cell_cycles(target, share, fan, partial.each, width, Order.COLUMNS)


def _fitting(target: Target, cycles: Floats, room: Floats) -> Floats:
  """What has no room is worse than all that does, the larger the worse."""
  limit = target.bytes_for_products
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
  return target.bytes_for_products / 4


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
