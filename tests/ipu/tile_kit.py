"""Builds small tile programs by hand, for tests of passes over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu import target as machines
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import Layout, linear
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides


class TileKit:
  """Tensors of a tile program. Methods return their numbers, and steps."""

  def __init__(self, tiles: int) -> None:
    self.tiles = tiles
    self.target = machines.resolve("ipu2", tiles)
    self.tensors: list[TensorInfo] = []

  def tensor(
    self,
    shape: tuple[int, ...],
    dtype: DType = DType.F32,
    root: int | None = None,
    layout: Layout | None = None,
  ) -> int:
    """A root, or a placed tensor with all of `root`."""
    number = len(self.tensors)
    if layout is None:
      layout = linear(math.prod(shape), self.tiles)
    self.tensors.append(
      TensorInfo(
        dtype, shape, layout, number if root is None else root, 0,
        dense_strides(shape),
      )
    )  # fmt: skip
    return number

  def execute(
    self,
    fields: Any,
    shape: tuple[int, ...],
    operands: Sequence[int],
    results: Sequence[int],
  ) -> Execute:
    """A compute set that accesses all tensors element by element."""
    dims = list(range(len(shape)))
    return Execute(
      location=0,
      fields=fields,
      shape=shape,
      partition=linear(math.prod(shape), self.tiles),
      operands=[schema.Access(n, dims) for n in operands],
      results=[schema.Access(n, dims) for n in results],
    )

  def move(self, source: int, destination: int, offset: int = 0) -> schema.Move:
    """A move of a whole tensor to a place in another one."""
    a, b = self.tensors[source], self.tensors[destination]
    return schema.Move(
      source, 0, list(a.strides), destination, offset, list(b.strides),
      list(a.shape),
    )  # fmt: skip

  def program(
    self, steps: Sequence[Step], results: Sequence[int] = ()
  ) -> TileProgram:
    """The program of these steps, with the arguments among the tensors."""
    arguments = [
      number
      for number, info in enumerate(self.tensors)
      if info.space == schema.ARGUMENT
    ]
    region = Region(steps, kept=results)
    return TileProgram(
      self.target, self.tensors, region, arguments, list(results)
    )
