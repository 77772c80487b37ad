"""Functions compute operands again that others have computed from less.

Differentiation makes a layer keep the values that its gradient reads, among
them many that take few operations to compute from others. All of them would be
in SRAM from the one function's call to the other's, and be copied from and to
their tensors. Instead, the function that reads such a value computes it again,
if most of what this takes is there in any case.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import (
  CALL,
  Function,
  Module,
  Node,
  Value,
  replace_values,
  used_values,
)
from jaxlib.ipu.passes import dce

# The values that it takes to compute others again, and that would otherwise
# not be kept, have at most this part of their bytes. [G]
_MOST = 1 / 2
# Operations of few instructions, or of none; what takes more is kept.
_CHEAP = frozenset(
  f"stablehlo.{name}"
  for name in """
  abs add and broadcast_in_dim compare convert divide maximum minimum multiply
  negate not or reshape select slice subtract transpose xor
  """.split()
)


def recompute_operands(module: Module) -> None:
  """Rewrites functions, and their calls in the module's graph."""
  calls: list[list[Node]] = [[] for _ in module.functions]
  for node in module.graph.nodes:
    if node.op == CALL:
      calls[node.attributes.function.number].append(node)
  for reader in module.functions:
    for made in module.functions:
      if made is not reader:
        _Operands(made, calls[made.number], reader, calls[reader.number]).run()
  for _ in module.functions:
    for function in module.functions:
      _drop_unused(module, function, calls[function.number])
  for function in module.functions:
    operands = zip(*(call.inputs for call in calls[function.number]))
    function.fixed = frozenset(
      [i for i, same in enumerate(operands) if len({*same}) == 1]
    )


