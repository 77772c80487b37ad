"""Steps that stream tensors between the tiles and the host."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, Participants
from jaxlib.ipu.tile.step import Effects, HostWork, Step, TensorAccess
from jaxlib.ipu.tile.tensor import TensorInfo


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HostCopy(Step):
  """A stream of an argument or a result in the host's memory.

  Attributes:
    tensor: its root.
    to_device: the direction.
  """

  tensor: int
  to_device: bool

  on_host: ClassVar[bool] = True
  is_end: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    yield self.tensor, False
    yield self.tensor, True

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    # An argument has its memory from the beginning, a result until the end.
    return Effects(reads=[self.tensor])

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.tensor = name(self.tensor)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    self.buffers = some(count.stream([self.tensor], self.to_device))
    return Participants(set(), True)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.HostCopy(
      self.tensor, int(self.to_device), self.own, self.location
    )


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HostMove(Step):
  """A stream of all of a root to the host's memory, or back (see
  `schema.HostMove`).

  Attributes:
    source, destination: roots.
    to_device: whether it is the source that is in the host's memory.
    index: a tensor that selects a part of that one; `schema.NONE`: all of it.
  """

  source: int
  destination: int
  to_device: bool
  index: int = schema.NONE

  on_host: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    if self.index != schema.NONE:
      yield self.index, False
    yield self.source, False
    yield self.destination, True

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    effects = Step.effects(self, tensors)
    if self.index != schema.NONE and not self.to_device:
      effects.full_writes, effects.partial_writes = [], [self.destination]
    return effects

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.source, found.destination = name(self.source), name(self.destination)
    if self.index != schema.NONE:
      found.index = name(self.index)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    on_tiles = self.destination if self.to_device else self.source
    self.buffers = some(count.stream([on_tiles], self.to_device))
    return Participants(set(), True)

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    on_tiles = self.destination if self.to_device else self.source
    yield HostWork(2 * tensors[on_tiles].bytes)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.HostMove(
      self.source, self.destination, self.index, self.own, self.location
    )


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HostCallback(Step):
  """A function that runs on the host (see `schema.HostCallback`)."""

  target: str
  attributes: list[schema.Attribute]
  operands: list[schema.HostArray]
  results: list[schema.HostArray]
  aliases: list[int]

  on_host: ClassVar[bool] = True
  calls_host: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    for a in self.operands:
      yield a.tensor, False
    for a in self.results:
      yield a.tensor, True

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.operands = arrays(self.operands, name)
    found.results = arrays(self.results, name)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    count.stream(self.reads(), to_device=False)
    self.buffers = some(count.stream(self.writes(), to_device=True))
    return Participants(set(), True)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.HostCallback(
      self.target,
      self.attributes,
      self.operands,
      self.results,
      self.aliases,
      self.own,
      self.location,
    )


def arrays(
  items: Sequence[schema.HostArray], name: Callable[[int], int]
) -> list[schema.HostArray]:
  """Arrays of the host that stand for the tensors that `name` gives."""
  return [dataclasses.replace(a, tensor=name(a.tensor)) for a in items]


def some(window: Array) -> Array | None:
  """The bytes of a stream's window on each tile; None if no tile has one."""
  return window if np.any(window) else None
