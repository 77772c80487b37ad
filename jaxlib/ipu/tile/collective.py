"""Steps of programs that run on several devices."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import CollectiveKind
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import NOWHERE, CodeCount, Participants, active
from jaxlib.ipu.tile.step import Effects, HostWork, Step, TensorAccess
from jaxlib.ipu.tile.tensor import TensorInfo

# Words of exchange code with which a tile sends or receives its part [G].
_MESSAGE = 2


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class PartitionId(Step):
  """Writes the device's number to a scalar root. The word is there when the
  program is loaded, so it takes no time."""

  tensor: int

  def accesses(self) -> Iterator[TensorAccess]:
    yield self.tensor, True

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.tensor = name(self.tensor)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    return NOWHERE

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.PartitionId(self.tensor, self.own, self.location)


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Collective(Step):
  """An exchange between devices (see `schema.Collective`).

  Attributes:
    kind: what happens.
    reduction: of the reducing kinds; otherwise SET.
    operands: roots, which are sent.
    results: roots, which are received.
    groups: the devices that meet.
    sources: of a permute, each device's source or -1.
  """

  kind: CollectiveKind
  reduction: ReduceKind = ReduceKind.SET
  operands: list[int]
  results: list[int]
  groups: tuple[tuple[int, ...], ...]
  sources: tuple[int, ...] = ()

  on_links: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    for tensor in self.operands:
      yield tensor, False
    for tensor in self.results:
      yield tensor, True

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    # A result may take the place of its operand: all devices' elements of one
    # index are read before any of them is written.
    if self.kind is CollectiveKind.ALL_REDUCE and len(self.results) == 1:
      return Effects(early_reads=self.operands, full_writes=self.results)
    return Effects(reads=self.operands, full_writes=self.results)

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    touched = sum(tensors[n].bytes for n in (*self.operands, *self.results))
    yield HostWork(touched)

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.operands = [name(n) for n in self.operands]
    found.results = [name(n) for n in self.results]
    return found

  def count_code(self, count: CodeCount) -> Participants:
    # An exchange with the links: all tiles wait for it.
    tiles = count.target.num_tiles
    words = np.zeros(tiles, np.int64)
    for number in (*self.operands, *self.results):
      words += _MESSAGE * active(count.tensors[number].layout, tiles)
    count.exchange(words, words > 0)
    return Participants(set(), True)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Collective(
      self.kind,
      self.reduction,
      self.operands,
      self.results,
      [schema.Group(list(group)) for group in self.groups],
      list(self.sources),
      self.price(target),
      self.location,
    )
