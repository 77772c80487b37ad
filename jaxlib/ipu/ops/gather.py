"""gather: each tile serves the slices whose first element it owns, by
request; the slices travel to the result's tiles in a second superstep."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.ops import update_slice
from jaxlib.ipu.ops._indexing import (
  index_operand,
  index_view,
  operand_layout,
  partition,
)
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.program import schema
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


def _lower(builder: Builder, node: Node) -> None:
  indexing: Indexing = node.attributes
  operand = builder.view(node.inputs[0])
  indices = index_view(builder.view(node.inputs[1]), indexing)
  value = node.results[0]
  rank = len(value.shape)
  batch = indexing.batch_dims(rank)
  order = batch + indexing.window_dims
  shape = tuple(value.shape[d] for d in order)
  split = partition(builder, shape, SIZE[value.dtype])
  root = builder.new_root(shape, value.dtype, split)
  dims = tuple(range(rank))
  operand_rank = len(operand.shape)
  fields = schema.Gather(
    num_batch_dims=len(batch),
    start_index_map=list(indexing.index_map),
    slice_sizes=list(indexing.slice_sizes),
    batch_dims=indexing.operand_batch_dims(operand_rank),
    window_dims=indexing.operand_window(operand_rank),
  )
  builder.execute(
    fields,
    shape,
    split,
    [
      Operand(operand, (-1,) * rank, operand_layout(builder, operand)),
      index_operand(indices, rank, len(batch), split, shape),
    ],
    [Written(root, dims)],
    extra=indexed.deliver(builder.target, split, SIZE[value.dtype]),
  )
  inverse = tuple(order.index(d) for d in range(rank))
  builder.define(value, builder.root_view(root).transpose(inverse))


define(
  Operation("stablehlo.gather", _lower, _read, decompose=update_slice.gather)
)
