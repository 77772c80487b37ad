"""Rotates loops: moves a loop's condition to the end of its body.

The condition is evaluated once before the loop, then with the values that the
body has just computed: there it is fused into the body's register programs, and
an iteration has one compute set less.
"""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.registry import is_elementwise

# Maximum nodes of a condition: longer ones are not worth duplicating. A guess;
# most conditions are a single comparison.
LONGEST = 16


def rotate_loops(graph: Graph) -> Graph:
  """Rotates a graph's loops, regions included."""
  nodes: list[Node] = []
  for node in graph.nodes:
    for region in node.regions:
      rotate_loops(region)
    if node.op == "stablehlo.while" and _is_simple(node.regions[0]):
      nodes += _rotate(node)
    else:
      nodes.append(node)
  graph.nodes = nodes
  return graph


def _is_simple(condition: Graph) -> bool:
  """Whether a condition is a few element-wise operations on scalars."""
  if not 0 < len(condition.nodes) <= LONGEST:
    return False
  return all(
    (is_elementwise(node) or node.op == "stablehlo.constant")
    and not any(v.shape for v in (*node.inputs, *node.results))
    for node in condition.nodes
  )


def _rotate(node: Node) -> list[Node]:
  """The nodes of the first evaluation, and the rotated loop."""
  condition, body = node.regions
  first, start = _clone(condition, list(node.inputs))
  again, following = _clone(condition, body.results)
  body.nodes += again
  place = len(node.inputs)
  loop = Node(
    node.op,
    (*node.inputs, start),
    [(v.shape, v.dtype) for v in (*node.inputs, start)],
    node.attributes,
    location=node.location,
  )
  # Keeping the old results avoids updating their users.
  loop.results = (*node.results, loop.results[place])
  for value in node.results:
    value.node = loop
  body.results.append(following)
  body.parameters.append(Value(None, place, start.shape, start.dtype))
  parameters = [
    Value(None, i, v.shape, v.dtype) for i, v in enumerate(loop.inputs)
  ]
  test = Graph(parameters, [], [parameters[place]])
  loop.regions = (test, body)
  return [*first, loop]


def _clone(graph: Graph, arguments: list[Value]) -> tuple[list[Node], Value]:
  """A graph's nodes on other arguments, and its only result."""
  values = {id(p): a for p, a in zip(graph.parameters, arguments, strict=True)}
  nodes = []
  for node in graph.nodes:
    copy = Node(
      node.op,
      tuple(values.get(id(v), v) for v in node.inputs),
      [(v.shape, v.dtype) for v in node.results],
      node.attributes,
      location=node.location,
    )
    values.update(
      (id(old), new) for old, new in zip(node.results, copy.results)
    )
    nodes.append(copy)
  (result,) = graph.results
  return nodes, values.get(id(result), result)
