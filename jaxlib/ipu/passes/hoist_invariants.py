"""Computes once, before a loop, what every iteration would compute again.

JAX traces a loop's body as the user wrote it: `lax.fori_loop(0, n, lambda i, v:
0.85 * a @ v, v)` scales the matrix n times. Element-wise operations are moved
only where that pays: in the loop they may cost next to nothing, as parts of a
map that is there anyway, while outside they are a compute set of their own, and
their result takes SRAM as long as the loop runs.
"""

from __future__ import annotations

import math

from jaxlib.ipu.dtypes import NUMPY
from jaxlib.ipu.ir.graph import (
  Graph,
  Node,
  Users,
  Value,
  replace_values,
  used_values,
  users,
)
from jaxlib.ipu.ir.registry import REGISTRY, has_effect, is_elementwise
from jaxlib.ipu.passes.trip_counts import trip_count
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import LEAST_TRIPS

# Operations that are at least a step of their own in each iteration.
_STEPS = frozenset(
  f"stablehlo.{name}"
  for name in (
    "concatenate",
    "dot_general",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "pad",
    "reduce",
    "scatter",
    "sort",
  )
) | {"ipu.bisect", "ipu.factorise", "ipu.inverse_iteration", "ipu.scan"}
_SOURCES = frozenset({"stablehlo.constant", "stablehlo.iota"})
# The largest part of all SRAM that what leaves the loops may take, as for the
# products of slices (hoist_products.py): a guess.
_LARGEST_PART = 1 / 16
# Element-wise operations that would be a part of a map in the loop leave it if
# it runs them on so many elements: a guess. All tiles do one operation on a
# million elements in about the time that a map takes to start.
_WORTH_ELEMENTS = 1 << 20
# Iterations of a loop whose condition depends on data: a guess.
_TRIPS = 16


def hoist_invariants(graph: Graph, target: Target) -> bool:
  """Rewrites the loops of a graph, regions included.

  Returns:
    Whether anything has left a loop: the program may take more SRAM.
  """
  if not _has_loop(graph):
    return False
  sram = target.num_tiles * target.bytes_per_tile
  return _Hoister(users(graph), sram * _LARGEST_PART).graph(graph)


def _has_loop(graph: Graph) -> bool:
  return any(
    node.op == "stablehlo.while" or any(map(_has_loop, node.regions))
    for node in graph.nodes
  )


def _is_view(node: Node) -> bool:
  definition = REGISTRY.get(node.op)
  return definition is not None and definition.is_view


def _size(value: Value) -> int:
  return math.prod(value.shape)


def _bytes(node: Node) -> int:
  return sum(_size(v) * NUMPY[v.dtype].itemsize for v in node.results)


class _Hoister:
  def __init__(self, used_by: Users, room: float) -> None:
    self._used_by = used_by
    self._room = room  # bytes

  def graph(self, graph: Graph) -> bool:
    nodes: list[Node] = []
    hoisted = False
    for node in graph.nodes:
      for region in node.regions:
        hoisted |= self.graph(region)
      if node.op == "stablehlo.while":
        moved = self._hoist(node)
        hoisted |= bool(moved)
        nodes += moved
      nodes.append(node)
    graph.nodes = nodes
    return hoisted

  def _hoist(self, loop: Node) -> list[Node]:
    """Takes nodes out of a loop; those that stand before it instead."""
    trips = trip_count(loop)
    if trips is None:
      trips = _TRIPS
    if trips < LEAST_TRIPS:
      return []
    body = loop.regions[1]
    fixed = _fixed(body)
    moves: dict[int, Node] = {}
    for node in fixed.values():
      if id(node) in moves or not self._pays(node, fixed, trips):
        continue
      if (size := _bytes(node)) <= self._room:
        self._room -= size
        _add_with_operands(node, fixed, moves)
    if not moves:
      return []
    outside = _outside([n for n in body.nodes if id(n) in moves])
    gone = {id(n) for n in outside}
    body.nodes = [n for n in body.nodes if id(n) not in gone]
    return outside

  def _pays(self, node: Node, fixed: dict[int, Node], trips: int) -> bool:
    """Whether a node is worth computing before a loop."""
    if node.op in _STEPS:
      return True
    if not is_elementwise(node):
      return False
    (result,) = node.results
    readers = self._readers(result)
    if all(r is not None and id(r) in fixed for r in readers):
      return False  # what it is computed for may leave the loop with it
    if not any(r is None or is_elementwise(r) for r in readers):
      return True
    # In a map it may cost less than to load its result: if that is larger than
    # its operands, or bytes, of which vertices load one at a time.
    if _source_size(node, fixed) < _size(result):
      return False
    if NUMPY[result.dtype].itemsize < 2:
      return False
    return trips * _size(result) >= _WORTH_ELEMENTS

  def _readers(self, value: Value) -> list[Node | None]:
    """What uses a value, or views of it; None: it is a result of a graph."""
    found: list[Node | None] = []
    todo = [value]
    while todo:
      for user in self._used_by[id(todo.pop())]:
        if user is not None and _is_view(user):
          todo += user.results
        else:
          found.append(user)
    return found


def _fixed(body: Graph) -> dict[int, Node]:
  """The nodes, by id, that compute the same in each iteration and do nothing
  else, in order."""
  fixed: dict[int, Node] = {}
  changing = {id(p) for p in body.parameters}
  for node in body.nodes:
    known = node.op in _STEPS or node.op in _SOURCES
    if (
      (known or is_elementwise(node) or _is_view(node))
      and not has_effect(node)
      and changing.isdisjoint(map(id, used_values(node)))
    ):
      fixed[id(node)] = node
    else:
      changing.update(map(id, node.results))
  return fixed


def _source_size(node: Node, fixed: dict[int, Node]) -> int:
  """The elements of the largest array that a fixed node is computed from
  element by element, but for constants and indices."""
  largest = 0
  todo, seen = list(node.inputs), {id(node)}
  while todo:
    value = todo.pop()
    source = value.node
    if source is not None and source.op in _SOURCES:
      continue
    if source is None or id(source) not in fixed or source.op in _STEPS:
      largest = max(largest, _size(value))
    elif id(source) not in seen:
      seen.add(id(source))
      todo += source.inputs
  return largest


def _add_with_operands(
  node: Node, fixed: dict[int, Node], moves: dict[int, Node]
) -> None:
  """Adds a node and those in the loop that compute its operands."""
  todo = [node]
  while todo:
    node = todo.pop()
    moves[id(node)] = node
    for value in used_values(node):
      source = value.node
      if id(source) in fixed and id(source) not in moves:
        todo.append(fixed[id(source)])


def _outside(moves: list[Node]) -> list[Node]:
  """The same nodes, but copies of those that move nothing: the loop makes its
  own constants, indices and views where it uses them."""
  copies: dict[Value, Value] = {}
  nodes: list[Node] = []
  for node in moves:
    if node.op in _SOURCES or _is_view(node):
      types = [(v.shape, v.dtype) for v in node.results]
      inputs = tuple([copies.get(v, v) for v in node.inputs])
      copy = Node(
        node.op, inputs, types, node.attributes, location=node.location
      )
      copies.update(zip(node.results, copy.results, strict=True))
      node = copy
    else:
      replace_values([node], copies)
    nodes.append(node)
  return nodes
