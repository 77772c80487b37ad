"""Protects scatters that MHLO's folder cannot evaluate.

`mhlo.scatter`'s folder runs the update computation on constants by folding its
operations in place. If a value is not a constant (one from outside the region,
or a step that does not fold) a commutative operation swaps its operands instead
of giving a result: the folder then reads a missing result, and the
canonicaliser swaps the operands back and folds the scatter again, forever. It
also reads the first element of empty indices and updates, and takes every
update computation of one operation for a plain replacement.

The folder only looks at scatters with constant indices; a barrier, which
computes nothing, hides that they are constant.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.search import operations
from jaxlib.mlir import ir

SCATTER = "stablehlo.scatter"


def guard(module: ir.Module) -> None:
  """Puts the indices of such scatters behind an `optimization_barrier`."""
  for operation in operations(module, SCATTER):
    if _folds_rightly(operation):
      continue
    place = len(operation.operands) // 2
    indices = operation.operands[place]
    barrier = ir.Operation.create(
      "stablehlo.optimization_barrier",
      results=[indices.type],
      operands=[indices],
      loc=operation.location,
      ip=ir.InsertionPoint(operation),
    )
    operation.operands[place] = barrier.result


def _folds_rightly(scatter: Any) -> bool:
  """Whether an update is the new element, or one operation on both."""
  if any(0 in operand.type.shape for operand in scatter.operands):
    return False
  block = scatter.regions[0].blocks[0]
  arguments = list(block.arguments)
  *body, end = block.operations
  if len(arguments) != 2:
    return True  # several operands: never folded
  returned = end.operands[0]
  if not body:
    return bool(returned == arguments[1])
  return (
    len(body) == 1
    and returned == body[0].operation.results[0]
    and all(value in arguments for value in body[0].operands)
  )
