"""concatenate and pad: exchanges into parts of a new tensor. Adjacent slices of
an array that are concatenated again are a view. Parts of parts, as of a matrix
of blocks, are copied to their places at once."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.attributes import Padding, ints
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import Factor, Layout, refine
from jaxlib.ipu.lower.align import aligned
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import COARSER
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import View, adjoin

CONCATENATE = "stablehlo.concatenate"


def _concatenate(builder: Builder, node: Node) -> None:
  value = node.results[0]
  if not any(_is_nested(builder, v, node) for v in node.inputs):
    views = [builder.view(v) for v in node.inputs]
    whole = adjoin(views, node.attributes)
    if whole is not None:
      builder.define(value, whole)
      return
  reader = builder.only_reader(value)
  if reader is not None and reader.op == CONCATENATE:
    builder.undefine(value)
    if _may_wait(builder, node, len(reader.inputs)):
      return  # the reader copies the parts
  read = builder.read_as(value)
  layout = _for_reader(builder, read)
  fixed = layout is not None
  root = builder.result(
    node, layout or builder.default_layout(read.shape, value.dtype)
  )
  whole = builder.root_view(root)
  pairs = _pairs(builder, node, whole)
  # Parts of an array in another order (`jnp.roll`) may keep its mapping, and
  # others may stay in place, side by side (`jnp.stack`).
  result = builder.tensors[root]
  layouts = [result.layout]
  for view, _ in () if fixed else pairs:
    info = builder.tensors[view.root]
    alike = info.shape == result.shape and not info.layout.replicas
    found = info.layout if alike else _beside(view, info, result)
    if found is not None and found not in layouts:
      layouts.append(found)
  if len(layouts) > 1:
    costs = []
    for layout in layouts:
      result.layout = layout
      costs.append(cost.cycles(builder.copy_cost(pairs, stays=False)))
    result.layout = layouts[costs.index(min(costs))]
  builder.copy_to(pairs)


# Parts that wait for a later copy may take more than what they would be copied
# to by this share of a tile's SRAM, all those of one concatenation together; a
# guess: it matters for matrices that are on few tiles as a whole.
_LITTLE = 1 / 64


def _may_wait(builder: Builder, node: Node, count: int) -> bool:
  """Whether a concatenation that is one of `count` parts of another one need
  not be copied before: what its parts are views of is not much more."""
  views = _views(builder, node)
  roots = [builder.tensors[r] for r in {v.root for v in views}]
  roots = [t for t in roots if t.space == schema.ARENA]
  value = node.results[0]
  if sum(t.bytes for t in roots) <= math.prod(value.shape) * SIZE[value.dtype]:
    return True
  share = sum(t.layout.max_elements * SIZE[t.dtype] for t in roots)
  return share * count <= _LITTLE * builder.target.bytes_per_tile


def _views(builder: Builder, node: Node) -> list[View]:
  """The parts of a concatenation."""
  views: list[View] = []
  for value in node.inputs:
    if _is_nested(builder, value, node):
      assert value.node is not None
      views += _views(builder, value.node)
    else:
      views.append(builder.view(value))
  return views


def _is_nested(builder: Builder, value: Value, reader: Node) -> bool:
  """Whether a value is a concatenation of which only the parts exist."""
  node = value.node
  return (
    node is not None
    and node.op == CONCATENATE
    and not builder.is_defined(value)
    and builder.only_reader(value) is reader
  )


def _pairs(
  builder: Builder, node: Node, whole: View
) -> list[tuple[View, View]]:
  """The parts of a concatenation, and their places in its result."""
  pairs: list[tuple[View, View]] = []
  begin = 0
  for value in node.inputs:
    end = begin + value.shape[node.attributes]
    place = part(whole, node.attributes, begin, end)
    if _is_nested(builder, value, node):
      assert value.node is not None
      pairs += _pairs(builder, value.node, place)
    else:
      pairs.append((builder.view(value), place))
    begin = end
  return pairs


def _for_reader(builder: Builder, value: Value) -> Layout | None:
  """The partition of the only reader, if it is given."""
  readers = builder.readers(value)
  if len(readers) == 1 and readers[0].op == MAP:
    return readers[0].attributes.partition
  return None


def _beside(view: View, info: TensorInfo, result: TensorInfo) -> Layout | None:
  """The mapping of the result in which the part `view` stays in place, and the
  other parts are on the same tiles. None if the part's own mapping cuts the
  dimension in which they lie, or would leave too much of the result on one
  tile."""
  found = aligned(view, info) if view.size else None
  groups = None if found is None else refine(found.factors, view.shape)
  if found is None or groups is None:
    return None
  factors: list[Factor] = []
  for group, n, extent in zip(groups, view.shape, result.shape, strict=True):
    if n == extent:
      factors += group
      continue
    if any(f.parts > 1 for f in group):
      return None
    factors.append(Factor(extent, extent, 0))
  layout = Layout(tuple(f for f in factors if f.extent != 1), base=found.base)
  even = layout.max_elements <= COARSER * result.layout.max_elements
  return layout if layout.factors and even else None


def part(view: View, dimension: int, begin: int, end: int) -> View:
  """Indices [begin, end) of one dimension."""
  starts = [0] * len(view.shape)
  limits = list(view.shape)
  starts[dimension], limits[dimension] = begin, end
  return view.slice(starts, limits, [1] * len(view.shape))


def _read_pad(operation: Any) -> Padding:
  a = operation.attributes
  return Padding(
    ints(a["edge_padding_low"]),
    ints(a["edge_padding_high"]),
    ints(a["interior_padding"]),
  )


def _pad(builder: Builder, node: Node) -> None:
  padding: Padding = node.attributes
  view = builder.view(node.inputs[0])
  fill = builder.view(node.inputs[1])
  result = node.results[0]
  root = builder.result(node)
  builder.fill(fill, root)
  # Along each dimension, the input indices that land inside the result.
  starts, limits, targets, ends, steps = [], [], [], [], []
  for d, extent in enumerate(result.shape):
    step = padding.interior[d] + 1
    low = padding.low[d]
    first = max(0, -(low // step)) if low < 0 else 0
    last = view.shape[d]
    while last > first and low + (last - 1) * step >= extent:
      last = min(last - 1, (extent - 1 - low) // step + 1)
    last = max(last, first)
    starts.append(first)
    limits.append(last)
    targets.append(low + first * step)
    ends.append(low + (last - 1) * step + 1 if last > first else
                low + first * step)  # fmt: skip
    steps.append(step)
  kept = view.slice(starts, limits, [1] * len(starts))
  if kept.size:
    whole = builder.root_view(root)
    builder.copy_to([(kept, whole.slice(targets, ends, steps))])


define(
  Operation(
    CONCATENATE,
    _concatenate,
    lambda operation: operation.attributes["dimension"].value,
  )
)
define(Operation("stablehlo.pad", _pad, _read_pad))
