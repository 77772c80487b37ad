"""Applies scalar functions to arrays."""

from __future__ import annotations

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Shape, Value


def on_elements(
  e: Emitter, region: Graph, arguments: list[Value], shape: Shape
) -> list[Value]:
  """Applies a scalar function to each element of arrays of one shape."""
  new = dict(zip(region.parameters, arguments, strict=True))

  def array(value: Value) -> Value:
    if value not in new:  # a constant
      new[value] = e.broadcast_in_dim(value, shape, ())
    return new[value]

  for node in region.nodes:
    types = [(shape, r.dtype) for r in node.results]
    if not node.inputs:
      types = [((), r.dtype) for r in node.results]
    results = e.node(
      node.op, [array(v) for v in node.inputs], types, node.attributes
    )
    for old, result in zip(node.results, results, strict=True):
      new[old] = (
        result if node.inputs else e.broadcast_in_dim(result, shape, ())
      )
  return [array(v) for v in region.results]
