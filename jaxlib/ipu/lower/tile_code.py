"""Non-tensor memory of each tile: code, vertex state, stacks, packet headers.

All of it is there for the whole run, once for each step, however often a loop
repeats it. A tile has the code of the exchanges in which it sends or receives
(plan/messages.py) and of its own vertices. It takes part in all
synchronisations, so for exchanges of other tiles it has the words that wait for
them, and loops around them.

Words of control code are those that ipu-stack's code generator emits for the
supervisor of a tile (crates/ipu-target/src/emit.rs) [S], one instruction each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu import codelets
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.lower.builder import Builder, StepBuffers
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.layout import Array, Layout
from jaxlib.ipu.plan.messages import ROW, between, messages, staying
from jaxlib.ipu.plan.runs import WORD
from jaxlib.ipu.program import schema

# The call of an exchange's row: two base registers, the workers' barrier, the
# count of what arrives, a synchronisation, the call [S]; without the barrier
# and the count on tiles that only wait: registers, `sans`, `sync` [S].
_EXCHANGE, _WAIT = 8, 3
# Vertices: the list's address, `runall`, `sync` [D], as PopLibs' supervisor
# codelets start their workers (PerformanceEstimation.hpp).
_VERTICES = 3
# An entry in the list of a compute set's vertices, bytes [G].
_ENTRY = 8
# A loop: its frame, its count, the count's decrement, test and jump [S].
_LOOP = 10
# A decision after the word that it depends on arrived: load, branch, jump [D].
_DECISION = 4
# A copy on a tile: two addresses, the length, the call [S].
_COPY = 4
# A host phase: packets, their table, the row's address, the call [S].
_HOST = 4
# Of a host stream's row: the mux, the synchronisations and the return; counts
# and the closing request. For each packet from the host a request, for each one
# to the host a header, a payload and a delay (exchange.rs) [S].
_HOST_ROW, _FROM_HOST, _TO_HOST = 12, 1, 3
_PACKET_HEADER = 8  # bytes, on the tile (exchange.rs) [S]
# Data from the host arrives in a window at a fixed address (memory.rs,
# exchange.rs) [S], and is copied to its place.
_HOST_WINDOW = 16 * 1024

# Six workers' stacks of 512 bytes and the supervisor's of 96: the 3,168 bytes
# of a tile in the memory report that Graphcore's guide to TensorFlow shows [S];
# PopART and PopLibs' tools ask for 512 too.
_WORKER_STACK, _SUPERVISOR_STACK = 512, 96
# Code of the copies on a tile, as large as a typical codelet's [G].
_COPIES = 512


@dataclasses.dataclass(frozen=True, eq=False)
class TileCode:
  """Bytes on each tile.

  Attributes:
    vertices: code of codelets, each once.
    state: of vertices, and their lists.
    exchange: code of exchanges.
    control: code of the program's steps.
    host: code and packet headers of streams to and from the host.
    stacks: of workers and supervisors.
  """

  vertices: Array
  state: Array
  exchange: Array
  control: Array
  host: Array
  stacks: Array

  @functools.cached_property
  def total(self) -> Array:
    """The sum of all parts."""
    return self.executable + self.state + self.stacks

  @functools.cached_property
  def executable(self) -> Array:
    """The parts that have to be in executable memory."""
    return self.vertices + self.exchange + self.control + self.host


# Names of the parts in errors and reports.
NAMES = {
  "vertices": "code of vertices",
  "state": "state of vertices",
  "exchange": "exchange code",
  "control": "control code",
  "host": "code and packet headers of host streams",
  "stacks": "stacks",
}


def tile_code(
  builder: Builder, copied: Iterable[npt.NDArray[np.int64]] = ()
) -> tuple[TileCode, list[StepBuffers]]:
  """All non-tensor memory, and the message buffers of exchanges.

  Args:
    builder: with all steps.
    copied: bytes that each tile copies to another place of its own, for each
      copy.
  """
  count = _Count(builder)
  count.steps(builder.steps)
  for kept in copied:
    count.copies(kept > 0)
  return count.finish(), count.buffers


@functools.lru_cache(maxsize=1024)
def _active(layout: Layout, num_tiles: int) -> npt.NDArray[np.bool_]:
  return layout.elements(np.arange(num_tiles)) > 0


class _Part(NamedTuple):
  """A list of steps: the partitions of its compute sets, and whether all tiles
  take part."""

  partitions: set[int]
  everywhere: bool


class _Count:
  """Running counts; words by partition, or over all tiles."""

  def __init__(self, builder: Builder) -> None:
    tiles = builder.target.num_tiles
    self._builder = builder
    self._layouts = list(builder.layouts)
    self._tiles = tiles
    self._state: dict[int, int] = defaultdict(int)
    self._control: dict[int, int] = defaultdict(int)
    self._users: dict[Any, set[int]] = defaultdict(set)
    self._sizes: dict[Any, int] = {}
    self._all = 0  # control code of every tile
    self._exchange, self._rows, self._own, self._host = (
      np.zeros(tiles, np.int64) for _ in range(4)
    )
    self._copying = np.zeros(tiles, np.bool_)
    self.buffers: list[StepBuffers] = []

  def steps(self, steps: list[Any]) -> _Part:
    """Counts a list of steps."""
    partitions: set[int] = set()
    everywhere = False
    for step in steps:
      if isinstance(step, schema.Execute):
        partitions.add(step.partition)
        everywhere |= self._execute(step)
      elif isinstance(step, schema.Copy):
        everywhere |= self._copy(step)
      elif isinstance(step, schema.HostCopy | schema.HostCallback):
        everywhere = True
        self._stream(step)
      else:
        part = self._nested(step)
        partitions |= part.partitions
        everywhere |= part.everywhere
    return _Part(partitions, everywhere)

  def _execute(self, step: schema.Execute) -> bool:
    codelet = codelets.CODELETS[type(step.fields)]
    p = step.partition
    self._state[p] += codelet.state_bytes(len(step.operands)) + _ENTRY
    self._control[p] += _VERTICES
    # Vertices of one codelet, or of one generated program, share its code.
    code = codelet, getattr(step.fields, "code", b"")
    self._users[code].add(p)
    self._sizes[code] = codelet.code_bytes(step.fields)
    if codelet.one_order and id(step) in self._builder.buffers:
      # Operands in another order are copied (plan/orders.py).
      self.copies(self._builder.buffers[id(step)].bytes > 0)
    _, epilogue = self._builder.epilogues.get(id(step), (step, None))
    if epilogue is None:
      return False
    if epilogue.exchanges:
      # Tiles without a vertex may own results.
      busy = _active(self._layouts[p], self._tiles)
      if epilogue.buffers is not None:
        busy = busy.copy()
        busy[: len(epilogue.buffers)] |= epilogue.buffers[: self._tiles] > 0
      self._exchange += epilogue.words * busy
      self._own += (_EXCHANGE - _WAIT) * epilogue.exchanges * busy
      self._all += _WAIT * epilogue.exchanges
    return epilogue.exchanges > 0

  def _copy(self, step: schema.Copy) -> bool:
    tensors = self._builder.tensors
    busy, buffers = [], None
    for move in step.moves:
      source, to = tensors[move.source], tensors[move.destination]
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
        self.copies(beside > 0)
      if found is None:
        continue
      self._exchange[: len(found.words)] += found.words
      busy.append(found.busy)
      if found.buffers is not None:
        if buffers is None:
          buffers = np.zeros(self._tiles, np.int64)
        buffers[: len(found.buffers)] += found.buffers
        self.copies(found.buffers > 0)
    if not busy:
      return False
    some = max(busy, key=len)
    if len(busy) > 1:
      some = some.copy()
      for other in busy:
        some[: len(other)] |= other
    self._rows[: len(some)] += some
    self._all += _WAIT
    if buffers is not None:
      self.buffers.append(StepBuffers(step, buffers))
    return True

  def copies(self, where: npt.NDArray[np.bool_]) -> None:
    """Counts a copy within each of some tiles."""
    self._own[: len(where)] += _COPY * where
    self._copying[: len(where)] |= where

  def _nested(self, step: Any) -> _Part:
    if isinstance(step, schema.Repeat):
      part = self.steps(step.body)
      if part.everywhere:
        self._all += _LOOP
      elif part.partitions:
        self._own += _LOOP * self._anywhere(part.partitions)
      return part
    if isinstance(step, schema.While):
      lists = [step.condition, step.body]
    else:
      lists = [branch.steps for branch in step.branches]
    parts = [self.steps(x) for x in lists]
    # One tile has the word; all others receive it.
    self._all += _EXCHANGE + _DECISION * max(len(lists) - 1, 1)
    self._exchange += between(0, 1)
    return _Part(set().union(*(p.partitions for p in parts)), True)

  def _anywhere(self, partitions: Iterable[int]) -> npt.NDArray[np.bool_]:
    masks = [_active(self._layouts[p], self._tiles) for p in partitions]
    return functools.reduce(np.logical_or, masks)

  def _stream(self, step: schema.HostCopy | schema.HostCallback) -> None:
    if isinstance(step, schema.HostCopy):
      ends = [([step.tensor], bool(step.to_device))]
    else:
      ends = [
        ([a.tensor for a in step.operands], False),
        ([a.tensor for a in step.results], True),
      ]
    window = np.zeros(self._tiles, np.int64)
    for numbers, arrives in ends:
      self._all += _WAIT
      size = cost.PACKET_FROM_HOST if arrives else cost.PACKET_TO_HOST
      packets = np.zeros(self._tiles, np.int64)
      for number in numbers:
        info = self._builder.tensors[number]
        held = info.layout.elements(np.arange(self._tiles)) * SIZE[info.dtype]
        packets += -(-held // size)
        if arrives:
          window = np.maximum(window, np.minimum(held, _HOST_WINDOW))
      busy = packets > 0
      each = _FROM_HOST if arrives else _TO_HOST
      self._host += (_HOST_ROW * busy + each * packets) * WORD
      self._host += _PACKET_HEADER * packets
      self._own += (_HOST - _WAIT) * busy
      if arrives:
        self.copies(busy)
    if window.any():
      self.buffers.append(StepBuffers(step, window))

  def finish(self) -> TileCode:
    """The bytes of each tile."""
    exchange = (self._exchange + ROW * self._rows) * WORD
    control = self._own + self._all + (_EXCHANGE - _WAIT) * self._rows
    state, vertices = (np.zeros(self._tiles, np.int64) for _ in range(2))
    for p, size in self._state.items():
      active = _active(self._layouts[p], self._tiles)
      state += size * active
      control += self._control[p] * active
    for code, partitions in self._users.items():
      vertices += self._sizes[code] * self._anywhere(partitions)
    vertices += _COPIES * self._copying
    control *= WORD
    workers = _WORKER_STACK * self._builder.target.num_workers
    stacks = (vertices > 0) * workers + (control > 0) * _SUPERVISOR_STACK
    return TileCode(vertices, state, exchange, control, self._host, stacks)
