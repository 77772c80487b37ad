"""Streams values that a program puts into the host's memory out of SRAM.

`jax.device_put` inside a program, and checkpoint policies that offload
residuals, mark a value that goes to the host, and the places where it is back
on the device. The value becomes a buffer of the host, which is written at the
one and read at the others. If a scan puts a residual there in each iteration
and another one takes it back, the buffer holds them all.

Values that the program also uses in other ways stay in SRAM; a warning names
their lines.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterator

from jaxlib.ipu.dtypes import COMPLEX, DType
from jaxlib.ipu.ir.graph import (
  Graph,
  Module,
  Node,
  Shape,
  Type,
  Users,
  Value,
  users,
)
from jaxlib.ipu.location import location_text, resolve
from jaxlib.ipu.ops.host_memory import BUFFER, LOAD, STORE
from jaxlib.ipu.ops.markers import PLACEMENT
from jaxlib.ipu.passes import dce
from jaxlib.ipu.passes.host_stacks import Load, Stack, find_stack, is_back

logger = logging.getLogger("jaxlib.ipu")

_NAMED = 5  # lines in a warning


@dataclasses.dataclass(frozen=True)
class _Place:
  """Where a node is.

  Attributes:
    graph: that has it.
    loop: the loop whose body that is; None: it is no loop's.
    outer: the place of the loop.
  """

  graph: Graph
  loop: Node | None = None
  outer: _Place | None = None


def run(module: Module) -> None:
  """Rewrites a module, and logs one warning of values that stay."""
  found = list(_nodes(_Place(module.graph)))
  places = {id(node): place for node, place in found}
  used = users(module.graph)
  left = []
  buffers = itertools.count()
  for node, place in found:
    if node.op != PLACEMENT or not node.attributes.endswith("host"):
      continue
    value = node.results[0]
    outermost = place.outer is None
    if outermost and all(n is None for n in used[id(value)]):
      continue  # a result in the host's memory
    supported = value.dtype not in COMPLEX
    readers = _readers(value, used) if supported else None
    if readers is not None and all(map(is_back, readers)):
      loads = [Load(n) for n in readers]
      _leave_loops(node, used)
      _store(node, place.graph, value.shape, loads, places, next(buffers))
    elif (
      supported
      and (stack := find_stack(node, place.graph, place.loop, used)) is not None
    ):
      _store_part(node, place, stack, places, next(buffers))
    else:
      left.append(node)
  if not left:
    return
  dce.eliminate(module.graph)  # what loops started with, of stacks in buffers
  there = {id(node) for node, _ in _nodes(_Place(module.graph))}
  left = [node for node in left if id(node) in there]
  if left:
    _warn(module, left)


def _readers(value: Value, used: Users) -> list[Node] | None:
  """The users of a value, also in loops that carry it unchanged; None if it is
  a result of a graph, too."""
  found = []
  for user in used[id(value)]:
    if user is None:
      return None
    if user.op != "stablehlo.while":
      found.append(user)
      continue
    for i, operand in enumerate(user.inputs):
      if operand is not value:
        continue
      parameters = [region.parameters[i] for region in user.regions]
      if user.regions[-1].results[i] is not parameters[-1]:
        return None
      for inner in (*parameters, user.results[i]):
        others = dict(used)
        readers = used[id(inner)]
        if inner is parameters[-1]:  # it is the body's result
          readers = readers.copy()
          readers.remove(None)
        others[id(inner)] = readers
        more = _readers(inner, defaultdict(list, others))
        if more is None:
          return None
        found += more
  return list({id(n): n for n in found}.values())


def _leave_loops(node: Node, used: Users) -> None:
  """Gives loops that carry a value in the host's memory the one on the tiles,
  which they do not use."""
  for user in used[id(node.results[0])]:
    if user is not None and user.op == "stablehlo.while":
      user.inputs = tuple(
        node.inputs[0] if v is node.results[0] else v for v in user.inputs
      )


def _nodes(place: _Place) -> Iterator[tuple[Node, _Place]]:
  """All nodes in order, those of regions before the node that has them."""
  for node in place.graph.nodes:
    for region in node.regions:
      loop = node if node.op == "stablehlo.while" else None
      yield from _nodes(_Place(region, loop, place))
    yield node, place


def _insert(graph: Graph, before: Node, new: Node) -> None:
  graph.nodes.insert(_position(graph, before), new)


def _remove(graph: Graph, node: Node) -> None:
  del graph.nodes[_position(graph, node)]


def _position(graph: Graph, node: Node) -> int:
  return next(i for i, n in enumerate(graph.nodes) if n is node)


def _buffer(value: Value, shape: Shape, where: Node, number: int) -> Node:
  return Node(
    BUFFER, (), [(shape, value.dtype)], number, location=where.location
  )


def _store(
  node: Node,
  graph: Graph,
  shape: Shape,
  loads: list[Load],
  places: dict[int, _Place],
  number: int,
  buffer: Node | None = None,
  index: Value | None = None,
) -> None:
  """Makes `node` write a buffer, and `loads` read it."""
  if buffer is None:
    buffer = _buffer(node.results[0], shape, node, number)
    _insert(graph, node, buffer)
  (memory,) = buffer.results
  for load in loads:
    _become(load.node, LOAD, memory, (), load.index, places)
  _become(node, STORE, memory, node.inputs, index, places)
  node.results = ()


def _become(
  node: Node,
  op: str,
  memory: Value,
  inputs: tuple[Value, ...],
  index: Value | None,
  places: dict[int, _Place],
) -> None:
  node.op, node.attributes = op, None
  node.inputs = (memory, *inputs)
  if index is None:
    return
  if index.dtype is not DType.I32:
    types: list[Type] = [((), DType.I32)]
    narrow = Node("stablehlo.convert", (index,), types, location=node.location)
    _insert(places[id(node)].graph, node, narrow)
    (index,) = narrow.results
  node.inputs += (index,)


def _store_part(
  node: Node,
  place: _Place,
  stack: Stack,
  places: dict[int, _Place],
  number: int,
) -> None:
  """Makes `node`, in a scan, write its part of a buffer."""
  loop, outer = place.loop, place.outer
  assert loop is not None and outer is not None
  body = loop.regions[-1]
  shape = stack.update.results[0].shape
  buffer = _buffer(node.results[0], shape, node, number)
  _insert(outer.graph, loop, buffer)
  # The index may be computed after the value.
  _remove(place.graph, node)
  _insert(place.graph, stack.update, node)
  _remove(place.graph, stack.part)
  _remove(place.graph, stack.update)
  _store(
    node, outer.graph, shape, stack.loads, places, number, buffer, stack.index
  )
  body.results[stack.number] = body.parameters[stack.number]


# --- The rest ----------------------------------------------------------------


def _warn(module: Module, left: list[Node]) -> None:
  lines = dict.fromkeys(location_text(resolve(node.location)) for node in left)
  shown = "".join(f"\n  {line}" for line in list(lines)[:_NAMED])
  if len(lines) > _NAMED:
    shown += f"\n  and {len(lines) - _NAMED} more"
  logger.warning(
    "program %s puts values into host memory and uses them there: they stay in "
    "SRAM. A value leaves SRAM if all that follows is a jax.device_put back to "
    "the device, or if it is a result.%s",
    module.name,
    shown,
  )
