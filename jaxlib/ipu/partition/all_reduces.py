"""Moves all-reduces out of loops and behind transposes, combines small ones.

All work on StableHLO, so that the text of an executable shows the collectives
that it has. A collective that all devices reach as often as before, or less
often, meets as before: collectives are moved out of a loop only if constants
decide how often it runs, and that is at least once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jaxlib.ipu.partition import counted_loops
from jaxlib.ipu.partition.sizes import bytes_of
from jaxlib.mlir import ir

_ALL_REDUCE = "stablehlo.all_reduce"
_ADD = "stablehlo.add"
_TRANSPOSE = "stablehlo.transpose"
_WHILE = "stablehlo.while"

# Operations without regions that may not be repeated, left out or reordered.
_EFFECTS = (
  "stablehlo.custom_call",
  "stablehlo.infeed",
  "stablehlo.outfeed",
  "stablehlo.send",
  "stablehlo.recv",
)


def optimise(main: Any, is_small: Callable[[Any, int], bool]) -> None:
  """Moves the all-reduces of a function, and combines them.

  - One of a value that does not change in a loop is done before it.
  - If a loop adds the sums over devices to one of its values, and does nothing
    else with it, the sum over devices of all that it adds is done after it.
    Integers are the same bits; floats are added in another order.
  - A transpose of a result is done before: the product that computes a gradient
    then writes it as the update of the weights reads it.
  - Small ones of the same kind that do not depend on each other are one.

  Args:
    main: the function, `func.func`.
    is_small: whether an all-reduce of so many bytes should be combined with
      others; called with one of them and the bytes of all.
  """
  (block,) = main.regions[0].blocks
  _leave_loops(block)
  for inner in [block, *_blocks_in(block)]:
    _transpose_before(inner)
    _combine(inner, is_small)


def _blocks_in(block: Any) -> Iterator[Any]:
  for op in block.operations:
    if op.operation.name != _ALL_REDUCE:
      for region in op.operation.regions:
        for inner in region.blocks:
          yield inner
          yield from _blocks_in(inner)


# --- Loops -------------------------------------------------------------------


def _leave_loops(block: Any) -> None:
  """Moves all-reduces out of the counted loops of a block, inner ones first."""
  for op in list(block.operations):
    loop = op.operation
    if loop.name == _WHILE and counted_loops.runs(loop):
      (body,) = loop.regions[1].blocks
      _leave_loops(body)
      for inner in list(body.operations):
        if inner.operation.name == _ALL_REDUCE:
          _move(inner.operation, loop, body)


def _move(reduce: Any, loop: Any, body: Any) -> None:
  if len(reduce.operands) != 1:
    return
  (operand,) = reduce.operands
  outside = counted_loops.invariant(operand, loop, body)
  if outside is not None:
    before = _copy(reduce, outside(), ir.InsertionPoint(loop))
    reduce.results[0].replace_all_uses_with(before)
    reduce.erase()
    return
  number = _accumulates(reduce, loop, body)
  if number is None:
    return
  reduce.results[0].replace_all_uses_with(operand)
  first, total = loop.operands[number], loop.results[number]
  with loop.location:
    with ir.InsertionPoint(loop):
      loop.operands[number] = _zeros(first.type)
    uses = list(total.uses)
    after = loop.block.operations[_index(loop) + 1]
    point = ir.InsertionPoint(after)
    moved = _copy(reduce, total, point)
    with point:
      final = ir.Operation.create(_ADD, [first.type], [first, moved]).result
  for use in uses:
    use.owner.operation.operands[use.operand_number] = final
  reduce.erase()


def _accumulates(reduce: Any, loop: Any, body: Any) -> int | None:
  """The number of the loop's value that an all-reduce is only added to."""
  users = list(reduce.results[0].uses)
  (inner,) = reduce.regions[0].blocks
  if _kind(inner) != _ADD or len(users) != 1:
    return None
  add = users[0].owner.operation
  if add.name != _ADD or add.block != body:
    return None
  other = add.operands[1 - users[0].operand_number]
  result_uses = list(add.results[0].uses)
  if not isinstance(other.owner, ir.Block) or len(result_uses) != 1:
    return None
  argument = ir.BlockArgument(other)
  end = result_uses[0].owner.operation
  number = argument.arg_number
  (condition,) = loop.regions[0].blocks
  if (
    argument.owner == body
    and len(list(other.uses)) == 1
    and end.name == "stablehlo.return"
    and end.block == body
    and result_uses[0].operand_number == number
    and not list(condition.arguments[number].uses)
  ):
    return int(number)
  return None


def _kind(region: Any) -> str:
  """The operation of a region of one operation of its arguments."""
  first, *rest = (op.operation for op in region.operations)
  arguments = sorted(a.arg_number for a in map(_argument, first.operands) if a)
  one = len(rest) == 1 and list(rest[0].operands) == list(first.results)
  return first.name if one and arguments == [0, 1] else ""


def _argument(value: Any) -> Any:
  is_argument = isinstance(value.owner, ir.Block)
  return ir.BlockArgument(value) if is_argument else None


def _copy(reduce: Any, operand: Any, point: Any) -> Any:
  copy = reduce.clone(ip=point).operation
  copy.operands[0] = operand
  return copy.results[0]


