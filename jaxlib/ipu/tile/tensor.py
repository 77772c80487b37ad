"""The tensors of a tile program."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Array, Layout, linear
from jaxlib.ipu.moves import native
from jaxlib.ipu.moves.distinct import distinct, overlapping
from jaxlib.ipu.program import schema


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
  """Row-major strides in elements."""
  return _dense_strides(tuple(shape))


@functools.lru_cache(maxsize=4096)
def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
  strides = []
  step = 1
  for extent in reversed(shape):
    strides.append(step)
    step *= max(extent, 1)
  return tuple(reversed(strides))


@dataclasses.dataclass(slots=True)
class TensorInfo:
  """A tensor while the program is being built (see `schema.Tensor`).

  Attributes:
    location: of the operation that makes a root, for messages.
    storage: one of the roots that share the memory of this one, the same for
      all of them; -1 if there are none (tile_passes/coalesce.py).
  """

  dtype: DType
  shape: tuple[int, ...]
  layout: Layout
  root: int
  offset: int
  strides: tuple[int, ...]
  space: int = schema.ARENA
  address: int = 0
  location: Any = None
  storage: int = -1

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def bytes(self) -> int:
    return self.size * SIZE[self.dtype]


def no_tensor(dtype: DType, number: int) -> TensorInfo:
  """A root without elements, for the number of a tensor that no step accesses
  any more."""
  return TensorInfo(dtype, (0,), linear(0, 1, 1), number, 0, (1,))


def is_root_itself(tensors: Sequence[TensorInfo], number: int) -> bool:
  """Whether a tensor is a view of all of its root, in the same mapping."""
  placed = tensors[number]
  root = tensors[placed.root]
  return (
    placed.layout == root.layout
    and placed.offset == 0
    and placed.size == root.size
    and tuple(placed.strides) == dense_strides(placed.shape)
  )


@functools.lru_cache(maxsize=512)
def elements_of(layout: Layout, num_tiles: int) -> Array:
  """Elements on each tile for a mapping; int64[tile], not to be modified."""
  if not layout.num_elements:
    elements = np.zeros(num_tiles, np.int64)
  else:
    elements = native.elements(layout, num_tiles)
  elements.flags.writeable = False
  return elements


@functools.lru_cache(maxsize=4096)
def bytes_of(layout: Layout, item_bytes: int, num_tiles: int) -> Array:
  """Bytes of each tile for a mapping and element size."""
  return elements_of(layout, num_tiles) * item_bytes


def tile_bytes(info: TensorInfo, num_tiles: int) -> Array:
  """Bytes of a tensor on each tile. Elements that several overlapping windows
  of a tile contain take memory once."""
  if overlapping(info.shape, info.strides):
    held = distinct(info.layout, info.shape, info.strides, num_tiles)
    return held * SIZE[info.dtype]
  return bytes_of(info.layout, SIZE[info.dtype], num_tiles)
