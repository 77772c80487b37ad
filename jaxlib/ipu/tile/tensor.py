"""The tensors of a tile program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
  """Row-major strides in elements."""
  strides = []
  step = 1
  for extent in reversed(shape):
    strides.append(step)
    step *= max(extent, 1)
  return tuple(reversed(strides))


@dataclasses.dataclass(slots=True)
class TensorInfo:
  """A tensor while the program is being built (see `schema.Tensor`)."""

  dtype: DType
  shape: tuple[int, ...]
  layout: Layout
  root: int
  offset: int
  strides: tuple[int, ...]
  space: int = schema.ARENA
  address: int = 0
  location: Any = None

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def bytes(self) -> int:
    return self.size * SIZE[self.dtype]


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
