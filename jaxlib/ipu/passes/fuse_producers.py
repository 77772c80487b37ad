"""Fuses register programs into the reductions that use them.

`sum(x * x)` then reads x once and stores no product. A value that several
reductions use is stored. Values that have to be stored anyway are read, not
recomputed: in a variance `x - mean` is, and the reduction squares it. In a
softmax of halves, what is divided is also what is summed, as f32.

A sum in f32 that is rounded to a narrower type, as in JAX's sums of these, is
stored in that type by the reduction itself.
"""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._monoids import identity
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.attributes import Reduction
from jaxlib.ipu.ir.graph import Graph, Node, Users, Value, users
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.kernel.element_types import NARROW, REGISTER
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import extract
from jaxlib.ipu.ops.reduce import REDUCE
from jaxlib.ipu.passes import origins
from jaxlib.ipu.passes.map_parts import without

# Maximum cost of computing a value in a reduction, beside a map that computes
# others from the same operands, in simple instructions, to save the SRAM of all
# its elements; a guess.
CHEAP = 16
# Maximum operands of full size that this may read; a guess: with more of them,
# the value takes less SRAM than they do.
FEW_OPERANDS = 2


def fuse_producers(graph: Graph) -> Graph:
  """Rewrites such reductions, regions included."""
  _fuse(graph, users(graph))
  return graph


def _fuse(graph: Graph, used_by: Users) -> None:
  # A map outside a loop stays outside, where it runs once.
  here = {id(n) for n in graph.nodes if n.op == MAP}
  for index, node in enumerate(graph.nodes):
    for region in node.regions:
      _fuse(region, used_by)
    if node.op == REDUCE and _worthwhile(node, used_by, here):
      graph.nodes[index] = _merge(node, used_by)
  rounded: set[int] = set()
  for node in graph.nodes:
    if node.op == REDUCE:
      rounding = _rounding(node, used_by)
      if rounding is not None and id(rounding) in here:
        rounded.add(id(rounding))
        node.results = rounding.results
        for value in node.results:
          value.node = node
  graph.nodes = [
    _prune(n, used_by) if n.op == MAP else n
    for n in graph.nodes
    if id(n) not in rounded
  ]


def _data(node: Node) -> tuple[Value, ...]:
  """The reduced inputs; an arg-reduction may make its indices itself."""
  return node.inputs[: -len(node.results)]


def _worthwhile(node: Node, used_by: Users, maps: set[int]) -> bool:
  """Whether a reduction's inputs all come from one of these maps, it is their
  only user, and they are cheap or all that the map computes. Measured: two
  reductions of a value take 1.26 times the cycles if it is computed in 2
  instructions in each of them, and 1.7 times in 16."""
  data = _data(node)
  source = data[0].node
  if source is None or id(source) not in maps:
    return False
  if any(v.node is not source for v in data):
    return False
  if all(data[0].shape[d] == 1 for d in node.attributes.dimensions):
    return False  # a reshape
  if any(u is not node for v in data for u in used_by[id(v)]):
    return False
  if {*data} == {*source.results}:
    return True
  code, _, inputs = _computing(data, used_by)
  weight = sum(i.op.row.weight for i in code)
  size = math.prod(source.attributes.shape)
  large = sum(math.prod(v.shape) == size for v in inputs)
  return weight <= CHEAP and large <= FEW_OPERANDS


def _merge(node: Node, used_by: Users) -> Node:
  data = _data(node)
  source = data[0].node
  assert source is not None
  code, outputs, inputs = _computing(data, used_by)
  merged = Node(
    node.op,
    inputs + node.inputs[len(data) :],
    [],
    Reduction(
      node.attributes.dimensions,
      MapProgram(source.attributes.shape, code, outputs),
    ),
    node.regions,
    node.location,
  )
  merged.origins = origins.joined((node, source))
  # Reusing the values avoids updating their users.
  merged.results = node.results
  for value in merged.results:
    value.node = merged
  for value in data:
    used_by[id(value)].remove(node)
  for value in merged.inputs:
    used_by[id(value)].append(merged)
  return merged


def _computing(
  data: tuple[Value, ...], used_by: Users
) -> tuple[Code, tuple[int, ...], tuple[Value, ...]]:
  """The program of some of a map's results, their numbers in it, and its
  inputs: among these other results of the map that are stored anyway."""
  source = data[0].node
  assert source is not None
  program: MapProgram = source.attributes
  inputs = list(source.inputs)
  instructions = list(program.code)
  numbers = tuple(program.outputs[v.index] for v in data)
  for value in source.results:
    number = program.outputs[value.index]
    if value in data or instructions[number].op <= Opcode.BITCAST:
      continue  # what is computed, or as cheap as a load
    if any(u is None or u.op != REDUCE for u in used_by[id(value)]):
      instructions[number] = Instruction(
        Opcode.LOAD, REGISTER[value.dtype], (), len(inputs), value.dtype
      )
      inputs.append(value)
  code, outputs, operands = extract(Code(instructions), numbers)
  return code, outputs, tuple(inputs[o] for o in operands)


def _rounding(node: Node, used_by: Users) -> Node | None:
  """The map that only rounds a sum and is its only user; None if there is
  none."""
  if len(node.results) != 1 or node.results[0].dtype is not DType.F32:
    return None
  prologue = node.attributes.prologue
  shape = prologue.shape if prologue else node.inputs[0].shape
  extents = [shape[d] for d in node.attributes.dimensions]
  # Sums of at most one element are reshapes or start values: nothing rounds.
  if 0 in extents or (prologue is None and max(extents, default=1) == 1):
    return None
  (user, *others) = used_by[id(node.results[0])] or [None]
  if user is None or others or user.op != MAP or len(user.inputs) != 1:
    return None
  ops = [i.op for i in user.attributes.code]
  narrow = NARROW.get(user.results[0].dtype)
  if ops != [Opcode.LOAD, narrow] or user.attributes.outputs != (1,):
    return None
  kind = monoid(node.regions[0])
  init = node.inputs[-1].node
  if kind is None or init is None or init.op != "stablehlo.constant":
    return None
  start = identity(kind, NUMPY[DType.F32])
  return user if init.attributes.flat[0] == start else None


def _prune(node: Node, used_by: Users) -> Node:
  """A map without its unused results."""
  unused = {v.index for v in node.results if not used_by[id(v)]}
  # If none is used, `dce` removes the node.
  return (without(node, unused) or node) if unused else node
