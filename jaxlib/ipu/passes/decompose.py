"""Rewrites operations in terms of simpler ones, by the rules in `ops/`.

A rule is applied to a node in its place; emitted nodes are visited in turn,
regions included, until none has a rule. Each node is visited once.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.ipu.diagnostics import internal, invalid_argument
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.registry import CUSTOM_CALL, REGISTRY
from jaxlib.ipu.target import Target

Keep = Callable[[Node], bool]


def decompose(
  graph: Graph, target: Target | None = None, keep: Keep | None = None
) -> bool:
  """Rewrites a graph and its regions in place.

  Args:
    graph: the graph.
    target: the machine, for rules that choose by cost.
    keep: whether to leave a node to another pass.

  Returns:
    Whether any node has a rule.
  """
  if not _any_rule(graph):
    return False
  _Decomposer(target, keep).graph(graph)
  return True


def _any_rule(graph: Graph) -> bool:
  for node in graph.nodes:
    if REGISTRY[node.op].decompose is not None:
      return True
    for region in node.regions:
      if _any_rule(region):
        return True
  return False


class _Decomposer:
  def __init__(self, target: Target | None, keep: Keep | None) -> None:
    self._target = target
    self._keep = keep
    # Results of replaced nodes, and the values that replace them.
    self._new: dict[Value, Value] = {}

  def graph(self, graph: Graph) -> None:
    nodes: list[Node] = []
    for node in graph.nodes:
      self._visit(node, nodes)
    graph.nodes = nodes
    graph.results = [self._new.get(v, v) for v in graph.results]

  def _visit(self, node: Node, out: list[Node]) -> None:
    """Appends the node, or its decomposition."""
    new = self._new
    if new:
      node.inputs = tuple([new.get(v, v) for v in node.inputs])
    definition = REGISTRY[node.op]
    kept = self._keep is not None and self._keep(node)
    if definition.decompose is not None and not kept:
      emitter = Emitter([], node.location, self._target)
      values = definition.decompose(emitter, node)
      if values is not None:
        for inner in emitter.nodes:
          self._visit(inner, out)
        self._replace(node, [new.get(v, v) for v in values])
        return
    if definition.lower is None and not kept:
      raise internal(f"{node.op} has no lowering for {node}", node.location)
    for region in node.regions:
      self.graph(region)
    out.append(node)

  def _replace(self, node: Node, values: list[Value]) -> None:
    types, wanted = ([v.type for v in vs] for vs in (values, node.results))
    if types != wanted:
      if node.op.startswith(CUSTOM_CALL):  # unknown to StableHLO's verifier
        raise invalid_argument(
          f"{node.op} of {[v.type for v in node.inputs]}: expected results "
          f"{types}, the module has {wanted}",
          node.location,
        )
      raise internal(f"{node.op} decomposes to {types}, not {wanted}",
                     node.location)  # fmt: skip
    self._new.update(zip(node.results, values))
