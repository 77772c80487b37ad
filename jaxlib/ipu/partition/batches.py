"""Linear algebra on a batch of matrices that is split over devices.

Each device decomposes its own matrices: XLA's partitioner splits such calls if
their targets are registered and an attribute says how many dimensions are those
of the batch. Shardy passes on shardings by a rule.
"""

from __future__ import annotations

import itertools
from typing import Any

from jaxlib.mlir import ir

# Calls whose first operand is of matrices, whose leading dimensions all
# operands and results have. Exported programs contain our names, so the
# operands and results of each must not change.
OUR_TARGETS = (
  "ipu_eigh",
  "ipu_gehrd",
  "ipu_geqp3",
  "ipu_lu",
  "ipu_svd",
  "ipu_sytrd_lower",
  "ipu_sytrd_upper",
)
# XLA's have these names while it splits them: without layouts, which it asks
# of registered calls, they come from elsewhere, too.
NAMES = {
  name: f"ipu_{name}"
  for name in ("Qr", "ProductOfElementaryHouseholderReflectors")
}
TARGETS = (*OUR_TARGETS, *NAMES.values())

_TARGET, _RULE, _OF_XLA = (
  "call_target_name",
  "sdy.sharding_rule",
  "mhlo.frontend_attributes",
)


def mark(module: ir.Module) -> None:
  """Says of each decomposition which dimensions are those of the batch."""

  def write(operation: Any) -> Any:
    if operation.name == "stablehlo.custom_call":
      attributes = operation.attributes
      target = ir.StringAttr(attributes[_TARGET]).value
      if target in TARGETS:
        batch = operation.operands[0].type.rank - 2
        attributes[_RULE] = ir.Attribute.parse(_rule(operation, batch))
        given = attributes[_OF_XLA] if _OF_XLA in attributes else {}
        of_xla = {a.name: a.attr for a in given}
        of_xla["num_batch_dims"] = ir.StringAttr.get(str(batch))
        attributes[_OF_XLA] = ir.DictAttr.get(of_xla)
        for name, values in (
          ("operand_layouts", operation.operands),
          ("result_layouts", operation.results),
        ):
          if name not in attributes:
            attributes[name] = ir.ArrayAttr.get([*map(_row_major, values)])
    return ir.WalkResult.ADVANCE

  module.operation.walk(write)


def _row_major(value: Any) -> ir.Attribute:
  order = list(reversed(range(value.type.rank)))
  index = f"tensor<{len(order)}xindex>"
  return ir.Attribute.parse(f"dense<{order}> : {index}")


def _rule(operation: Any, batch: int) -> str:
  """Factors of the batch's dimensions, and one for each of the others."""
  sizes = list(operation.operands[0].type.shape[:batch])
  others = itertools.count(batch)

  def dims(values: Any) -> str:
    texts = []
    for value in values:
      shape = value.type.shape
      own = list(itertools.islice(others, len(shape) - batch))
      sizes.extend(shape[batch:])
      texts.append(f"[{', '.join(map(_symbol, [*range(batch), *own]))}]")
    return ", ".join(texts)

  maps = f"({dims(operation.operands)})->({dims(operation.results)})"
  extents = ", ".join(f"{_symbol(i)}={size}" for i, size in enumerate(sizes))
  return f"#sdy.op_sharding_rule<{maps} {{{extents}}}, custom>"


def _symbol(number: int) -> str:
  """Shardy's name of a factor: i to z, z_1, z_2 and so on."""
  letters = "ijklmnopqrstuvwxyz"
  if number < len(letters):
    return letters[number]
  return f"z_{number - len(letters) + 1}"
