"""Joins equal maps that replace small parameters: an optimiser's updates.

An optimiser updates each parameter by the same function. Small arrays lie on
few tiles, the same ones for all, so their updates would run one after the other
while most tiles wait. One map of all their elements runs on as many tiles as
it has elements for, and parameters lie where it updates them
(lower/consumer_layouts.py).

Maps of which nothing else in the graph reads a result are independent of each
other, unless one of them reads another's result, as an update of a weight does
with its moments: these are stages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Users, Value, users
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.ops.control_flow import REPEAT
from jaxlib.ipu.passes import origins
from jaxlib.ipu.passes.map_parts import behind_views, in_order_of_use, without
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import SMALLEST_BYTES, default_layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# More equal updates are those of a network's many layers, and part of functions
# that the layers share (tile_passes/outline.py). One map of all of them has
# code of its own for each: measured on GPT-2-small, 196 KB instead of 97,
# `python -m benchmarks --code`.
_MOST = 32
# Sums of cycles that are compared have to differ by more. [G]
_CLEARLY = 0.95

Pairs = Sequence[tuple[int, int]]
_LOOPS = (REPEAT, "stablehlo.while")


class _Update(NamedTuple):
  """A part of a map that shares nothing with its other parts but scalars.

  Attributes:
    node: the map.
    outputs: which of its results.
    code: their register program.
    numbers: of the outputs in the code.
    inputs: the operands, of the map's shape or scalars.
  """

  node: Node
  outputs: tuple[int, ...]
  code: Code
  numbers: tuple[int, ...]
  inputs: tuple[Value, ...]

  @property
  def kind(self) -> Hashable:
    """Equal for updates that can be joined."""
    inputs = tuple(
      (v.dtype, None if v.shape == self.shape else id(v)) for v in self.inputs
    )
    return self.code, self.numbers, inputs

  @property
  def shape(self) -> Shape:
    return self.node.attributes.shape

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  def cycles(self, target: Target, shape: Shape, partition: Layout) -> float:
    """Cycles of the update of an array of any shape."""
    dims = [
      tuple(range(len(shape)) if v.shape == self.shape else (-1,) * len(shape))
      for v in self.inputs
    ]
    computing = cost.compute_set(
      target,
      schema.Map(self.code, list(self.numbers)),
      shape,
      partition,
      [v.dtype for v in self.inputs],
      [self.node.results[k].dtype for k in self.outputs],
      Hints().reading(shape, dims),
    )
    return cost.cycles(computing)


def join_updates(graph: Graph, pairs: Pairs, target: Target) -> Graph:
  """Joins them, regions included.

  Args:
    graph: the program's.
    pairs: (parameter, result) numbers: the result replaces the parameter.
    target: the machine.
  """
  if pairs or any(node.op in _LOOPS for node in graph.nodes):
    _join(graph, pairs, target, users(graph))
  return graph


def _join(graph: Graph, pairs: Pairs, target: Target, used_by: Users) -> None:
  for node in graph.nodes:
    for region in node.regions:
      is_body = node.op in _LOOPS and region is node.regions[-1]
      carried = [(i, i) for i in range(len(region.parameters))]
      _join(region, carried if is_body else [], target, used_by)
  stages = _stages(graph, pairs, target, used_by)
  if not stages:
    return
  staged = {id(node) for stage in stages for node in stage}
  graph.nodes = [n for n in graph.nodes if id(n) not in staged]
  writer = _Writer(graph.nodes)
  for stage in stages:
    writer.write(stage, target)
  graph.results = [writer.new.get(v, v) for v in graph.results]


def _stages(
  graph: Graph, pairs: Pairs, target: Target, used_by: Users
) -> list[list[Node]]:
  """The updates of small parameters. Each reads results of earlier stages only,
  and nothing else in the graph reads any of them."""
  if not pairs:
    return []
  replaced = {id(graph.results[j]): graph.parameters[i] for i, j in pairs}
  read_inside = set(map(id, _results_of_regions(graph)))
  updates: set[int] = set()
  for node in reversed(graph.nodes):
    if (
      node.op == MAP
      and _is_small(target, node)
      and all(
        replaced.get(id(value)) in node.inputs
        and id(value) not in read_inside
        and all(u is None or id(u) in updates for u in used_by[id(value)])
        for value in node.results
      )
    ):
      updates.add(id(node))
  stage: dict[int, int] = {}
  stages: list[list[Node]] = []
  for node in graph.nodes:
    if id(node) in updates:
      before = (stage.get(id(v.node), -1) for v in node.inputs)
      stage[id(node)] = number = 1 + max(before, default=-1)
      stages += [[] for _ in range(number + 1 - len(stages))]
      stages[number].append(node)
  return stages


def _results_of_regions(graph: Graph) -> Iterator[Value]:
  for node in graph.nodes:
    for region in node.regions:
      yield from region.results
      yield from _results_of_regions(region)


class _Writer:
  """Adds updates to a graph, joined or as they are.

  Attributes:
    new: what replaces the results of joined updates.
  """

  def __init__(self, nodes: list[Node]) -> None:
    self.new: dict[Value, Value] = {}
    self._nodes = nodes
    self._wholes: dict[tuple[int, ...], Value] = {}  # by their parts

  def write(self, stage: list[Node], target: Target) -> None:
    """Adds the updates of a stage."""
    for node in stage:
      node.inputs = tuple([self.new.get(v, v) for v in node.inputs])
    kinds: dict[Hashable, list[_Update]] = defaultdict(list)
    for node in stage:
      for update in _updates(node):
        kinds[update.kind].append(update)
    found = (_cheapest(target, updates) for updates in kinds.values())
    joined = [f for f in found if f is not None]
    gone: dict[int, set[int]] = defaultdict(set)
    for updates, _ in joined:
      for update in updates:
        gone[id(update.node)].update(update.outputs)
    for node in stage:
      rest = without(node, gone[id(node)]) if id(node) in gone else node
      if rest is not None:
        self._nodes.append(rest)
    for updates, partition in joined:
      self._add(updates, partition)

  def _add(self, updates: list[_Update], partition: Layout) -> None:
    """Adds one map for several updates."""
    first = updates[0]
    e = Emitter(self._nodes, first.node.location)
    (extent,) = shape = (sum(u.size for u in updates),)
    inputs = []
    for k, value in enumerate(first.inputs):
      if value.shape == first.shape:
        inputs.append(self._whole(e, [u.inputs[k] for u in updates]))
      else:
        inputs.append(e.broadcast_in_dim(e.reshape(value, ()), shape, ()))
    program = MapProgram(shape, first.code, first.numbers, partition)
    types = [(shape, first.node.results[k].dtype) for k in first.outputs]
    results = e.node(MAP, inputs, types, program)
    self._nodes[-1].origins = origins.joined(u.node for u in updates)
    begin = 0
    for update in updates:
      end = begin + update.size
      for k, result in zip(update.outputs, results):
        part = e.slice(result, [begin], [end])
        self.new[update.node.results[k]] = e.reshape(part, update.shape)
      begin = end
    assert begin == extent

  def _whole(self, e: Emitter, parts: list[Value]) -> Value:
    """All elements of some arrays, one array after the other."""
    key = tuple(map(id, parts))
    if key not in self._wholes:
      flat = [e.reshape(v, (math.prod(v.shape),)) for v in parts]
      self._wholes[key] = e.concatenate(flat, 0)
    return self._wholes[key]


def _is_small(target: Target, node: Node) -> bool:
  """Whether the default layout of a node's results uses at most half of the
  tiles. Joining larger ones gains little and takes much exchange code."""
  value = node.results[0]
  size = math.prod(value.shape) * SIZE[value.dtype]
  return 0 < size <= SMALLEST_BYTES * target.num_tiles // 2


def _cheapest(
  target: Target, updates: list[_Update]
) -> tuple[list[_Update], Layout] | None:
  """Which of equal updates to join, and the partition of their map; None if
  they take the fewest cycles one by one."""
  if not 2 <= len(updates) <= _MOST:
    return None
  first = updates[0]
  item_bytes = SIZE[first.node.results[first.outputs[0]].dtype]
  alone = {
    shape: first.cycles(
      target, shape, default_layout(target, shape, item_bytes)
    )
    for shape in {u.shape for u in updates}
  }
  best, gain = None, 0.0
  block = _least_block(target, item_bytes)
  most = sum(u.size for u in updates)
  while True:
    # Parts of whole blocks come first: they have tiles of their own.
    updates.sort(key=lambda u: (u.size % block != 0, u.size))
    total, before = 0, 0.0
    for count, update in enumerate(updates, 1):
      total += update.size
      before += alone[update.shape]
      if total > block * target.num_tiles:
        break
      partition = Layout((Factor(total, block, 1),))
      after = first.cycles(target, (total,), partition) + target.sync_cycles
      if count > 1 and after < _CLEARLY * before and before - after > gain:
        best, gain = (updates[:count], partition), before - after
    if block * target.num_tiles >= most:
      return best
    block *= 2


def _updates(node: Node) -> Iterator[_Update]:
  """The parts of a map."""
  program: MapProgram = node.attributes
  code = program.code
  if any(i.op is Opcode.IOTA for i in code):
    return
  is_scalar = [_scalar(v) is not None for v in node.inputs]
  leader = list(range(len(code)))

  def find(i: int) -> int:
    while leader[i] != i:
      i = leader[i]
    return i

  # Instructions that only depend on scalars belong to every part.
  whole = [False] * len(code)
  for number, i in enumerate(code):
    if i.op is Opcode.LOAD:
      whole[number] = not is_scalar[i.imm]
    for operand in i.operands:
      if whole[operand]:
        whole[number] = True
        leader[find(operand)] = number
  parts: dict[int, list[int]] = defaultdict(list)
  for k, output in enumerate(program.outputs):
    if not whole[output]:
      return
    parts[find(output)].append(k)
  for results in parts.values():
    outputs = tuple(program.outputs[k] for k in results)
    code, numbers, operands = in_order_of_use(program.code, outputs)
    inputs = (node.inputs[k] for k in operands)
    yield _Update(
      node,
      tuple(results),
      code,
      numbers,
      tuple(_scalar(v) or v for v in inputs),
    )


def _scalar(value: Value) -> Value | None:
  """The one element that all elements of a value are, as far as views show."""
  source = behind_views(value)
  return source if math.prod(source.shape) == 1 else None


def _least_block(target: Target, item_bytes: int) -> int:
  """Elements that give each worker of a tile a word of its own, about."""
  return max(1, target.data_path_bytes // item_bytes) * 4
