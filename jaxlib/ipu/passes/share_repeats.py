"""Repeated operations become functions, which are compiled once.

The layers of a network are the same operations on other values. If they take
more code than tiles have room for, all but the first layer would be compiled
for outlining (tile_passes/outline.py) to find that they are the first one
again. In a long program of repeats they are found (repeated_operations.py)
before anything is done to them, and become calls of one function
(`ir.graph.CALL`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from jaxlib.ipu.ir.graph import (
  CALL,
  Callee,
  Function,
  Graph,
  Module,
  Node,
  Value,
  replace_values,
  used_values,
)
from jaxlib.ipu.passes.repeated_operations import Repeated

# The least part of a program's operations that functions have to cover. [G]
_LEAST_COVERED = 0.8


def share_repeats(module: Module, least: float) -> None:
  """Makes functions of a module's repeated operations.

  Args:
    module: changed in place.
    least: it is left alone if calls would cover fewer operations than so many.
  """
  found = Repeated(module.graph)
  covered = sum(len(nodes) for f in found.sequences for nodes in f.nodes)
  if covered >= max(least, _LEAST_COVERED * len(found.nodes)):
    _Rewriting(module, found).run()


class _Rewriting:
  """A module whose repeated operations become functions."""

  def __init__(self, module: Module, found: Repeated) -> None:
    self._module = module
    self._found = found

  def run(self) -> None:
    """Makes the sequences calls."""
    module = self._module
    calls: dict[int, Node] = {}  # by place
    new: dict[Value, Value] = {}
    inside: set[Node] = set()
    for f in self._found.sequences:
      for nodes in f.nodes:
        inside.update(nodes)
    for f, used in zip(
      self._found.sequences, self._results(inside), strict=True
    ):
      first = f.nodes[0]
      types = [
        (v.shape, v.dtype)
        for i, index in used
        for v in (first[i].results[index],)
      ]
      function = Function(len(module.functions), Graph([], [], []))
      module.functions.append(function)
      for begin, these, outer in zip(f.begins, f.nodes, f.outer, strict=True):
        callee = Callee(function, _differing(first, these))
        call = Node(
          CALL, tuple(outer), types, callee, location=these[0].location
        )
        calls[begin] = call
        for (i, index), result in zip(used, call.results, strict=True):
          new[these[i].results[index]] = result
      function.graph = self._body(first, f.outer[0], used)
    graph = module.graph
    graph.nodes = [*self._found.early]
    for place, node in enumerate(self._found.nodes):
      if place in calls:
        graph.nodes.append(calls[place])
      elif node not in inside:
        graph.nodes.append(node)
    replace_values(graph.nodes, new)
    graph.results = [new.get(v, v) for v in graph.results]
    for f in self._found.sequences:
      for nodes in f.nodes[1:]:
        for node in nodes:
          node.results = ()  # frees both, without the garbage collector

  def _results(self, inside: Collection[Node]) -> list[list[tuple[int, int]]]:
    """For each function, which results of which of its operations are used
    outside of the sequence that has them."""
    used = {
      v for f in self._found.sequences for outer in f.outer for v in outer
    }
    used.update(self._module.graph.results)
    for node in self._found.nodes:
      if node not in inside:
        used.update(used_values(node))
    return [
      [
        (i, index)
        for i, same in enumerate(zip(*f.nodes, strict=True))
        for index in range(len(same[0].results))
        if any(node.results[index] in used for node in same)
      ]
      for f in self._found.sequences
    ]

  def _body(
    self,
    nodes: list[Node],
    outer: Sequence[Value],
    used: Sequence[tuple[int, int]],
  ) -> Graph:
    """The graph of a function, of the nodes of its first sequence."""
    parameters = [Value(None, i, v.shape, v.dtype) for i, v in enumerate(outer)]
    own = dict(zip(outer, parameters, strict=True))
    constants: list[Node] = []
    for node in nodes:
      for value in node.inputs:
        if value not in own and self._found.leaves(value) is not None:
          self._copy(value, own, constants)
      node.inputs = tuple([own.get(v, v) for v in node.inputs])
    results = [nodes[i].results[index] for i, index in used]
    return Graph(parameters, [*constants, *nodes], results)

  def _copy(
    self, value: Value, own: dict[Value, Value], nodes: list[Node]
  ) -> None:
    """Adds the nodes that compute a value; `own` has the values that are
    there, by those that they are copies of."""
    node = value.node
    assert node is not None
    for operand in node.inputs:
      if operand not in own:
        self._copy(operand, own, nodes)
    inputs = tuple([own[v] for v in node.inputs])
    types = [(v.shape, v.dtype) for v in node.results]
    copy = Node(node.op, inputs, types, node.attributes, location=node.location)
    nodes.append(copy)
    own.update(zip(node.results, copy.results, strict=True))


def _differing(nodes: Sequence[Node], others: Sequence[Node]) -> dict[Any, Any]:
  """The locations of other nodes, by those of nodes, where they differ."""
  if nodes is others:
    return {}
  return {
    a.location: b.location
    for a, b in zip(nodes, others, strict=True)
    if a.location != b.location
  }
