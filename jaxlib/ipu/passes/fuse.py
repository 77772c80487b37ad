"""Fuses element-wise nodes into register programs.

Each node gets a depth that increases along any path that leaves a group and
comes back. Nodes of equal shape and depth can then be merged in any combination
without making a cycle; those that share an edge or an operand are, and those
that make the few parts of a concatenation, such as the planes of a complex
result: a map of all parts writes them to their places. A group becomes one
`ipu.map` node.
"""

from __future__ import annotations

import math
from collections import defaultdict

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.graph import (
  Graph,
  Node,
  Shape,
  Value,
  replace_values,
  used_values,
)
from jaxlib.ipu.ir.map_program import MAP, MapProgram, make_source
from jaxlib.ipu.ir.registry import REGISTRY, has_effect, is_elementwise
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.ops.control_flow import REPEAT
from jaxlib.ipu.passes import origins

# Maximum nodes of a group, a guess. Longer programs gain nothing and fill the
# engine's block buffers.
LARGEST_GROUP = 256
# Maximum distinct operands of a group, a guess for the same reason.
MOST_OPERANDS = 24
# Nodes up to this size are merged even if they share nothing: one compute set
# takes fewer cycles than two. Measured: this is so up to 262,144 elements,
# `python -m benchmarks --thresholds`; but operands of large nodes would all
# have to be in SRAM at the same time.
SMALL = 1024
# An operand that more parts of a group read says nothing about which of them
# belong together. [G]
_FEW = 4
# Constants and indices are made in each group that uses them.
_SOURCES = frozenset({"stablehlo.constant", "stablehlo.iota"})
_CONTROL_FLOW = frozenset(
  {"stablehlo.while", "stablehlo.case", "stablehlo.if", REPEAT}
)


def fuse(graph: Graph) -> Graph:
  """Fuses the element-wise nodes of a graph, regions included."""
  for node in graph.nodes:
    if node.op in _CONTROL_FLOW:
      node.regions = tuple(fuse(r) for r in node.regions)
  return _Fuser(graph).run()


def _is_view(node: Node) -> bool:
  definition = REGISTRY.get(node.op)
  return definition is not None and definition.is_view


