"""Affine accesses of tensors, in the digits that tile mappings cut.

The row-major index of an element splits into digits, one per factor of the
tensor's mapping (layout.py), and a tile holds an interval of every digit.
If an access never carries from one digit into the next, each digit depends only
on the dimensions of the iteration space that step along its factor, so the
factors can be counted one by one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.layout import Factor, Layout

Array = npt.NDArray[np.int64]


class MoveEnd(NamedTuple):
  """The source or the destination of a move.

  Element (i, j, ...) of the move's iteration space is element
  `offset + i*strides[0] + j*strides[1] + ...` of a tensor with this mapping.
  """

  layout: Layout
  offset: int
  strides: tuple[int, ...]


class Touched(NamedTuple):
  """The part of an accessed tensor that each tile holds, as arrays over tiles.

  Attributes:
    parts: for each factor, the part that each tile holds.
    active: whether the tile holds any accessed element.
    first: whether it is also in the first of the mapping's replicas.
  """

  parts: list[Array]
  active: npt.NDArray[np.bool_]
  first: npt.NDArray[np.bool_]


class AffineAccess:
  """The access of one end of a move, in digits.

  Attributes:
    factors: those of the mapping, some of them joined.
    starts: for each factor, its digit at index 0 of the iteration space.
    digits: for each dimension of the iteration space, the factor along which
      it steps, and by how many digits per index; None if the access is
      broadcast along the dimension.
  """

  def __init__(self, end: MoveEnd):
    self.end = end
    self.factors: list[Factor] = []
    self.starts: list[int] = []
    self.digits: list[tuple[int, int] | None] = []
    self.reset()

  def reset(self) -> None:
    """Restores the mapping's own factors."""
    self.factors = [f for f in self.end.layout.factors if f.extent != 1]

  def units(self) -> list[int]:
    """For each factor, the elements by which a step of its digit moves."""
    units = []
    unit = 1
    for f in reversed(self.factors):
      units.append(unit)
      unit *= f.extent
    return units[::-1]

  def join(self, k: int) -> bool:
    """Joins factor k with the next outer one, if factor k is not cut; returns
    whether it did."""
    if k == 0 or self.factors[k].parts > 1:
      return False
    outer, inner = self.factors[k - 1 : k + 1]
    block = outer.block * inner.extent
    joined = Factor(outer.extent * inner.extent, block, outer.stride)
    self.factors[k - 1 : k + 1] = [joined]
    return True

  def fit(
    self, shape: Sequence[int], strides: Sequence[int]
  ) -> tuple[int, int] | bool:
    """Sets `starts` and `digits`, and joins factors as far as this needs.

    Returns:
      True on success; (dimension, inner extent) if this dimension has to be
      split first; False if the access carries from digit to digit in any case.
    """
    while True:
      fitted = self._try(shape, strides)
      if isinstance(fitted, bool):
        return fitted
      k, split = fitted
      if self.join(k):
        continue
      return split if split is not None else False

  def _try(
    self, shape: Sequence[int], strides: Sequence[int]
  ) -> bool | tuple[int, tuple[int, int] | None]:
    """Like `fit`, but joins nothing. On failure returns the factor to join with
    the next outer one, and the split to make if they cannot be joined."""
    units = self.units()
    self.starts = [
      self.end.offset // unit % f.extent for unit, f in zip(units, self.factors)
    ]
    self.digits = []
    low, high = list(self.starts), list(self.starts)
    for extent, stride in zip(shape, strides):
      if extent == 1 or stride == 0:
        self.digits.append(None)
        continue
      k = next(k for k, unit in enumerate(units) if unit <= abs(stride))
      if stride % units[k]:
        return k + 1, None
      step = stride // units[k]
      self.digits.append((k, step))
      (low if step < 0 else high)[k] += step * (extent - 1)
    for k, f in enumerate(self.factors):
      if low[k] < 0 or high[k] >= f.extent:
        return k, self._split(k, shape)
    return True

  def _split(self, k: int, shape: Sequence[int]) -> tuple[int, int] | None:
    """The dimension to split, and its inner extent, so that it no longer
    carries out of factor k; None if no even split does that."""
    extent = self.factors[k].extent
    for d, digit in enumerate(self.digits):
      if digit is None or digit[0] != k or extent % abs(digit[1]):
        continue
      inner = extent // abs(digit[1])
      if shape[d] > inner > 1 and shape[d] % inner == 0:
        return d, inner
    return None

  def cut(self, d: int) -> int | None:
    """The factor that cuts dimension d into parts; None if none does."""
    digit = self.digits[d]
    if digit is None or self.factors[digit[0]].parts <= 1:
      return None
    return digit[0]

  def dims(self, k: int) -> list[int]:
    """The dimensions that step along factor k."""
    return [d for d, digit in enumerate(self.digits) if digit and digit[0] == k]

  def step(self, d: int) -> int:
    """The step of dimension d in its digit; 0 if broadcast."""
    digit = self.digits[d]
    return 0 if digit is None else digit[1]

  def touched(self, tiles: Array) -> Touched:
    """The parts that tiles hold. If no dimension steps along a factor, all
    accessed elements have that factor's start digit, and only the tiles that
    hold it are active."""
    layout = self.end.layout
    if tuple(self.factors) != layout.factors:
      layout = dataclasses.replace(layout, factors=tuple(self.factors))
    parts, active = layout.coordinates(tiles)
    for k, part in enumerate(parts):
      if self.factors[k].parts > 1 and not self.dims(k):
        active = active & (part == self.starts[k] // self.factors[k].block)
    first = active
    if layout.replicas:
      alone = dataclasses.replace(layout, replicas=())
      first = first & alone.coordinates(tiles)[1]
    return Touched(parts, active, first)

  def edges(self, k: int) -> Array:
    """The digits at which the parts of factor k begin, then its extent."""
    f = self.factors[k]
    return np.minimum(np.arange(f.parts + 1) * f.block, f.extent)

  def begin(self, k: int, dims: Sequence[int], shape: Sequence[int]) -> int:
    """The smallest digit of factor k that these dimensions reach."""
    back = (self.step(d) * (shape[d] - 1) for d in dims)
    return self.starts[k] + sum(step for step in back if step < 0)


def nested(dims: Sequence[tuple[int, int]]) -> bool:
  """Whether (extent, step) pairs, outermost first, enumerate distinct numbers
  in ascending order."""
  reach = 0
  for extent, step in reversed(dims):
    if step <= reach:
      return False
    reach += (extent - 1) * step
  return True


def _within(limit: Array, extent: int, step: int) -> Array:
  """How many of the numbers 0, step, ..., (extent - 1) * step are below a
  limit."""
  index = limit if step == 1 else -(-limit // step)
  return np.minimum(np.maximum(index, 0), extent)


def rank(limit: Array, dims: Sequence[tuple[int, int]]) -> Array:
  """How many of the numbers that nested (extent, step) pairs enumerate from 0
  are below a limit."""
  *outer, (last, step) = dims
  if not outer:
    return _within(limit, last, step)
  inner = math.prod(extent for extent, _ in dims)
  count = np.zeros_like(limit)
  left, open_ = limit, limit > 0
  for extent, stride in outer:
    inner //= extent
    index = (left - 1) // stride
    count += open_ * np.minimum(index, extent) * inner
    open_ = open_ & (index < extent)
    left = left - stride * index
  return count + open_ * _within(left, last, step)