class _Operands:
  """The operands of a function that are results of another one."""

  def __init__(
    self,
    made: Function,
    calls: Sequence[Node],
    reader: Function,
    readers: Sequence[Node],
  ) -> None:
    self._made, self._calls = made, calls
    self._reader, self._readers = reader, readers
    # The call whose results each of the readers has.
    self._makers: list[Node] = []
    # By values of `made`, those of `reader` that are the same.
    self._own: dict[Value, Value] = {}

  def run(self) -> None:
    """Computes operands again where it pays."""
    operands = self._shared()
    kept, again = self._choose(operands)
    if not again:
      return
    for value in kept:
      self._own[value] = operands.get(value) or self._passed(value)
    graph = self._reader.graph
    nodes: list[Node] = []
    new = {operands[value]: self._copy(value, nodes) for value in again}
    replace_values(graph.nodes, new)
    graph.nodes = [*nodes, *graph.nodes]
    graph.results = [new.get(v, v) for v in graph.results]
    for maker, node in zip(self._makers, self._readers, strict=True):
      node.attributes.locations = {
        **maker.attributes.locations,
        **node.attributes.locations,
      }

  def _choose(
    self, operands: Collection[Value]
  ) -> tuple[dict[Value, None], list[Value]]:
    """The values that the calls keep, and the operands to compute from them."""
    kept, again = dict.fromkeys(operands), []
    while True:
      # Values computed from the same ones may pay together only.
      groups: dict[frozenset[Value], tuple[list[Value], list[Value]]] = {}
      for value in operands:
        leaves = self._leaves(value, kept) if value in kept else None
        if leaves is not None:
          more = [leaf for leaf in leaves if leaf not in kept]
          groups.setdefault(frozenset(more), (more, []))[1].append(value)
      paying = [g for g in groups.values() if self._pays(*g)]
      if not paying:
        return kept, again
      # The others need less if these leaves are there.
      more, values = min(paying, key=lambda g: len(g[0]))
      again += values
      for value in values:
        del kept[value]
      kept.update(dict.fromkeys(more))

  def _shared(self) -> dict[Value, Value]:
    """The results of `made` that `reader` has, with its parameters; notes the
    calls that they come from."""
    found: dict[Value, Value] = {}
    results, graph = self._made.graph.results, self._reader.graph
    for i, value in enumerate(graph.parameters):
      operands = [node.inputs[i] for node in self._readers]
      makers = [v.node for v in operands if v.node in self._calls]
      if len(makers) == len(operands) and (
        not self._makers or makers == self._makers
      ):
        self._makers = [node for node in makers if node is not None]
        numbers = {v.index for v in operands}
        if len(numbers) == 1:
          found[results[numbers.pop()]] = value
    return found

  def _leaves(
    self, value: Value, kept: Collection[Value]
  ) -> dict[Value, None] | None:
    """The values from which it is cheap to compute one again; None if its own
    operation is not cheap."""
    if value.node is None or value.node.op not in _CHEAP:
      return None
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    todo = [*value.node.inputs]
    while todo:
      leaf = todo.pop()
      if leaf in seen:
        continue
      seen.add(leaf)
      node = leaf.node
      if leaf in kept or node is None:
        found[leaf] = None
      elif node.op in _CHEAP:
        todo += node.inputs
      elif node.inputs:
        found[leaf] = None  # all others are constant
    return found

  def _pays(self, leaves: Collection[Value], values: Collection[Value]) -> bool:
    """Whether to compute values again, if leaves are kept for it."""
    more = sum(_bytes(v) for v in leaves if not self._is_there(v))
    return more <= _MOST * sum(map(_bytes, values))

  def _is_there(self, leaf: Value) -> bool:
    """Whether a leaf is in SRAM in any case when `reader` is called: another
    operand of its, or a parameter of the program."""
    if leaf.node is not None:
      return False
    given = [maker.inputs[leaf.index] for maker in self._makers]
    return all(v.node is None for v in given) or (
      self._parameter(given) is not None
    )

  def _parameter(self, operands: Sequence[Value]) -> Value | None:
    """The parameter of `reader` that has these operands, if one has."""
    for i, value in enumerate(self._reader.graph.parameters):
      if all(
        node.inputs[i] is v
        for node, v in zip(self._readers, operands, strict=True)
      ):
        return value
    return None

  def _passed(self, value: Value) -> Value:
    """The parameter of `reader` for a value of `made`, a new one if needed."""
    if value.node is None:
      given = [maker.inputs[value.index] for maker in self._makers]
    else:
      results = self._made.graph.results
      if value not in results:
        for call in self._calls:
          new = Value(call, len(results), value.shape, value.dtype)
          call.results = (*call.results, new)
        results.append(value)
      index = results.index(value)
      given = [maker.results[index] for maker in self._makers]
    known = self._parameter(given)
    if known is not None:
      return known
    parameters = self._reader.graph.parameters
    parameters.append(Value(None, len(parameters), value.shape, value.dtype))
    for node, operand in zip(self._readers, given, strict=True):
      node.inputs = (*node.inputs, operand)
    return parameters[-1]

  def _copy(self, value: Value, nodes: list[Node]) -> Value:
    """A value, computed by `reader` for itself."""
    if value not in self._own:
      node = value.node
      assert node is not None
      inputs = tuple([self._copy(v, nodes) for v in node.inputs])
      types = [(v.shape, v.dtype) for v in node.results]
      copy = Node(
        node.op, inputs, types, node.attributes, location=node.location
      )
      nodes.append(copy)
      self._own.update(zip(node.results, copy.results, strict=True))
    return self._own[value]


def _bytes(value: Value) -> int:
  return math.prod(value.shape) * SIZE[value.dtype]


def _drop_unused(
  module: Module, function: Function, calls: Sequence[Node]
) -> None:
  """Drops results and parameters that nothing uses."""
  used = set(module.graph.results)
  for node in module.graph.nodes:
    used.update(used_values(node))
  graph = function.graph
  kept = [
    i
    for i in range(len(graph.results))
    if any(call.results[i] in used for call in calls)
  ]
  graph.results = [graph.results[i] for i in kept]
  for call in calls:
    call.results = tuple([call.results[i] for i in kept])
    for i, value in enumerate(call.results):
      value.index = i
  dce.eliminate(graph)
  inside = set(graph.results)
  for node in graph.nodes:
    inside.update(used_values(node))
  kept = [i for i, value in enumerate(graph.parameters) if value in inside]
  graph.parameters = [graph.parameters[i] for i in kept]
  for i, value in enumerate(graph.parameters):
    value.index = i
  for call in calls:
    call.inputs = tuple([call.inputs[i] for i in kept])
