"""Tile mappings of arguments and loop state, chosen for their consumers.

By default an array has the layout that its shape and type imply
(plan/default_layout.py), and every product that needs another one pays for an
exchange in every run. A weight that a product reads, each element on exactly
one tile, does not have to move at all if it is laid out for that product.

Arrays keep their layout between programs (runtime/pjrt/array_layouts.h). If an
argument arrives in another layout than its program expects, the run begins with
moving it, at a cost stated in the program (`schema.ArrayLayout`), and the array
stays there. So weights move once; donated state, whose results have the layouts
of the arguments that they replace, moves before the first step only. State
carried by a loop moves before the loop.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import (
  CALL,
  Graph,
  Module,
  Node,
  Shape,
  Users,
  Value,
  users,
)
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.ir.registry import REGISTRY, Operation
from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import (
  COARSER,
  SMALLEST_BYTES,
  default_layout,
)
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.tensor import dense_strides
from jaxlib.ipu.tile.view import View

# The fullest tile may hold this many times its default share of a read-only
# array. Updated arrays take part in element-wise work, which needs an even
# distribution (COARSER). [G]
_FULLER = 2.0

# Smaller gains are within the error of comparing operations one by one. [G]
_CLEARLY = 0.97

# Moving the array has to pay off within so many runs. [G]
_PAID_BACK = 10

_LOOPS = ("ipu.repeat", "stablehlo.while")

# (parameter, result) numbers of a graph: the result replaces the parameter.
_Pairs = Sequence[tuple[int, int]]


def for_arguments(target: Target, module: Module) -> dict[int, Layout]:
  """The layouts of the arguments that do not get the default one, by number.

  Arguments whose memory the run consumes keep the default layout: otherwise
  they would move in every run.
  """
  placed = {i for is_result, i in module.placements if not is_result}
  ignored = placed.union(module.donors)
  pairs = [(i, j) for i, j in module.aliases if i not in ignored]
  return {
    **_choose(target, module.graph, module.aliases, ignored),
    **_of_joined_updates(module.graph, pairs),
  }


def for_loop(target: Target, body: Graph) -> dict[int, Layout]:
  """The layouts of the values that a loop carries and changes, if they do not
  get the default one, by number."""
  numbers = range(len(body.parameters))
  changed = [i for i in numbers if body.results[i] is not body.parameters[i]]
  ignored = set(numbers).difference(changed)
  pairs = [(i, i) for i in changed]
  return {
    **_choose(target, body, pairs, ignored),
    **_of_joined_updates(body, pairs),
  }


def _of_joined_updates(graph: Graph, pairs: _Pairs) -> dict[int, Layout]:
  """The layouts of parameters that joined updates replace where they are
  computed (passes/join_updates.py)."""
  found: dict[int, Layout] = {}
  for i, j in pairs:
    node = graph.results[j].node
    if node is not None and node.op == "stablehlo.reshape":
      node = node.inputs[0].node
    if node is None or node.op != "stablehlo.slice":
      continue
    source, begin = node.inputs[0].node, node.attributes[0][0]
    if source is None or source.op != MAP:
      continue
    partition = source.attributes.partition
    if partition is not None:
      ((_, block, stride),) = partition.factors
      size = math.prod(node.results[0].shape)
      tile, inside = divmod(begin, block)
      if inside == 0 or inside + size <= block:
        found[i] = Layout((Factor(size, block, stride),), base=tile * stride)
  return found


def has_other_readers(
  graph: Graph, pairs: _Pairs, chosen: Collection[int]
) -> bool:
  """Whether any operation reads a parameter in `chosen` whose cycles were not
  part of the comparison of layouts. Then only lowering the program with and
  without these layouts shows whether they pay.

  The comparison covers operations with preferences, such as products; maps that
  compute the results of `pairs`; and maps of which all operands are parameters,
  scalars or results of operations with preferences. Parameters of joined
  updates are small: others read them by an exchange in any case.
  """
  used_by = users(graph)
  updates = {id(graph.results[j].node) for _, j in pairs}
  for i in set(chosen).difference(_of_joined_updates(graph, pairs)):
    value = graph.parameters[i]
    todo = [(value, _whole(value))]
    while todo:
      read, view = todo.pop()
      for node in used_by[id(read)]:
        if node is None:
          if read is not value:
            return True
          continue
        if _has_preferences(node):
          continue
        same = list(_same_elements(node, read, view))
        updated = node.op == MAP and (
          id(node) in updates
          or all(
            v.node is None or not v.shape or _has_preferences(v.node)
            for v in node.inputs
          )
        )
        if not same and not updated:
          return True
        todo += same
  return False


def _has_preferences(node: Node | None) -> bool:
  """Whether a node's operation prefers layouts for its operands."""
  operation = REGISTRY.get(node.op) if node is not None else None
  return operation is not None and operation.prefers is not None


