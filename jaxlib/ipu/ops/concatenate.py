"""concatenate and pad: exchanges into parts of a new tensor; parts of an array
that are put together again stay where they are."""

from __future__ import annotations

import itertools
from typing import Any

from jaxlib.ipu.ir.attributes import Padding
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.view import View, adjoin
from jaxlib.ipu.plan import cost


def _concatenate(builder: Builder, node: Node) -> None:
  dimension = node.attributes
  views = [builder.view(v) for v in node.inputs]
  ends = list(itertools.accumulate(v.shape[dimension] for v in views))
  bounds = list(zip([0, *ends], ends))
  whole = adjoin(views, dimension)
  if whole is not None:
    builder.define(node.results[0], whole)
    return
  root = builder.result(node)
  whole = builder.root_view(root)
  pairs = [
    (view, part(whole, dimension, *bound))
    for view, bound in zip(views, bounds, strict=True)
  ]
  # Parts of an array in another order (`jnp.roll`) may stay as that one is.
  result = builder.tensors[root]
  layouts = [result.layout]
  for view in views:
    info = builder.tensors[view.root]
    alike = info.shape == result.shape and not info.layout.replicas
    if alike and info.layout not in layouts:
      layouts.append(info.layout)
  if len(layouts) > 1:
    costs = []
    for layout in layouts:
      result.layout = layout
      costs.append(cost.cycles(builder.copy_cost(pairs)))
    result.layout = layouts[costs.index(min(costs))]
  builder.copy_to(pairs)


def part(view: View, dimension: int, begin: int, end: int) -> View:
  """Indices [begin, end) of one dimension."""
  starts = [0] * len(view.shape)
  limits = list(view.shape)
  starts[dimension], limits[dimension] = begin, end
  return view.slice(starts, limits, [1] * len(view.shape))


def _read_pad(operation: Any) -> Padding:
  a = operation.attributes
  return Padding(
    tuple(a["edge_padding_low"]),
    tuple(a["edge_padding_high"]),
    tuple(a["interior_padding"]),
  )


def _pad(builder: Builder, node: Node) -> None:
  padding: Padding = node.attributes
  view = builder.view(node.inputs[0])
  fill = builder.view(node.inputs[1])
  result = node.results[0]
  root = builder.result(node)
  builder.fill(fill, root)
  # Along each dimension the input's indices whose places lie inside.
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
