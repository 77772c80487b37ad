"""Attributes of StableHLO operations, as Python records.

`ops/x.py` reads them from MLIR; decompositions (`ir/emitter.py`) create them.
Attributes that only one file uses are in that file.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxlib.ipu.kernel.opcode import Opcode

# Of a loop of which the cost analysis counts no iteration.
RARE_LOOP = "rare"


def ints(attribute: Any) -> tuple[int, ...]:
  """The elements of a dense array of integers. Its iterator ends with an
  exception of C++, which takes longer than all else."""
  return tuple([attribute[i] for i in range(len(attribute))])


@dataclasses.dataclass(frozen=True)
class Comparison:
  """`total_order`: -NaN < -inf < ... < -0 < +0 < ... < NaN."""

  opcode: Opcode
  total_order: bool


@dataclasses.dataclass(frozen=True)
class Padding:
  """Elements before, after and between, per dimension; negative edges remove
  elements."""

  low: tuple[int, ...]
  high: tuple[int, ...]
  interior: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class FourierMatrix:
  """The matrix of a discrete Fourier transform in real numbers, of shape
  (planes, terms, out_planes, kept): `schema.Fourier`."""

  length: int
  sign: int
  scale: float
  planes: int
  terms: int
  out_planes: int
  kept: int


@dataclasses.dataclass(frozen=True)
class DotDimensions:
  """Batch and contracting dimensions.

  Attributes:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract: StableHLO's.
    result: dimension i of the result is dimension `result[i]` of (batch, free
      ones of lhs, free ones of rhs); empty: in this order.
    f16_sums: the user's algorithm sums in f16.
    fourier: the matrix that rhs is, if it is one of a Fourier transform: its
      rows in row-major order of the contracting dimensions, its columns in that
      of the free ones.
  """

  lhs_batch: tuple[int, ...]
  rhs_batch: tuple[int, ...]
  lhs_contract: tuple[int, ...]
  rhs_contract: tuple[int, ...]
  result: tuple[int, ...] = ()
  f16_sums: bool = False
  fourier: FourierMatrix | None = None


@dataclasses.dataclass(frozen=True)
class Reduction:
  """A reduction's dimensions, and its fused producer.

  Attributes:
    dimensions: the reduced ones.
    prologue: an `ipu.map`'s MapProgram (passes/fuse_producers.py), whose
      outputs are reduced; then the node's inputs are the map's operands and
      the start values.
  """

  dimensions: tuple[int, ...]
  prologue: Any = None


@dataclasses.dataclass(frozen=True)
class Indexing:
  """Gather's and scatter's dimension numbers under one set of names.

  Attributes:
    window_dims: dimensions of the result (updates) that are a slice's.
    collapsed: operand dimensions of extent 1 that a slice drops.
    operand_batch, index_batch: batch dimensions, in pairs.
    index_map: operand dimension of each component of an index.
    index_vector_dim: the dimension of the indices that holds components.
    slice_sizes: extents of a slice, one per operand dimension.
    unique: the indices do not collide.
  """

  window_dims: tuple[int, ...]
  collapsed: tuple[int, ...]
  operand_batch: tuple[int, ...]
  index_batch: tuple[int, ...]
  index_map: tuple[int, ...]
  index_vector_dim: int
  slice_sizes: tuple[int, ...] = ()
  unique: bool = False

  def batch_dims(self, rank: int) -> tuple[int, ...]:
    """The result's (updates') dimensions that come from the indices."""
    return tuple(d for d in range(rank) if d not in self.window_dims)

  def operand_window(self, operand_rank: int) -> list[int]:
    """For each operand dimension its window dimension, or -1."""
    walked = iter(range(operand_rank))
    dims = [-1] * operand_rank
    for d in range(operand_rank):
      if d not in self.collapsed and d not in self.operand_batch:
        dims[d] = next(walked)
    return dims

  def operand_batch_dims(self, operand_rank: int) -> list[int]:
    """For each operand dimension the batch dimension that indexes it."""
    dims = [-1] * operand_rank
    for operand_dim, index_dim in zip(self.operand_batch, self.index_batch):
      before = index_dim > self.index_vector_dim
      dims[operand_dim] = index_dim - before
    return dims


@dataclasses.dataclass(frozen=True)
class Window:
  """StableHLO's attributes, one number for each dimension of the operand."""

  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  base_dilations: tuple[int, ...]
  window_dilations: tuple[int, ...]
  low: tuple[int, ...]
  high: tuple[int, ...]


def read_window(operation: Any) -> Window:
  """The attributes of reduce_window and select_and_scatter."""
  a = operation.attributes
  sizes = ints(a["window_dimensions"])

  def numbers(name: str) -> tuple[int, ...]:
    return ints(a[name]) if name in a else (1,) * len(sizes)

  low, high = read_padding(a, len(sizes))
  return Window(
    sizes,
    numbers("window_strides"),
    numbers("base_dilations"),
    numbers("window_dilations"),
    low,
    high,
  )


def read_padding(
  attributes: Any, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Low and high padding; none if there is no such attribute."""
  if "padding" not in attributes:
    return (0,) * rank, (0,) * rank
  pairs = np.array(attributes["padding"]).reshape(rank, 2)
  return tuple(pairs[:, 0].tolist()), tuple(pairs[:, 1].tolist())
