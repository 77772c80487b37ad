"""Fuses maps of scalars into the maps that are their only users.

`x - (a * b) * v` then multiplies a and b in the workers that need the product,
before their loops, instead of in a compute set on one tile, whose launch and
exchange take longer.
"""

from __future__ import annotations

import math

from jaxlib.ipu.ir.graph import Graph, Node, Users, Value, users
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.passes import origins
from jaxlib.ipu.passes.fuse import LARGEST_GROUP, MOST_OPERANDS
from jaxlib.ipu.passes.map_parts import VIEWS, behind_views

_BROADCAST = "stablehlo.broadcast_in_dim"


def sink_scalars(graph: Graph) -> Graph:
  """Merges such maps, regions included."""
  if _any(graph):
    _merge_all(graph, users(graph))
  return graph


def _any(graph: Graph) -> bool:
  return any(
    _is_scalar(n) or any(_any(region) for region in n.regions)
    for n in graph.nodes
  )


def _is_scalar(node: Node) -> bool:
  return node.op == MAP and math.prod(node.attributes.shape) == 1


def _merge_all(graph: Graph, used_by: Users) -> None:
  # A map outside a loop stays outside, where it runs once.
  here = {id(n) for n in graph.nodes if _is_scalar(n)}
  nodes: list[Node] = []
  gone: set[int] = set()
  for node in graph.nodes:
    for region in node.regions:
      _merge_all(region, used_by)
    if here and node.op == MAP and math.prod(node.attributes.shape) > 1:
      taken: dict[int, Node] = {}
      for value in node.inputs:
        source = behind_views(value).node
        if source is not None and id(source) in here:
          through = _between(source, node, used_by)
          if through is not None and _fits(source, node):
            taken[id(source)] = source
            gone.update(map(id, (source, *through)))
      if taken:
        merged, views = _merge(node, taken)
        nodes += views
        node = merged
    nodes.append(node)
  graph.nodes = [n for n in nodes if id(n) not in gone]


def _between(source: Node, node: Node, used_by: Users) -> list[Node] | None:
  """The views through which a node uses another's results; None if there are
  other users."""
  views: list[Node] = []
  todo = list(source.results)
  while todo:
    for user in used_by[id(todo.pop())]:
      if user is None or (user is not node and user.op not in VIEWS):
        return None
      if user is not node:
        views.append(user)
        todo += user.results
  return views


def _fits(source: Node, node: Node) -> bool:
  one: MapProgram = source.attributes
  other: MapProgram = node.attributes
  words = len(one.code) + len(other.code)
  return (
    len(one.shape) <= len(other.shape)
    and words <= LARGEST_GROUP
    and len(source.inputs) + len(node.inputs) <= MOST_OPERANDS
    and all(i.op is not Opcode.IOTA for i in one.code)
  )


def _merge(node: Node, taken: dict[int, Node]) -> tuple[Node, list[Node]]:
  """A map that starts with the programs of others, and the broadcasts that it
  now reads."""
  program: MapProgram = node.attributes
  code = Writer()
  inputs: list[Value] = []
  views: list[Node] = []
  outputs: dict[int, int] = {}  # of the merged programs, by value

  def load(value: Value) -> int:
    known = [i for i, v in enumerate(inputs) if v is value]
    if not known:
      inputs.append(value)
    slot = known[0] if known else len(inputs) - 1
    return code.load(slot, value.dtype)

  wide: list[Node] = []  # of the program that is merged

  def widened(operand: int) -> int:
    return load(wide[operand].results[0])

  def merged_or_loaded(operand: int) -> int:
    value = node.inputs[operand]
    made = outputs.get(id(behind_views(value)))
    return load(value) if made is None else made

  for source in taken.values():
    wide = [
      Node(
        _BROADCAST,
        (v,),
        [(program.shape, v.dtype)],
        tuple(range(len(v.shape))),
        location=source.location,
      )
      for v in source.inputs
    ]
    views += wide
    numbers = code.inline(source.attributes.code, widened)
    for value, number in zip(source.results, source.attributes.outputs):
      outputs[id(value)] = numbers[number]
  numbers = code.inline(program.code, merged_or_loaded)
  merged = Node(
    MAP,
    tuple(inputs),
    [],
    MapProgram(
      program.shape, code.finish(), tuple(numbers[o] for o in program.outputs)
    ),
    location=node.location,
  )
  merged.origins = origins.joined((*taken.values(), node))
  # Reusing the values avoids updating their users.
  merged.results = node.results
  for value in merged.results:
    value.node = merged
  return merged, views
