"""Counts the elements that each tile sends, receives and keeps in a move.

A move reads one view of a tensor and writes another: two affine accesses of one
iteration space. At each end the index splits into digits, one for each factor
of that end's mapping, and a tile holds an interval of every digit. Dimensions
that no factor cuts together are independent. So every count is a product over
groups of dimensions, and each of the products' terms is a closed form,
evaluated for all tiles at once. Where an access carries from one digit into the
next, and the factors cannot be joined, the counts are upper bounds: everything
that a tile holds is taken to move.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.moves.affine import AffineAccess, MoveEnd, nested, rank
from jaxlib.ipu.moves.common_factors import unify

Array = npt.NDArray[np.int64]


class Lines(NamedTuple):
  """Each tile's elements at one end of a move, as the product of inner and
  outer indices. The inner dimensions include the one of stride 1.

  Attributes:
    inner: number of indices along the inner dimensions, for each tile.
    inner_kept: of these, those of elements that stay on the tile.
    outer, outer_kept: the same along all other dimensions.
    length: elements along the inner dimensions that are contiguous on both
      ends.
  """

  inner: Array
  inner_kept: Array
  outer: Array
  outer_kept: Array
  length: int

  def crossing(self, segments: int) -> int:
    """Maximum number of segments that change tile, if each outer index has so
    many segments (`segments`)."""
    some = np.minimum(self.inner - self.inner_kept, segments)
    gone = self.outer - self.outer_kept
    return int((gone * segments + self.outer_kept * some).max())


class _Figures(NamedTuple):
  """Numbers of elements along some dimensions, for each tile.

  Attributes:
    wanted: elements of the destination on the tile.
    held: elements of the source on the tile.
    both: elements that the tile both holds and needs.
    alone: of these, those that no other tile needs.
  """

  wanted: Array
  held: Array
  both: Array
  alone: Array

  def times(self, other: _Figures) -> _Figures:
    """The numbers of elements along two groups of dimensions together."""
    return _Figures(*(x * y for x, y in zip(self, other, strict=True)))


class ElementCounter:
  """Counts a move's elements (see the module's docstring).

  Attributes:
    lines: each tile's elements of the destination and of the source; set by
      `count` if some dimension is contiguous at both ends, otherwise empty.
  """

  def __init__(
    self,
    source: MoveEnd,
    destination: MoveEnd,
    shape: tuple[int, ...],
    once: bool,
  ):
    self._once = once
    self._ranked: dict[tuple[int, ...], Array] = {}
    self.lines: tuple[Lines, Lines] | tuple[()] = ()
    self._source, self._destination = (
      AffineAccess(source),
      AffineAccess(destination),
    )
    dims = [
      (n, s, d)
      for n, s, d in zip(shape, source.strides, destination.strides)
      if n != 1
    ]
    self._shape = [n for n, _, _ in dims]
    self._strides = [s for _, s, _ in dims], [d for _, _, d in dims]
    accesses = self._source, self._destination
    self._fits = unify(accesses, self._shape, self._strides)

  def count(self, tiles: Array) -> tuple[Array, Array, Array]:
    """The numbers of elements that each tile receives, sends, and needs but
    already holds."""
    source = self._source.end.layout
    destination = self._destination.end.layout
    if not self._fits:
      size = math.prod(self._shape)
      first = dataclasses.replace(source, replicas=())
      return (
        np.minimum(destination.elements(tiles), size),
        np.minimum(first.elements(tiles), size),
        np.zeros(len(tiles), np.int64),
      )
    self._at = self._source.touched(tiles)
    self._to = self._destination.touched(tiles)
    outer = _Figures(*[np.array(1)] * 4)
    inner, length = outer, 0
    for group in self._groups():
      figures = self._figures(group)
      contiguous = self._contiguous(group)
      if contiguous:
        inner, length = figures, contiguous
      else:
        outer = outer.times(figures)
    # Elements that no other tile needs are not sent. If the destination has
    # replicas, there are no such elements.
    only = self._to.active & (destination.num_replicas == 1)
    active, sends = self._to.active, self._at.first
    stays = active & self._at.active
    if length:
      self.lines = (
        Lines(inner.wanted, inner.both, active * outer.wanted,
              stays * outer.both, length),
        Lines(inner.held, inner.alone, sends * outer.held,
              sends * only * outer.alone, length),
      )  # fmt: skip
    wanted, held, both, alone = outer.times(inner)
    kept = stays * both
    return active * wanted - kept, sends * (held - only * alone), kept

  def _contiguous(self, group: Sequence[int]) -> int:
    """The number of elements along a group's dimensions that are contiguous on
    both ends; 0 if none of the dimensions is."""
    near, far = self._strides
    length = 1
    for d in sorted(group, key=lambda d: near[d]):
      if near[d] == far[d] == length:
        length *= self._shape[d]
    return length if length > 1 else 0

  def _groups(self) -> list[list[int]]:
    """Groups of dimensions that have to be counted together: those that step
    along one factor, if it is cut or their steps do not nest."""
    groups = [[d] for d in range(len(self._shape))]

    def tie(dims: Sequence[int]) -> None:
      met = [g for g in groups if any(d in g for d in dims)]
      for g in met:
        groups.remove(g)
      groups.append(sorted(d for g in met for d in g))

    for access in (self._source, self._destination):
      for k, factor in enumerate(access.factors):
        mine = access.dims(k)
        if len(mine) > 1 and (
          factor.parts > 1 or not self._nests(access, mine)
        ):
          tie(mine)
    return groups

  def _pairs(
    self, access: AffineAccess, dims: Sequence[int]
  ) -> list[tuple[int, int]]:
    """(extent, step) of dimensions, largest step first."""
    pairs = [(self._shape[d], abs(access.step(d))) for d in dims]
    return sorted(pairs, key=lambda pair: -pair[1])

  def _nests(self, access: AffineAccess, dims: Sequence[int]) -> bool:
    """Whether dimensions lead to distinct digits, in row-major order."""
    return nested(self._pairs(access, dims))

  def _one_side(
    self, access: AffineAccess, parts: list[Array], dims: Sequence[int]
  ) -> Array:
    """The number of distinct elements that each tile at an end holds along
    some dimensions, or an upper bound."""
    count = np.array(1)
    for k, factor in enumerate(access.factors):
      mine = [d for d in access.dims(k) if d in dims]
      if not mine:
        continue
      pairs = self._pairs(access, mine)
      size = math.prod(n for n, _ in pairs)
      if factor.parts > 1:
        edges = (
          self._edges(access, k, mine) if nested(pairs) else access.edges(k)
        )
        count = count * np.minimum(edges[1:] - edges[:-1], size)[parts[k]]
      elif nested(pairs):
        count = count * size
      else:
        unit = math.gcd(*(step for _, step in pairs))
        span = sum((n - 1) * step for n, step in pairs) // unit + 1
        count = count * min(size, span)
    return count

  def _figures(self, dims: list[int]) -> _Figures:
    """The numbers of elements along a group of dimensions."""
    source, destination = self._source, self._destination
    broadcast = [d for d in dims if source.step(d) == 0]
    moving = [d for d in dims if source.step(d) != 0]
    held = self._one_side(source, self._at.parts, moving)
    wanted = self._one_side(destination, self._to.parts, dims)
    nothing = np.array(0)
    if not moving:
      # The source is broadcast along all of them: one element, many places.
      cut = any(destination.cut(d) is not None for d in dims)
      if self._once:
        wanted = np.minimum(wanted, 1)
      return _Figures(wanted, held, wanted, np.array(int(not cut)))
    joint = None
    if not broadcast:
      if all(
        self._nests(source, [d for d in source.dims(k) if d in dims])
        for k in range(len(source.factors))
      ):
        joint = self._intervals(dims, wanted, held)
      elif self._once:
        joint = self._windows(dims)
    return joint or _Figures(wanted, held, nothing, nothing)

  def _intervals(
    self, dims: list[int], wanted: Array, held: Array
  ) -> _Figures | None:
    """The numbers of elements where tiles of both ends hold intervals of the
    same order of the dimensions; None if there is no such order."""
    source, destination = self._source, self._destination
    ours = [d for d in dims if source.cut(d) is not None]
    theirs = [d for d in dims if destination.cut(d) is not None]
    if len({source.cut(d) for d in ours}) > 1:
      return None
    if len({destination.cut(d) for d in theirs}) > 1:
      return None
    ours.sort(key=lambda d: -abs(source.step(d)))
    theirs.sort(key=lambda d: -abs(destination.step(d)))
    order = max(ours, theirs, key=len)
    if ours != order[: len(ours)] or theirs != order[: len(theirs)]:
      return None
    rest = [d for d in dims if d not in order]
    order = order + rest
    backwards = {
      d
      for d in ours
      if d in theirs and source.step(d) * destination.step(d) < 0
    }
    if backwards and len(order) > 1:
      return None
    begin, end = np.array(0), np.array(math.prod(self._shape[d] for d in dims))
    for access, parts, mine in (
      (source, self._at.parts, ours),
      (destination, self._to.parts, theirs),
    ):
      if not mine:
        continue
      low, high = self._ranks(access, parts, mine, order)
      if access is destination and backwards:
        low, high = self._shape[dims[0]] - high, self._shape[dims[0]] - low
      begin, end = np.maximum(begin, low), np.minimum(end, high)
    both = np.maximum(end - begin, 0)
    return _Figures(wanted, held, both, both)

  def _ranks(
    self,
    access: AffineAccess,
    parts: list[Array],
    mine: list[int],
    order: list[int],
  ) -> tuple[Array, Array]:
    """The begin and end of the interval that each tile holds, if `order` is the
    order of the dimensions; it begins with `mine`, which one factor cuts."""
    k = access.cut(mine[0])
    assert k is not None
    ranks = self._edges(access, k, mine)
    if len(order) > len(mine):
      ranks = ranks * math.prod(self._shape[d] for d in order[len(mine) :])
    return ranks[parts[k]], ranks[1:][parts[k]]

  def _edges(self, access: AffineAccess, k: int, mine: Sequence[int]) -> Array:
    """For each edge between parts of factor k, how many indices of the nested
    dimensions `mine` lie before it."""
    key = (access is self._source, k, *sorted(mine))
    if key not in self._ranked:
      limits = access.edges(k) - access.begin(k, mine, self._shape)
      self._ranked[key] = rank(limits, self._pairs(access, mine))
    return self._ranked[key]

  def _windows(self, dims: list[int]) -> _Figures | None:
    """The numbers of elements of overlapping windows along one factor: a tile
    needs everything from the beginning of its first window to the end of its
    last. None if the dimensions are no such windows."""
    source, destination = self._source, self._destination
    cut = [d for d in dims if destination.cut(d) is not None]
    places = {digit[0] for d in dims if (digit := source.digits[d])}
    if len(dims) != 2 or len(cut) > 1 or len(places) > 1:
      return None
    if any(source.step(d) <= 0 or destination.step(d) < 0 for d in dims):
      return None
    place = cut[0] if cut else dims[0]
    inside = dims[1] if place == dims[0] else dims[0]
    (k,) = places
    unit = math.gcd(source.step(place), source.step(inside))
    step = source.step(place) // unit
    reach = (self._shape[inside] - 1) * (source.step(inside) // unit)
    first, last = np.array(0), np.array(self._shape[place])
    if cut:
      first, last = self._ranks(destination, self._to.parts, cut, cut)
    some = last > first
    # What the tile needs is [low, high); what no other tile needs of it is
    # [before, after).
    low, high = first * step, (last - 1) * step + reach + 1
    before = np.where(first > 0, (first - 1) * step + reach + 1, low)
    after = np.where(last < self._shape[place], last * step, high)
    begin, end = (
      np.array(0),
      np.array((self._shape[place] - 1) * step + reach + 1),
    )
    if source.factors[k].parts > 1:
      edges = -((source.starts[k] - source.edges(k)) // unit)
      begin, limit = (edges[self._at.parts[k] + i] for i in (0, 1))
      begin, end = np.maximum(begin, 0), np.minimum(end, limit)

    def length(low: Array, high: Array) -> Array:
      return np.maximum(high - low, 0)

    return _Figures(
      some * length(low, high),
      length(begin, end),
      some * length(np.maximum(low, begin), np.minimum(high, end)),
      some
      * length(np.maximum(np.maximum(low, before), begin),
               np.minimum(np.minimum(high, after), end)),
    )  # fmt: skip
