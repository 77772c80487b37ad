"""Non-tensor memory of each tile: code, vertex state, stacks, packet headers.

All of it is there for the whole run, once for each step, however often a loop
repeats it. A tile has the code of the exchanges in which it sends or receives
(moves/messages.py) and of its own vertices. It takes part in all
synchronisations, so for exchanges of other tiles it has the words that wait for
them, and loops around them.

What a step adds is its own business (`Step.count_code`). Words of control code
are those that ipu-stack's code generator emits for the supervisor of a tile
(crates/ipu-target/src/emit.rs) [S], one instruction each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.moves.messages import ROW
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.tensor import TensorInfo, elements_of

# The call of an exchange's row: two base registers, the workers' barrier, the
# count of what arrives, a synchronisation, the call [S]; without the barrier
# and the count on tiles that only wait: registers, `sans`, `sync` [S].
EXCHANGE, WAIT = 8, 3
# Vertices: the list's address, `runall`, `sync` [D], as PopLibs' supervisor
# codelets start their workers (PerformanceEstimation.hpp).
_VERTICES = 3
# An entry in the list of a compute set's vertices, bytes [G].
_ENTRY = 8
# A copy on a tile: two addresses, the length, the call [S].
COPY = 4
# A host phase: packets, their table, the row's address, the call [S].
_HOST = 4
# Of a host stream's row: the mux, the synchronisations and the return; counts
# and the closing request. For each packet from the host a request, for each one
# to the host a header, a payload and a delay (exchange.rs) [S].
_HOST_ROW, _FROM_HOST, _TO_HOST = 12, 1, 3
# A call: the address of its constants, the call, and whatever the alignment of
# the function's rows adds [D]; a function: its return address is stored and
# loaded, the stack moves twice, the return [D].
CALL, FUNCTION = 3, 5
# The stack of a function's call, bytes: the return address and the address of
# its caller's constants [D].
_FRAME = 8
# A constant that is passed: it is loaded and stored; its bytes in the table of
# each call [D].
_PASS, _CONSTANT = 2, 4
# A loop: its frame, its count, the count's decrement, test and jump [S].
LOOP = 10
# Code of the copies on a tile, as large as a typical codelet's [G].
COPIES = 512

Mask = npt.NDArray[np.bool_]


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
    functions: of each function its own code, which is part of exchange, control
      and host, without its vertices' and that of functions that it calls.
  """

  vertices: Array
  state: Array
  exchange: Array
  control: Array
  host: Array
  stacks: Array
  functions: Sequence[Array] = ()

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


@functools.lru_cache(maxsize=4096)
def active(layout: Layout, num_tiles: int) -> Mask:
  """The tiles that have any element of a mapping."""
  return elements_of(layout, num_tiles) > 0


class Participants(NamedTuple):
  """A list of steps: the partitions of its compute sets, and whether all tiles
  take part."""

  partitions: set[Layout]
  everywhere: bool

  @classmethod
  def joined(cls, parts: Sequence[Participants]) -> Participants:
    """The parts together."""
    partitions = set().union(*(p.partitions for p in parts))
    return cls(partitions, any(p.everywhere for p in parts))


NOWHERE = Participants(set(), False)


class ExchangeCode(NamedTuple):
  """What an exchange takes on each tile.

  Attributes:
    words: of code.
    busy: the tiles that send or receive.
    copies: for each copy that comes with a move, the tiles that make it.
    buffers: bytes of the tile's message buffers; None if no tile needs one.
  """

  words: Array
  busy: Mask
  copies: Sequence[Mask]
  buffers: Array | None


class HasCode(Protocol):
  """A step."""

  location: int

  def count_code(self, count: CodeCount) -> Participants: ...


