"""dynamic_slice and dynamic_update_slice: exchanges whose place is known only
at run time."""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.ops import update_slice
from jaxlib.ipu.ops._indexing import operand_layout
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.program import schema


def _starts(
  values: tuple[Value, ...], sizes: tuple[int, ...], shape: tuple[int, ...]
) -> list[tuple[int, Value]]:
  """The dimensions in which the slice can move, and where it starts."""
  return [(d, v) for d, v in enumerate(values) if sizes[d] != shape[d]]


def _start_operands(
  builder: Builder, starts: list[tuple[int, Value]], rank: int
) -> list[Operand]:
  """The start indices, each on every tile that slices."""
  return [Operand(builder.view(v), (-1,) * rank) for _, v in starts]


def _slice(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  value = node.results[0]
  starts = _starts(node.inputs[1:], value.shape, operand.shape)
  if not starts:
    builder.define(value, operand)
    return
  root = builder.result(node)
  split = builder.tensors[root].layout
  rank = len(value.shape)
  dims = tuple(range(rank))
  builder.execute(
    schema.DynamicSlice([d for d, _ in starts]),
    value.shape,
    split,
    [
      Operand(operand, (-1,) * rank, operand_layout(builder, operand)),
      *_start_operands(builder, starts, rank),
    ],
    [Written(root, dims)],
    extra=indexed.deliver(builder.target, split, SIZE[value.dtype]),
  )


def _update(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  update: View = builder.view(node.inputs[1])
  starts = _starts(node.inputs[2:], update.shape, operand.shape)
  if not starts:
    builder.define(node.results[0], update)
    return
  root = builder.result(node, operand_layout(builder, operand))
  builder.copy_to([(operand, builder.root_view(root))])
  if update.size == 0:
    return
  rank = len(update.shape)
  dims = tuple(range(rank))
  split = builder.default_layout(update.shape, update.dtype)
  builder.execute(
    schema.DynamicUpdate([d for d, _ in starts]),
    update.shape,
    split,
    [
      Operand(update, dims),
      *_start_operands(builder, starts, rank),
    ],
    [Written(root, (-1,) * rank)],
    extra=indexed.deliver(builder.target, split, SIZE[update.dtype]),
  )


define(Operation("stablehlo.dynamic_slice", _slice))
define(
  Operation(
    "stablehlo.dynamic_update_slice",
    _update,
    decompose=update_slice.dynamic_update_slice,
  )
)