def _choose(
  target: Target, graph: Graph, pairs: _Pairs, ignored: Collection[int]
) -> dict[int, Layout]:
  large = {
    i: value
    for i, value in enumerate(graph.parameters)
    if i not in ignored and _is_large(target, value)
  }
  if not large:
    return {}
  used_by = users(graph)
  updated = {i for i, _ in pairs}
  chosen: dict[int, Layout] = {}
  known: dict[Any, Layout | None] = {}
  for group in _groups(graph, pairs, large, used_by):
    fuller = _FULLER if updated.isdisjoint(group) else COARSER
    values = [large[i] for i in group]
    replacing = [graph.results[j] for i, j in pairs if i in group]
    alongside = _alongside(values, replacing, used_by)
    same = [key for value in values for key in _reader_keys(value, used_by)]
    key = _types(values), _types(alongside), fuller, *same
    if key not in known:
      consumers = [c for value in values for c in _consumers(value, used_by)]
      known[key] = _cheapest(target, values, alongside, fuller, consumers)
    layout = known[key]
    if layout is not None:
      chosen.update(dict.fromkeys(group, layout))
  return chosen


def _is_large(target: Target, value: Value) -> bool:
  """Whether the default layout uses all tiles. Only then can an exchange cost
  much more than its synchronisation."""
  size = math.prod(value.shape) * SIZE[value.dtype]
  return len(value.shape) > 1 and size >= SMALLEST_BYTES * target.num_tiles


def _groups(
  graph: Graph, pairs: _Pairs, large: dict[int, Value], used_by: Users
) -> list[list[int]]:
  """Groups parameters that must share a layout: those of one shape that are
  updated by the same map, as weights and an optimiser's moments are, and those
  that replace each other, such as the state of two time steps."""
  parent = {i: i for i in large}

  def find(i: int) -> int:
    while parent[i] != i:
      i = parent[i]
    return i

  numbers = {id(value): i for i, value in large.items()}
  updates: dict[int, list[int]] = defaultdict(list)
  for i, j in pairs:
    if i not in large:
      continue
    replacing = graph.results[j]
    if id(replacing) in numbers:
      parent[find(numbers[id(replacing)])] = find(i)
    elif replacing.node is not None and replacing.node.op == MAP:
      updates[id(replacing.node)].append(i)
  for i, value in large.items():
    for node in used_by[id(value)]:
      for other in updates.get(id(node), ()):
        if large[other].shape == value.shape:
          parent[find(other)] = find(i)
  groups: dict[int, list[int]] = defaultdict(list)
  for i in large:
    groups[find(i)].append(i)
  return list(groups.values())


def _alongside(
  values: list[Value], replacing: list[Value], used_by: Users
) -> list[Value]:
  """Other parameters and results of the same shape that are operands or results
  of maps over the parameters `values`. They are not among `values`, nor among
  the results `replacing` that take their place."""
  own = {id(value) for value in (*values, *replacing)}
  found = {}
  for value in values:
    for node in used_by[id(value)]:
      if node is None or node.op != MAP:
        continue
      read = [v for v in node.inputs if v.node is None]
      made = [v for v in node.results if None in used_by[id(v)]]
      for v in (*read, *made):
        if v.shape == value.shape and id(v) not in own:
          found[id(v)] = v
  return list(found.values())


def _cheapest(
  target: Target,
  values: list[Value],
  alongside: list[Value],
  fuller: float,
  consumers: Sequence[_Consumer],
) -> Layout | None:
  """The layout with which the consumers of some arrays take the fewest cycles;
  None for the default one. The arrays `alongside` them that maps read and write
  have their default layout, so each has to be moved for every map.

  Layouts with replicas are not considered: the array would still be exchanged.
  Splitting each block among its replicas was tried. It saved 0 to 3 % of the
  cycles of products with few rows and none of training steps, and also applied
  to input data, which are new in each run.
  """
  usual = default_layout(target, values[0].shape, SIZE[values[0].dtype])
  layouts = [
    layout
    for layout in dict.fromkeys(c.preferred(target) for c in consumers)
    if layout is not None
    and not layout.replicas
    and layout != usual
    and layout.num_elements == usual.num_elements
    and layout.max_elements <= fuller * usual.max_elements
  ]
  if not layouts:
    return None

  cycles = {
    layout: sum(c.cycles(target, layout) for c in consumers)
    for layout in (usual, *layouts)
  }
  for layout in layouts:
    for v in alongside:
      there = default_layout(target, v.shape, SIZE[v.dtype])
      moved = moving_cost(target, v.shape, v.dtype, there, layout)
      cycles[layout] += cost.cycles(moved)
  best = min(layouts, key=lambda layout: cycles[layout])
  before, after = cycles[usual], cycles[best]
  if after >= _CLEARLY * before:
    return None
  moving = sum(
    cost.cycles(moving_cost(target, value.shape, value.dtype, usual, best))
    for value in values
  )
  return best if moving < _PAID_BACK * (before - after) else None


