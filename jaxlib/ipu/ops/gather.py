"""gather: each tile picks what it has of the slices; where tiles share the
indexed dimensions, candidates go to their owners in a second superstep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.gather import CODELET, GatherHints, slice_cycles
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import Indexing, ints
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops import update_slice
from jaxlib.ipu.ops._indexing import (
  bringing,
  index_operand,
  index_view,
  indexed_windows,
  operand_layout,
  whole_root,
)
from jaxlib.ipu.ops._rounds import Along, Cut, Made, in_rounds
from jaxlib.ipu.plan import indexed, indexed_cycles
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.view import View
from jaxlib.mlir.dialects import stablehlo


def _read(operation: Any) -> Indexing:
  a = operation.attributes
  d = stablehlo.GatherDimensionNumbers(a["dimension_numbers"])
  return Indexing(
    tuple(d.offset_dims),
    tuple(d.collapsed_slice_dims),
    tuple(d.operand_batching_dims),
    tuple(d.start_indices_batching_dims),
    tuple(d.start_index_map),
    d.index_vector_dim,
    ints(a["slice_sizes"]),
  )


@dataclasses.dataclass(frozen=True)
class _SliceCycles:
  """The cycles of slices (plan/indexed.py)."""

  target: Target
  dtype: DType

  def __call__(
    self, lookups: Any, window: Any, parts: Any, entries: Any
  ) -> Cycles:
    del entries
    return slice_cycles(self.target, self.dtype, lookups, window, parts)


def _lower(builder: Builder, node: Node) -> None:
  indexing: Indexing = node.attributes
  operand = builder.view(node.inputs[0])
  indices = index_view(builder.view(node.inputs[1]), indexing)
  value = node.results[0]
  rank = len(value.shape)
  batch = indexing.batch_dims(rank)
  order = batch + indexing.window_dims
  shape = tuple(value.shape[d] for d in order)
  dims = tuple(range(rank))
  operand_rank = len(operand.shape)
  fields = schema.Gather(
    num_batch_dims=len(batch),
    start_index_map=list(indexing.index_map),
    slice_sizes=list(indexing.slice_sizes),
    batch_dims=indexing.operand_batch_dims(operand_rank),
    window_dims=indexing.operand_window(operand_rank),
  )
  if 0 in shape:
    builder.result(node)
    return
  windows = indexed_windows(
    CODELET, fields, shape, operand, indices, builder.target.num_tiles
  )
  target = builder.target
  cycles = _SliceCycles(target, value.dtype)
  own = operand_layout(builder, operand)
  found = indexed.slicing(
    target, windows, own, whole_root(builder, operand), cycles,
    builder.share_of_steps(), bringing(builder, operand),
  )  # fmt: skip

  def step(parts: Sequence[View], start: View | None, size: int) -> View:
    (named,) = parts
    some = windows.of_round(size)
    plan = found.slices(some, own)
    root = builder.new_root(some.shape, value.dtype, plan.result)
    builder.execute(
      fields,
      some.shape,
      plan.partition,
      [
        Operand(operand, (-1,) * rank, plan.windowed),
        index_operand(named, rank, len(batch), plan.partition, some.shape),
      ],
      [Written(root, dims)],
      epilogue=indexed_cycles.candidates(target, some, plan, cycles),
      hints=GatherHints(parts=plan.parts),
    )
    return builder.root_view(root)

  d = windows.rounds_along or 0
  cut = Cut(windows.most_rounds, found.size)
  result = in_rounds(
    builder, cut, [Along(indices, d)], step, made=Made(shape, value.dtype, d)
  )
  assert result is not None, "a gather makes something"
  inverse = tuple(order.index(d) for d in range(rank))
  builder.define(value, result.transpose(inverse))


define(
  Operation(
    "stablehlo.gather",
    _lower,
    _read,
    decompose=update_slice.gather,
  )
)
