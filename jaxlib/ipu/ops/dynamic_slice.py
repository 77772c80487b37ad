"""dynamic_slice and dynamic_update_slice: slices whose place is only known at
run time."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._windows import along_dynamic
from jaxlib.ipu.codelets.dynamic_slice import copy_cycles
from jaxlib.ipu.codelets.dynamic_update import CODELET
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.ops import _rounds, update_slice
from jaxlib.ipu.ops._indexing import operand_layout, partials, whole_root
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.plan.indexed_split import Windows
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


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


@dataclasses.dataclass(frozen=True)
class _Cycles:
  """What a slice takes (plan/indexed.py): each index along what moves counts
  as a lookup of what lies together there."""

  target: Target
  dtype: DType

  def __call__(
    self, lookups: Any, window: Any, parts: Any, entries: Any
  ) -> Cycles:
    del parts, entries
    return copy_cycles(self.target, (0,), self.dtype, (lookups, window))


def _windows(shape: Shape, windowed: Shape, dtype: DType) -> Windows:
  along = along_dynamic(shape, windowed)
  return Windows(shape, windowed, along, len(shape), SIZE[dtype], 0)


def _slice(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  value = node.results[0]
  starts = _starts(node.inputs[1:], value.shape, operand.shape)
  if not starts:
    builder.define(value, operand)
    return
  if 0 in value.shape:
    builder.result(node)
    return
  target = builder.target
  windows = _windows(value.shape, operand.shape, value.dtype)
  cycles = _Cycles(target, value.dtype)
  plan = indexed.slicing(
    target,
    windows,
    operand_layout(builder, operand),
    whole_root(builder, operand),
    cycles,
  ).plan
  handed = indexed.candidates(target, windows, plan, cycles)
  root = builder.result(node, plan.result)
  rank = len(value.shape)
  builder.execute(
    schema.DynamicSlice([d for d, _ in starts]),
    value.shape,
    plan.partition,
    [
      Operand(operand, (-1,) * rank, plan.windowed),
      *_start_operands(builder, starts, rank),
    ],
    [Written(root, tuple(range(rank)))],
    handed=handed,
  )


def _update(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  update: View = builder.view(node.inputs[1])
  starts = _starts(node.inputs[2:], update.shape, operand.shape)
  if not starts:
    builder.define(node.results[0], update)
    return
  if update.size == 0:
    builder.define(node.results[0], operand)
    return
  target = builder.target
  fields = schema.DynamicUpdate([d for d, _ in starts])
  partial = partials(CODELET, fields, update.dtype)
  plan = indexed.updating(
    target,
    _windows(update.shape, operand.shape, update.dtype),
    operand_layout(builder, operand),
    whole_root(builder, operand),
    partial,
    _Cycles(target, update.dtype),
  ).plan
  handed = indexed.partials(target, plan, partial)
  root = builder.result(node, plan.windowed)
  builder.copy_to([(operand, builder.root_view(root))])
  rank = len(update.shape)
  builder.execute(
    fields,
    update.shape,
    plan.partition,
    [
      Operand(update, tuple(range(rank))),
      *_start_operands(builder, starts, rank),
    ],
    [Written(root, (-1,) * rank)],
    handed=handed,
  )


define(
  Operation("stablehlo.dynamic_slice", _slice, decompose=_rounds.dynamic_slice)
)
define(
  Operation(
    "stablehlo.dynamic_update_slice",
    _update,
    decompose=lambda e, node: (
      update_slice.dynamic_update_slice(e, node)
      or _rounds.dynamic_update_slice(e, node)
    ),
  )
)