def moving_cost(
  target: Target, shape: Shape, dtype: DType, here: Layout, there: Layout
) -> schema.Cost:
  """The cost of moving an array from mapping `here` to mapping `there`."""
  strides, size = dense_strides(shape), SIZE[dtype]
  ends = MoveEnd(here, 0, strides), MoveEnd(there, 0, strides)
  return cost.exchange(target, [move_traffic(*ends, shape, size, False)])


class _Consumer(NamedTuple):
  """An operation that reads a view of an array as one of its operands."""

  operation: Operation
  node: Node
  number: int
  view: View

  @property
  def key(self) -> tuple[Any, ...]:
    """Equal for operations that answer alike."""
    node = self.node
    types = _types(node.inputs), _types(node.results)
    return node.op, node.attributes, self.number, self.view, *types

  def preferred(self, target: Target) -> Layout | None:
    assert self.operation.prefers is not None
    return self.operation.prefers(target, self.node, self.number, self.view)

  def cycles(self, target: Target, layout: Layout) -> float:
    assert self.operation.cycles_with is not None
    return self.operation.cycles_with(
      target, self.node, self.number, self.view, layout
    )


def _types(values: Sequence[Value]) -> tuple[tuple[Shape, DType], ...]:
  return tuple([(v.shape, v.dtype) for v in values])


def _reader_keys(value: Value, used_by: Users) -> Iterator[Hashable]:
  """Equal for arrays with consumers that answer alike, which layers of a
  network have: where functions that they call get the array, or else its
  consumers."""
  readers = dict.fromkeys(used_by[id(value)])
  if any(node is not None and node.op != CALL for node in readers):
    yield from (c.key for c in _consumers(value, used_by))
    return
  for node in readers:
    if node is not None:
      function = id(node.attributes.function.graph)
      yield from (
        (function, i) for i, v in enumerate(node.inputs) if v is value
      )


def _consumers(value: Value, used_by: Users) -> Iterator[_Consumer]:
  """The operations with preferences that read an array. They may read it
  through transposes, reshapes, conversions and loops that do not change it."""
  todo = [(value, _whole(value))]
  while todo:
    read, view = todo.pop(0)
    for node in dict.fromkeys(used_by[id(read)]):
      if node is None:
        continue
      if _has_preferences(node):
        for i, operand in enumerate(node.inputs):
          if operand is read:
            yield _Consumer(REGISTRY[node.op], node, i, view)
      todo += _same_elements(node, read, view)


def _whole(value: Value) -> View:
  """A view of all of a value, whatever its root is."""
  strides = dense_strides(value.shape)
  return View(-1, 0, strides, value.shape, value.dtype)


def _same_elements(
  node: Node, read: Value, view: View
) -> Iterator[tuple[Value, View]]:
  """Yields the results of a node, or the parameters of a loop's body or of a
  function, that hold the elements of its operand `read` in the same places.
  `view` has the elements of the array that `read` holds; each result is yielded
  with its own such view.
  """
  if node.op == "stablehlo.transpose":
    yield node.results[0], view.transpose(node.attributes)
  elif node.op == "stablehlo.reshape":
    reshaped = view.reshape(node.results[0].shape)
    if reshaped is not None:
      yield node.results[0], reshaped
  elif node.op == MAP:
    # For example a conversion: a map is computed where its only array is.
    if all(v is read or not v.shape for v in node.inputs):
      for result in node.results:
        if result.shape == read.shape:
          yield result, view._replace(dtype=result.dtype)
  elif node.op in _LOOPS:
    body: Graph = node.regions[-1]
    for i, operand in enumerate(node.inputs):
      if operand is read and body.results[i] is body.parameters[i]:
        yield body.parameters[i], view
  elif node.op == CALL:
    parameters = node.attributes.function.graph.parameters
    for i, operand in enumerate(node.inputs):
      if operand is read:
        yield parameters[i], view
