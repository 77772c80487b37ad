"""Keeps MHLO's folder away from reductions of nothing.

Where all elements of a constant are alike, it takes one for what `and` and `or`
reduce them to, even if there is none.
"""

from __future__ import annotations

from jaxlib.ipu.ir.search import operations
from jaxlib.mlir import ir

REDUCE = "stablehlo.reduce"


def guard(module: ir.Module) -> None:
  """Puts initial values in the place of reductions without elements."""
  for operation in operations(module, REDUCE):
    inputs = len(operation.operands) // 2
    if 0 not in ir.RankedTensorType(operation.operands[0].type).shape:
      continue
    with ir.InsertionPoint(operation), operation.location:
      for old, init in zip(operation.results, [*operation.operands][inputs:]):
        new = ir.Operation.create(
          "stablehlo.broadcast_in_dim",
          results=[old.type],
          operands=[init],
          attributes={"broadcast_dimensions": ir.DenseI64ArrayAttr.get([])},
        )
        old.replace_all_uses_with(new.result)
    operation.erase()
