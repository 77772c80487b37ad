"""Views: a value as strides over a root tensor.

Slices, transposes, reshapes, reversals and broadcasts only change the view;
nothing moves until a compute set needs the elements on other tiles.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides


def whole_view(tensors: Sequence[TensorInfo], root: int) -> View:
  """A view of a whole root."""
  t = tensors[root]
  return View(root, 0, dense_strides(t.shape), t.shape, t.dtype)


class View(NamedTuple):
  """Element (i, j, ...) is element `offset + i*strides[0] + ...` of `root`."""

  root: int
  offset: int
  strides: tuple[int, ...]
  shape: Shape
  dtype: DType

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  def is_dense(self) -> bool:
    """Whether it accesses consecutive elements in row-major order."""
    step = 1
    for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
      if extent != 1:
        if stride != step:
          return False
        step *= extent
    return True

  def transpose(self, permutation: Sequence[int]) -> View:
    """Dimension d of the result is dimension permutation[d] of this."""
    return self._replace(
      shape=tuple([self.shape[p] for p in permutation]),
      strides=tuple([self.strides[p] for p in permutation]),
    )

  def slice(
    self, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
  ) -> View:
    """StableHLO's slice."""
    shape = tuple(
      [max(0, -(-(l - b) // s)) for b, l, s in zip(starts, limits, steps)]
    )
    offset = self.offset
    if math.prod(shape):
      offset += sum(map(operator.mul, starts, self.strides))
    strides = tuple(map(operator.mul, steps, self.strides))
    return self._replace(shape=shape, offset=offset, strides=strides)

  def reverse(self, dimensions: Sequence[int]) -> View:
    """StableHLO's reverse."""
    strides = list(self.strides)
    offset = self.offset
    for d in dimensions:
      offset += max(self.shape[d] - 1, 0) * strides[d]
      strides[d] = -strides[d]
    return self._replace(offset=offset, strides=tuple(strides))

  def broadcast(self, shape: Shape, dimensions: Sequence[int]) -> View:
    """StableHLO's broadcast_in_dim."""
    strides = [0] * len(shape)
    for d, to in enumerate(dimensions):
      if self.shape[d] == shape[to] and self.shape[d] != 1:
        strides[to] = self.strides[d]
    return self._replace(shape=shape, strides=tuple(strides))

  def windows(
    self,
    dimensions: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    dilations: Sequence[int],
  ) -> View:
    """All windows along some dimensions, which may overlap.

    Dimension d becomes the window's place, `steps` indices from one to the
    next; a new dimension for each of `dimensions`, after all others, is the
    place in the window, `dilations` indices from one to the next.
    """
    shape, strides = list(self.shape), list(self.strides)
    for d, size, step, dilation in zip(dimensions, sizes, steps, dilations):
      shape[d] = positions(self.shape[d], size, step, dilation)
      strides[d] = self.strides[d] * step
      shape.append(size)
      strides.append(self.strides[d] * dilation)
    return self._replace(shape=tuple(shape), strides=tuple(strides))

  def reshape(self, shape: Shape) -> View | None:
    """The same elements in another shape; None if that is not strided."""
    if math.prod(shape) == 0:
      return self._replace(shape=shape, strides=dense_strides(shape))
    # Runs of dimensions with a common stride, innermost last.
    runs: list[list[int]] = []
    for extent, stride in zip(self.shape, self.strides):
      if extent == 1:
        continue
      if runs and runs[-1][1] == extent * stride:
        runs[-1] = [runs[-1][0] * extent, stride]
      else:
        runs.append([extent, stride])
    strides: list[int] = []
    todo = list(runs)
    left, step = todo.pop() if todo else (1, 1)
    for extent in reversed(shape):
      if extent == 1:
        strides.append(0)
        continue
      if left == 1 and todo:
        left, step = todo.pop()
      if left % extent:
        return None
      strides.append(step)
      left //= extent
      step *= extent
    return self._replace(shape=shape, strides=tuple(reversed(strides)))


def positions(extent: int, size: int, step: int, dilation: int) -> int:
  """Number of windows of `size` elements along a dimension."""
  reach = (size - 1) * dilation + 1 if size else 0
  return max(0, (extent - reach) // step + 1) if extent >= reach else 0


def merge(view: View, groups: Sequence[Sequence[int]]) -> View | None:
  """Each group of dimensions as one; None if their strides do not nest."""
  order = [d for g in groups for d in g]
  shape = tuple(math.prod(view.shape[d] for d in g) for g in groups)
  return view.transpose(order).reshape(shape)


def adjoin(views: Sequence[View], dimension: int) -> View | None:
  """Views one after the other along a dimension as one view, if they are
  adjacent slices of an array; None if not. Empty views are skipped."""
  views = [v for v in views if v.size]
  if not views:
    return None
  first, *rest = views
  stride = next(
    (v.strides[dimension] for v in views if v.shape[dimension] > 1),
    rest[0].offset - first.offset if rest else 0,
  )
  shape = list(first.shape)
  for v in rest:
    if v.root != first.root or any(
      a != b and extent > 1 and d != dimension
      for d, (a, b, extent) in enumerate(zip(v.strides, first.strides, v.shape))
    ):
      return None
    if v.offset != first.offset + shape[dimension] * stride:
      return None
    if v.shape[dimension] > 1 and v.strides[dimension] != stride:
      return None
    shape[dimension] += v.shape[dimension]
  strides = list(first.strides)
  strides[dimension] = stride
  return first._replace(shape=tuple(shape), strides=tuple(strides))


# Each candidate of each reader asks for the same few.
@functools.lru_cache(maxsize=4096)
def as_in_memory(
  view: View, dims: tuple[int, ...]
) -> tuple[View, tuple[int, ...]]:
  """An operand in memory order, outer dimensions first, so that all readers of
  the same elements find the same view.

  Args:
    view: the operand.
    dims: for each dimension of the iteration space the view's, or -1.

  Returns:
    A view without broadcast dimensions, and its dimensions.
  """
  moving = _moving(view)
  return _taken(
    view, dims, sorted(moving, key=lambda to: -abs(view.strides[to]))
  )


def as_walked(
  view: View, dims: tuple[int, ...]
) -> tuple[View, tuple[int, ...]]:
  """Like `as_in_memory`, in the order of the iteration space."""
  return _taken(view, dims, sorted(_moving(view), key=dims.index))


def _moving(view: View) -> list[int]:
  """The dimensions of a view that are not broadcast (stride 0): broadcast ones
  cost neither SRAM nor exchange."""
  return [
    to
    for to in range(len(view.shape))
    if view.strides[to] != 0 and view.shape[to] != 1
  ]


def _taken(
  view: View, dims: tuple[int, ...], kept: list[int]
) -> tuple[View, tuple[int, ...]]:
  """Some dimensions of a view, in a new order."""
  if kept == list(range(len(view.shape))):
    return view, dims
  place = {to: i for i, to in enumerate(kept)}
  small = view._replace(
    shape=tuple(view.shape[to] for to in kept),
    strides=tuple(view.strides[to] for to in kept),
  )
  return small, tuple(place.get(to, -1) for to in dims)
