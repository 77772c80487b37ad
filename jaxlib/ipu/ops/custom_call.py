"""custom_call: functions of the host, Python's and those of XLA's FFI.

The device streams the operands to the host, waits, and streams the results
back. JAX's callbacks are custom calls of `host_functions.PYTHON_TARGET`; any
other target is one that the user registered with `jax.ffi`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from jaxlib.ipu import host_functions
from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import MLIR_NAME, NUMPY
from jaxlib.ipu.ir.constants import read_dense
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.refusals import describe, instead_of
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# Typed FFI: what the operation is told is a dictionary.
_TYPED = 4


@dataclasses.dataclass(frozen=True)
class CustomCall:
  """What a custom call says.

  Attributes:
    target: the function.
    attributes: what it is told, as the program holds it.
    has_side_effect: it runs even if nobody uses its results.
    operands, results: for each array its dimensions from the outermost in
      memory to the innermost; None for a token, which only orders calls.
    aliases: for each result the operand that it is written over, or -1.
  """

  target: str
  attributes: list[schema.Attribute]
  has_side_effect: bool
  operands: list[tuple[int, ...] | None]
  results: list[tuple[int, ...] | None]
  aliases: list[int]


def _read(operation: Any) -> CustomCall:
  attributes = operation.attributes
  target = ir.StringAttr(attributes["call_target_name"]).value
  where = operation.location
  if not host_functions.has_target(target):
    operation_name = f"stablehlo.custom_call @{target}"
    raise unimplemented(
      describe(operation_name), where, instead_of(operation_name)
    )
  version = ir.IntegerAttr(attributes["api_version"]).value
  config = _get(attributes, "backend_config")
  if version != _TYPED or not isinstance(config, ir.DictAttr | None):
    raise unimplemented(
      f"custom call @{target} of API version {version}",
      where,
      f"use the typed FFI, custom_call_api_version={_TYPED}",
    )
  side_effect = _get(attributes, "has_side_effect")
  aliases = [-1] * len(operation.results)
  for item in _get(attributes, "output_operand_aliases") or ():
    alias = stablehlo.OutputOperandAlias(item)
    places = list(alias.output_tuple_indices)
    aliases[places[0] if places else 0] = alias.operand_index
  return CustomCall(
    target,
    [] if config is None else list(_dictionary(config, where)),
    side_effect is not None and ir.BoolAttr(side_effect).value,
    _orders(operation.operands, _get(attributes, "operand_layouts")),
    _orders(operation.results, _get(attributes, "result_layouts")),
    aliases,
  )


def _get(attributes: Any, name: str) -> Any:
  return attributes[name] if name in attributes else None


def _orders(values: Any, layouts: Any) -> list[tuple[int, ...] | None]:
  """The order of each value's dimensions in memory; `layouts`, if there are
  any, name them from the innermost."""
  orders: list[tuple[int, ...] | None] = []
  for i, value in enumerate(values):
    if str(value.type) == "!stablehlo.token":
      orders.append(None)
    elif layouts is None:
      orders.append(tuple(range(ir.RankedTensorType(value.type).rank)))
    else:
      orders.append(tuple([int(d) for d in layouts[i]][::-1]))
  return orders


def _dictionary(items: Any, where: Any) -> Iterator[schema.Attribute]:
  """A dictionary's entries, sorted by name as the FFI wants them."""
  for name in sorted(item.name for item in items):
    yield from _attribute(name, items[name], where)


def _attribute(name: str, value: Any, where: Any) -> Iterator[schema.Attribute]:
  if isinstance(value, ir.DictAttr):
    yield schema.Attribute(name, schema.DICTIONARY, 0, len(value), b"")
    yield from _dictionary(value, where)
  elif isinstance(value, ir.StringAttr):
    data = value.value_bytes
    yield schema.Attribute(name, schema.STRING, 0, len(data), data)
  elif isinstance(value, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr):
    dtype = MLIR_NAME.get(str(value.type))
    if dtype is None:
      raise _unknown(name, value, where)
    data = NUMPY[dtype].type(value.value).tobytes()
    yield schema.Attribute(name, schema.SCALAR, dtype, 1, data)
  elif isinstance(value, ir.DenseElementsAttr):
    type_ = ir.RankedTensorType(value.type)
    dtype = MLIR_NAME.get(str(type_.element_type))
    if dtype is None:
      raise _unknown(name, value, where)
    array = read_dense(value, tuple(type_.shape), dtype)
    yield schema.Attribute(
      name, schema.ARRAY, dtype, array.size, array.tobytes()
    )
  else:
    raise _unknown(name, value, where)


def _unknown(name: str, value: Any, where: Any) -> Exception:
  return unimplemented(f"a custom call's attribute {name} = {value}", where)


def _lower(builder: Builder, node: Node) -> None:
  call: CustomCall = node.attributes
  operands = []
  sent = 0
  for value, order in zip(node.inputs, call.operands, strict=True):
    if order is None:
      continue
    view = builder.materialise(builder.view(value).transpose(order))
    sent += builder.tensors[view.root].bytes
    operands.append(schema.Access(view.root, _places(order)))
  results = []
  received = 0
  for value, order in zip(node.results, call.results, strict=True):
    shape = tuple(value.shape[d] for d in order or range(len(value.shape)))
    root = builder.new_root(shape, value.dtype)
    view = builder.root_view(root)
    if order is not None:
      received += builder.tensors[root].bytes
      results.append(schema.Access(root, _places(order)))
      view = view.transpose(_places(order))
    builder.define(value, view)
  aliases = [
    _without_tokens(call.operands, to) if to >= 0 else -1
    for to, order in zip(call.aliases, call.results)
    if order is not None
  ]
  builder.steps.append(
    schema.HostCallback(
      call.target,
      call.attributes,
      operands,
      results,
      aliases,
      cost.host_callback(builder.target, sent, received),
      builder.location,
    )
  )


def _places(order: tuple[int, ...]) -> list[int]:
  """Where in memory's order each dimension stands."""
  return [order.index(d) for d in range(len(order))]


def _without_tokens(orders: list[tuple[int, ...] | None], index: int) -> int:
  return sum(order is not None for order in orders[:index])


define(
  Operation(
    "stablehlo.custom_call",
    _lower,
    _read,
    has_effect=lambda node: node.attributes.has_side_effect,
  )
)
