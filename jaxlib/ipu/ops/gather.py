"""gather: each tile picks what it has of the slices; where tiles share what
the indices name, candidates go to their owners in a second superstep."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.gather import CODELET, slice_cycles
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.ops import _rounds, update_slice
from jaxlib.ipu.ops._indexing import (
  index_operand,
  index_view,
  indexed_windows,
  operand_layout,
  whole_root,
)
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
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
    tuple(a["slice_sizes"]),
  )


@dataclasses.dataclass(frozen=True)
class _Cycles:
  """What slices take (plan/indexed.py)."""

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
  windows = indexed_windows(CODELET, fields, shape, operand, indices)
  cycles = _Cycles(builder.target, value.dtype)
  plan = indexed.slicing(
    builder.target,
    windows,
    operand_layout(builder, operand),
    whole_root(builder, operand),
    cycles,
  ).plan
  handed = indexed.candidates(builder.target, windows, plan, cycles)
  root = builder.new_root(shape, value.dtype, plan.result)
  builder.execute(
    fields,
    shape,
    plan.partition,
    [
      Operand(operand, (-1,) * rank, plan.windowed),
      index_operand(indices, rank, len(batch), plan.partition, shape),
    ],
    [Written(root, dims)],
    handed=handed,
    parts=plan.parts,
  )
  inverse = tuple(order.index(d) for d in range(rank))
  builder.define(value, builder.root_view(root).transpose(inverse))


define(
  Operation(
    "stablehlo.gather",
    _lower,
    _read,
    decompose=lambda e, node: (
      update_slice.gather(e, node) or _rounds.gather(e, node)
    ),
  )
)
