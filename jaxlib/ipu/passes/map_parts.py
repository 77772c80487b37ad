"""Parts of maps: some of a map's results, without the others; and what their
operands are views of."""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer, extract

VIEWS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")


def behind_views(value: Value) -> Value:
  """The value that broadcasts and reshapes make this one of."""
  while value.node is not None and value.node.op in VIEWS:
    value = value.node.inputs[0]
  return value


def in_order_of_use(
  code: Code, outputs: tuple[int, ...]
) -> tuple[Code, tuple[int, ...], list[int]]:
  """As `extract`, with instructions and operands in the order of their first
  use: equal for equal functions, whatever program they are part of."""
  written = Writer()
  operands: list[int] = []
  new: dict[int, int] = {}
  todo = list(reversed(outputs))
  while todo:
    number = todo[-1]
    i = code[number]
    waiting = [v for v in i.operands if v not in new]
    if waiting:
      todo += reversed(waiting)
      continue
    todo.pop()
    if number in new:
      continue
    if i.op is Opcode.LOAD:
      assert i.dtype is not None
      new[number] = written.load(len(operands), i.dtype)
      operands.append(i.imm)
    else:
      read = [new[v] for v in i.operands]
      new[number] = written.emit(i.op, i.type, *read, imm=i.imm)
  numbers = tuple([new[output] for output in outputs])
  return written.finish(), numbers, operands


def without(node: Node, outputs: set[int]) -> Node | None:
  """A map without some of its results; None if it has no others. The values of
  its other results are the same."""
  program: MapProgram = node.attributes
  kept = [k for k in range(len(node.results)) if k not in outputs]
  if not kept:
    return None
  code, numbers, operands = extract(
    program.code, tuple(program.outputs[k] for k in kept)
  )
  rest = Node(
    MAP,
    tuple(node.inputs[k] for k in operands),
    [],
    dataclasses.replace(program, code=code, outputs=numbers),
    location=node.location,
  )
  rest.origins = node.origins
  # Reusing the values avoids updating their users.
  rest.results = tuple(node.results[k] for k in kept)
  for index, value in enumerate(rest.results):
    value.node, value.index = rest, index
  return rest