class _Fuser:
  def __init__(self, graph: Graph) -> None:
    self.graph = graph
    self.index = {id(n): i for i, n in enumerate(graph.nodes)}
    self.members = {id(n): n for n in graph.nodes if is_elementwise(n)}
    self.users: dict[int, list[Node]] = defaultdict(list)
    self.escapes: set[int] = {id(v) for v in graph.results}
    for node in graph.nodes:
      for value in node.inputs:
        self.users[id(value)].append(node)
      for region in node.regions:
        self.escapes.update(map(id, region.results))
        for inner in region.nodes:
          self.escapes.update(map(id, used_values(inner)))
    # Nodes with effects stay in order.
    self.effect_before: dict[int, Node] = {}
    effects = [n for n in graph.nodes if has_effect(n)]
    for before, node in zip(effects, effects[1:]):
      self.effect_before[id(node)] = before
    self.depth = self._depths()

  def _depths(self) -> dict[int, int]:
    depth: dict[int, int] = {}
    members = self.members
    for node in self.graph.nodes:
      elementwise = id(node) in members
      shape = node.results[0].shape if elementwise else ()
      deepest = 0
      for value in used_values(node):
        source = value.node
        if source is None or id(source) not in depth or source.op in _SOURCES:
          continue
        step = 0
        if id(source) in members:
          same = elementwise and source.results[0].shape == shape
          step = 0 if same else 1
        elif not _is_view(source) and not elementwise:
          step = 1
        deepest = max(deepest, depth[id(source)] + step)
      if (before := self.effect_before.get(id(node))) is not None:
        deepest = max(deepest, depth[id(before)] + 1)
      depth[id(node)] = deepest
    for node in reversed(members.values()):
      self._raise(node, depth)
    return depth

  def _raise(self, node: Node, depth: dict[int, int]) -> None:
    """Delays a node to its users' depth, instead of storing its result."""
    value = node.results[0]
    if id(value) in self.escapes:
      return
    users = self.users[id(value)]
    if users and all(
      id(u) in self.members and _shape(u) == value.shape for u in users
    ):
      levels = {depth[id(u)] for u in users}
      if len(levels) == 1:
        depth[id(node)] = max(depth[id(node)], levels.pop())

  def run(self) -> Graph:
    """The graph with each group as one node, after its operands."""
    groups = self._groups()
    group_of = {id(n): g for g in groups for n in g}
    order: list[Node] = []
    emitted: set[int] = set()
    replaced: dict[Value, Value] = {}
    nodes = self.graph.nodes

    def key(node: Node) -> list[Node]:
      return group_of.get(id(node)) or [node]

    for start in nodes:
      stack = [key(start)]
      while stack:
        unit = stack[-1]
        if id(unit[0]) in emitted:
          stack.pop()
          continue
        inside = {id(n) for n in unit}
        waiting = []
        for node in unit:
          before = self.effect_before.get(id(node))
          if before is not None and id(before) not in emitted:
            waiting.append(before)
          for value in used_values(node):
            source = value.node
            if source is None or id(source) in inside:
              continue
            if id(source) in self.index and id(source) not in emitted:
              waiting.append(source)
        if waiting:
          stack += [key(n) for n in reversed(waiting)]
          continue
        stack.pop()
        emitted.update(inside)
        if id(unit[0]) in group_of:
          order.append(self._merge(unit, replaced))
        else:
          order.append(unit[0])
    replace_values(order, replaced)
    results = [replaced.get(v, v) for v in self.graph.results]
    return Graph(self.graph.parameters, order, results)

  def _groups(self) -> list[list[Node]]:
    """Connected nodes of equal shape and depth, in graph order."""
    leader: dict[int, int] = {}

    def find(i: int) -> int:
      while leader[i] != i:
        leader[i] = leader[leader[i]]
        i = leader[i]
      return i

    by_key: dict[tuple[Shape, int], list[Node]] = defaultdict(list)
    for node in self.members.values():
      by_key[_shape(node), self.depth[id(node)]].append(node)
    groups: list[list[Node]] = []
    for members in by_key.values():
      for n in members:
        leader[id(n)] = id(n)
      seen: dict[int, int] = {}
      if math.prod(_shape(members[0])) <= SMALL:
        groups += _chunks(members)
        continue
      for n in members:
        for value in (*n.inputs, *n.results):
          if value.node is not None and value.node.op in _SOURCES:
            continue
          other = seen.setdefault(id(value), id(n))
          leader[find(id(n))] = find(other)
        if (whole := self._part_of(n)) is not None:
          other = seen.setdefault(id(whole), id(n))
          leader[find(id(n))] = find(other)
      merged: dict[int, list[Node]] = defaultdict(list)
      for n in members:
        merged[find(id(n))].append(n)
      for group in merged.values():
        groups += _chunks(group)
    return groups

  def _part_of(self, node: Node) -> Node | None:
    """The concatenation of few values of which a node makes one, its only
    user but for views; None if there is none."""
    while True:
      (value, *others) = node.results
      users = self.users[id(value)]
      if others or len(users) != 1 or id(value) in self.escapes:
        return None
      (node,) = users
      if node.op == "stablehlo.concatenate":
        return node if len(node.inputs) <= _FEW else None
      if node.op != "stablehlo.reshape":
        return None

  def _merge(self, group: list[Node], replaced: dict[Value, Value]) -> Node:
    inside = {id(n) for n in group}
    code = Writer()
    inputs: list[Value] = []
    slots: dict[int, int] = {}
    numbers: dict[int, int] = {}
    shape = _shape(group[0])

    def number(value: Value) -> int:
      known = numbers.get(id(value))
      if known is None:
        known = make_source(code, value, shape)
        if known is None:
          slot = slots.get(id(value))
          if slot is None:
            slot = slots[id(value)] = len(inputs)
            inputs.append(value)
          known = code.load(slot, value.dtype)
        numbers[id(value)] = known
      return known

    made: list[Value] = []
    for node in group:
      row = REGISTRY[node.op].elementwise
      assert row is not None, node.op
      arguments = [number(v) for v in node.inputs]
      value = node.results[0]
      numbers[id(value)] = row.emit(code, arguments, node)
      if id(value) in self.escapes or any(
        id(u) not in inside for u in self.users[id(value)]
      ):
        made.append(value)
    # Nodes of equal value and type share one output.
    outputs: dict[tuple[int, DType], list[Value]] = defaultdict(list)
    for value in made or [group[-1].results[0]]:
      outputs[numbers[id(value)], value.dtype].append(value)
    merged = Node(
      MAP,
      tuple(inputs),
      [(same[0].shape, same[0].dtype) for same in outputs.values()],
      MapProgram(shape, code.finish(), tuple(n for n, _ in outputs)),
      location=group[-1].location,
    )
    merged.origins = origins.joined(group)
    for result, same in zip(merged.results, outputs.values()):
      replaced.update(dict.fromkeys(same, result))
    return merged


