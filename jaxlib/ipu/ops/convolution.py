"""convolution: the product of the padded operand's windows and the kernel.

The windows are a view (`ops/windows.py`) and the matrix product reads them in
place, so nothing is copied K * K times. Groups are the product's batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import (
  DotDimensions,
  Reduction,
  ints,
  read_padding,
)
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops.windows import windows
from jaxlib.mlir.dialects import stablehlo

# Groups with at most this product of output and input channels are multiplied
# element-wise and summed: those of a channel-wise convolution have one of each.
# Measured: crosses at 2 output channels, `python -m benchmarks --thresholds`.
_FEWEST = 2


@dataclasses.dataclass(frozen=True)
class Convolution:
  """StableHLO's attributes; dimensions of each array by role."""

  input_batch: int
  input_feature: int
  input_spatial: tuple[int, ...]
  kernel_input: int
  kernel_output: int
  kernel_spatial: tuple[int, ...]
  output_batch: int
  output_feature: int
  output_spatial: tuple[int, ...]
  strides: tuple[int, ...]
  low: tuple[int, ...]
  high: tuple[int, ...]
  lhs_dilation: tuple[int, ...]
  rhs_dilation: tuple[int, ...]
  reversal: tuple[bool, ...]
  feature_groups: int
  batch_groups: int


def _read(operation: Any) -> Convolution:
  a = operation.attributes
  d = stablehlo.ConvDimensionNumbers(a["dimension_numbers"])
  rank = len(d.input_spatial_dimensions)

  def numbers(name: str, default: Any = 1) -> tuple[Any, ...]:
    return ints(a[name]) if name in a else (default,) * rank

  low, high = read_padding(a, rank)
  return Convolution(
    d.input_batch_dimension,
    d.input_feature_dimension,
    tuple(d.input_spatial_dimensions),
    d.kernel_input_feature_dimension,
    d.kernel_output_feature_dimension,
    tuple(d.kernel_spatial_dimensions),
    d.output_batch_dimension,
    d.output_feature_dimension,
    tuple(d.output_spatial_dimensions),
    numbers("window_strides"),
    low,
    high,
    numbers("lhs_dilation"),
    numbers("rhs_dilation"),
    tuple(bool(r) for r in numbers("window_reversal", False)),
    a["feature_group_count"].value,
    a["batch_group_count"].value,
  )


def _decompose(e: Emitter, node: Node) -> list[Value]:
  c: Convolution = node.attributes
  result = node.results[0]
  lhs, rhs = node.inputs
  if 0 in result.shape:
    return [e.constant(0, result.dtype, result.shape)]
  reverse = [d for d, r in zip(c.kernel_spatial, c.reversal) if r]
  rhs = e.reverse(rhs, reverse)
  for i, dilation in enumerate(c.lhs_dilation):
    if dilation > 1 and c.strides[i] == 1:
      whole = dataclasses.replace(c, reversal=(False,) * len(c.strides))
      return [_interleaved(e, lhs, rhs, whole, i, result)]
  padded = _pad(e, lhs, c)
  groups = max(c.feature_groups, c.batch_groups)
  # Operands as (groups, batch, spatial..., window..., input features) and
  # (groups, window..., input features, output features), by views.
  split = c.input_batch if c.batch_groups > 1 else c.input_feature
  left = _split(e, padded, split, groups)
  at = lambda d: d + (d > split)  # the new position of a dimension
  batch = at(c.input_batch) + (split == c.input_batch)
  feature = at(c.input_feature) + (split == c.input_feature)
  spatial = [at(d) for d in c.input_spatial]
  rank = len(left.shape)
  left = windows(
    e,
    left,
    spatial,
    [rhs.shape[d] for d in c.kernel_spatial],
    c.strides,
    c.rhs_dilation,
  )
  window = range(rank, rank + len(spatial))
  left = e.transpose(left, [split, batch, *spatial, *window, feature])
  right = _split(e, rhs, c.kernel_output, groups)
  at = lambda d: d + (d > c.kernel_output)
  right = e.transpose(
    right,
    [
      c.kernel_output,
      *(at(d) for d in c.kernel_spatial),
      at(c.kernel_input),
      c.kernel_output + 1,
    ],
  )
  # The result's dimensions, each as (groups, batch, spatial..., features).
  n = len(spatial)
  order: list[int] = [0] * len(result.shape)
  order[c.output_batch] = 1
  for i, d in enumerate(c.output_spatial):
    order[d] = 2 + i
  order[c.output_feature] = 2 + n
  order.insert(c.output_feature, 0)
  multiply = _sum if _is_narrow(left, right, n) else _product
  return [
    e.reshape(multiply(e, left, right, n, order, result.dtype), result.shape)
  ]


