"""The cost of slices and updates with run-time indices, for given splits.

The search of `plan/indexed.py` uses closed forms of the busiest tile's figures.
The supersteps that follow a step's vertices, `candidates` and `partials`, are
charged by the same formulas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets._cycles import Cycles, ceil_div, derived
from jaxlib.ipu.codelets.reduce import Order, cell_cycles
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves import messages
from jaxlib.ipu.moves.segments import contiguous
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.indexed_blocks import (
  Blocks,
  Counts,
  Lookups,
  largest_cell,
  window_elements,
)
from jaxlib.ipu.plan.indexed_split import IndexedSplit
from jaxlib.ipu.target import Target

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Given (lookups, window, parts, entries, team=1), numbers or arrays as in
# `Tile`: cycles of the vertices that look up `lookups` windows of `window`
# elements. Hashable.
LookupCycles = Callable[..., Cycles]


class Partials(NamedTuple):
  """The partial results of updates.

  Attributes:
    item_bytes: bytes of a partial result; 0 if the updates of an element have
      to be applied in sequence, so that there are no partial results.
    each: a worker's cycles to combine one more of them.
    cleared_bytes: of `item_bytes`, those that are cleared before the first
      update.
  """

  item_bytes: int
  each: Cycles
  cleared_bytes: int = 0


class Tile(NamedTuple):
  """The busiest tile's figures, for each of several splits.

  Attributes:
    lookups: number of lookups.
    window: elements of each lookup.
    parts: number of tiles that share the tensor along indexed dimensions.
    entries: indices along the indexed dimensions on the tile.
    share: result elements that the tile owns.
    team: number of tiles among which the updates of an element are divided.
    block: elements of the tensor on the tile; for updates, on its team.
    comes: elements of the tensor that are moved to the tile.
    run: of these, elements that are contiguous before and after the move.
  """

  lookups: Floats
  window: Floats
  parts: Floats
  entries: Floats
  share: Floats
  team: Floats
  block: Floats
  comes: Floats
  run: Floats


class Estimate(NamedTuple):
  """The estimated cost of a split.

  Attributes:
    cycles: all cycles, if there is one round.
    again: of these, the cycles of every round, regardless of its size.
    held: bytes on the fullest tile in all rounds: the tensor, if it is moved,
      and partial results.
    step: bytes on the fullest tile for all lookups: indices, updates,
      candidates.
    before: of `cycles`, those of the exchanges that move operands (and an
      updated tensor back).
    packing: additional cycles that pack and unpack the moved tensor.
  """

  cycles: Floats
  again: Floats
  held: Floats
  step: Floats
  before: Floats
  packing: Floats


def of_blocks(
  w: Lookups, own: Layout, found: Blocks, comes: Counts, run: Counts
) -> Tile:
  """The busiest tile's figures if the tensor is moved to its split's
  mapping."""
  lookups = math.prod(found.cell[d] for d in w.free if d < w.num_batch)
  each = math.prod(found.cell) // lookups
  entries = -(-found.window // window_elements(w, found.cell))
  figures = (
    lookups, each, found.parts, entries, found.shared.elements, found.team,
    found.window, comes, np.minimum(run, contiguous(own)),
  )  # fmt: skip
  both = np.broadcast_arrays(*figures)
  return Tile(*(np.asarray(n, np.float64) for n in both))


def of_plan(w: Lookups, plan: IndexedSplit) -> Tile:
  """The busiest tile's figures if the tensor stays in place."""
  lookups, window = largest_cell(w, plan.partition)
  figures = (
    lookups, window, plan.parts, plan.entries, plan.result.max_elements, 1,
    plan.windowed.max_elements, 0, 1,
  )  # fmt: skip
  return Tile(*(np.array([float(n)]) for n in figures))


def _exchange(target: Target, received: Floats, sent: Any) -> Floats:
  """Cycles of an exchange; 0 if nothing is received."""
  cycles = cost.exchange_cycles(target, received, sent)
  return cycles + np.where(received > 0, target.sync_cycles, 0.0)


def slicing(
  target: Target, w: Lookups, own: Layout, cycles: LookupCycles, t: Tile
) -> Estimate:
  item = w.item_bytes
  cell = t.lookups * t.window
  indices = t.lookups * w.index_bytes
  leaves = (t.comes > 0) * own.max_elements * item
  before = _exchange(target, t.comes * item, leaves)
  total = before + _exchange(target, indices, 0.0)
  total += cycles(t.lookups, t.window, t.parts, t.entries).total
  others = t.parts - 1
  total += _exchange(
    target, others * t.share * item, (others > 0) * (cell - t.share) * item
  )
  total += (others > 0) * _select_cycles(t.share, t.window, cycles).total
  candidates = (others > 0) * (cell + others * t.share)
  again = 2 * _superstep(target) + 0 * total
  packing, _ = _packing(target, w, own, t)
  held, step = t.comes * item, candidates * item + indices
  return Estimate(total, again, held, step, before, packing)


def _select_cycles(share: Any, window: Any, cycles: LookupCycles) -> Cycles:
  """A second slice, which selects from the candidates for a tile's share
  (popops: slice.1)."""
  return cycles(np.ceil(share / window), np.minimum(share, window), 1.0, 1.0)