def _chunks(group: list[Node]) -> list[list[Node]]:
  """Splits an oversized group, if possible between independent nodes: values
  that one piece computes for another have to be stored."""
  if _fits(len(group), _reads(group)):
    return [group]
  pieces: list[list[Node]] = []
  operands: set[int] = set()  # of the last piece
  for part in _side_by_side(_connected(group)):
    reads = _reads(part)
    if not pieces or not _fits(len(pieces[-1]) + len(part), operands | reads):
      pieces += [part] if _fits(len(part), reads) else _cut(part)
      operands = _reads(pieces[-1])
    else:
      pieces[-1] += part
      operands |= reads
  return pieces


def _side_by_side(parts: list[list[Node]]) -> list[list[Node]]:
  """Puts each part after the first one that reads an operand which it reads,
  too, unless most parts do: both moments of an optimiser read a gradient."""
  readers: dict[int, list[int]] = defaultdict(list)
  reads = [_reads(part) for part in parts]
  for number, operands in enumerate(reads):
    for operand in operands:
      readers[operand].append(number)

  def first(number: int) -> int:
    shared = (readers[operand] for operand in reads[number])
    return min((r[0] for r in shared if len(r) <= _FEW), default=number)

  order = sorted(range(len(parts)), key=lambda number: (first(number), number))
  return [parts[number] for number in order]


def _fits(count: int, operands: set[int]) -> bool:
  return count <= LARGEST_GROUP and len(operands) <= MOST_OPERANDS


def _reads(nodes: list[Node]) -> set[int]:
  """The ids of values that nodes read and do not compute."""
  inside = {id(n) for n in nodes}
  return {
    id(v)
    for n in nodes
    for v in n.inputs
    if v.node is None
    or (id(v.node) not in inside and v.node.op not in _SOURCES)
  }


def _connected(nodes: list[Node]) -> list[list[Node]]:
  """Splits nodes into connected parts by their data flow, each in order."""
  parts: dict[int, list[Node]] = {}  # by node
  for node in nodes:
    found = [parts[id(v.node)] for v in node.inputs if id(v.node) in parts]
    joined = max(found, key=len, default=[])
    for part in {id(p): p for p in found if p is not joined}.values():
      joined += part
      parts.update((id(n), joined) for n in part)
    joined.append(node)
    parts[id(node)] = joined
  place = {id(n): i for i, n in enumerate(nodes)}
  found = list({id(p): p for p in parts.values()}.values())
  return [sorted(p, key=lambda n: place[id(n)]) for p in found]


def _cut(group: list[Node]) -> list[list[Node]]:
  """Cuts dependent nodes into pieces; keeping their order avoids cycles."""
  pieces: list[list[Node]] = [[]]
  inner: set[int] = set()  # the last piece's nodes
  operands: set[int] = set()  # values that it reads from elsewhere
  for node in group:
    operands |= {
      id(v)
      for v in node.inputs
      if v.node is None
      or (id(v.node) not in inner and v.node.op not in _SOURCES)
    }
    if pieces[-1] and (
      len(pieces[-1]) >= LARGEST_GROUP or len(operands) > MOST_OPERANDS
    ):
      pieces.append([])
      inner = set()
      operands = {id(v) for v in node.inputs}
    pieces[-1].append(node)
    inner.add(id(node))
  return pieces


def _shape(node: Node) -> Shape:
  return node.results[0].shape
