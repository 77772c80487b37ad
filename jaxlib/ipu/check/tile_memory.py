"""The private memories of the interpreter's tiles, and their traps."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema

Array = npt.NDArray[Any]
Elements = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Trap(Exception):
  """A program did something impossible for tiles.

  Attributes:
    kind: `absent` (an element that is not on the tile), `undefined` (one that
      was never written), `stale` (a placed tensor whose root has changed
      since its exchange), `race` (two writers of one element), `replica` (a
      replica that was not written), `read-only`, `sram`, `exchange` (more bytes
      than planned), `partition`, `runaway`.
    step: its place in the tree of steps.
    tile: the tile, or -1.
    tensor: the tensor, or -1.
  """

  def __init__(
    self,
    kind: str,
    message: str,
    tile: int = -1,
    tensor: int = -1,
    step: str = "",
  ) -> None:
    super().__init__(kind, message, tile, tensor, step)
    self.kind = kind
    self.message = message
    self.tile = tile
    self.tensor = tensor
    self.step = step

  def __str__(self) -> str:
    where = [f"step {self.step or '?'}"]
    if self.tile >= 0:
      where.append(f"tile {self.tile}")
    if self.tensor >= 0:
      where.append(f"tensor {self.tensor}")
    return f"{self.kind} at {', '.join(where)}: {self.message}"


class TileMemory:
  """One tensor's elements, each on the tiles that its mapping assigns.

  Elements are named by their row-major numbers. Only `gather_all` and
  `write_all` access more than one tile.
  """

  def __init__(self, number: int, tensor: schema.Tensor, layout: Layout):
    self.number = number
    self.dtype = DType(tensor.dtype)
    self.layout = layout
    self.shape = tuple(tensor.shape)
    self.size = int(np.prod(self.shape, dtype=np.int64))
    self.tiles: dict[int, Elements] = {}
    self.values: dict[int, Array] = {}
    self.defined: dict[int, Mask] = {}
    self._all: tuple[Array, Mask] | None = None
    for tile in layout.tiles().tolist() if self.size else ():
      owned = layout.owned(tile)
      self.tiles[tile] = owned
      self.values[tile] = np.zeros(len(owned), NUMPY[self.dtype])
      self.defined[tile] = np.zeros(len(owned), np.bool_)

  @functools.cached_property
  def copies(self) -> int:
    """How many tiles hold each element."""
    return self.layout.num_replicas

  @functools.cached_property
  def owners(self) -> Elements:
    """The tiles that hold each element, by replica and element."""
    found = np.zeros((self.copies, self.size), np.int64)
    seen = np.zeros(self.size, np.int64)
    for tile, owned in self.tiles.items():
      found[seen[owned], owned] = tile
      seen[owned] += 1
    return found

  def has(self, tile: int, elements: Elements) -> Mask:
    """Which elements the tile holds."""
    owned = self.tiles.get(tile)
    if owned is None or not len(owned):
      return np.zeros(elements.shape, np.bool_)
    at = np.minimum(np.searchsorted(owned, elements), len(owned) - 1)
    return owned[at] == elements

  def local(self, tile: int, elements: Elements) -> Elements:
    """The places of elements in the tile's own memory."""
    present = self.has(tile, elements)
    if not present.all():
      missing = elements[~present].reshape(-1)
      raise Trap(
        "absent",
        f"element {missing[0]} (and {missing.size - 1} more) is not here",
        tile,
        self.number,
      )
    if not elements.size:
      return elements
    return np.searchsorted(self.tiles[tile], elements)

  def read(self, tile: int, elements: Elements) -> Array:
    """Reads elements from the tile's own memory."""
    at = self.local(tile, elements)
    if not elements.size:
      return np.zeros(elements.shape, NUMPY[self.dtype])
    defined = self.defined[tile][at]
    if not defined.all():
      first = elements[~defined].reshape(-1)[0]
      raise Trap(
        "undefined",
        f"element {first} is read but was never written",
        tile,
        self.number,
      )
    return self.values[tile][at]

  def write(self, tile: int, elements: Elements, values: Array) -> None:
    """Writes elements to the tile's own memory."""
    at = self.local(tile, elements)
    self._all = None
    if elements.size:
      self.values[tile][at] = values
      self.defined[tile][at] = True

  def gather_all(self) -> tuple[Array, Mask]:
    """All elements, and which of them are defined on their owners."""
    if self._all is None:
      values = np.zeros(self.size, NUMPY[self.dtype])
      defined = np.zeros(self.size, np.bool_)
      for tile, owned in self.tiles.items():
        values[owned] = self.values[tile]
        defined[owned] = self.defined[tile]
      values.flags.writeable = defined.flags.writeable = False
      self._all = values, defined
    return self._all

  def write_all(self, values: Array, written: Mask) -> None:
    """Delivers the elements in `written` to every tile that holds them."""
    self._all = None
    for tile, owned in self.tiles.items():
      here = written[owned]
      self.values[tile][here] = values[owned[here]]
      self.defined[tile][here] = True


def strided(offset: int, shape: Any, strides: Any) -> Elements:
  """The element numbers of a view, in the view's shape."""
  at = np.full(tuple(shape), offset, np.int64)
  for d, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
    along = np.arange(extent, dtype=np.int64) * stride
    at += along.reshape((-1,) + (1,) * (len(shape) - 1 - d))
  return at


def arriving(
  source: TileMemory,
  destination: TileMemory,
  origin: Elements,
  num_tiles: int,
  once: bool = False,
) -> tuple[Elements, Elements]:
  """The elements that each tile receives, and those that each tile sends.

  `origin` gives for each of the destination's elements the source element that
  it receives, -1 for none. With `once` a tile that needs an element in several
  places, in overlapping windows, receives and keeps it once. Regardless of how
  many tiles listen, the first replica of an element sends it once.
  """
  received = np.zeros(num_tiles, np.int64)
  asked = np.zeros(source.size, np.bool_)
  for tile, owned in destination.tiles.items():
    wanted = origin[owned]
    wanted = wanted[wanted >= 0]
    if once:
      wanted = np.unique(wanted)
    missing = wanted[~source.has(tile, wanted)]
    received[tile] = len(missing)
    asked[missing] = True
  first = dataclasses.replace(source.layout, replicas=())
  sent = np.zeros(num_tiles, np.int64)
  for tile in first.tiles().tolist() if source.size else ():
    sent[tile] = int(asked[source.tiles[tile]].sum())
  return received, sent