def updating(
  target: Target,
  w: Lookups,
  own: Layout,
  partial: Partials,
  cycles: LookupCycles,
  t: Tile,
) -> Estimate:
  item = w.item_bytes
  # The tensor moves there and back (popops: rearrangeBase).
  leaves = (t.comes > 0) * own.max_elements * item
  before = 2 * _exchange(target, t.comes * item, leaves)
  arrives = t.lookups * (w.index_bytes + t.window * item)
  before += _exchange(target, arrives, 0.0)
  total = before
  total += cycles(t.lookups, t.window, t.parts, t.entries, t.team).total
  combines = t.team > 1
  sent = combines * (t.block - t.share) * partial.item_bytes
  others = t.share * (t.team - 1) * partial.item_bytes
  again = _exchange(target, others, sent)
  combine = _combine_cycles(target, t.block, t.share, t.team, partial)
  again += combines * combine.total
  partials = combines * t.block * partial.item_bytes + others
  there, back = _packing(target, w, own, t)
  return Estimate(
    total + again,
    again + 2 * _superstep(target),
    t.comes * item + partials,
    arrives,
    before,
    there + back,
  )


def _packing(
  target: Target, w: Lookups, own: Layout, t: Tile
) -> tuple[Floats, Floats]:
  """Cycles of packing and unpacking the moved tensor, and those for moving it
  back. They arise if its segments are no longer than the instructions that send
  them (moves/messages.py).

  What comes from one owner is an interval of the memory where it arrives, so if
  elements are at least words, only the owners pack and unpack.
  """
  run = t.run * w.item_bytes
  odd = contiguous(own) * w.item_bytes % messages.WORD > 0
  alone = (run % messages.WORD > 0) | (run <= messages.WORD) | odd
  short = alone | (run <= 2 * messages.WORD)
  vectors = np.ceil(run / messages.VECTOR) / t.run
  here, there = (
    (n > 0) * cost.copies(target, n * vectors)
    for n in (t.comes, (t.comes > 0) * own.max_elements)
  )
  if w.item_bytes >= messages.WORD:
    return short * there, short * there
  return alone * here + short * there, short * here + alone * there


def _superstep(target: Target) -> int:
  """Cycles of an empty superstep."""
  return target.sync_cycles + target.route_cycles + target.launch_cycles


def _combine_cycles(
  target: Target, block: Any, share: Any, fan: Any, partial: Partials
) -> Cycles:
  """Cycles to clear the partial results of a block, and to combine `fan` of
  them with each of the `share` elements that a tile owns. The elements lie side
  by side."""
  width = max(target.data_path_bytes // max(partial.item_bytes, 1), 1)
  order = Order.COLUMNS
  found = cell_cycles(target, share, fan + 1, partial.each, width, order)
  if not partial.cleared_bytes:
    return found
  vectors = ceil_div(block * partial.cleared_bytes, target.data_path_bytes)
  return found + derived(cost.copies(target, vectors))


# --- The further supersteps of a step -----------------------------------------


@functools.lru_cache(maxsize=512)
def candidates(
  target: Target, w: Lookups, plan: IndexedSplit, cycles: LookupCycles
) -> cost.Epilogue | None:
  """The superstep in which candidates go to the owners of the results; None if
  no tiles share the tensor, so that each tile picks its own results.

  A tile sends its candidates for all of the cell's results except for its own
  share, and receives candidates for its share from all other tiles of the cell.
  """
  if plan.parts <= 1:
    return None
  tiles = np.arange(plan.partition.last_tile + 1)
  cell = plan.partition.elements(tiles)
  own = plan.result.elements(tiles)
  others = own * (plan.parts - 1)
  _, window = largest_cell(w, plan.partition)
  select = _select_cycles(float(own.max()), float(window), cycles)
  return _epilogue(
    target, w.item_bytes, others, cell - own, cell + others, select,
    plan.parts,
  )  # fmt: skip


@functools.lru_cache(maxsize=512)
def partials(
  target: Target, plan: IndexedSplit, partial: Partials
) -> cost.Epilogue | None:
  """The superstep in which partial results go to the owners of the elements;
  None if there are no teams."""
  if plan.team <= 1:
    return None
  last = max(plan.partition.last_tile, plan.windowed.last_tile)
  span = plan.team * plan.apart
  own = plan.windowed.elements(np.arange(-(-(last + 1) // span) * span))
  by_team = own.reshape(-1, plan.team, plan.apart)
  block = np.broadcast_to(by_team.sum(1, keepdims=True), by_team.shape)
  block = block.reshape(-1)
  others = own * (plan.team - 1)
  combine = _combine_cycles(
    target, int(block.max()), int(own.max()), plan.team, partial
  )
  return _epilogue(
    target, partial.item_bytes, others, block - own, block + others, combine,
    plan.team, float(others.sum()),
  )  # fmt: skip


def _epilogue(
  target: Target,
  item_bytes: int,
  received: Array,
  sent: Array,
  held: Array,
  compute: Cycles,
  tiles: int,
  flops: float = 0.0,
) -> cost.Epilogue:
  """A superstep in which each of `tiles` tiles sends to all others and receives
  from all others; elements are given for each tile."""
  return cost.Epilogue(
    cost.superstep(
      target,
      compute=compute,
      bytes_in=int(received.max()) * item_bytes,
      bytes_out=int(sent.max()) * item_bytes,
      total_bytes=int(received.sum()) * item_bytes,
      flops=flops,
    ),
    held * item_bytes,
    1,
    messages.row_words(tiles - 1, tiles - 1),
  )
