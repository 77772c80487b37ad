"""Computes all branches of cheap conditionals, and selects.

A conditional is a decision of all tiles: a synchronisation, a jump, and
vertices that nothing else can be fused with. Branches of a few element-wise
operations cost less than that. They are computed unconditionally and a select
takes the right results, if this is no dearer than deciding, whichever branch is
taken. So a conditional that guards expensive work stays one, and so does one
with loops, exchanges or effects.
"""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._cycles import ceil_div
from jaxlib.ipu.codelets._profile import profile
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.ir.registry import REGISTRY, is_elementwise
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target

# Constants and indices are made where they are used; a reshape moves nothing.
_FREE = frozenset({"stablehlo.constant", "stablehlo.iota", "stablehlo.reshape"})
IF, CASE = "stablehlo.if", "stablehlo.case"


def flatten_branches(graph: Graph, target: Target) -> Graph:
  """Flattens a graph's cheap conditionals, regions included, inner ones
  first."""
  if any(node.regions for node in graph.nodes):
    _Flattener(target).graph(graph)
  return graph


class _Flattener:
  def __init__(self, target: Target) -> None:
    self._target = target
    self._decision = cost.cycles(cost.branch(target))
    # Results of flattened conditionals, and the values that replace them.
    self._new: dict[Value, Value] = {}

  def graph(self, graph: Graph) -> None:
    new = self._new
    nodes: list[Node] = []
    for node in graph.nodes:
      if new:
        node.inputs = tuple([new.get(v, v) for v in node.inputs])
      for region in node.regions:
        self.graph(region)
      if node.op in (IF, CASE) and self._pays(node):
        nodes += self._flatten(node)
      else:
        nodes.append(node)
    graph.nodes = nodes
    graph.results = [new.get(v, v) for v in graph.results]

  def _pays(self, node: Node) -> bool:
    """Whether all branches and selects cost no more than a decision and the
    cheapest branch."""
    branches = []
    for region in node.regions:
      cycles = 0.0
      for inner in region.nodes:
        more = self._cycles(inner)
        if more is None or (cycles := cycles + more) > self._decision:
          return False
      branches.append(cycles)
    selects = sum(map(self._select_cycles, node.results))
    selects *= len(branches) - 1
    return sum(branches) + selects <= self._decision + min(branches)

  def _select_cycles(self, value: Value) -> float:
    test = Value(None, 0, value.shape, DType.BOOL)
    operands = (test, value, value)
    select = Node("stablehlo.select", operands, [(value.shape, value.dtype)])
    return self._spread(value.shape, _arithmetic(select))

  def _cycles(self, node: Node) -> float | None:
    """Cycles of a node in a larger compute set; None if it is never cheap."""
    if node.op in _FREE:
      return 0.0
    if is_elementwise(node):
      return self._spread(node.results[0].shape, _arithmetic(node))
    if REGISTRY[node.op].is_view:
      # Elements that change tiles take an exchange.
      scalar = all(not v.shape for v in node.inputs)
      return 0.0 if scalar else float(self._target.sync_cycles)
    return None

  def _spread(self, shape: Shape, cycles: float) -> float:
    """Cycles of a tile whose workers share the elements with all others."""
    target = self._target
    workers = target.num_workers
    share = ceil_div(math.prod(shape), target.num_tiles * workers)
    return share * cycles * workers

  def _flatten(self, node: Node) -> list[Node]:
    e = Emitter([], node.location, self._target)
    for region in node.regions:
      e.nodes += region.nodes
    results = list(node.regions[-1].results)
    if node.op == IF:
      tests = [node.inputs[0]]
    else:
      tests = [
        e.compare(node.inputs[0], branch, "EQ")
        for branch in range(len(node.regions) - 1)
      ]
    # An index out of range takes the last branch.
    for test, region in zip(tests[::-1], node.regions[-2::-1]):
      results = [
        taken if taken is other else e.select(test, taken, other)
        for taken, other in zip(region.results, results)
      ]
    self._new.update(zip(node.results, results))
    return e.nodes


def _arithmetic(node: Node) -> float:
  """Cycles per element of an element-wise node inside a larger loop."""
  row = REGISTRY[node.op].elementwise
  assert row is not None
  code = Writer()
  dtypes = tuple(v.dtype for v in node.inputs)
  inputs = [code.load(i, dtype) for i, dtype in enumerate(dtypes)]
  outputs = (row.emit(code, inputs, node),)
  made = (node.results[0].dtype,)
  found = profile(code.finish(), outputs, dtypes, made)
  return found.arithmetic.total
