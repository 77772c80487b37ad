"""Exchanges."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import messages, move_traffic, staying
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import (
  NOWHERE,
  CodeCount,
  ExchangeCode,
  Participants,
)
from jaxlib.ipu.tile.step import Effects, HostWork, Step, TensorAccess
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import View


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Copy(Step):
  """An exchange: all moves happen in one superstep."""

  @property
  def words(self) -> str:
    # One without moves has the cost of counting a loop's iterations.
    return "exchange" if self.moves else "loop counter"

  def accesses(self) -> Iterator[TensorAccess]:
    for m in self.moves:
      yield m.source, False
      yield m.destination, True

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    reads, copies, placed = [], [], []
    full: list[int] = []
    partial: list[int] = []
    permuted: set[int] = set()
    written: dict[int, int] = defaultdict(int)
    for m in self.moves:
      size = math.prod(m.shape)
      reads.append(m.source)
      root = tensors[m.destination].root
      if root != m.destination:
        placed.append(m.destination)
        continue
      written[root] += size
      if m.source == root and not (
        m.source_offset == m.destination_offset
        and _equal_strides(m.source_strides, m.destination_strides, m.shape)
      ):
        permuted.add(root)
      dense = list(dense_strides(m.shape))
      if (
        size == tensors[root].size == tensors[m.source].size
        and _equal_strides(m.source_strides, dense, m.shape)
        and _equal_strides(m.destination_strides, dense, m.shape)
      ):
        copies.append(m)
    for root, size in written.items():
      (full if size == tensors[root].size else partial).append(root)
    return Effects(
      reads=reads,
      full_writes=full,
      partial_writes=partial,
      copies=copies,
      placed=placed,
      permuted=permuted,
    )

  def replaceable(self, tensors: Sequence[TensorInfo]) -> Iterator[int]:
    for m in self.moves:
      if (
        m.source_strides == m.destination_strides
        and tensors[m.destination].root == m.destination
        and tensors[m.destination].shape == tensors[m.source].shape
      ):
        yield m.source

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    for m in self.moves:
      info = tensors[m.destination]
      if info.root == m.destination:
        yield HostWork(info.bytes)

  def count_code(self, count: CodeCount) -> Participants:
    if self.within is not None:
      count.copies(self.within > 0)
    known = self.common.exchanges
    found = known.get(self.word_price)
    if found is None:
      found = known[self.word_price] = self._code(count)
    for where in found.copies:
      count.copies(where)
    if not len(found.busy):
      return NOWHERE
    count.exchange(found.words, found.busy)
    self.buffers = found.buffers
    return Participants(set(), True)

  def _code(self, count: CodeCount) -> ExchangeCode:
    tiles = count.target.num_tiles
    words, busy = np.zeros(tiles, np.int64), np.zeros(0, np.bool_)
    copies, buffers = [], None
    for moving, placed in self._moving(count.tensors):
      found = messages(*moving, placed, self.word_price)
      beside = staying(*moving, narrow=True) if placed else None
      if beside is not None:
        copies.append(beside > 0)
      if found is None:
        continue
      words[: len(found.words)] += found.words
      longer, shorter = sorted((found.busy, busy), key=len, reverse=True)
      busy = longer.copy()
      busy[: len(shorter)] |= shorter
      if found.buffers is not None:
        if buffers is None:
          buffers = np.zeros(tiles, np.int64)
        buffers[: len(found.buffers)] += found.buffers
        copies.append(found.buffers > 0)
    return ExchangeCode(words, busy, copies, buffers)

  def set_word_price(
    self, target: Target, tensors: Sequence[TensorInfo], price: int
  ) -> None:
    if price == self.word_price:
      return
    before, after = (
      cost.exchange(
        target,
        [
          move_traffic(*moving, placed, placed, word_price)
          for moving, placed in self._moving(tensors)
        ],
      )
      for word_price in (self.word_price, price)
    )
    self.own = cost.add(self.own, cost.beyond(after, before))
    self.word_price = price

  def _moving(
    self, tensors: Sequence[TensorInfo]
  ) -> Iterator[tuple[tuple[MoveEnd, MoveEnd, tuple[int, ...], int], bool]]:
    """Each move's ends, shape and bytes of an element; and whether it makes a
    placed tensor."""
    for m in self.moves:
      source, to = tensors[m.source], tensors[m.destination]
      moving = (
        MoveEnd(source.layout, m.source_offset, tuple(m.source_strides)),
        MoveEnd(to.layout, m.destination_offset,
             tuple(m.destination_strides)),
        tuple(m.shape), SIZE[source.dtype],
      )  # fmt: skip
      yield moving, to.root != m.destination

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Copy(list(self.moves), self.price(target), self.location)


def _equal_strides(a: list[int], b: list[int], shape: list[int]) -> bool:
  return all(x == y or n == 1 for x, y, n in zip(a, b, shape))


def copy_views(
  target: Target,
  tensors: Sequence[TensorInfo],
  pairs: Iterable[tuple[View, View]],
  location: int,
) -> Copy | None:
  """One exchange that copies each source view to its destination view; None if
  all are empty."""
  moves, traffic, kept = [], [], []
  for source, to in pairs:
    if source.size == 0:
      continue
    moves.append(
      schema.Move(
        source.root, source.offset, list(source.strides),
        to.root, to.offset, list(to.strides), list(source.shape),
      )
    )  # fmt: skip
    sides = ends(tensors, source, to)
    traffic.append(move_traffic(*sides, source.shape, SIZE[source.dtype]))
    kept.append(staying(*sides, source.shape, SIZE[source.dtype]))
  if not moves:
    return None
  price = cost.exchange(target, traffic)
  return Copy(moves=moves, staying=kept, own=price, location=location)


def ends(
  tensors: Sequence[TensorInfo], source: View, to: View
) -> tuple[MoveEnd, MoveEnd]:
  """Both sides of a move from one view to another."""
  a, b = tensors[source.root], tensors[to.root]
  return (
    MoveEnd(a.layout, source.offset, source.strides),
    MoveEnd(b.layout, to.offset, to.strides),
  )
