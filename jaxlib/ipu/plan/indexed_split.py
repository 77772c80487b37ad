"""Where windows of a tensor are that indices name at run time, and their
owners, for a given split; plan/indexed.py chooses one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxlib.ipu.plan.layout import Factor, Layout, Replica, refine
from jaxlib.ipu.plan.matmul import distribute


class Windows(NamedTuple):
  """What a step walks.

  Attributes:
    shape: the iteration space.
    windowed: the shape of the tensor whose elements indices name.
    along: for each of its dimensions that of the iteration space with the
      same index, -1 where the indices name it.
    num_batch: the dimensions of the iteration space that count lookups come
      first.
    item_bytes: of an element.
    index_bytes: of all components of an index.
  """

  shape: tuple[int, ...]
  windowed: tuple[int, ...]
  along: tuple[int, ...]
  num_batch: int
  item_bytes: int
  index_bytes: int

  @property
  def free(self) -> tuple[int, ...]:
    """Dimensions of the iteration space that walk none of the tensor's: the
    lookups, and places in a window along what the indices name."""
    return tuple(d for d in range(len(self.shape)) if d not in self.along)

  @property
  def sliced(self) -> int | None:
    """The longest of the tensor's dimensions that indices name."""
    named = [d for d, to in enumerate(self.along) if to < 0]
    return max(named, key=lambda d: self.windowed[d], default=None)


class IndexedPlan(NamedTuple):
  """A split.

  Attributes:
    partition: of the iteration space.
    windowed: where the tensor is that indices name.
    result: where slices end; for updates the same as `windowed`.
    parts: tiles that share the tensor along what indices name.
    team: tiles that share an element's updates between them.
    entries: places along what indices name on a tile.
    apart: tiles from one of a team to the next.
    rounds: into how many steps the lookups are cut, one after the other.
  """

  partition: Layout
  windowed: Layout
  result: Layout
  parts: int
  team: int
  entries: int
  apart: int = 1
  rounds: int = 1


def largest_cell(w: Windows, partition: Layout) -> tuple[int, int]:
  """Lookups of the largest cell, and elements of each."""
  refined = refine(partition.factors, w.shape)
  assert refined is not None, "partitions keep to dimensions"
  sizes = [
    math.prod(min(f.block, f.extent) for f in factors) for factors in refined
  ]
  counting = [d in w.free and d < w.num_batch for d in range(len(sizes))]
  lookups = math.prod(n for n, c in zip(sizes, counting) if c)
  return lookups, math.prod(sizes) // lookups


