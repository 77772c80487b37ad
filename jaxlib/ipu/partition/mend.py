"""Repairs what XLA's conversion of HLO to StableHLO leaves unfinished."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import internal, unimplemented
from jaxlib.ipu.partition.replica_groups import Found, axes_of
from jaxlib.mlir import ir

_GROUPS = "replica_groups"


def mend(module: Any, groups: Found) -> None:
  """Replaces the operations that StableHLO does not have, or not in this form.

  - `mhlo.copy` and reshapes to the same shape go, `mhlo.bitcast` is a reshape.
  - `stablehlo.dot` is a dot_general.
  - A custom call has several results instead of a tuple.
  - A collective has its groups instead of axes of a mesh.

  Args:
    module: as converted.
    groups: those in mesh form (`replica_groups.read`).

  Raises:
    CompileError: an operation that is neither StableHLO nor one of these.
  """
  found: list[Any] = []

  def collect(operation: Any) -> Any:
    name = operation.name
    if name in _MEND or _GROUPS in operation.attributes:
      found.append(operation)
    elif not name.startswith(_KNOWN):
      raise unimplemented(f"operation {name}", operation.location)
    return ir.WalkResult.ADVANCE

  module.operation.walk(collect)
  for operation in found:
    if operation.name in _MEND:
      _MEND[operation.name](operation)
    else:
      _write_groups(operation, groups)


_KNOWN = ("stablehlo.", "func.", "builtin.", "sdy.mesh")


def _remove(operation: Any) -> None:
  (operand,) = operation.operands
  _replace(operation, [operand])


def _remove_if_same(operation: Any) -> None:
  if operation.operands[0].type == operation.results[0].type:
    _remove(operation)


def _reshape(operation: Any) -> None:
  (operand,), (result,) = operation.operands, operation.results
  if operand.type.element_type != result.type.element_type:
    raise unimplemented(
      f"mhlo.bitcast of {operand.type} to {result.type}", operation.location
    )
  _replace_by(operation, "stablehlo.reshape", [result.type], {})


def _dot(operation: Any) -> None:
  left, _ = operation.operands
  last = left.type.rank - 1
  dimensions = ir.Attribute.parse(
    "#stablehlo.dot<lhs_contracting_dimensions = "
    f"[{last}], rhs_contracting_dimensions = [0]>"
  )
  attributes = {"dot_dimension_numbers": dimensions}
  if "precision_config" in operation.attributes:
    attributes["precision_config"] = operation.attributes["precision_config"]
  types = [r.type for r in operation.results]
  _replace_by(operation, "stablehlo.dot_general", types, attributes)


# Written for a tuple. Layouts are those of its elements, and stay.
_TUPLE_ATTRIBUTES = ("xla_shape",)


def _custom_call(operation: Any) -> None:
  result = operation.results[0] if len(operation.results) == 1 else None
  if result is None or not isinstance(result.type, ir.TupleType):
    return
  types = [result.type.get_type(i) for i in range(result.type.num_types)]
  attributes = _attributes(operation, without=_TUPLE_ATTRIBUTES)
  with ir.InsertionPoint(operation), operation.location:
    call = ir.Operation.create(
      operation.name, types, list(operation.operands), attributes
    )
  for use in list(result.uses):
    element = use.owner.operation
    if element.name != "stablehlo.get_tuple_element":
      raise internal(f"{element.name} of a tuple", element.location)
    index = ir.IntegerAttr(element.attributes["index"]).value
    _replace(element, [call.results[index]])
  operation.erase()


def _write_groups(operation: Any, groups: Found) -> None:
  attribute = operation.attributes[_GROUPS]
  if isinstance(attribute, ir.DenseElementsAttr):
    return
  channel = _channel(operation)
  known = groups.get(channel, {})
  found = known.get(axes_of(str(attribute)))
  if found is None and len(known) == 1:
    (found,) = known.values()
  if found is None:
    raise internal(
      f"{operation.name} of channel {channel} over {attribute}",
      operation.location,
    )
  dense: Any = np.ascontiguousarray(found, np.int64)
  operation.attributes[_GROUPS] = ir.DenseIntElementsAttr.get(dense)


def _channel(operation: Any) -> int:
  """The number that tells a partitioned module's collectives apart."""
  if "channel_handle" not in operation.attributes:
    return -1
  from jaxlib.mlir.dialects import stablehlo

  handle = operation.attributes["channel_handle"]
  return int(stablehlo.ChannelHandle(handle).handle)


def _attributes(
  operation: Any, without: tuple[str, ...] = ()
) -> dict[str, Any]:
  return {
    name: operation.attributes[name]
    for name in operation.attributes
    if name not in without
  }


def _replace_by(
  operation: Any, name: str, types: list[Any], attributes: dict[str, Any]
) -> None:
  """Replaces an operation by another one of the same operands."""
  with ir.InsertionPoint(operation), operation.location:
    other = ir.Operation.create(
      name, types, list(operation.operands), attributes
    )
  _replace(operation, list(other.results))


def _replace(operation: Any, values: list[Any]) -> None:
  for result, value in zip(operation.results, values, strict=True):
    result.replace_all_uses_with(value)
  operation.erase()


_MEND = {
  "mhlo.copy": _remove,
  "mhlo.bitcast": _reshape,
  "stablehlo.reshape": _remove_if_same,
  "stablehlo.dot": _dot,
  "stablehlo.custom_call": _custom_call,
}
