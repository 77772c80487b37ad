"""custom_call: host functions, Python's and XLA FFI targets.

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
from jaxlib.ipu.dtypes import COMPLEX, MLIR_NAME, NUMPY, UNBUFFERED, DType
from jaxlib.ipu.ir.constants import read_dense
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.refusals import describe, instead_of
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.host import HostCallback
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# An array's element type, and its dimensions in memory order.
HostType = tuple[DType, tuple[int, ...]]

# Typed FFI: attributes are a dictionary.
_TYPED = 4


@dataclasses.dataclass(frozen=True)
class CustomCall:
  """The attributes of a custom call.

  Attributes:
    target: the function.
    attributes: passed to it, in the program's format.
    has_side_effect: it runs even if its results are unused.
    operands, results: for each array its element type and its dimensions
      from the outermost in memory to the innermost; None for a token, which
      only orders calls.
    aliases: for each result the operand that it is written over, or -1.
  """

  target: str
  attributes: list[schema.Attribute]
  has_side_effect: bool
  operands: list[HostType | None]
  results: list[HostType | None]
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
  # Portable artifacts write the typed FFI's dictionary under this name, and
  # leave the version out.
  config = _get(attributes, "mhlo.backend_config")
  version = _TYPED
  if config is None:
    config = _get(attributes, "backend_config")
    if "api_version" in attributes:
      version = ir.IntegerAttr(attributes["api_version"]).value
    else:
      version = 1
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
    _types(operation.operands, _get(attributes, "operand_layouts"), where),
    _types(operation.results, _get(attributes, "result_layouts"), where),
    aliases,
  )


def _get(attributes: Any, name: str) -> Any:
  return attributes[name] if name in attributes else None


def _types(values: Any, layouts: Any, where: Any) -> list[HostType | None]:
  """The host types of values; `layouts`, if given, list their dimensions from
  the innermost in memory."""
  types: list[HostType | None] = []
  for i, value in enumerate(values):
    if str(value.type) == "!stablehlo.token":
      types.append(None)
      continue
    type_ = ir.RankedTensorType(value.type)
    order = tuple(range(type_.rank))
    if layouts is not None:
      order = tuple([int(d) for d in layouts[i]][::-1])
    dtype = MLIR_NAME[str(type_.element_type)]
    if dtype in UNBUFFERED:
      raise unimplemented(
        f"a function of the host on {type_}",
        where,
        "convert it before the call",
      )
    types.append((dtype, order))
  return types


def _dictionary(items: Any, where: Any) -> Iterator[schema.Attribute]:
  """A dictionary's entries, sorted by name as the FFI requires."""
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
  sent = []
  for value, type_ in zip(node.inputs, call.operands, strict=True):
    if type_ is None:
      continue
    order = _whole(type_)
    view = builder.materialise(builder.view(value).transpose(order))
    sent.append(builder.tensors[view.root].bytes)
    operands.append(_host_array(view.root, type_))
  results = []
  received = []
  for value, type_ in zip(node.results, call.results, strict=True):
    order = _whole(type_) if type_ else tuple(range(len(value.shape)))
    root = builder.new_root(tuple(value.shape[d] for d in order), value.dtype)
    if type_ is not None:
      received.append(builder.tensors[root].bytes)
      results.append(_host_array(root, type_))
    builder.define(value, builder.root_view(root).transpose(_places(order)))
  aliases = [
    _without_tokens(call.operands, to) if to >= 0 else -1
    for to, type_ in zip(call.aliases, call.results)
    if type_ is not None
  ]
  builder.steps.append(
    HostCallback(
      target=call.target,
      attributes=call.attributes,
      operands=operands,
      results=results,
      aliases=aliases,
      own=cost.host_callback(builder.target, sent, received),
      location=builder.location,
    )
  )


def _whole(type_: HostType) -> tuple[int, ...]:
  """The order of a root's dimensions; the last dimension of a complex root, its
  real and imaginary parts, stays innermost."""
  dtype, order = type_
  return (*order, len(order)) if dtype in COMPLEX else order


def _host_array(root: int, type_: HostType) -> schema.HostArray:
  dtype, order = type_
  return schema.HostArray(root, _places(order), dtype)


def _places(order: tuple[int, ...]) -> list[int]:
  """The place of each dimension in memory order."""
  return [order.index(d) for d in range(len(order))]


def _without_tokens(types: list[HostType | None], index: int) -> int:
  return sum(type_ is not None for type_ in types[:index])


define(
  Operation(
    "stablehlo.custom_call",
    _lower,
    _read,
    has_effect=lambda node: node.attributes.has_side_effect,
  )
)