class CodeCount:
  """Counts the code of steps on each tile.

  Attributes:
    target: the machine.
    tensors: of the program.
    copying: the tiles that have the code of copies, which is there once.
  """

  def __init__(self, target: Target, tensors: Sequence[TensorInfo]) -> None:
    tiles = target.num_tiles
    self.target = target
    self.tensors = tensors
    self._state: dict[Layout, int] = defaultdict(int)
    self._control: dict[Layout, int] = defaultdict(int)
    self._users: dict[Any, set[Layout]] = defaultdict(set)
    self._sizes: dict[Any, int] = {}
    self._all = 0  # control code of every tile, words
    # Words of exchange code, rows of it, control code, and bytes for the host.
    self._exchange, self._rows, self._own, self._host = (
      np.zeros(tiles, np.int64) for _ in range(4)
    )
    self.copying = np.zeros(tiles, np.bool_)
    self._data = np.zeros(tiles, np.int64)  # tables of constants, frames
    self._constants: dict[Layout, int] = defaultdict(int)
    self.functions: dict[int, _Function] = {}

  def call(self, function: int, body: Sequence[Any]) -> Participants:
    """Counts a call; of the first one of a function its body, too."""
    found = self.functions.get(function)
    if found is None:
      own = self.inner()
      parts = own.steps(body)
      own.loop(FUNCTION, parts)
      own._data += _FRAME * self._anywhere(parts)
      found = _Function(own, parts, [s.buffers for s in _nested(body)])
      self.functions[function] = found
    else:
      for step, buffers in zip(_nested(body), found.buffers, strict=True):
        step.buffers = buffers
    self.loop(CALL, found.parts)
    for partition, number in found.count._constants.items():
      self._constants[partition] += number
    return found.parts

  def inner(self) -> CodeCount:
    """A count of a function's own code."""
    return self.shared(CodeCount(self.target, self.tensors))

  def shared(self, found: CodeCount) -> CodeCount:
    """The count `found`, with what is counted once in a program: code of
    vertices, and functions."""
    found._users, found._sizes = self._users, self._sizes
    found.copying, found.functions = self.copying, self.functions
    return found

  def passed(self, partition: Layout, number: int) -> None:
    """Counts constants that calls pass to a compute set of a function."""
    self.partition_control(partition, _PASS * number)
    self._constants[partition] += number

  def steps(self, steps: Sequence[HasCode]) -> Participants:
    """Counts a list of steps."""
    return Participants.joined([self.step(step) for step in steps])

  def step(self, step: HasCode) -> Participants:
    """Counts a step and those in its regions."""
    return step.count_code(self)

  def vertices(
    self, partition: Layout, state_bytes: int, code: Any, code_bytes: int
  ) -> None:
    """Counts a compute set whose vertices have so much state, and share code of
    that size with all that have the same `code`."""
    self._state[partition] += state_bytes + _ENTRY
    self.partition_control(partition, _VERTICES)
    self._users[code].add(partition)
    self._sizes[code] = code_bytes

  def partition_control(self, partition: Layout, words: int) -> None:
    """Counts words of control code on the tiles of a partition."""
    self._control[partition] += words

  def exchange(self, words: npt.NDArray[np.int64], busy: Mask) -> None:
    """Counts an exchange: words of code on each tile, and which tiles send or
    receive."""
    self._exchange[: len(words)] += words
    self._rows[: len(busy)] += busy
    self._all += WAIT

  def inner_exchanges(self, number: int, words: int, busy: Mask) -> None:
    """Counts the exchanges between the supersteps of a compute set, with so
    many words of code in all on each busy tile."""
    self._exchange += words * busy
    self._own += (EXCHANGE - WAIT) * number * busy
    self._all += WAIT * number

  def decision(self, instructions: int, words: int) -> None:
    """Counts a decision of all tiles: one has the word, all others receive it
    by an exchange with so much code."""
    self._all += EXCHANGE + instructions
    self._exchange += words

  def loop(self, instructions: int, body: Participants) -> None:
    """Counts a loop's own instructions, on the tiles that take part in it."""
    if body.everywhere:
      self._all += instructions
    elif body.partitions:
      self._own += instructions * self._anywhere(body)

  def copies(self, where: Mask, number: int = 1) -> None:
    """Counts copies within each of some tiles."""
    self._own[: len(where)] += COPY * number * where
    self.copying[: len(where)] |= where

  def stream(self, numbers: Sequence[int], to_device: bool) -> Array:
    """Counts a stream of tensors from or to the host; returns the bytes of each
    tile's window for it."""
    target = self.target
    tiles = target.num_tiles
    self._all += WAIT
    size = (
      target.packet_from_host_bytes
      if to_device
      else target.packet_to_host_bytes
    )
    packets, window = (np.zeros(tiles, np.int64) for _ in range(2))
    for number in numbers:
      info = self.tensors[number]
      held = elements_of(info.layout, tiles) * SIZE[info.dtype]
      packets += -(-held // size)
      if to_device:
        window = np.maximum(window, np.minimum(held, target.host_window_bytes))
    busy = packets > 0
    each = _FROM_HOST if to_device else _TO_HOST
    self._host += (_HOST_ROW * busy + each * packets) * WORD
    self._host += target.tile_packet_header_bytes * packets
    self._own += (_HOST - WAIT) * busy
    if to_device:
      self.copies(busy)
    return window

  def _anywhere(self, parts: Participants) -> Mask:
    tiles = self.target.num_tiles
    if parts.everywhere:
      return np.ones(tiles, np.bool_)
    masks = [active(p, tiles) for p in parts.partitions]
    return functools.reduce(np.logical_or, masks, np.zeros(tiles, np.bool_))

  def on_tile(self, tile: int) -> tuple[int, int, int]:
    """Bytes of exchange code, of control code but for that of partitions, and
    of code for the host, on a tile."""
    rows = int(self._rows[tile])
    control = int(self._own[tile]) + self._all + (EXCHANGE - WAIT) * rows
    exchange = int(self._exchange[tile]) + ROW * rows
    return exchange * WORD, control * WORD, int(self._host[tile])

  def own_code(self) -> Array:
    """Bytes of exchange and control code on each tile, but for functions'."""
    return self._exchange_code() + self._control_code()

  def _exchange_code(self) -> Array:
    return (self._exchange + ROW * self._rows) * WORD

  def _control_code(self) -> Array:
    tiles = self.target.num_tiles
    control = self._own + self._all + (EXCHANGE - WAIT) * self._rows
    for p, words in self._control.items():
      control += words * active(p, tiles)
    return control * WORD

  def _vertex_state(self) -> Array:
    tiles = self.target.num_tiles
    state = self._data.copy()
    for p, size in self._state.items():
      state += size * active(p, tiles)
    return state

  def _host_code(self) -> Array:
    return self._host

  def finish(self) -> TileCode:
    """The bytes of each tile."""
    target = self.target
    tiles = target.num_tiles
    counts = [self, *(f.count for f in self.functions.values())]
    exchange, control, state, host = (
      functools.reduce(np.add, [part(count) for count in counts])
      for part in (
        CodeCount._exchange_code,
        CodeCount._control_code,
        CodeCount._vertex_state,
        CodeCount._host_code,
      )
    )
    for p, number in self._constants.items():
      state += _CONSTANT * number * active(p, tiles)
    vertices = np.zeros(tiles, np.int64)
    for code, partitions in self._users.items():
      where = self._anywhere(Participants(partitions, False))
      vertices += self._sizes[code] * where
    vertices += COPIES * self.copying
    workers = target.worker_stack_bytes * target.num_workers
    stacks = (vertices > 0) * workers + (
      control > 0
    ) * target.supervisor_stack_bytes
    functions = [
      own.own_code() + own._host
      for own in (self.functions[n].count for n in sorted(self.functions))
    ]
    return TileCode(vertices, state, exchange, control, host, stacks, functions)


@dataclasses.dataclass(slots=True)
class _Function:
  """A function that was counted.

  Attributes:
    count: of its own code.
    parts: the tiles that take part in its calls.
    buffers: those of its steps, nested ones included.
  """

  count: CodeCount
  parts: Participants
  buffers: list[Array | None]


def _nested(steps: Sequence[Any]) -> Iterator[Any]:
  """All steps, nested ones included."""
  for step in steps:
    yield step
    for region in step.regions:
      yield from _nested(region)
