"""scatter: updates go to all tiles that may own their place, and each applies
its own; plan/indexed.py chooses these.

The result starts as a copy of the operand, which is free if the allocator gives
both the same storage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.scatter import CODELET, ScatterHints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.graph import Graph, Node
from jaxlib.ipu.ir.region import Combiner, combiner, monoid
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops import _scatter_order, _variadic_scatter, update_slice
from jaxlib.ipu.ops._indexing import (
  exchanging,
  index_operand,
  index_view,
  indexed_windows,
  partials,
  updated_layout,
)
from jaxlib.ipu.ops._rounds import updates_in_rounds
from jaxlib.ipu.plan import indexed, indexed_cycles
from jaxlib.ipu.plan.indexed_split import IndexedSplit
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.view import View
from jaxlib.mlir.dialects import stablehlo


def _read(operation: Any) -> Indexing:
  a = operation.attributes
  d = stablehlo.ScatterDimensionNumbers(a["scatter_dimension_numbers"])
  unique = "unique_indices" in a and a["unique_indices"].value
  return Indexing(
    tuple(d.update_window_dims),
    tuple(d.inserted_window_dims),
    tuple(d.input_batching_dims),
    tuple(d.scatter_indices_batching_dims),
    tuple(d.scattered_dims_to_operand_dims),
    d.index_vector_dim,
    unique=unique,
  )


def _kind(region: Graph) -> tuple[ReduceKind, Combiner]:
  none = Combiner(Code(), ())
  if region.results[0] is region.parameters[1]:
    return ReduceKind.SET, none
  kind = monoid(region)
  if kind is not None:
    return kind, none
  return ReduceKind.GENERAL, combiner(region)


@dataclasses.dataclass(frozen=True)
class _UpdateCycles:
  """The cycles of updates (plan/indexed.py)."""

  target: Target
  dtype: DType
  kind: ReduceKind
  combine: Combiner
  unique: bool

  def __call__(
    self, lookups: Any, window: Any, parts: Any, entries: Any, team: Any = 1
  ) -> Cycles:
    fields = schema.Scatter(
      1, [], [], [], [], self.kind, 0, self.combine.code,
      list(self.combine.outputs), int(self.unique),
    )  # fmt: skip
    return CODELET.cycles(
      self.target, fields, (), (self.dtype,), (lookups, window),
      ScatterHints(parts=parts, entries=entries, team=team),
    )  # fmt: skip


def _lower(builder: Builder, node: Node) -> None:
  indexing: Indexing = node.attributes
  operand = builder.view(node.inputs[0])
  indices = index_view(builder.view(node.inputs[1]), indexing)
  updates = builder.view(node.inputs[2])
  rank = len(updates.shape)
  batch = indexing.batch_dims(rank)
  order = batch + indexing.window_dims
  updates = updates.transpose(order)
  shape = updates.shape
  kind, combine = _kind(node.regions[0])
  if updates.size == 0:
    builder.define(node.results[0], operand)
    return
  operand_rank = len(operand.shape)
  window = indexing.operand_window(operand_rank)
  sizes = [1 if w < 0 else shape[len(batch) + w] for w in window]
  fields = schema.Scatter(
    num_batch_dims=len(batch),
    start_index_map=list(indexing.index_map),
    window_sizes=sizes,
    batch_dims=indexing.operand_batch_dims(operand_rank),
    window_dims=window,
    kind=kind,
    register_type=REGISTER[operand.dtype],
    combine=combine.code,
    combine_outputs=list(combine.outputs),
    unique_indices=int(indexing.unique),
  )
  target = builder.target
  windows = indexed_windows(
    CODELET, fields, shape, operand, indices, builder.target.num_tiles
  )
  partial = partials(CODELET, fields, updates.dtype)
  own, stays = updated_layout(builder, operand, node.results[0])

  def read(parts: Sequence[View], plan: IndexedSplit) -> list[Operand]:
    named, some = parts
    return [
      index_operand(named, rank, len(batch), plan.partition, some.shape),
      Operand(some, tuple(range(rank))),
    ]

  found = indexed.updating(
    target, windows, own, stays, partial,
    _UpdateCycles(target, updates.dtype, kind, combine, indexing.unique),
    builder.share_of_steps(),
    exchanging(builder, operand, own, [indices, updates], read, windows),
  )  # fmt: skip
  root = builder.result(node, found.plan.windowed)
  builder.copy_to([(operand, builder.root_view(root))])

  def step(
    parts: Sequence[View], start: View | None, plan: IndexedSplit
  ) -> None:
    builder.execute(
      fields,
      parts[1].shape,
      plan.partition,
      read(parts, plan),
      [Written(root, (-1,) * rank)],
      epilogue=indexed_cycles.partials(target, plan, partial),
      hints=ScatterHints(
        parts=plan.parts, entries=plan.entries, team=plan.team
      ),
    )

  updates_in_rounds(
    builder, windows, found, own, [indices, updates], step, root
  )


define(
  Operation(
    "stablehlo.scatter",
    _lower,
    _read,
    decompose=lambda e, node: (
      _variadic_scatter.decompose(e, node)
      or update_slice.scatter(e, node)
      or _scatter_order.decompose(e, node)
    ),
  )
)
