"""Removes unused nodes, and loop values that only feed themselves.

Fusion leaves unused nodes: constants and indices that register programs now
make themselves, and views of these. A counted loop leaves its counter if the
body does not read it. Nodes with effects stay.
"""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.registry import has_effect
from jaxlib.ipu.ops.control_flow import REPEAT

_LOOPS = frozenset({"stablehlo.while", REPEAT})


def eliminate(graph: Graph) -> Graph:
  """The graph without dead nodes, regions included."""
  live = {id(v) for v in graph.results}
  _eliminate(graph, live)
  return graph


def _eliminate(graph: Graph, live: set[int]) -> None:
  """Keeps the nodes that `live` needs, and adds their inputs to `live`."""
  kept = []
  for node in reversed(graph.nodes):
    if live.isdisjoint(map(id, node.results)) and not has_effect(node):
      continue
    if node.op in _LOOPS:
      _narrow(node, live)
    for region in node.regions:
      live.update(map(id, region.results))
      _eliminate(region, live)
    live.update(map(id, node.inputs))
    kept.append(node)
  graph.nodes = kept[::-1]


def _narrow(node: Node, live: set[int]) -> None:
  """Drops carried values that neither the loop's users nor its condition nor
  another carried value that stays depends on."""
  body = node.regions[-1]
  needed = {i for i, v in enumerate(node.results) if id(v) in live}
  for condition in node.regions[:-1]:
    used = _used(condition, condition.results, {})
    needed |= {i for i, p in enumerate(condition.parameters) if id(p) in used}
  carried = {id(p): r for p, r in zip(body.parameters, body.results)}
  used = _used(body, [body.results[i] for i in needed], carried)
  needed |= {i for i, p in enumerate(body.parameters) if id(p) in used}
  if len(needed) == len(node.results):
    return
  keep = sorted(needed)
  node.inputs = tuple(node.inputs[i] for i in keep)
  node.results = tuple(node.results[i] for i in keep)
  for place, value in enumerate(node.results):
    value.index = place
  for region in node.regions:
    region.parameters = [region.parameters[i] for i in keep]
    for place, value in enumerate(region.parameters):
      value.index = place
  body.results = [body.results[i] for i in keep]


def _used(
  graph: Graph, values: list[Value], carried: dict[int, Value]
) -> set[int]:
  """The ids of all values that `values` and effects in a graph depend on.

  Args:
    graph: values from outside it are not followed further.
    values: to start from.
    carried: for the id of a parameter, the value of its next iteration.
  """
  inside = set()
  graphs = [graph]
  todo = list(values)
  while graphs:
    for node in graphs.pop().nodes:
      inside.add(id(node))
      graphs += node.regions
      if has_effect(node):
        todo += node.inputs
        for region in node.regions:
          todo += region.results
  seen: set[int] = set()
  while todo:
    value = todo.pop()
    if id(value) in seen:
      continue
    seen.add(id(value))
    if id(value) in carried:
      todo.append(carried[id(value)])
    elif value.node is not None and id(value.node) in inside:
      todo += value.node.inputs
      for region in value.node.regions:
        todo += region.results
  return seen
