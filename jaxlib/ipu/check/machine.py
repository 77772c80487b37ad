"""The memories of the tiles, as the interpreter's steps see them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.check.interp_lifetimes import Lifetimes
from jaxlib.ipu.check.tile_memory import (
  Array,
  Elements,
  Mask,
  TileMemory,
  Trap,
  strided,
)
from jaxlib.ipu.dtypes import NUMPY, SIZE, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema


@dataclasses.dataclass(frozen=True)
class Exchanged:
  """Bytes that changed tile in one run of a step, and the planned bytes."""

  step: str
  actual: float
  planned: float


class Machine:
  """The tiles' memories, how steps access them, and what is counted.

  Attributes:
    memory: for each tensor the elements that each tile holds.
    layouts: the program's mappings.
    partition: the device's number.
    feeds: the items of each feed by its number.
    outfeed: the items that it has added to its outfeed.
  """

  def __init__(
    self,
    program: schema.Program,
    constants: memoryview,
    max_steps: int,
    exchange_rate: float = 4.0,
    partition: int = 0,
    feeds: Mapping[int, Iterator[Sequence[Array]]] | None = None,
  ) -> None:
    self.program = program
    self.partition = partition
    self.feeds = feeds or {}
    self.outfeed: list[list[Array]] = []
    self.layouts = [Layout.from_record(m) for m in program.mappings]
    self.memory = [
      TileMemory(i, t, self.layouts[t.mapping])
      for i, t in enumerate(program.tensors)
    ]
    self.read_only = set(program.arguments)
    self.max_steps = max_steps
    self.exchange_rate = exchange_rate
    self.steps = 0
    self.functions: dict[int, Any] = {}  # the steps of those called so far
    self.host_bytes = 0
    self.exchanges: list[Exchanged] = []
    self.path = ""
    self._views: dict[int, Elements] = {}
    self.lifetimes = Lifetimes()
    for i, t in enumerate(program.tensors):
      if t.root == i and t.space == schema.CONSTANT:
        self.read_only.add(i)
        self._define(i, self._constant(t, constants))

  def _constant(self, t: schema.Tensor, constants: memoryview) -> Array:
    dtype = NUMPY[DType(t.dtype)]
    count = int(np.prod(t.shape, dtype=np.int64))
    return np.frombuffer(constants, dtype, count, t.address)

  def _define(self, tensor: int, values: Array) -> None:
    self.memory[tensor].write_all(
      values.reshape(-1), np.ones(values.size, np.bool_)
    )
    self.lifetimes.write(0, tensor)

  def bind(self, arguments: Sequence[Array]) -> None:
    """Writes the arguments to their tiles."""
    numbers = self.program.arguments
    if len(arguments) != len(numbers):
      raise ValueError(
        f"{len(arguments)} arguments for a program that takes {len(numbers)}"
      )
    for i, (number, value) in enumerate(zip(numbers, arguments, strict=True)):
      m = self.memory[number]
      value = np.asarray(value)
      if value.shape != m.shape or value.dtype != NUMPY[m.dtype]:
        raise ValueError(
          f"argument {i} is {value.dtype}{value.shape}, the program takes "
          f"{NUMPY[m.dtype]}{m.shape}"
        )
      self._define(number, value)

  def outputs(self) -> list[Array]:
    """The results; every element must have been written."""
    out = []
    for number in self.program.results:
      values, defined = self.memory[number].gather_all()
      if not defined.all():
        raise Trap(
          "undefined",
          f"element {int(np.argmin(defined))} of a result was never written",
          tensor=number,
        )
      self.lifetimes.read(self.steps + 1, number)
      out.append(values.reshape(self.memory[number].shape))
    return out

  # --- Reading and writing --------------------------------------------------

  def scalar(self, tensor: int) -> int:
    """The only element of a tensor."""
    m = self.memory[tensor]
    tile = next(iter(m.tiles))
    return int(self.read(tile, tensor, np.zeros(1, np.int64))[0])

  def read(self, tile: int, tensor: int, elements: Elements) -> Array:
    """Reads elements from a tile's own memory."""
    values = self.memory[tensor].read(tile, elements)
    self.fresh(tile, tensor, elements)
    return values

  def fresh(self, tile: int, tensor: int, elements: Elements) -> None:
    """Checks that a placed tensor still equals the view of its root."""
    self.used(tensor)
    t = self.program.tensors[tensor]
    if t.root == tensor or not elements.size:
      return
    values = self.memory[tensor].read(tile, elements)
    root, defined = self.memory[t.root].gather_all()
    origin = self.view(tensor)[elements]
    same = (_bits(root[origin]) == _bits(values)) & defined[origin]
    if not same.all():
      raise Trap(
        "stale",
        f"element {elements[~same].reshape(-1)[0]} differs from its root, "
        f"tensor {t.root}, which was overwritten after the exchange",
        tile,
        tensor,
      )

  def view(self, tensor: int) -> Elements:
    """The elements of the root that a placed tensor views."""
    if tensor not in self._views:
      t = self.program.tensors[tensor]
      view = strided(t.offset, t.shape, t.strides).reshape(-1)
      self._views[tensor] = view
    return self._views[tensor]

  def used(self, tensor: int) -> None:
    """Records that a tensor is live."""
    self.lifetimes.read(self.steps, tensor)

  def held_briefly(self, sizes: Array) -> None:
    """Records the bytes that each tile holds within a step."""
    self.lifetimes.hold_briefly(self.steps, sizes)

  def writable(self, tensor: int) -> TileMemory:
    """A tensor's memory, for writing."""
    if tensor in self.read_only:
      raise Trap(
        "read-only",
        "a step writes to an argument or a constant",
        tensor=tensor,
      )
    return self.memory[tensor]

  def computed(self, tensor: int) -> TileMemory:
    """The memory of a compute set's result, which must be a root."""
    root = self.program.tensors[tensor].root
    if root != tensor:
      raise Trap(
        "read-only", f"a compute set writes to a view of {root}", tensor=tensor
      )
    return self.writable(tensor)

  def part(
    self, tensor: int, views: bool
  ) -> tuple[TileMemory, TileMemory, Array]:
    """The result of vertices that write where they compute: a root or, if
    `views`, a view of one.

    Returns:
      The root's memory; the result's, for its shape; and the elements of the
      root that the result views.
    """
    t = self.program.tensors[tensor]
    place = strided(t.offset, t.shape, t.strides).reshape(-1)
    root = self.writable(t.root) if views else self.computed(tensor)
    return root, self.memory[tensor], place

  def wrote(self, tensor: int, written: Mask) -> None:
    """Records a write; a write of all elements starts a new lifetime."""
    if written.all():
      self.lifetimes.write(self.steps, tensor)
    else:
      self.lifetimes.read(self.steps, tensor)

  def count(
    self, cost: schema.Cost, actual: float, busiest: float = 0.0
  ) -> None:
    """Records bytes that changed tile; traps if they exceed the plan.

    Args:
      cost: the planned cost.
      actual: bytes received by all tiles.
      busiest: maximum bytes over one tile's bus in either direction.
    """
    self.exchanges.append(
      Exchanged(self.path, float(actual), cost.exchange_bytes)
    )
    if actual > cost.exchange_bytes:
      raise Trap(
        "exchange",
        f"{actual} bytes change tile, the step's cost has "
        f"{cost.exchange_bytes}",
      )
    rate = self.exchange_rate
    if math.ceil(busiest / rate) > cost.exchange_cycles:
      raise Trap(
        "exchange",
        f"a tile sends or receives {busiest:g} bytes, {rate:g} a cycle; the "
        f"step's cost has {cost.exchange_cycles} cycles",
      )

  def peak_bytes(self) -> Array:
    """Maximum bytes live at a time, for each tile, after a run."""
    tiles = np.arange(self.program.target.num_tiles)
    stay = self.read_only | set(self.program.results)

    def held(tensor: int) -> Array:
      if self.program.tensors[tensor].space == schema.HOST:
        return np.zeros(len(tiles), np.int64)
      return self._held(tensor, tiles) * SIZE[self.memory[tensor].dtype]

    return self.lifetimes.peak_bytes(held, stay, self.steps + 1, len(tiles))

  def _held(self, tensor: int, tiles: Array) -> Array:
    """Number of elements that each tile holds; of overlapping windows, each
    element of the root once."""
    m = self.memory[tensor]
    if self.program.tensors[tensor].root == tensor:
      return m.layout.elements(tiles)
    view = self.view(tensor)
    held = np.zeros(len(tiles), np.int64)
    for tile, owned in m.tiles.items():
      held[tile] = len(np.unique(view[owned]))
    return held


def _bits(values: Array) -> Array:
  return values.view(np.dtype(f"u{values.dtype.itemsize}"))
