"""Protects convolutions that MHLO's canonicaliser gets wrong.

It rewrites those without spatial dimensions as products, and splits the groups
of features, or of the batch, in the wrong order. Here they get a spatial
dimension of one element first.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.search import operations
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

CONVOLUTION = "stablehlo.convolution"
_GROUPS = ("feature_group_count", "batch_group_count")


def guard(module: ir.Module) -> None:
  """Adds a dimension to grouped convolutions without spatial dimensions."""
  for operation in operations(module, CONVOLUTION):
    if _is_grouped_product(operation):
      _add_dimension(operation)


def _is_grouped_product(operation: Any) -> bool:
  a = operation.attributes
  numbers = stablehlo.ConvDimensionNumbers(a["dimension_numbers"])
  grouped = any(ir.IntegerAttr(a[name]).value > 1 for name in _GROUPS)
  return grouped and not numbers.input_spatial_dimensions


def _add_dimension(operation: Any) -> None:
  """Changes shapes (a, b) to (a, b, 1)."""
  d = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
  numbers = stablehlo.ConvDimensionNumbers.get(
    d.input_batch_dimension, d.input_feature_dimension, [2],
    d.kernel_input_feature_dimension, d.kernel_output_feature_dimension, [2],
    d.output_batch_dimension, d.output_feature_dimension, [2],
  )  # fmt: skip
  attributes = {
    name: operation.attributes[name] for name in (*_GROUPS, "precision_config")
    if name in operation.attributes
  }  # fmt: skip

  def reshape(value: Any, shape: list[int]) -> Any:
    of = ir.RankedTensorType(value.type).element_type
    return ir.Operation.create(
      "stablehlo.reshape",
      results=[ir.RankedTensorType.get(shape, of)],
      operands=[value],
    ).result

  with ir.InsertionPoint(operation), operation.location:
    old = operation.results[0]
    wide = [
      reshape(v, [*ir.RankedTensorType(v.type).shape, 1])
      for v in operation.operands
    ]
    out = ir.RankedTensorType(old.type)
    made = ir.Operation.create(
      CONVOLUTION,
      results=[ir.RankedTensorType.get([*out.shape, 1], out.element_type)],
      operands=wide,
      attributes={**attributes, "dimension_numbers": numbers},
    ).result
    old.replace_all_uses_with(reshape(made, list(out.shape)))
  operation.erase()
