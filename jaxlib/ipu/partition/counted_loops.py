"""Loops that run as often on every device, and values that do not change in
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlib.mlir import ir

# Operations without regions that stay where they are.
_FIXED = (
  "custom_call",
  "infeed",
  "outfeed",
  "send",
  "recv",
  "rng",
  "all_gather",
  "all_to_all",
  "collective_permute",
  "collective_broadcast",
  "get_tuple_element",
  "return",
)


def runs(loop: Any) -> bool:
  """Whether constants say that a `stablehlo.while` runs at least once, and how
  often: it compares a counter that begins with one constant with another."""
  (condition,) = loop.regions[0].blocks
  *_, end = condition.operations
  (decided,) = end.operation.operands
  compare = decided.owner
  if isinstance(compare, ir.Block) or compare.name != "stablehlo.compare":
    return False
  compare = compare.operation
  if "LT" not in str(compare.attributes["comparison_direction"]):
    return False
  counter, bound = compare.operands
  if not isinstance(counter.owner, ir.Block):
    return False
  number = ir.BlockArgument(counter).arg_number
  first, last = _constant(loop.operands[number]), _constant(bound, loop)
  if first is None or last is None or first >= last:
    return False
  (body,) = loop.regions[1].blocks
  *_, end = body.operations
  return _counts(end.operation.operands[number], body.arguments[number])


def _counts(value: Any, counter: Any) -> bool:
  """Whether a value is the sum of a counter and a constant."""
  owner = value.owner
  if isinstance(owner, ir.Block) or owner.name != "stablehlo.add":
    return False
  others = [v for v in owner.operation.operands if v != counter]
  return len(others) == 1 and _constant(others[0]) is not None


def _constant(value: Any, loop: Any = None) -> int | None:
  """A scalar constant; one that a loop only passes on, too."""
  if isinstance(value.owner, ir.Block):
    argument = ir.BlockArgument(value)
    owner = argument.owner.owner
    if loop is None or owner.operation != loop:
      return None
    (body,) = loop.regions[1].blocks
    number = argument.arg_number
    return _constant(loop.operands[number]) if _passes(body, number) else None
  operation = value.owner.operation
  if operation.name != "stablehlo.constant":
    return None
  attribute = operation.attributes["value"]
  if not isinstance(attribute, ir.DenseIntElementsAttr):
    return None
  return int(np.array(attribute).reshape(-1)[0])


def _passes(body: Any, number: int) -> bool:
  """Whether a loop's body returns an argument in its own place."""
  *_, end = body.operations
  return bool(end.operation.operands[number] == body.arguments[number])


def invariant(value: Any, loop: Any, body: Any) -> Callable[[], Any] | None:
  """What makes a value of a loop's body before the loop; None if it changes.

  The operations that it needs are copied, each once, when the function is
  called.
  """
  needed: set[Any] = set()
  todo = [value]
  for used in todo:
    if isinstance(used.owner, ir.Block):
      argument = ir.BlockArgument(used)
      if argument.owner == body and not _passes(body, argument.arg_number):
        return None
      continue
    operation = used.owner.operation
    if operation in needed or not _is_inside(operation, body):
      continue
    name = operation.name.removeprefix("stablehlo.")
    if operation.block != body or name in _FIXED or len(operation.regions):
      return None
    needed.add(operation)
    todo += operation.operands

  def make() -> Any:
    copies: dict[Any, Any] = {}  # by values of the body

    def outside(inner: Any) -> Any:
      if inner not in copies and isinstance(inner.owner, ir.Block):
        argument = ir.BlockArgument(inner)
        if argument.owner == body:
          return loop.operands[argument.arg_number]
      return copies.get(inner, inner)

    for op in list(body.operations):
      if op.operation in needed:
        copy = op.operation.clone(ip=ir.InsertionPoint(loop)).operation
        for i, operand in enumerate(op.operation.operands):
          copy.operands[i] = outside(operand)
        copies |= zip(op.operation.results, copy.results, strict=True)
    return outside(value)

  return make


def _is_inside(operation: Any, body: Any) -> bool:
  while operation.name != "func.func":
    if operation.block == body:
      return True
    operation = operation.parent.operation
  return False
