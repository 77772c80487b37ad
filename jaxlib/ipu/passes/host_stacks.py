"""Finds stacks of values that scans keep in the host's memory.

A scan that puts a residual there in each iteration writes it to a part of an
array, from which another scan takes it back. If nothing else happens to the
array, it can be a buffer of the host (host_memory.py).
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.graph import Graph, Node, Users, Value
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.ops.markers import PLACEMENT
from jaxlib.ipu.passes.trip_counts import integer, step_of, trip_count


@dataclasses.dataclass(frozen=True)
class Load:
  """A node that takes a value back, and of a stack the part."""

  node: Node
  index: Value | None = None


@dataclasses.dataclass(frozen=True)
class Stack:
  """What a scan writes values to.

  Attributes:
    part: the node that adds a dimension to one.
    update: the node that writes that.
    number: the stack's number among the loop's carried values.
    index: of the part.
    loads: what reads it afterwards.
  """

  part: Node
  update: Node
  number: int
  index: Value
  loads: list[Load]


def is_back(node: Node) -> bool:
  return node.op == PLACEMENT and not node.attributes.endswith("host")


def find_stack(
  node: Node, graph: Graph, loop: Node | None, used: Users
) -> Stack | None:
  """The stack that a node's value becomes a part of, if all else that happens
  to the stack is that loops take parts of it back to the device.

  Args:
    node: puts a value into the host's memory.
    graph: that has the node.
    loop: whose body that is; None: it is no loop's.
    used: the users of all values.
  """
  if loop is None or graph is not loop.regions[-1]:
    return None
  part = _only_user(node.results[0], used)
  if part is None or not _adds_dimension(part):
    return None
  update = _only_user(part.results[0], used)
  if update is None or update.op != "stablehlo.dynamic_update_slice":
    return None
  stack, _, index, *rest = update.inputs
  body = loop.regions[-1]
  places = [i for i, p in enumerate(body.parameters) if p is stack]
  if not places or update.inputs[1] is not part.results[0]:
    return None
  (number,) = places
  if (
    not all(_is_zero(v) for v in rest)
    or body.results[number] is not update.results[0]
    or len(used[id(update.results[0])]) != 1
    or len(used[id(stack)]) != 1
    or used[id(loop.regions[0].parameters[number])]
    or part.results[0].shape != (1, *stack.shape[1:])
    or not all(any(n is m for m in body.nodes) for n in (part, update))
    or not _covers(loop, index, stack.shape[0])
  ):
    return None
  loads = _parts_taken(loop.results[number], used)
  if loads is None:
    return None
  return Stack(part, update, number, index, loads)


def _only_user(value: Value, used: Users) -> Node | None:
  found = used[id(value)]
  return found[0] if len(found) == 1 else None


def _adds_dimension(node: Node) -> bool:
  """Whether the result is the operand with a first dimension of 1."""
  if node.op == "stablehlo.broadcast_in_dim":
    rank = len(node.inputs[0].shape)
    if tuple(node.attributes) != tuple(range(1, rank + 1)):
      return False
  elif node.op != "stablehlo.reshape":
    return False
  return node.results[0].shape == (1, *node.inputs[0].shape)


def _is_zero(value: Value) -> bool:
  node = value.node
  return (
    node is not None
    and node.op == "stablehlo.constant"
    and not node.attributes.any()
  )


def _covers(loop: Node, index: Value, extent: int) -> bool:
  """Whether an index takes all values below `extent` in a loop's iterations."""
  if trip_count(loop) != extent:
    return False
  return _line(index, loop) in ((1, 0), (-1, extent - 1))


def _line(value: Value, loop: Node) -> tuple[int, int] | None:
  """a and b, if the value in iteration i of a loop is a * i + b."""
  body = loop.regions[-1]
  node = value.node
  if node is None:
    places = [i for i, p in enumerate(body.parameters) if p is value]
    if not places:
      return None
    start = integer(loop.inputs[places[0]])
    step = step_of(body.results[places[0]], value)
    return None if start is None or step is None else (step, start)
  if node.op == "stablehlo.constant" and not value.shape:
    return 0, int(node.attributes)
  if node.op == "stablehlo.select":  # counts an index < 0 from the end
    predicate, _, index = node.inputs
    return _line(index, loop) if _is_negative(predicate, index) else None
  if node.op not in ("stablehlo.add", "stablehlo.subtract"):
    return None
  one, other = (_line(v, loop) for v in node.inputs)
  if one is None or other is None:
    return None
  sign = 1 if node.op == "stablehlo.add" else -1
  return one[0] + sign * other[0], one[1] + sign * other[1]


def _is_negative(predicate: Value, value: Value) -> bool:
  """Whether a predicate says that a value is less than zero."""
  node = predicate.node
  return (
    node is not None
    and node.op == "stablehlo.compare"
    and node.attributes.opcode is Opcode.LT
    and node.inputs[0] is value
    and _is_zero(node.inputs[1])
  )


def _parts_taken(stack: Value, used: Users) -> list[Load] | None:
  """What takes parts of a stack back; None if it is used in another way."""
  loads: list[Load] = []
  for user in used[id(stack)]:
    if user is None or user.op != "stablehlo.while":
      return None
    for i, value in enumerate(user.inputs):
      if value is not stack:
        continue
      condition, body = user.regions
      parameter = body.parameters[i]
      if (
        body.results[i] is not parameter
        or used[id(condition.parameters[i])]
        or used[id(user.results[i])]
      ):
        return None
      readers = used[id(parameter)]
      if sum(reader is None for reader in readers) != 1:
        return None  # it is another result, too
      for reader in filter(None, readers):
        found = _part_taken(reader, parameter, used)
        if found is None:
          return None
        loads += found
  return loads


def _part_taken(node: Node, stack: Value, used: Users) -> list[Load] | None:
  if (
    node.op != "stablehlo.dynamic_slice"
    or node.inputs[0] is not stack
    or node.results[0].shape != (1, *stack.shape[1:])
    or not all(_is_zero(v) for v in node.inputs[2:])
  ):
    return None
  reshape = _only_user(node.results[0], used)
  if (
    reshape is None
    or reshape.op != "stablehlo.reshape"
    or reshape.results[0].shape != stack.shape[1:]
  ):
    return None
  loads = []
  for reader in used[id(reshape.results[0])]:
    if reader is None or not is_back(reader):
      return None
    loads.append(Load(reader, node.inputs[1]))
  return loads
