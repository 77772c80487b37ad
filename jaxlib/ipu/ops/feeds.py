"""Infeed and outfeed: items that the host has ready, or takes later.

The host fills an infeed's buffer before the program asks for it, so a step is a
stream of its arrays and nothing else. What a stream takes by itself, its begin
and end, is charged: tiles that exchange with the host while others compute (I/O
tiles) are not modelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.diagnostics import invalid_argument, unimplemented
from jaxlib.ipu.dtypes import COMPLEX, MLIR_NAME, UNBUFFERED, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.feeds import Infeed, Outfeed
from jaxlib.mlir import ir

# An infeed from the feed whose number is the operand. The results are its
# arrays.
FEED = "stablehlo.custom_call @ipu_feed"


@dataclasses.dataclass(frozen=True)
class Item:
  """What is fed.

  Attributes:
    dtypes: of its arrays, as the host sees them.
    may_end: whether a last result, a BOOL scalar, says if there was an item.
  """

  dtypes: tuple[DType, ...]
  may_end: bool = False


def _read_infeed(operation: Any) -> Item:
  return Item(_dtypes(list(operation.results)[:-1], operation.location))


def _read_outfeed(operation: Any) -> Item:
  return Item(_dtypes(list(operation.operands)[:-1], operation.location))


def _read_feed(operation: Any) -> Item:
  config = ir.DictAttr(_config(operation.attributes))
  may_end = ir.IntegerAttr(config["may_end"]).value != 0
  results = list(operation.results)
  arrays = results[:-1] if may_end else results
  return Item(_dtypes(arrays, operation.location), may_end)


def _config(attributes: Any) -> Any:
  """The dictionary of a typed call; portable artifacts rename it."""
  for name in ("mhlo.backend_config", "backend_config"):
    if name in attributes and isinstance(attributes[name], ir.DictAttr):
      return attributes[name]
  raise invalid_argument(f"{FEED} without attributes")


def _dtypes(values: Sequence[Any], where: Any) -> tuple[DType, ...]:
  dtypes = []
  for value in values:
    type_ = ir.RankedTensorType(value.type)
    dtypes.append(MLIR_NAME[str(type_.element_type)])
    if dtypes[-1] in UNBUFFERED:
      raise unimplemented(
        f"a feed of {type_}", where, "convert it inside the program"
      )
  return tuple(dtypes)


def _check_feed(node: Node) -> str | None:
  number = [(v.shape, v.dtype) for v in node.inputs]
  valid = [
    (v.shape, v.dtype) for v in node.results[len(node.attributes.dtypes) :]
  ]
  if number != [((), DType.U32)]:
    return "the number of a feed, a ui32 scalar"
  if valid not in ([], [((), DType.BOOL)]):
    return "a boolean scalar as the last result"
  return None


def _infeed(builder: Builder, node: Node, feed: int = schema.NONE) -> None:
  item: Item = node.attributes
  roots = [builder.result(node, index=i) for i in range(len(node.results))]
  arrays = _host_arrays(builder, roots, item)
  valid = roots[len(arrays)] if item.may_end else schema.NONE
  step = Infeed(
    results=arrays, feed=feed, valid=valid, location=builder.location
  )
  sizes = _sizes(builder, step.writes())
  step.own = cost.host_stream(builder.target, sizes)
  builder.steps.append(step)


def _feed(builder: Builder, node: Node) -> None:
  number = builder.materialise(builder.view(node.inputs[0]))
  _infeed(builder, node, number.root)


def _outfeed(builder: Builder, node: Node) -> None:
  item: Item = node.attributes
  roots = [
    builder.materialise(builder.view(v)).root
    for v in node.inputs[: len(item.dtypes)]
  ]
  step = Outfeed(
    operands=_host_arrays(builder, roots, item), location=builder.location
  )
  sizes = _sizes(builder, roots)
  step.own = cost.host_stream(builder.target, sizes, to_host=True)
  builder.steps.append(step)
  builder.result(node)


def _host_arrays(
  builder: Builder, roots: Sequence[int], item: Item
) -> list[schema.HostArray]:
  arrays = []
  for root, dtype in zip(roots, item.dtypes):
    rank = len(builder.tensors[root].shape) - (dtype in COMPLEX)
    arrays.append(schema.HostArray(root, list(range(rank)), dtype))
  return arrays


def _sizes(builder: Builder, roots: Sequence[int]) -> list[int]:
  """The bytes of a stream's arrays; an item of none is a word."""
  return [
    builder.tensors[r].bytes for r in roots if builder.tensors[r].bytes
  ] or [0]


def _always(node: Node) -> bool:
  return True


define(Operation("stablehlo.infeed", _infeed, _read_infeed, has_effect=_always))
define(
  Operation("stablehlo.outfeed", _outfeed, _read_outfeed, has_effect=_always)
)
define(
  Operation(FEED, _feed, _read_feed, check=_check_feed, has_effect=_always)
)
