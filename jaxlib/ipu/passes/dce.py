"""Removes nodes that nothing uses.

Fusion leaves them behind: constants and indices that register programs now
make by themselves, and the views between them.
"""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Graph

# Operations that do something beside defining values.
EFFECTS = frozenset[str]()


def eliminate(graph: Graph) -> Graph:
  """The graph without dead nodes, regions included."""
  live: set[int] = set()
  _eliminate(graph, live)
  return graph


def _eliminate(graph: Graph, live: set[int]) -> None:
  live.update(id(v) for v in graph.results)
  kept = []
  for node in reversed(graph.nodes):
    if node.op not in EFFECTS and not any(id(v) in live for v in node.results):
      continue
    for region in node.regions:
      _eliminate(region, live)
    live.update(id(v) for v in node.inputs)
    kept.append(node)
  graph.nodes = kept[::-1]
