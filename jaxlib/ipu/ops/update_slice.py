"""`ipu.update_slice`: replaces a part of an array at a known place.

Gathers, scatters and dynamic_update_slices with constant indices are slices and
updates of slices: plain copies, planned at compile time. Examples are
`x.at[1:-1].set(y)` and `x.at[::2].add(y)`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.dtypes import NUMPY
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.constants import MOST_DIMENSIONS
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.ops._indexing import operand_layout
from jaxlib.ipu.ops._regions import on_elements

UPDATE_SLICE = "ipu.update_slice"


@dataclasses.dataclass(frozen=True)
class Part:
  """Indices start, start + step, ... of each dimension."""

  starts: tuple[int, ...]
  steps: tuple[int, ...]

  def limits(self, shape: Shape) -> tuple[int, ...]:
    """The limits of a part of this shape."""
    return tuple(
      start + (extent - 1) * step + 1
      for start, step, extent in zip(self.starts, self.steps, shape)
    )


def _lower(builder: Builder, node: Node) -> None:
  part: Part = node.attributes
  operand, update = (builder.view(v) for v in node.inputs)
  root = builder.result(node, operand_layout(builder, operand))
  whole = builder.root_view(root)
  builder.copy_to([(operand, whole)])
  limits = part.limits(update.shape)
  builder.copy_to([(update, whole.slice(part.starts, limits, part.steps))])


def update_slice(
  e: Emitter, operand: Value, update: Value, part: Part
) -> Value:
  """The operand with a part replaced by `update`; the part is inside."""
  if update.shape == operand.shape:
    return update
  type_ = (operand.shape, operand.dtype)
  return e.node(UPDATE_SLICE, [operand, update], [type_], part)[0]


def dynamic_update_slice(e: Emitter, node: Node) -> list[Value] | None:
  """A dynamic_update_slice whose start is a constant; None for others."""
  operand, update, *starts = node.inputs
  found = [_constant(v) for v in starts]
  if 0 in update.shape or any(x is None for x in found):
    return None
  clamped = tuple(
    min(max(int(x), 0), n - m)
    for x, n, m in zip(found, operand.shape, update.shape)
    if x is not None
  )
  part = Part(clamped, (1,) * len(clamped))
  return [update_slice(e, operand, update, part)]


class _Windows(NamedTuple):
  """Lookups at even distances, named by constant indices.

  Attributes:
    part: their place in the operand.
    shape: of all of them in the operand, which they may exceed.
    order: for each dimension of the operand that of the result (or updates),
      -1 if there is none.
    backwards: the dimension of the result that counts down, if any.
    alone: there is one window.
  """

  part: Part
  shape: Shape
  order: tuple[int, ...]
  backwards: tuple[int, ...]
  alone: bool

  def inside(self, shape: Shape) -> bool:
    limits = self.part.limits(self.shape)
    return min(self.part.starts, default=0) >= 0 and all(
      a <= b for a, b in zip(limits, shape)
    )


# Larger arrays of indices are not evaluated; a guess, to limit compile time.
_MOST_INDICES = 1 << 20
# Nor are those computed by more operations, a guess: `x[::2]` takes a few.
_MOST_NODES = 32


def _constant(
  value: Value, known: dict[Value, np.ndarray | None] | None = None
) -> np.ndarray | None:
  """The constant value of a value, if known; `x[::2]` computes its indices.

  Args:
    value: the value.
    known: values evaluated before; each is evaluated once.
  """
  known = {} if known is None else known
  if value not in known and len(known) < _MOST_NODES:
    known[value] = None
    known[value] = _computed(value, known)
  return known.get(value)


def _computed(
  value: Value, known: dict[Value, np.ndarray | None]
) -> np.ndarray | None:
  node = value.node
  if node is None or math.prod(value.shape) > _MOST_INDICES:
    return None
  if len(value.shape) >= MOST_DIMENSIONS:  # one more dimension is added
    return None
  name = node.op.removeprefix("stablehlo.")
  if name == "constant":
    return node.attributes
  if name == "iota":
    extent = value.shape[node.attributes]
    along = np.arange(extent, dtype=NUMPY[value.dtype])
    shape = [1] * len(value.shape)
    shape[node.attributes] = extent
    return np.broadcast_to(along.reshape(shape), value.shape)
  if name not in ("add", "multiply", "broadcast_in_dim", "reshape", "reverse"):
    return None
  inputs = [x for v in node.inputs if (x := _constant(v, known)) is not None]
  if len(inputs) < len(node.inputs):
    return None
  if name == "add":
    return inputs[0] + inputs[1]
  if name == "multiply":
    return inputs[0] * inputs[1]
  if name == "reshape":
    return inputs[0].reshape(value.shape)
  if name == "reverse":
    return np.flip(inputs[0], node.attributes)
  shape = [1] * len(value.shape)
  for d, extent in zip(node.attributes, inputs[0].shape):
    shape[d] = extent
  return np.broadcast_to(inputs[0].reshape(shape), value.shape)


def _windows(
  operand: Value, indices: Value, indexed: Value, d: Indexing
) -> _Windows | None:
  """The windows of a gather or scatter; None if they are not constant, or not
  at even distances along one dimension."""
  array = _constant(indices)
  if array is None or d.operand_batch or 0 in indexed.shape:
    return None
  if d.index_vector_dim < array.ndim:
    array = np.moveaxis(array, d.index_vector_dim, -1)
  else:
    array = array[..., None]
  batch = d.batch_dims(len(indexed.shape))
  long = [b for b in batch if indexed.shape[b] != 1]
  *places, size = array.shape  # either may be empty
  vectors = array.reshape(math.prod(places), size).astype(np.int64)
  window = [
    d.window_dims[w] if w >= 0 else -1
    for w in d.operand_window(len(operand.shape))
  ]
  order = window.copy()
  starts = [0] * len(window)
  steps = [1] * len(window)
  shape = [indexed.shape[w] if w >= 0 else 1 for w in window]
  backwards: tuple[int, ...] = ()
  moving = np.flatnonzero((vectors != vectors[0]).any(0))
  if len(long) > 1 or len(moving) != len(long):
    return None
  for component, dim in enumerate(d.index_map):
    column = vectors[:, component]
    starts[dim] = int(column[0])
    if component in moving:
      step = int(column[1] - column[0])
      if step == 0 or shape[dim] != 1 or (np.diff(column) != step).any():
        return None
      if step < 0:
        starts[dim] = int(column[-1])
        backwards = (long[0],)
      steps[dim], shape[dim], order[dim] = abs(step), len(column), long[0]
  part = Part(tuple(starts), tuple(steps))
  return _Windows(part, tuple(shape), tuple(order), backwards, not long)


def scatter(e: Emitter, node: Node) -> list[Value] | None:
  """A scatter with constant indices; None for others."""
  if len(node.results) != 1:
    return None
  operand, indices, updates = node.inputs
  found = _windows(operand, indices, updates, node.attributes)
  if found is None:
    return None
  if not found.inside(operand.shape):
    # Some of several windows may fit.
    return [operand] if found.alone else None
  update = e.reverse(updates, found.backwards) if found.backwards else updates
  kept = [d for d in found.order if d >= 0]
  rest = [d for d in range(len(updates.shape)) if d not in kept]
  update = e.reshape(e.transpose(update, [*rest, *kept]), found.shape)
  (region,) = node.regions
  if region.results[0] is not region.parameters[1]:
    part = found.part
    limits = part.limits(found.shape)
    old = e.slice(operand, part.starts, limits, part.steps)
    (update,) = on_elements(e, region, [old, update], found.shape)
  return [update_slice(e, operand, update, found.part)]


def gather(e: Emitter, node: Node) -> list[Value] | None:
  """A gather with constant indices; None for others."""
  operand, indices = node.inputs
  (result,) = node.results
  found = _windows(operand, indices, result, node.attributes)
  if found is None or not found.inside(operand.shape):
    return None
  part = found.part
  limits = part.limits(found.shape)
  value = e.slice(operand, part.starts, limits, part.steps)
  # The remaining dimensions, in the operand's order, then in the result's.
  kept = [d for d in found.order if d >= 0]
  value = e.reshape(value, [result.shape[d] for d in kept])
  value = e.transpose(value, [kept.index(d) for d in sorted(kept)])
  value = e.reshape(value, result.shape)
  return [e.reverse(value, found.backwards) if found.backwards else value]


define(Operation(UPDATE_SLICE, _lower))
