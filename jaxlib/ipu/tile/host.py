"""Steps that stream tensors between the tiles and the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, Participants
from jaxlib.ipu.tile.step import Effects, Step, TensorAccess
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

  def accesses(self) -> Iterator[TensorAccess]:
    yield TensorAccess(self.tensor, False)
    yield TensorAccess(self.tensor, True)

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    # An argument has its memory from the beginning, a result until the end.
    return Effects(reads=[self.tensor])

  def count_code(self, count: CodeCount) -> Participants:
    self.buffers = _some(count.stream([self.tensor], self.to_device))
    return Participants(set(), True)

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.HostCopy(
      self.tensor, int(self.to_device), self.own, self.location
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
      yield TensorAccess(a.tensor, False)
    for a in self.results:
      yield TensorAccess(a.tensor, True)

  def count_code(self, count: CodeCount) -> Participants:
    count.stream(self.reads(), to_device=False)
    self.buffers = _some(count.stream(self.writes(), to_device=True))
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


def _some(window: Array) -> Array | None:
  return window if np.any(window) else None
