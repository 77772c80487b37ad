"""What slices and updates at places known at run time take, for given splits.

Closed forms over what the busiest tile has: `plan/indexed.py` searches with
them. What a step costs beside its vertices, `candidates` and `partials`, is
charged as it is estimated.
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
from jaxlib.ipu.plan import cost, messages
from jaxlib.ipu.plan.indexed_blocks import (
  Blocks,
  Counts,
  Windows,
  largest_cell,
  walked,
)
from jaxlib.ipu.plan.indexed_split import IndexedPlan
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.runs import contiguous
from jaxlib.ipu.target import Target

Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Cycles of a tile with so many lookups of so many elements each, on one of so
# many tiles (`parts`) that share the tensor, each with so many entries and in a
# team of so many (1 if left out). Takes numbers or arrays, and can be hashed.
LookupCycles = Callable[..., Cycles]


class Partials(NamedTuple):
  """Partial results of updates.

  Attributes:
    item_bytes: of one; 0 where an element's updates have to be applied one
      after the other.
    each: a worker's cycles to combine one more.
    cleared_bytes: of `item_bytes`, what is set before the first update.
  """

  item_bytes: int
  each: Cycles
  cleared_bytes: int = 0


class Tile(NamedTuple):
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
    run: of these, how many lie side by side, and did before they came.
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
  """What a split takes, by the estimate that it was chosen by.

  Attributes:
    cycles: all of them, in one round.
    again: of these, that each round takes, whatever its size.
    held: bytes on the fullest tile that are the same in all rounds: the tensor,
      where it is brought, and partial results.
    step: bytes on it that the lookups take: indices, updates, candidates.
    before: of the cycles, those of the exchanges before the vertices.
    packing: cycles beside that pack and unpack what comes of the tensor.
  """

  cycles: Floats
  again: Floats
  held: Floats
  step: Floats
  before: Floats
  packing: Floats


def of_blocks(
  w: Windows, own: Layout, found: Blocks, comes: Counts, run: Counts
) -> Tile:
  """Of tensors that are brought to where their splits have them."""
  lookups = math.prod(found.cell[d] for d in w.free if d < w.num_batch)
  each = math.prod(found.cell) // lookups
  entries = -(-found.window // walked(w, found.cell))
  figures = (
    lookups, each, found.parts, entries, found.shared.elements, found.team,
    found.window, comes, np.minimum(run, contiguous(own).block),
  )  # fmt: skip
  both = np.broadcast_arrays(*figures)
  return Tile(*(np.asarray(n, np.float64) for n in both))


def of_plan(w: Windows, plan: IndexedPlan) -> Tile:
  """Of a tensor where it is."""
  lookups, window = largest_cell(w, plan.partition)
  figures = (
    lookups, window, plan.parts, plan.entries, plan.result.max_elements, 1,
    plan.windowed.max_elements, 0, 1,
  )  # fmt: skip
  return Tile(*(np.array([float(n)]) for n in figures))


def _exchange(target: Target, received: Floats, sent: Any) -> Floats:
  """Cycles of an exchange, 0 where there is none."""
  cycles = cost.exchange_cycles(target, received, sent)
  return cycles + np.where(received > 0, target.sync_cycles, 0.0)


def slicing(
  target: Target, w: Windows, own: Layout, cycles: LookupCycles, t: Tile
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
  """A second slice, of the candidates of a share (popops: slice.1)."""
  return cycles(np.ceil(share / window), np.minimum(share, window), 1.0, 1.0)


def updating(
  target: Target,
  w: Windows,
  own: Layout,
  partial: Partials,
  cycles: LookupCycles,
  t: Tile,
) -> Estimate:
  item = w.item_bytes
  # It comes, and goes back where it was (popops: rearrangeBase).
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
  target: Target, w: Windows, own: Layout, t: Tile
) -> tuple[Floats, Floats]:
  """Cycles that pack and unpack what comes, and the same of its way back: those
  of runs that are no longer than messages' instructions (plan/messages.py).

  What is of one owner is in one interval where it comes, so that words are
  packed and unpacked by owners only.
  """
  run = t.run * w.item_bytes
  odd = contiguous(own).block * w.item_bytes % messages.WORD > 0
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
  """Cycles of one that does nothing."""
  return target.sync_cycles + target.route_cycles + target.launch_cycles


def _combine_cycles(
  target: Target, block: Any, share: Any, fan: Any, partial: Partials
) -> Cycles:
  """Clearing a team's partial results of a block, and combining `fan` of them,
  side by side, of each of `share` elements with the element."""
  width = max(target.data_path_bytes // max(partial.item_bytes, 1), 1)
  order = Order.COLUMNS
  found = cell_cycles(target, share, fan + 1, partial.each, width, order)
  if not partial.cleared_bytes:
    return found
  vectors = ceil_div(block * partial.cleared_bytes, target.data_path_bytes)
  return found + derived(cost.copies(target, vectors))


# --- What a step costs beside its vertices -----------------------------------


@functools.lru_cache(maxsize=512)
def candidates(
  target: Target, w: Windows, plan: IndexedPlan, cycles: LookupCycles
) -> cost.Epilogue | None:
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
  return _epilogue(
    target, w.item_bytes, others, cell - own, cell + others, select,
    plan.parts,
  )  # fmt: skip


@functools.lru_cache(maxsize=512)
def partials(
  target: Target, plan: IndexedPlan, partial: Partials
) -> cost.Epilogue | None:
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
  """Each of so many tiles sends to all others, and receives from them."""
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
    messages.between(tiles - 1, tiles - 1),
  )
