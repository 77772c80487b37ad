"""dynamic_slice and dynamic_update_slice: slices with run-time start
indices."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.codelets.dynamic_update import CODELET
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops import update_slice
from jaxlib.ipu.ops._counters import clamped
from jaxlib.ipu.ops._indexing import (
  SliceCycles,
  bringing,
  exchanging,
  moving_windows,
  operand_layout,
  partials,
  updated_layout,
  whole_root,
)
from jaxlib.ipu.ops._rounds import Cut, Made, in_rounds, updates_in_rounds
from jaxlib.ipu.plan import indexed, indexed_cycles
from jaxlib.ipu.plan.indexed_blocks import Lookups
from jaxlib.ipu.plan.indexed_split import IndexedSplit
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.view import View


def _starts(
  builder: Builder, values: tuple[Value, ...], sizes: Shape, shape: Shape
) -> dict[int, View]:
  """The start indices of the dimensions in which the slice can move."""
  return {
    d: builder.view(v) for d, v in enumerate(values) if sizes[d] != shape[d]
  }


def _start_operands(starts: dict[int, View], rank: int) -> list[Operand]:
  """The start indices, each on every tile that slices."""
  return [Operand(view, (-1,) * rank) for view in starts.values()]


def _start_of_rounds(
  builder: Builder, w: Lookups, starts: dict[int, View], size: int
) -> View | None:
  """The start of the first round, along the dimension that is cut; None if
  there is one round."""
  d = w.rounds_along
  if d is None or size >= w.shape[d]:
    return None
  return clamped(builder, starts[d], w.windowed[d] - w.shape[d])


def _with(
  starts: dict[int, View], w: Lookups, start: View | None
) -> dict[int, View]:
  """The starts of a round."""
  if start is None or w.rounds_along is None:
    return starts
  return {**starts, w.rounds_along: start}


def _slice(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  value = node.results[0]
  shape = value.shape
  starts = _starts(builder, node.inputs[1:], shape, operand.shape)
  if not starts:
    builder.define(value, operand)
    return
  if 0 in shape:
    builder.result(node)
    return
  target, rank = builder.target, len(shape)
  windows = moving_windows(
    shape, operand.shape, value.dtype, builder.target.num_tiles
  )
  cycles = SliceCycles(target, value.dtype)
  own = operand_layout(builder, operand)
  found = indexed.slicing(
    target, windows, own, whole_root(builder, operand), cycles,
    builder.share_of_steps(), bringing(builder, operand),
  )  # fmt: skip
  d = windows.rounds_along or 0

  def step(parts: Sequence[View], start: View | None, size: int) -> View:
    some = windows.of_round(size)
    plan = found.slices(some, own)
    root = builder.new_root(some.shape, value.dtype, plan.result)
    at = _with(starts, windows, start)
    builder.execute(
      schema.DynamicSlice(list(starts)),
      some.shape,
      plan.partition,
      [
        Operand(operand, (-1,) * rank, plan.windowed),
        *_start_operands(at, rank),
      ],
      [Written(root, tuple(range(rank)))],
      epilogue=indexed_cycles.candidates(target, some, plan, cycles),
    )
    return builder.root_view(root)

  result = in_rounds(
    builder,
    Cut(windows.most_rounds, found.size),
    [],
    step,
    start=_start_of_rounds(builder, windows, starts, found.size),
    made=Made(shape, value.dtype, d),
  )
  assert result is not None, "a slice makes something"
  builder.define(value, result)


def _update(builder: Builder, node: Node) -> None:
  operand = builder.view(node.inputs[0])
  update: View = builder.view(node.inputs[1])
  shape = update.shape
  starts = _starts(builder, node.inputs[2:], shape, operand.shape)
  if not starts:
    builder.define(node.results[0], update)
    return
  if update.size == 0:
    builder.define(node.results[0], operand)
    return
  target, rank = builder.target, len(shape)
  fields = schema.DynamicUpdate(list(starts))
  partial = partials(CODELET, fields, update.dtype)
  windows = moving_windows(
    shape, operand.shape, update.dtype, builder.target.num_tiles
  )
  own, stays = updated_layout(builder, operand, node.results[0])

  def read(parts: Sequence[View], plan: IndexedSplit) -> list[Operand]:
    return [Operand(parts[0], tuple(range(rank)))]

  found = indexed.updating(
    target, windows, own, stays, partial,
    SliceCycles(target, update.dtype), builder.share_of_steps(),
    exchanging(builder, operand, own, [update], read, windows),
  )  # fmt: skip
  root = builder.result(node, found.plan.windowed)
  builder.copy_to([(operand, builder.root_view(root))])

  def step(
    parts: Sequence[View], start: View | None, plan: IndexedSplit
  ) -> None:
    at = _with(starts, windows, start)
    builder.execute(
      fields,
      parts[0].shape,
      plan.partition,
      [*read(parts, plan), *_start_operands(at, rank)],
      [Written(root, (-1,) * rank)],
      epilogue=indexed_cycles.partials(target, plan, partial),
    )

  start = _start_of_rounds(builder, windows, starts, found.size)
  updates_in_rounds(builder, windows, found, own, [update], step, root, start)


define(Operation("stablehlo.dynamic_slice", _slice))
define(
  Operation(
    "stablehlo.dynamic_update_slice",
    _update,
    decompose=update_slice.dynamic_update_slice,
  )
)
