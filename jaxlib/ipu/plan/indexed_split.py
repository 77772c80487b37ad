"""The mappings of a given split of a step with run-time indices: of the
iteration space, of the indexed tensor and of the results (plan/indexed.py
chooses the split).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxlib.ipu.layout import Factor, Layout, Replica, refine
from jaxlib.ipu.plan.indexed_blocks import (
  Counts,
  Lookups,
  Shared,
  slice_blocks,
  tensor_blocks,
  update_blocks,
  window_elements,
)


class IndexedSplit(NamedTuple):
  """A split.

  Attributes:
    partition: the mapping of the iteration space.
    windowed: the mapping of the indexed tensor.
    result: the mapping of slices; for updates the same as `windowed`.
    parts: number of tiles that share the tensor along indexed dimensions.
    entries: indices along the indexed dimensions on a tile.
    team: number of tiles among which the updates of an element are divided.
    apart: the difference between the tile numbers of members of a team.
  """

  partition: Layout
  windowed: Layout
  result: Layout
  parts: int
  entries: int
  team: int = 1
  apart: int = 1


def split_slices(
  w: Lookups, parts: int, groups: int, others: int
) -> IndexedSplit:
  """The plan of slices of a tensor that is moved; see `slice_blocks`."""
  found = slice_blocks(w, parts, groups, others)
  coarse, fine, stride = _grid(w.shape, found.cell, found.shared, parts)
  tensor = []
  for i, axis in enumerate(w.axes):
    factor = coarse[axis.along] if axis.along >= 0 else _whole(axis.extent)
    if i == w.sliced and parts > 1:
      factor = Factor(axis.extent, -(-axis.extent // parts), stride)
    tensor.append(factor)
  copies = [
    Replica(coarse[d].parts, coarse[d].stride)
    for d in w.free
    if coarse[d].parts > 1
  ]
  group = [Replica(parts, stride)] if parts > 1 else []
  return IndexedSplit(
    partition=_layout(coarse, group),
    windowed=_layout(tensor, copies),
    result=_layout(fine),
    parts=parts,
    entries=int(found.window // window_elements(w, found.cell)),
  )


def split_updates(
  w: Lookups, parts: int, groups: int, others: int
) -> IndexedSplit:
  """The plan of updates of a tensor that is moved; see `update_blocks`."""
  found = update_blocks(w, parts, groups, others)
  team = int(found.team)
  extents = [axis.extent for axis in w.axes]
  blocks = tensor_blocks(w, found.cell, parts)
  coarse, fine, stride = _grid(extents, blocks, found.shared, team)
  factors = [_whole(n) for n in w.shape]
  shared = []
  for factor, axis in zip(coarse, w.axes, strict=True):
    if axis.along >= 0:
      factors[axis.along] = factor
    elif factor.parts > 1:
      shared.append(Replica(factor.parts, factor.stride))
  apart = stride
  for d in w.free:
    factor = Factor(w.shape[d], int(found.cell[d]), apart)
    if factor.parts > 1:
      factors[d] = factor
      apart *= factor.parts
  where = _layout(fine)
  return IndexedSplit(
    partition=_layout(factors, shared),
    windowed=where,
    result=where,
    parts=math.prod(r.count for r in shared),
    team=team,
    entries=-int(-found.window // window_elements(w, found.cell)),
    apart=stride,
  )


def one_by_one(w: Lookups, other: Lookups, plan: IndexedSplit) -> IndexedSplit:
  """The plan of a round without teams: each tile gets all lookups and applies
  those that fall on its own elements. The tensor stays where `plan` has it.

  Args:
    w: the windows of a round with teams.
    other: the windows of the round without them; only the number of lookups
      differs.
    plan: the plan of `w`.
  """
  groups = refine(plan.partition.factors, w.shape)
  assert groups is not None, "partitions keep to dimensions"
  factors = [
    f
    for d, group in enumerate(groups)
    for f in ((_whole(other.shape[d]),) if d in w.free else group)
  ]
  replicas = (*plan.partition.replicas, Replica(plan.team, plan.apart))
  return plan._replace(
    partition=_layout(factors, replicas), parts=plan.parts * plan.team, team=1
  )


def _grid(
  extents: Sequence[int], blocks: Sequence[Counts], shared: Shared, count: int
) -> tuple[list[Factor], list[Factor], int]:
  """A grid of blocks, each divided among `count` tiles.

  Returns:
    The factors of the blocks, one for each axis; those of the tiles' shares of
    blocks; the difference between the numbers of tiles that share a block.
  """
  first, last = int(shared.first), int(shared.last)
  coarse = [_whole(n) for n in extents]
  stride = 1
  for d, extent in enumerate(extents):
    factor = Factor(extent, int(blocks[d]), stride)
    if not first <= d <= last and factor.parts > 1:
      coarse[d] = factor
      stride *= factor.parts
  if not extents:
    return coarse, [], stride
  # The shares, then the blocks of the shared axis, get the largest strides, so
  # that all strides nest.
  extent, run, share = int(shared.extent), int(shared.run), int(shared.share)
  fine = Factor(extent, share, stride) if share < extent else _whole(extent)
  if run < extent:
    coarse[first] = Factor(extent, run, stride * count)
  return coarse, [*coarse[:first], fine, *coarse[last + 1 :]], stride


def slices_in_place(w: Lookups, own: Layout) -> IndexedSplit | None:
  """Slices of a tensor in place; None if its blocks straddle dimensions."""
  found = _cut_as(w, own)
  if found is None:
    return None
  factors, shared, _ = found
  # The tiles of a cell divide its results among them, along uncut dimensions.
  owned = list(factors)
  whole = [d for d, g in enumerate(factors) if all(f.parts <= 1 for f in g)]
  whole.sort(key=lambda d: -w.shape[d])
  digits = sorted(shared, key=lambda r: -r.count)
  for d, digit in zip(whole, digits):
    share = -(-w.shape[d] // digit.count)
    if share < w.shape[d]:
      owned[d] = (Factor(w.shape[d], share, digit.stride),)
  result = _layout((f for g in owned for f in g), (), own.base)
  return _in_place(own, result, found)


def updates_in_place(w: Lookups, own: Layout) -> IndexedSplit | None:
  """Updates of a tensor in place; None if its blocks straddle dimensions."""
  found = _cut_as(w, own)
  return None if found is None else _in_place(own, own, found)


class _Cut(NamedTuple):
  """How a tensor's mapping cuts the iteration space.

  Attributes:
    factors: of each dimension of the iteration space.
    shared: replicas: the tiles that share a cell, as they hold different parts
      of the tensor along indexed dimensions.
    entries: indices along the indexed dimensions on a tile.
  """

  factors: list[tuple[Factor, ...]]
  shared: list[Replica]
  entries: int


def _in_place(own: Layout, result: Layout, cut: _Cut) -> IndexedSplit:
  return IndexedSplit(
    partition=_layout(
      (f for g in cut.factors for f in g), cut.shared, own.base
    ),
    windowed=own,
    result=result,
    parts=math.prod(r.count for r in cut.shared),
    entries=cut.entries,
  )


def _cut_as(w: Lookups, own: Layout) -> _Cut | None:
  """The cuts of the iteration space that leave a tensor of mapping `own` in
  place; None if it has replicas or its blocks straddle dimensions."""
  axes = w.axes
  refined = refine(own.factors, tuple(axis.extent for axis in axes))
  if refined is None or own.replicas:
    return None
  cut = _Cut([(_whole(n),) for n in w.shape], [], 1)
  for axis, factors in zip(axes, refined, strict=True):
    if axis.along >= 0:
      cut.factors[axis.along] = factors
    else:
      entries = math.prod(min(f.block, f.extent) for f in factors)
      cut = cut._replace(entries=cut.entries * entries)
      cut.shared.extend(
        Replica(f.parts, f.stride) for f in factors if f.parts > 1
      )
  return cut


def _whole(extent: int) -> Factor:
  return Factor(extent, max(extent, 1), 0)


def _layout(
  factors: Iterable[Factor], replicas: Sequence[Replica] = (), base: int = 0
) -> Layout:
  """A layout without factors of extent 1, so that equal mappings compare
  equal."""
  kept = tuple(f for f in factors if f.extent != 1)
  return Layout(kept or (_whole(1),), tuple(replicas), base)
