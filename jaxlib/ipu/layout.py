"""Tile mappings: which tile holds which elements, in closed form.

One family serves both tensors and the partitions of compute sets. The
row-major index of an element is split over factors (extents whose product is
the number of elements); factor f is cut into blocks, and part p of it adds
`p * stride` to the tile number. A linear mapping is one factor, a single tile
an uncut one, the operands of a partitioned matrix product are grids with
replicas. The family does not depend on the tensor's shape, so reshapes keep a
mapping; broadcasts turn factors into replicas; and the overlap of two mappings
is a product of one-dimensional overlaps.

The tile strides of one mapping nest (mixed radix, possibly with gaps), so a
tile's number determines its part along every factor. Nothing here loops over
tiles.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.program import schema

Array = npt.NDArray[np.int64]


class Factor(NamedTuple):
  """`extent` indices in blocks of `block`; part p is `p * stride` tiles on."""

  extent: int
  block: int
  stride: int

  @property
  def parts(self) -> int:
    """How many blocks there are; the last may be short."""
    return -(-self.extent // self.block)


class Replica(NamedTuple):
  """`count` copies, `stride` tiles apart."""

  count: int  # type: ignore[assignment]  # hides tuple.count
  stride: int


@dataclasses.dataclass(frozen=True)
class Layout:
  """A tile mapping (see the module's docstring).

  Attributes:
    factors: outermost first; their extents multiply to the element count.
    replicas: each combination of them holds the same elements.
    base: the first tile.
  """

  factors: tuple[Factor, ...]
  replicas: tuple[Replica, ...] = ()
  base: int = 0

  def __hash__(self) -> int:
    return self._hash

  @functools.cached_property
  def _hash(self) -> int:
    return hash((self.factors, self.replicas, self.base))

  @functools.cached_property
  def flat(self) -> tuple[int, ...]:
    """The mapping as the library takes it (runtime/moves/functions.h)."""
    f, r = self.factors, self.replicas
    every = itertools.chain.from_iterable((*f, *r))
    return (len(f), len(r), self.base, *every)

  @functools.cached_property
  def num_elements(self) -> int:
    """Number of elements, each counted once."""
    return math.prod(f.extent for f in self.factors)

  @functools.cached_property
  def max_elements(self) -> int:
    """Elements on the fullest tile, which is the first."""
    return math.prod(min(f.block, f.extent) for f in self.factors)

  @functools.cached_property
  def num_replicas(self) -> int:
    """How many tiles hold each element."""
    return math.prod(r.count for r in self.replicas)

  @functools.cached_property
  def last_tile(self) -> int:
    """The highest tile in use."""
    last = self.base
    for f in self.factors:
      last += max(f.parts - 1, 0) * f.stride
    for r in self.replicas:
      last += (r.count - 1) * r.stride
    return last

  @functools.cached_property
  def pairs_alike(self) -> bool:
    """Whether tiles 2i and 2i + 1 hold the same elements whenever one of them
    holds any, or all tiles hold the same."""
    inner = [r.count for r in self.replicas if r.stride == 1 and r.count > 1]
    steps = [f.stride for f in self.factors if f.parts > 1]
    steps += [r.stride for r in self.replicas if r.count > 1 and r.stride != 1]
    if not inner or not steps:
      return bool(inner)
    return not any(n % 2 for n in (self.base, *inner, *steps))

  @functools.cached_property
  def joined(self) -> Layout:
    """The same mapping with factors joined where possible: a normal form for
    most mappings."""
    factors: list[Factor] = []
    for f in self.factors:
      if f.extent == 1:
        continue
      if f.parts > 1:
        factors.append(f)
      elif factors:
        e, b, stride = factors[-1]
        factors[-1] = Factor(e * f.extent, b * f.extent, stride)
      else:
        factors.append(Factor(f.extent, f.extent, 0))
    replicas = tuple(r for r in self.replicas if r.count > 1)
    return Layout(tuple(factors), replicas, self.base)

  def covers(self, other: Layout) -> bool:
    """Whether each tile holds at least what it holds under `other`: the same
    mapping, perhaps with more replicas."""
    return (
      self.factors == other.factors
      and self.base == other.base
      and all(
        any(r.stride == s.stride and r.count <= s.count for s in self.replicas)
        for r in other.replicas
      )
    )

  def coordinates(
    self, tiles: Array
  ) -> tuple[list[Array], npt.NDArray[np.bool_]]:
    """For each factor the part that each tile has, and which tiles are used."""
    left = np.maximum(tiles - self.base, 0)
    parts = [np.zeros_like(left)] * len(self.factors)
    spread = [(f.stride, f.parts, i) for i, f in enumerate(self.factors)]
    spread += [(r.stride, r.count, -1) for r in self.replicas]
    # Strides nest, but there may be gaps: start with the longest one.
    for stride, count, i in sorted(spread, reverse=True):
      if count > 1 and stride:
        part = np.minimum(left // stride, count - 1)
        left = left - part * stride
        if i >= 0:
          parts[i] = part
    return parts, (left == 0) & (tiles >= self.base)

  def elements(self, tiles: Array) -> Array:
    """How many elements each tile holds."""
    parts, active = self.coordinates(tiles)
    count = active.astype(np.int64)
    for f, p in zip(self.factors, parts):
      count *= sizes_of_parts(f, p)
    return count

  def owned(self, tile: int) -> Array:
    """The indices of the elements that a tile holds, ascending."""
    parts, active = self.coordinates(np.array([tile]))
    if not active[0]:
      return np.zeros(0, np.int64)
    index = np.zeros(1, np.int64)
    for f, p in zip(self.factors, parts):
      begin = int(p[0]) * f.block
      inner = np.arange(begin, min(begin + f.block, f.extent))
      index = (index[:, None] * f.extent + inner).reshape(-1)
    return index

  def tiles(self) -> Array:
    """All tiles in use, ascending."""
    offsets = np.zeros(1, np.int64)
    for count, stride in [
      *((f.parts, f.stride) for f in self.factors),
      *self.replicas,
    ]:
      if count > 1:
        steps = np.arange(count) * stride
        offsets = (offsets[:, None] + steps).reshape(-1)
    return np.sort(offsets) + self.base

  def over(self, extents: Sequence[int]) -> Layout | None:
    """The same mapping with factors that do not cross these extents.

    None if a block straddles the boundary of two of them.
    """
    refined = refine(self.factors, tuple(extents))
    if refined is None:
      return None
    flat = tuple(itertools.chain.from_iterable(refined))
    return Layout(flat, self.replicas, self.base)

  def record(self) -> schema.Mapping:
    """The mapping as a record of the program."""
    return schema.Mapping(
      base=self.base,
      extents=[f.extent for f in self.factors],
      blocks=[f.block for f in self.factors],
      strides=[f.stride for f in self.factors],
      replica_counts=[r.count for r in self.replicas],
      replica_strides=[r.stride for r in self.replicas],
    )

  @staticmethod
  def from_record(m: schema.Mapping) -> Layout:
    """The inverse of `record`."""
    return Layout(
      tuple(map(Factor, m.extents, m.blocks, m.strides)),
      tuple(map(Replica, m.replica_counts, m.replica_strides)),
      m.base,
    )


def sizes_of_parts(f: Factor, part: Array) -> Array:
  """Elements of each part of a factor; the last one may be short."""
  # np.clip reads its bounds first, which takes longer than all else.
  return np.minimum(np.maximum(f.extent - part * f.block, 0), f.block)


@functools.lru_cache(maxsize=4096)
def linear(n: int, num_tiles: int, grain: int = 1, smallest: int = 1) -> Layout:
  """`n` elements in equal contiguous runs over up to `num_tiles` tiles.

  A run is a multiple of `grain` and at least `smallest` elements, as in
  Poplar's linear mapping (PopLibs, TileMapping.hpp).
  """
  block = max(-(-n // num_tiles), smallest, 1)
  block = -(-block // grain) * grain
  return Layout((Factor(n, block, 1),))


def single(n: int, tile: int = 0) -> Layout:
  """All `n` elements on one tile."""
  return Layout((Factor(n, max(n, 1), 0),), base=tile)


def grid(
  extents: Sequence[int],
  parts: Sequence[int],
  order: Sequence[int] | None = None,
  grains: Sequence[int] | None = None,
) -> Layout:
  """Cuts dimension d into `parts[d]` blocks; the last dimension's parts are on
  adjacent tiles, or those of the last one in `order`. Blocks are multiples of
  `grains`.

  Dimensions of extent 1 get no factor, so equal mappings are equal layouts.
  """
  stride = 1
  factors: dict[int, Factor] = {}
  for d in reversed(range(len(extents)) if order is None else order):
    if extents[d] == 1:
      continue
    block = max(-(-extents[d] // parts[d]), 1)
    if grains is not None:
      block = min(-(-block // grains[d]) * grains[d], max(extents[d], 1))
    used = max(-(-extents[d] // block), 1)
    factors[d] = Factor(extents[d], block, stride if used > 1 else 0)
    stride *= used
  flat = tuple(factors[d] for d in sorted(factors))
  return Layout(flat or (Factor(1, 1, 0),))


@functools.lru_cache(maxsize=4096)
def refine(
  factors: tuple[Factor, ...], extents: tuple[int, ...]
) -> tuple[tuple[Factor, ...], ...] | None:
  """Splits factors so that each group's extents multiply to one of `extents`.

  Works from the innermost factor outwards. None if a block straddles a
  boundary.
  """
  todo = [f for f in factors if f.extent != 1]
  groups: list[tuple[Factor, ...]] = []
  for extent in reversed(extents):
    group: list[Factor] = []
    left = extent
    while left > 1:
      if not todo:
        return None
      f = todo.pop()
      inner = math.gcd(f.extent, left)
      if inner == f.extent:
        group.append(f)
      else:
        pieces = split_factor(f, inner) if inner == left else None
        if pieces is None:
          return None
        todo.append(pieces[0])
        group.append(pieces[1])
      left //= inner
    groups.append(tuple(reversed(group)))
  if todo or 0 in extents:
    return None
  return tuple(reversed(groups))


def split_factor(f: Factor, inner: int) -> tuple[Factor, Factor] | None:
  """A factor as (outer, inner) ones, if no block straddles the boundary."""
  outer = f.extent // inner
  if f.parts <= 1:
    return Factor(outer, outer, 0), Factor(inner, inner, 0)
  if f.block % inner == 0:
    return Factor(outer, f.block // inner, f.stride), Factor(inner, inner, 0)
  if inner % f.block == 0:
    step = f.stride * (inner // f.block)
    return Factor(outer, 1, step), Factor(inner, f.block, f.stride)
  return None


@functools.lru_cache(maxsize=4096)
def project(
  partition: Layout, shape: tuple[int, ...], kept: tuple[int, ...]
) -> Layout | None:
  """The mapping of an operand as the cells of a partition access it.

  `shape` is the iteration space, `kept` the iteration dimension of each
  dimension of the operand, in the operand's order. The operand is broadcast
  along the other dimensions: each of their parts needs its elements, so they
  become replicas. None if a block of the partition straddles dimensions.
  """
  if kept == tuple(range(len(shape))):
    return partition
  groups = refine(partition.factors, shape)
  if groups is None:
    return None
  factors = [f for d in kept for f in groups[d]]
  replicas = list(partition.replicas)
  for d, group in enumerate(groups):
    if d not in kept:
      replicas += [Replica(f.parts, f.stride) for f in group if f.parts > 1]
  return Layout(
    tuple(factors) or (Factor(1, 1, 0),), tuple(replicas), partition.base
  )


@functools.lru_cache(maxsize=4096)
def overlap(
  source: Layout, destination: Layout, num_tiles: int
) -> Array | None:
  """Elements that each tile holds under both mappings of one tensor.

  None if their cuts have no common factors; counting nothing as local then
  gives an upper bound of what must move.
  """
  common = _common(source.factors, destination.factors)
  if common is None:
    return None
  a = dataclasses.replace(source, factors=common[0])
  b = dataclasses.replace(destination, factors=common[1])
  tiles = np.arange(num_tiles)
  parts_a, active_a = a.coordinates(tiles)
  parts_b, active_b = b.coordinates(tiles)
  count = (active_a & active_b).astype(np.int64)
  for f, g, p, q in zip(a.factors, b.factors, parts_a, parts_b):
    begin = np.maximum(p * f.block, q * g.block)
    end = np.minimum((p + 1) * f.block, (q + 1) * g.block)
    count *= np.clip(np.minimum(end, f.extent) - begin, 0, None)
  return count


def _common(
  a: tuple[Factor, ...], b: tuple[Factor, ...]
) -> tuple[tuple[Factor, ...], tuple[Factor, ...]] | None:
  """Both lists of factors, refined to the same extents."""
  left = [f for f in a if f.extent != 1]
  right = [f for f in b if f.extent != 1]
  out_a: list[Factor] = []
  out_b: list[Factor] = []
  while left and right:
    f, g = left.pop(), right.pop()
    if f.extent != g.extent:
      inner = min(f.extent, g.extent)
      if max(f.extent, g.extent) % inner:
        return None
      if f.extent > inner:
        pieces = split_factor(f, inner)
        if pieces is None:
          return None
        left.append(pieces[0])
        f = pieces[1]
      else:
        pieces = split_factor(g, inner)
        if pieces is None:
          return None
        right.append(pieces[0])
        g = pieces[1]
    out_a.append(f)
    out_b.append(g)
  if left or right:
    return None
  return tuple(reversed(out_a)), tuple(reversed(out_b))