def _zeros(type_: Any) -> Any:
  element = type_.element_type
  if isinstance(element, ir.ComplexType):
    # MLIR's Python bindings have no attributes of complex numbers.
    part = _zeros(ir.RankedTensorType.get(type_.shape, element.element_type))
    return ir.Operation.create(
      "stablehlo.complex", [type_], [part, part]
    ).result
  is_float = isinstance(element, ir.FloatType)
  zero = (ir.FloatAttr if is_float else ir.IntegerAttr).get(element, 0)
  value = ir.DenseElementsAttr.get_splat(type_, zero)
  return ir.Operation.create(
    "stablehlo.constant", [type_], [], {"value": value}
  ).result


def _index(operation: Any) -> int:
  for i, op in enumerate(operation.block.operations):
    if op.operation == operation:
      return i
  raise ValueError("an operation is not in its block")


# --- Transposes --------------------------------------------------------------


def _transpose_before(block: Any) -> None:
  """Exchanges all-reduces and the transposes of their results."""
  for op in list(block.operations):
    reduce = op.operation
    if reduce.name != _ALL_REDUCE or len(reduce.operands) != 1:
      continue
    uses = list(reduce.results[0].uses)
    transpose = uses[0].owner.operation if len(uses) == 1 else None
    if transpose is None or transpose.name != _TRANSPOSE:
      continue
    if transpose.block != block:
      continue  # in a branch or a loop
    (operand,) = reduce.operands
    reduced = transpose.results[0]
    before = transpose.clone(ip=ir.InsertionPoint(reduce)).operation
    before.operands[0] = operand
    with ir.InsertionPoint(reduce), reduce.location:
      after = ir.Operation.create(
        _ALL_REDUCE,
        [reduced.type],
        before.results,
        {name: reduce.attributes[name] for name in reduce.attributes},
        regions=1,
      )
    reduce.regions[0].blocks[0].append_to(after.regions[0])
    reduced.replace_all_uses_with(after.results[0])
    transpose.erase()
    reduce.erase()


# --- Combining ---------------------------------------------------------------


def _combine(block: Any, is_small: Callable[[Any, int], bool]) -> None:
  """Combines the small all-reduces of a block that are on the same level: as
  many others are on the way to them."""
  small = {
    op.operation
    for op in block.operations
    if op.operation.name == _ALL_REDUCE
    and len(op.operation.operands) == 1
    and is_small(op.operation, bytes_of(op.operation.results[0].type))
  }
  if len(small) < 2:
    return
  levels = _levels(block, small)
  groups = defaultdict(list)
  for op in (o.operation for o in block.operations):
    if op in small:
      groups[levels[op], *_key(op)].append(op)
  chosen = [
    part for group in groups.values() for part in _parts(group, is_small)
  ]
  if not chosen:
    return
  # Everything on a level comes before its all-reduces, and those before what
  # is on the next level.
  *order, end = (op.operation for op in block.operations)
  order.sort(key=lambda op: 2 * levels[op] + (op in small))
  for op in order:
    op.move_before(end)
  for part in chosen:
    _merge(part)


def _parts(
  group: list[Any], is_small: Callable[[Any, int], bool]
) -> Iterator[list[Any]]:
  """Splits a group where combining more would not be worth it."""
  part: list[Any] = []
  size = 0
  for op in group:
    if part and not is_small(op, size + bytes_of(op.results[0].type)):
      if len(part) > 1:
        yield part
      part, size = [], 0
    part.append(op)
    size += bytes_of(op.results[0].type)
  if len(part) > 1:
    yield part


def _levels(block: Any, small: set[Any]) -> dict[Any, int]:
  """For each operation, how many of `small` are on the longest way to it."""
  levels: dict[Any, int] = {}
  last_effect = 0
  for op in block.operations:
    inner = list(_all_in(op.operation))
    level = 0
    for value in itertools.chain.from_iterable(o.operands for o in inner):
      owner = value.owner
      if isinstance(owner, ir.Block):
        continue
      owner = owner.operation
      if owner in levels:
        level = max(level, levels[owner] + (owner in small))
    if any(o.name in _EFFECTS for o in inner):
      level = last_effect = max(level, last_effect)
    levels[op.operation] = level
  return levels


def _all_in(operation: Any) -> Iterable[Any]:
  """An operation, and those in its regions."""
  yield operation
  for region in operation.regions:
    for block in region.blocks:
      for op in block.operations:
        yield from _all_in(op.operation)


def _key(reduce: Any) -> tuple[Any, ...]:
  """Equal for all-reduces that can be one."""
  (inner,) = reduce.regions[0].blocks
  attributes = {
    name: str(reduce.attributes[name])
    for name in reduce.attributes
    if name != "channel_handle"
  }
  return (
    str(reduce.results[0].type.element_type),
    _kind(inner) or id(reduce),
    tuple(sorted(attributes.items())),
  )


def _merge(group: list[Any]) -> None:
  """Makes one all-reduce of several with nothing but each other between."""
  first = group[0]
  where = ir.Location.fused([op.location for op in group])
  types = [op.results[0].type for op in group]
  operands = [op.operands[0] for op in group]
  attributes = {name: first.attributes[name] for name in first.attributes}
  with ir.InsertionPoint(group[-1]), where:
    merged = ir.Operation.create(
      _ALL_REDUCE, types, operands, attributes, regions=1
    )
  first.regions[0].blocks[0].append_to(merged.regions[0])
  for op, result in zip(group, merged.results, strict=True):
    op.results[0].replace_all_uses_with(result)
    op.erase()
