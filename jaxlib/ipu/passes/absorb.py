"""Moves register programs into the reductions that alone use them.

`sum(x * x)` then reads x once and keeps no product.
"""

from __future__ import annotations

from collections import Counter

from jaxlib.ipu.ir.graph import Graph, Node
from jaxlib.ipu.lower.map_program import MAP
from jaxlib.ipu.ops.reduce import Reduction


def absorb(graph: Graph) -> Graph:
  """The graph with such reductions rewritten, regions included."""
  uses: Counter[int] = Counter()
  _count(graph, uses)
  _absorb(graph, uses)
  return graph


def _count(graph: Graph, uses: Counter[int]) -> None:
  uses.update(id(v) for v in graph.results)
  for node in graph.nodes:
    uses.update(id(v) for v in node.inputs)
    for region in node.regions:
      _count(region, uses)


def _absorb(graph: Graph, uses: Counter[int]) -> None:
  for index, node in enumerate(graph.nodes):
    for region in node.regions:
      _absorb(region, uses)
    if node.op == "stablehlo.reduce":
      source = _only_source(node, uses)
      if source is not None:
        graph.nodes[index] = _merge(node, source)


def _only_source(node: Node, uses: Counter[int]) -> Node | None:
  """The map that makes all of a reduction's inputs and nothing else."""
  data = node.inputs[: len(node.inputs) // 2]
  source = data[0].node
  if source is None or source.op != MAP:
    return None
  if all(data[0].shape[d] == 1 for d in node.attributes.dimensions):
    return None  # a reshape
  if {id(v) for v in data} != {id(v) for v in source.results}:
    return None
  if any(uses[id(v)] != data.count(v) for v in data):
    return None
  return source


def _merge(node: Node, source: Node) -> Node:
  count = len(node.inputs) // 2
  outputs = tuple(
    source.attributes.outputs[v.index] for v in node.inputs[:count]
  )
  merged = Node(
    node.op,
    source.inputs + node.inputs[count:],
    [],
    Reduction(node.attributes.dimensions, source.attributes, outputs),
    node.regions,
    node.location,
  )
  # The same values, so that their users need not be told.
  merged.results = node.results
  for value in merged.results:
    value.node = merged
  return merged
