"""Emitter methods of data movement."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import Indexing, Padding
from jaxlib.ipu.ir.graph import Value
from jaxlib.ipu.ir.node_emitter import NodeEmitter, Operand


class MovementEmitter(NodeEmitter):
  """One method per operation."""

  def reshape(self, operand: Value, shape: Sequence[int]) -> Value:
    """The elements in row-major order, in another shape."""
    if operand.shape == tuple(shape):
      return operand
    return self._one("reshape", [operand], shape, operand.dtype)

  def broadcast_in_dim(
    self,
    operand: Value,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
  ) -> Value:
    """Dimension i of the operand is `broadcast_dimensions[i]` of the result."""
    dims = tuple(broadcast_dimensions)
    if operand.shape == tuple(shape) and dims == tuple(range(len(shape))):
      return operand
    return self._one("broadcast_in_dim", [operand], shape, operand.dtype, dims)

  def transpose(self, operand: Value, permutation: Sequence[int]) -> Value:
    """Dimension i of the result is `permutation[i]` of the operand."""
    order = tuple(permutation)
    if order == tuple(range(len(order))):
      return operand
    shape = [operand.shape[d] for d in order]
    return self._one("transpose", [operand], shape, operand.dtype, order)

  def slice(
    self,
    operand: Value,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
  ) -> Value:
    """Elements from start to before limit, in steps, per dimension."""
    starts, limits = tuple(start_indices), tuple(limit_indices)
    steps = tuple(strides or (1,) * len(starts))
    shape = tuple([-(-(b - a) // s) for a, b, s in zip(starts, limits, steps)])
    if shape == operand.shape:
      return operand
    attributes = (starts, limits, steps)
    return self._one("slice", [operand], shape, operand.dtype, attributes)

  def slice_in_dim(
    self, operand: Value, start_index: int, limit_index: int, axis: int
  ) -> Value:
    """Elements from start to before limit along one dimension."""
    starts, limits = [0] * len(operand.shape), list(operand.shape)
    starts[axis], limits[axis] = start_index, limit_index
    return self.slice(operand, starts, limits)

  def reverse(self, operand: Value, dimensions: Sequence[int]) -> Value:
    """Reverses the elements along some dimensions."""
    dims = tuple(d for d in dimensions if operand.shape[d] != 1)
    if not dims:
      return operand
    return self._one("reverse", [operand], operand.shape, operand.dtype, dims)

  def concatenate(self, inputs: Sequence[Value], dimension: int) -> Value:
    """Concatenates the inputs along a dimension."""
    parts = [v for v in inputs if v.shape[dimension]] or list(inputs[:1])
    if len(parts) == 1:
      return parts[0]
    shape = list(parts[0].shape)
    shape[dimension] = sum(v.shape[dimension] for v in parts)
    return self._one("concatenate", parts, shape, parts[0].dtype, dimension)

  def pad(
    self,
    operand: Value,
    padding_value: Operand,
    edge_padding_low: Sequence[int],
    edge_padding_high: Sequence[int],
    interior_padding: Sequence[int] | None = None,
  ) -> Value:
    """Pads before, after and between; negative edges remove elements."""
    low, high = tuple(edge_padding_low), tuple(edge_padding_high)
    between = tuple(interior_padding or (0,) * len(low))
    if not any((*low, *high, *between)):
      return operand
    shape = [
      a + n + max(n - 1, 0) * i + b
      for a, n, i, b in zip(low, operand.shape, between, high)
    ]
    inputs = [operand, self._as(padding_value, operand.dtype)]
    padding = Padding(low, high, between)
    return self._one("pad", inputs, shape, operand.dtype, padding)

  def dynamic_slice(
    self,
    operand: Value,
    start_indices: Sequence[Operand],
    slice_sizes: Sequence[int],
  ) -> Value:
    """A slice with run-time start indices, clamped to the operand."""
    sizes = tuple(slice_sizes)
    if sizes == operand.shape:
      return operand
    starts = [self._as(i, DType.I32) for i in start_indices]
    inputs = [operand, *starts]
    return self._one("dynamic_slice", inputs, sizes, operand.dtype)

  def dynamic_update_slice(
    self, operand: Value, update: Value, start_indices: Sequence[Operand]
  ) -> Value:
    """The operand with a slice replaced; its start is clamped likewise."""
    if update.shape == operand.shape:
      return update
    if 0 in update.shape:
      return operand
    starts = [self._as(i, DType.I32) for i in start_indices]
    inputs = [operand, update, *starts]
    return self._one(
      "dynamic_update_slice", inputs, operand.shape, operand.dtype
    )

  def gather(
    self, operand: Value, start_indices: Value, dimension_numbers: Indexing
  ) -> Value:
    """Slices of sizes `dimension_numbers.slice_sizes`."""
    d = dimension_numbers
    dropped = (*d.collapsed, *d.operand_batch)
    window = iter(n for i, n in enumerate(d.slice_sizes) if i not in dropped)
    batch = iter(
      n for i, n in enumerate(start_indices.shape) if i != d.index_vector_dim
    )
    rank = len(operand.shape) - len(dropped) + len(start_indices.shape)
    rank -= d.index_vector_dim < len(start_indices.shape)
    shape = [next(window if i in d.window_dims else batch) for i in range(rank)]
    inputs = [operand, start_indices]
    return self._one("gather", inputs, shape, operand.dtype, d)
