"""concatenate and pad: exchanges into parts of a new tensor. Adjacent slices of
an array that are concatenated again are a view."""

from __future__ import annotations

import itertools
from typing import Any

from jaxlib.ipu.ir.attributes import Padding, ints
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import Factor, Layout, refine
from jaxlib.ipu.lower.align import aligned
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import COARSER
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import View, adjoin


def _concatenate(builder: Builder, node: Node) -> None:
  dimension = node.attributes
  views = [builder.view(v) for v in node.inputs]
  ends = list(itertools.accumulate(v.shape[dimension] for v in views))
  bounds = list(zip([0, *ends], ends))
  whole = adjoin(views, dimension)
  if whole is not None:
    builder.define(node.results[0], whole)
    return
  value = node.results[0]
  read = builder.read_as(value)
  layout = _for_reader(builder, read)
  fixed = layout is not None
  root = builder.result(
    node, layout or builder.default_layout(read.shape, value.dtype)
  )
  whole = builder.root_view(root)
  pairs = [
    (view, part(whole, dimension, *bound))
    for view, bound in zip(views, bounds, strict=True)
  ]
  # Parts of an array in another order (`jnp.roll`) may keep its mapping, and
  # others may stay in place, side by side (`jnp.stack`).
  result = builder.tensors[root]
  layouts = [result.layout]
  for view in () if fixed else views:
    info = builder.tensors[view.root]
    alike = info.shape == result.shape and not info.layout.replicas
    found = info.layout if alike else _beside(view, info, dimension, result)
    if found is not None and found not in layouts:
      layouts.append(found)
  if len(layouts) > 1:
    costs = []
    for layout in layouts:
      result.layout = layout
      costs.append(cost.cycles(builder.copy_cost(pairs, stays=False)))
    result.layout = layouts[costs.index(min(costs))]
  builder.copy_to(pairs)


def _for_reader(builder: Builder, value: Value) -> Layout | None:
  """The partition of the only reader, if it is given."""
  readers = builder.readers(value)
  if len(readers) == 1 and readers[0].op == MAP:
    return readers[0].attributes.partition
  return None


def _beside(
  view: View, info: TensorInfo, dimension: int, result: TensorInfo
) -> Layout | None:
  """The mapping of the result in which the part `view` stays in place, and the
  other parts are on the same tiles. None if the part's own mapping cuts the
  dimension, or would leave too much of the result on one tile."""
  found = aligned(view, info) if view.size else None
  groups = None if found is None else refine(found.factors, view.shape)
  if found is None or groups is None:
    return None
  extent = result.shape[dimension]
  if any(f.parts > 1 for f in groups[dimension]):
    return None
  whole = (Factor(extent, extent, 0),)
  factors = [
    f
    for d, group in enumerate(groups)
    for f in (whole if d == dimension else group)
  ]
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
    "stablehlo.concatenate",
    _concatenate,
    lambda operation: operation.attributes["dimension"].value,
  )
)
define(Operation("stablehlo.pad", _pad, _read_pad))
