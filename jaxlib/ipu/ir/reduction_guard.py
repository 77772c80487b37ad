"""Protects reductions without elements from MHLO's folder.

If all elements of a constant are equal, it takes one of them for the result of
`and` and `or`, even if there is none.
"""

from __future__ import annotations

from jaxlib.ipu.ir.search import operations
from jaxlib.mlir import ir

REDUCE = "stablehlo.reduce"


def guard(module: ir.Module) -> None:
  """Replaces reductions without elements by their initial values."""
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