def split_slices(
  w: Windows, parts: int, groups: int, others: int
) -> IndexedPlan:
  """Slices of a tensor that is brought."""
  coarse, fine, stride = _shared(w.shape, _parts(w, groups, others), parts)
  tensor = []
  entries = 1
  for d, (extent, to) in enumerate(zip(w.windowed, w.along, strict=True)):
    factor = coarse[to] if to >= 0 else _whole(extent)
    if d == w.sliced and parts > 1:
      factor = Factor(extent, -(-extent // parts), stride)
    tensor.append(factor)
    entries *= min(factor.block, extent) if to < 0 else 1
  copies = [
    Replica(coarse[d].parts, coarse[d].stride)
    for d in w.free
    if coarse[d].parts > 1
  ]
  group = [Replica(parts, stride)] if parts > 1 else []
  return IndexedPlan(
    _layout(coarse, group), _layout(tensor, copies), _layout(fine), parts, 1,
    entries,
  )  # fmt: skip


def split_updates(
  w: Windows, parts: int, groups: int, others: int
) -> IndexedPlan:
  """Updates of a tensor that is brought."""
  cut = _parts(w, groups, others)
  blocks = {d: max(-(-w.shape[d] // cut[d]), 1) for d in w.free}
  used = {d: -(-w.shape[d] // block) for d, block in blocks.items()}
  team = math.prod(used.values())
  coarse, fine, stride = _shared(
    w.windowed,
    [
      cut[to] if to >= 0 else parts if d == w.sliced else 1
      for d, to in enumerate(w.along)
    ],
    team,
  )
  factors = [_whole(n) for n in w.shape]
  for d, to in enumerate(w.along):
    if to >= 0:
      factors[to] = coarse[d]
  apart = stride
  for d in w.free:
    if used[d] > 1:
      factors[d] = Factor(w.shape[d], blocks[d], apart)
      apart *= used[d]
  named = [f for f, to in zip(coarse, w.along, strict=True) if to < 0]
  shared = [Replica(f.parts, f.stride) for f in named if f.parts > 1]
  where = _layout(fine)
  return IndexedPlan(
    _layout(factors, shared),
    where,
    where,
    math.prod(r.count for r in shared),
    team,
    math.prod(min(f.block, f.extent) for f in named),
    stride,
  )


def _parts(w: Windows, groups: int, others: int) -> list[int]:
  """Parts of each dimension of the iteration space."""
  parts = [1] * len(w.shape)
  rest = tuple(sorted(to for to in w.along if to >= 0))
  for dims, count in ((w.free, groups), (rest, others)):
    extents = tuple(w.shape[d] for d in dims)
    for d, n in zip(dims, distribute(count, extents), strict=True):
      parts[d] = n
  return parts


def _shared(
  extents: Sequence[int], parts: Sequence[int], count: int
) -> tuple[list[Factor], list[Factor], int]:
  """A grid of blocks, each of which `count` tiles share along their longest
  dimension.

  Returns:
    Factors of the blocks, and of the shares; how far apart those are who share
    a block.
  """
  blocks = [max(-(-n // p), 1) for n, p in zip(extents, parts, strict=True)]
  longest = max(range(len(extents)), key=lambda d: blocks[d], default=-1)
  coarse = [_whole(n) for n in extents]
  stride = 1
  for d, (extent, block) in enumerate(zip(extents, blocks, strict=True)):
    used = -(-extent // block)
    if d != longest and used > 1:
      coarse[d] = Factor(extent, block, stride)
      stride *= used
  # The shares of the longest nest with all others: its parts come last.
  fine = list(coarse)
  if longest >= 0:
    extent = extents[longest]
    share = -(-blocks[longest] // count)
    if share * count < extent:
      coarse[longest] = Factor(extent, share * count, stride * count)
    if share < extent:
      fine[longest] = Factor(extent, share, stride)
  return coarse, fine, stride


def slices_in_place(w: Windows, own: Layout) -> IndexedPlan | None:
  """Slices of a tensor where it is; None if its blocks straddle dimensions."""
  found = _cut_as(w, own)
  if found is None:
    return None
  factors, shared, entries = found
  # Those who share a cell own a part of it each, along what is not cut.
  owned = list(factors)
  whole = [d for d, g in enumerate(factors) if all(f.parts <= 1 for f in g)]
  whole.sort(key=lambda d: -w.shape[d])
  digits = sorted(shared, key=lambda r: -r.count)
  for d, digit in zip(whole, digits):
    share = -(-w.shape[d] // digit.count)
    if share < w.shape[d]:
      owned[d] = (Factor(w.shape[d], share, digit.stride),)
  return IndexedPlan(
    _layout((f for g in factors for f in g), shared, own.base),
    own,
    _layout((f for g in owned for f in g), (), own.base),
    math.prod(r.count for r in shared),
    1,
    entries,
  )


def updates_in_place(w: Windows, own: Layout) -> IndexedPlan | None:
  """Updates of a tensor where it is; None if its blocks straddle dimensions."""
  found = _cut_as(w, own)
  if found is None:
    return None
  factors, shared, entries = found
  return IndexedPlan(
    _layout((f for g in factors for f in g), shared, own.base),
    own,
    own,
    math.prod(r.count for r in shared),
    1,
    entries,
  )


def _cut_as(
  w: Windows, own: Layout
) -> tuple[list[tuple[Factor, ...]], list[Replica], int] | None:
  """A tensor's cuts as factors of the iteration space's dimensions and as
  replicas of its cells; and the places along what indices name on a tile."""
  refined = refine(own.factors, w.windowed)
  if refined is None or own.replicas:
    return None
  factors: list[tuple[Factor, ...]] = [(_whole(n),) for n in w.shape]
  shared = []
  entries = 1
  for to, cut in zip(w.along, refined, strict=True):
    if to >= 0:
      factors[to] = cut
    else:
      entries *= math.prod(min(f.block, f.extent) for f in cut)
      shared += [Replica(f.parts, f.stride) for f in cut if f.parts > 1]
  return factors, shared, entries


def _whole(extent: int) -> Factor:
  return Factor(extent, max(extent, 1), 0)


def _layout(
  factors: Iterable[Factor], replicas: Sequence[Replica] = (), base: int = 0
) -> Layout:
  """A layout without factors of one element: equal mappings are equal."""
  kept = tuple(f for f in factors if f.extent != 1)
  return Layout(kept or (_whole(1),), tuple(replicas), base)


class Round(NamedTuple):
  """Some of the lookups: indices [start, start + extent) of dimension `d`."""

  d: int
  start: int
  extent: int
  partition: Layout


def rounds(w: Windows, plan: IndexedPlan) -> Iterator[Round]:
  """What each step of a plan does, in order."""
  lookups = [d for d in w.free if d < w.num_batch]
  d = max(lookups, key=lambda d: w.shape[d], default=0)
  extent = w.shape[d] if lookups else 1
  block = -(-extent // plan.rounds)
  if plan.rounds == 1:
    yield Round(d, 0, extent, plan.partition)
    return
  groups = refine(plan.partition.factors, w.shape)
  assert groups is not None, "partitions keep to dimensions"
  for start in range(0, extent, block):
    size = min(block, extent - start)
    factors = (
      f
      for e, group in enumerate(groups)
      for f in ((_whole(size),) if e == d else group)
    )
    base = plan.partition.base
    partition = _layout(factors, plan.partition.replicas, base)
    yield Round(d, start, size, partition)