def _interleaved(
  e: Emitter, lhs: Value, rhs: Value, c: Convolution, i: int, result: Value
) -> Value:
  """A convolution whose left operand is dilated along spatial dimension i,
  without the products with the zeros between its elements.

  Results q * dilation + f of one f use the same elements of the kernel: they
  are a convolution of their own.
  """
  step, spread = c.lhs_dilation[i], c.rhs_dilation[i]
  d, kernel, out = c.input_spatial[i], c.kernel_spatial[i], c.output_spatial[i]
  extent, size = lhs.shape[d], rhs.shape[kernel]
  count = -(-result.shape[out] // step)
  shape = list(result.shape)
  shape[out] = count
  phases = []
  for f in range(step):
    # Element k meets operand q + (f + k * spread - low) / step, if integral.
    met = [k for k in range(size) if (f + k * spread - c.low[i]) % step == 0]
    if not met:
      phases.append(e.constant(0, result.dtype, shape))
      continue
    stride = met[1] - met[0] if len(met) > 1 else 1
    dilation = stride * spread // step if len(met) > 1 else 1
    low = -((f + met[0] * spread - c.low[i]) // step)
    high = count + (len(met) - 1) * dilation - extent - low
    rank = len(rhs.shape)
    starts, limits, steps = [0] * rank, list(rhs.shape), [1] * rank
    starts[kernel], limits[kernel], steps[kernel] = met[0], met[-1] + 1, stride
    attributes = dataclasses.replace(
      c,
      low=_with(c.low, i, low),
      high=_with(c.high, i, high),
      lhs_dilation=_with(c.lhs_dilation, i, 1),
      rhs_dilation=_with(c.rhs_dilation, i, dilation),
    )
    some = e.slice(rhs, starts, limits, steps)
    type_ = (tuple(shape), result.dtype)
    phases += e.node("stablehlo.convolution", [lhs, some], [type_], attributes)
  apart = (*shape[: out + 1], 1, *shape[out + 1 :])
  whole = e.concatenate([e.reshape(v, apart) for v in phases], out + 1)
  shape[out] *= step
  return e.slice(e.reshape(whole, shape), [0] * len(shape), list(result.shape))


def _with(numbers: tuple[int, ...], i: int, number: int) -> tuple[int, ...]:
  return (*numbers[:i], number, *numbers[i + 1 :])


def _pad(e: Emitter, lhs: Value, c: Convolution) -> Value:
  rank = len(lhs.shape)
  low, high, between = [0] * rank, [0] * rank, [0] * rank
  for i, d in enumerate(c.input_spatial):
    low[d], high[d] = c.low[i], c.high[i]
    between[d] = c.lhs_dilation[i] - 1
  return e.pad(lhs, 0, low, high, between)


def _split(e: Emitter, value: Value, d: int, groups: int) -> Value:
  """Dimension d as (groups, rest)."""
  shape = value.shape
  return e.reshape(
    value, (*shape[:d], groups, shape[d] // groups, *shape[d + 1 :])
  )


def _is_narrow(left: Value, right: Value, n: int) -> bool:
  groups, columns = right.shape[0], right.shape[-1]
  return groups > 1 and columns * left.shape[-1] <= _FEWEST


def _product(
  e: Emitter,
  left: Value,
  right: Value,
  n: int,
  order: list[int],
  dtype: DType,
) -> Value:
  """A batched matrix product."""
  terms = range(2 + n, 3 + 2 * n)
  d = DotDimensions(
    (0,), (0,), tuple(terms), tuple(range(1, 2 + n)), tuple(order)
  )
  return e.dot_general(left, right, d, dtype)


def _sum(
  e: Emitter,
  left: Value,
  right: Value,
  n: int,
  order: list[int],
  dtype: DType,
) -> Value:
  """Element-wise products, summed: neighbouring groups share vectors, where a
  matrix product would have a few columns in each."""
  wide = DType.F32 if dtype in (DType.F16, DType.BF16) else dtype
  left, right = e.convert(left, wide), e.convert(right, wide)
  kept = (*left.shape[: 2 + n], right.shape[-1])
  shape = (*(kept[d] for d in order), *left.shape[2 + n :])
  place = {d: i for i, d in enumerate(order)}
  terms = range(3 + n, 4 + 2 * n)
  left = e.broadcast_in_dim(
    left, shape, [*(place[d] for d in range(2 + n)), *terms]
  )
  right = e.broadcast_in_dim(right, shape, [place[0], *terms, place[2 + n]])
  total = e.node(
    "stablehlo.reduce",
    [e.multiply(left, right), e.constant(0, wide, ())],
    [(shape[: 3 + n], wide)],
    Reduction(tuple(terms)),
    [e.region([((), wide)] * 2, e.add)],
  )[0]
  return e.convert(total, dtype)


define(Operation("stablehlo.convolution", read=_read, decompose=_decompose))
