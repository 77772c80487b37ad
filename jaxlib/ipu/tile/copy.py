"""Exchanges."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.messages import messages, staying
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import NOWHERE, CodeCount, Part
from jaxlib.ipu.tile.step import Access, Effects, HostWork, Step
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Copy(Step):
  """An exchange: all moves happen in one superstep."""

  def accesses(self) -> Iterator[Access]:
    for move in self.moves:
      yield Access(move.source, False)
      yield Access(move.destination, True)

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    found = Effects()
    written: dict[int, int] = defaultdict(int)
    for move in self.moves:
      size = math.prod(move.shape)
      found.reads.append(move.source)
      root = tensors[move.destination].root
      if root != move.destination:
        found.placed.append(move.destination)
        continue
      written[root] += size
      if move.source == root and not (
        move.source_offset == move.destination_offset
        and _equal_strides(
          move.source_strides, move.destination_strides, move.shape
        )
      ):
        found.permuted.add(root)
      dense = list(dense_strides(move.shape))
      if (
        size == tensors[root].size == tensors[move.source].size
        and _equal_strides(move.source_strides, dense, move.shape)
        and _equal_strides(move.destination_strides, dense, move.shape)
      ):
        found.copies.append(move)
    for root, size in written.items():
      full = size == tensors[root].size
      (found.full_writes if full else found.partial_writes).append(root)
    return found

  def replaceable(self, tensors: Sequence[TensorInfo]) -> Iterator[int]:
    for move in self.moves:
      if (
        move.source_strides == move.destination_strides
        and tensors[move.destination].root == move.destination
        and tensors[move.destination].shape == tensors[move.source].shape
      ):
        yield move.source

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    for move in self.moves:
      info = tensors[move.destination]
      if info.root == move.destination:
        yield HostWork(info.bytes)

  def count_code(self, count: CodeCount) -> Part:
    if self.within is not None:
      count.copies(self.within > 0)
    tiles = count.target.num_tiles
    words = np.zeros(tiles, np.int64)
    busy, buffers = [], None
    for move in self.moves:
      source, to = count.tensors[move.source], count.tensors[move.destination]
      moving = (
        Side(source.layout, move.source_offset, tuple(move.source_strides)),
        Side(to.layout, move.destination_offset,
             tuple(move.destination_strides)),
        tuple(move.shape), SIZE[source.dtype],
      )  # fmt: skip
      placed = to.root != move.destination
      found = messages(*moving, placed)
      beside = staying(*moving, narrow=True) if placed else None
      if beside is not None:
        count.copies(beside > 0)
      if found is None:
        continue
      words[: len(found.words)] += found.words
      busy.append(found.busy)
      if found.buffers is not None:
        if buffers is None:
          buffers = np.zeros(tiles, np.int64)
        buffers[: len(found.buffers)] += found.buffers
        count.copies(found.buffers > 0)
    if not busy:
      return NOWHERE
    some = max(busy, key=len)
    if len(busy) > 1:
      some = some.copy()
      for other in busy:
        some[: len(other)] |= other
    count.exchange(words, some)
    self.buffers = buffers
    return Part(set(), True)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Copy(list(self.moves), self.price(target), self.location)


def _equal_strides(a: list[int], b: list[int], shape: list[int]) -> bool:
  return all(x == y or n == 1 for x, y, n in zip(a, b, shape))
