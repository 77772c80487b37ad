"""Computes equal expensive functions of scalars side by side.

The bias corrections of Adam, `1 - b1**t` and `1 - b2**t`, are one function of
other constants. In a map of scalars one worker computes both, one after the
other, while all tiles wait; in a map over an array of these constants, each has
a worker of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets._profile import profile
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.passes import origins
from jaxlib.ipu.passes.map_parts import in_order_of_use, without
from jaxlib.ipu.target import Target

# The least cycles of the function, in synchronisations of all tiles: its result
# may have to be moved. [G]
_WORTH = 4

_ELEMENT = {
  REGISTER[dtype]: dtype
  for dtype in (
    DType.F32,
    DType.F64,
    DType.I32,
    DType.U32,
    DType.I64,
    DType.U64,
  )
}


class _Part(NamedTuple):
  """A result of a map of scalars, its program and the operands of that."""

  output: int
  code: Code
  number: int
  operands: tuple[int, ...]

  @property
  def kind(self) -> Hashable:
    """Equal for functions that differ in their constants alone."""
    return self.code.abstract, self.number, self.operands


def stack_scalars(graph: Graph, target: Target) -> Graph:
  """Rewrites such maps, regions included."""
  nodes: list[Node] = []
  for node in graph.nodes:
    for region in node.regions:
      stack_scalars(region, target)
    rest: Node | None = node
    if node.op == MAP and len(node.results) > 1:
      if math.prod(node.attributes.shape) == 1:
        rest = _stack(node, target, nodes)
    if rest is not None:
      nodes.append(rest)
  graph.nodes = nodes
  return graph


def _stack(node: Node, target: Target, nodes: list[Node]) -> Node | None:
  """Adds maps for equal functions; returns a map of the others."""
  program: MapProgram = node.attributes
  if any(i.op is Opcode.IOTA for i in program.code):
    return node
  kinds: dict[Hashable, list[_Part]] = defaultdict(list)
  for k, output in enumerate(program.outputs):
    code, (number,), operands = in_order_of_use(program.code, (output,))
    part = _Part(k, code, number, tuple(operands))
    kinds[part.kind].append(part)
  stacked = [
    parts
    for parts in kinds.values()
    if len(parts) > 1 and _is_expensive(node, parts[0], target)
  ]
  if not stacked:
    return node
  rest = without(node, {p.output for parts in stacked for p in parts})
  for parts in stacked:
    _add(node, parts, nodes)
  return rest


def _is_expensive(node: Node, part: _Part, target: Target) -> bool:
  found = profile(
    part.code,
    (part.number,),
    tuple(node.inputs[k].dtype for k in part.operands),
    (node.results[part.output].dtype,),
  )
  cycles = found.per_element.total * target.num_workers
  return cycles >= _WORTH * target.sync_cycles


def _add(node: Node, parts: list[_Part], nodes: list[Node]) -> None:
  """Adds one map for some results of a map of scalars."""
  e = Emitter(nodes, node.location)
  first, shape = parts[0], (len(parts),)
  inputs = [
    e.broadcast_in_dim(e.reshape(node.inputs[k], ()), shape, ())
    for k in first.operands
  ]
  code = Writer()
  values: list[int] = []
  for same in zip(*(part.code for part in parts), strict=True):
    i = same[0]
    if i.op is Opcode.LOAD:
      values.append(code.load(i.imm, inputs[i.imm].dtype))
    elif len({j.imm for j in same}) > 1:
      inputs.append(_constants(e, i.type, [j.imm for j in same]))
      values.append(code.load(len(inputs) - 1, _ELEMENT[i.type]))
    else:
      operands = [values[v] for v in i.operands]
      values.append(code.emit(i.op, i.type, *operands, imm=i.imm))
  type_ = (shape, node.results[first.output].dtype)
  program = MapProgram(shape, code.finish(), (values[first.number],))
  (results,) = e.node(MAP, inputs, [type_], program)
  nodes[-1].origins = origins.of(node)
  for k, part in enumerate(parts):
    value = node.results[part.output]
    one = e.slice(results, [k], [k + 1])
    e.node("stablehlo.reshape", [one], [(value.shape, value.dtype)])
    # Reusing the value avoids updating its users.
    value.node, value.index = nodes[-1], 0
    nodes[-1].results = (value,)


def _constants(e: Emitter, type_: RegisterType, bits: list[int]) -> Value:
  """An array of constants with these bits."""
  numpy = NUMPY[_ELEMENT[type_]]
  data = b"".join(b.to_bytes(8, "little")[: numpy.itemsize] for b in bits)
  return e.constant(np.frombuffer(data, numpy))
