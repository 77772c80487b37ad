"""Steps that take an item from a feed, or add one to it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.code import CodeCount, Participants
from jaxlib.ipu.tile.host import arrays, some
from jaxlib.ipu.tile.step import HostWork, Step, TensorAccess
from jaxlib.ipu.tile.tensor import TensorInfo


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Infeed(Step):
  """Waits for the next item of a feed (see `schema.Infeed`).

  Attributes:
    results: the roots that its arrays are streamed to.
    feed: a tensor with the number of the feed; `schema.NONE`: the infeed.
    valid: the root that says whether there was an item; `schema.NONE`: the end
      of the feed is an error.
  """

  results: list[schema.HostArray]
  feed: int = schema.NONE
  valid: int = schema.NONE

  on_host: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    if self.feed != schema.NONE:
      yield self.feed, False
    for a in self.results:
      yield a.tensor, True
    if self.valid != schema.NONE:
      yield self.valid, True

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    if self.feed != schema.NONE:
      found.feed = name(self.feed)
    found.results = arrays(self.results, name)
    if self.valid != schema.NONE:
      found.valid = name(self.valid)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    self.buffers = some(count.stream(self.writes(), to_device=True))
    return Participants(set(), True)

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    yield HostWork(2 * sum(tensors[n].bytes for n in self.writes()))

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Infeed(
      self.results, self.feed, self.valid, self.own, self.location
    )


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Outfeed(Step):
  """Adds an item to the device's outfeed (see `schema.Outfeed`)."""

  operands: list[schema.HostArray]

  on_host: ClassVar[bool] = True

  def accesses(self) -> Iterator[TensorAccess]:
    for a in self.operands:
      yield a.tensor, False

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.operands = arrays(self.operands, name)
    return found

  def count_code(self, count: CodeCount) -> Participants:
    count.stream(self.reads(), to_device=False)
    return Participants(set(), True)

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    yield HostWork(2 * sum(tensors[n].bytes for n in self.reads()))

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Outfeed(self.operands, self.own, self.location)
