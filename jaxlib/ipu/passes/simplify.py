"""Folds constants, applies identities, merges equal nodes, and removes what
control flow shows to be constant: loop-carried values that never change, and
branches that are never taken.

In one traversal: a node's inputs are simple when it is visited. What
decompositions have written is only merged: max-pooling and its gradient both
reduce the same windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.ir.registry import has_effect
from jaxlib.ipu.passes.fold_constants import CONSTANT, fold, is_splat, splat
from jaxlib.ipu.passes.identities import simpler, without_elements
from jaxlib.ipu.passes.reduced_stacks import unstack

_REDUCE = "stablehlo.reduce"
# Larger constants are not compared; a guess, to limit compile time.
_MOST_KEY_BYTES = 4096


def simplify(graph: Graph) -> Graph:
  """The graph, changed in place, regions included."""
  _Simplifier().graph(graph)
  return graph


def merge(graph: Graph) -> Graph:
  """The graph, changed in place, with equal nodes merged, regions included."""
  _Simplifier(rules=False).graph(graph)
  return graph


class _Simplifier:
  def __init__(self, rules: bool = True) -> None:
    self._rules = rules  # whether to do more than to merge
    # Results of removed nodes, and the values that replace them.
    self._new: dict[Value, Value] = {}
    # For each graph from the outermost, values by what computes them.
    self._known: list[dict[Any, tuple[Value, ...]]] = []

  def graph(self, graph: Graph) -> None:
    nodes: list[Node] = []
    self._known.append({})
    for node in graph.nodes:
      self._visit(node, nodes)
    self._known.pop()
    graph.nodes = nodes
    graph.results = [self._last(v) for v in graph.results]

  def _last(self, value: Value) -> Value:
    while value in self._new:
      value = self._new[value]
    return value

  def _visit(self, node: Node, out: list[Node]) -> None:
    """Appends the node, or what replaces it."""
    if self._new:
      node.inputs = tuple([self._last(v) for v in node.inputs])
    if not self._rules:
      for region in node.regions:
        self.graph(region)
    elif node.regions:
      if self._others(node, out) or self._branch(node, out):
        return
      self._regions(node)
    elif len(node.results) == 1 and node.op != CONSTANT:
      emitter = Emitter([], node.location)
      array = fold(node) if node.inputs else None
      value = simpler(emitter, node) if array is None else None
      if array is not None:
        value = emitter.constant(array)
      if value is not None:
        for inner in emitter.nodes:
          self._visit(inner, out)
        self._new[node.results[0]] = self._last(value)
        return
    if not self._merged(node):
      out.append(node)

  def _others(self, node: Node, out: list[Node]) -> bool:
    """Replaces a node with regions that has no elements to compute with, or
    that is as well done without them."""
    emitter = Emitter([], node.location)
    values = without_elements(emitter, node) or unstack(emitter, node)
    if values is None:
      return False
    for inner in emitter.nodes:
      self._visit(inner, out)
    self._new.update(zip(node.results, [self._last(v) for v in values]))
    return True

  def _merged(self, node: Node) -> bool:
    """Whether an equal node precedes it, here or in an enclosing graph."""
    key = _key(node)
    if key is None:
      return False
    for known in self._known:
      if key in known:
        self._new.update(zip(node.results, known[key]))
        return True
    self._known[-1][key] = node.results
    return False

  def _branch(self, node: Node, out: list[Node]) -> bool:
    """Replaces a `case` or an `if` by the branch that a constant selects."""
    if node.op not in ("stablehlo.case", "stablehlo.if"):
      return False
    known = splat(node.inputs[0])
    if known is None:
      return False
    if node.op == "stablehlo.if":
      branch = node.regions[0 if known else 1]
    else:
      inside = 0 <= int(known) < len(node.regions)
      branch = node.regions[int(known) if inside else -1]
    for inner in branch.nodes:
      self._visit(inner, out)
    results = [self._last(v) for v in branch.results]
    self._new.update(zip(node.results, results))
    return True

  def _regions(self, node: Node) -> None:
    is_loop = node.op == "stablehlo.while"
    if is_loop:
      self._hoist(node)
    for region in node.regions:
      self.graph(region)
    if is_loop and self._hoist(node):
      self._regions(node)

  def _hoist(self, node: Node) -> bool:
    """Takes loop-carried values that the body returns unchanged out of the
    loop; returns whether there are any."""
    body = node.regions[1]
    keep = [
      i
      for i, (p, r) in enumerate(zip(body.parameters, body.results))
      if p is not r
    ]
    if len(keep) == len(node.inputs):
      return False
    for i, value in enumerate(node.inputs):
      if i not in keep:
        self._new[node.results[i]] = value
        for region in node.regions:
          self._new[region.parameters[i]] = value
    node.inputs = tuple(node.inputs[i] for i in keep)
    node.results = tuple(node.results[i] for i in keep)
    body.results = [body.results[i] for i in keep]
    for region in node.regions:
      region.parameters = [region.parameters[i] for i in keep]
    for values in (node.results, *(r.parameters for r in node.regions)):
      for place, value in enumerate(values):
        value.index = place
    return True


def _key(node: Node) -> Any | None:
  """What a node computes; None if that must not or cannot be compared."""
  if has_effect(node):
    return None
  attributes = node.attributes
  if node.op == CONSTANT:
    attributes = _constant_key(attributes)
    if attributes is None:
      return None
  types = tuple([(v.shape, v.dtype) for v in node.results])
  # Of operations with regions only reductions by one operation.
  kind = None
  if node.regions:
    kind = monoid(node.regions[0]) if node.op == _REDUCE else None
    if kind is None:
      return None
  key = (node.op, node.inputs, types, attributes, kind)
  try:
    hash(key)
  except TypeError:
    return None
  return key


def _constant_key(array: np.ndarray) -> Any | None:
  if is_splat(array):
    return array[(0,) * array.ndim].tobytes()
  return array.tobytes() if array.nbytes <= _MOST_KEY_BYTES else None
