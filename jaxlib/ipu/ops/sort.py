"""sort: rows are spread over tiles; where one needs several, sorted parts are
merged between them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Node, Shape
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.lower.region import combiner
from jaxlib.ipu.lower.sort_keys import sort_keys
from jaxlib.ipu.plan import sorting
from jaxlib.ipu.plan.layout import Layout, grid
from jaxlib.ipu.program import schema

SORT = "stablehlo.sort"


@dataclasses.dataclass(frozen=True)
class Sorting:
  """What is sorted.

  Attributes:
    dimension: along which.
    keep: how many of the first elements anyone wants (passes/keep.py), which
      is the results' extent along the dimension; None for all.
    number: the result, if any, that is no operand's but the places in their
      row that elements had (passes/keep.py).
  """

  dimension: int
  keep: int | None = None
  number: int | None = None


def _read(operation: Any) -> Sorting:
  return Sorting(operation.attributes["dimension"].value)


def _partition(builder: Builder, shape: Shape, item: int) -> Layout:
  """Rows, which are last, stay whole until there are fewer than tiles."""
  tiles = min(builder.target.num_tiles, max(1, math.prod(shape) * item // 128))
  parts = []
  for extent in shape:
    count = max(1, min(tiles, extent))
    parts.append(count)
    tiles //= count
  return grid(shape, parts)


def _lower(builder: Builder, node: Node) -> None:
  attributes: Sorting = node.attributes
  operand_shape = node.inputs[0].shape
  dims = tuple(range(len(operand_shape)))
  order = (
    *(d for d in dims if d != attributes.dimension),
    attributes.dimension,
  )
  inverse = tuple(order.index(d) for d in dims)
  shape = tuple(operand_shape[d] for d in order)
  keep = shape[-1] if attributes.keep is None else attributes.keep
  (region,) = node.regions
  keys = sort_keys(region)
  compare, output = b"", 0
  if keys is None:
    less = combiner(region)
    compare, (output,) = less.code, less.outputs
  if shape[-1] < 2:
    for value, result in zip(node.inputs, node.results, strict=True):
      builder.define(result, builder.view(value))
    return
  size = max(SIZE[v.dtype] for v in node.inputs)
  split = _partition(builder, shape, size)
  # Rows are dense where they are sorted.
  operands = [
    Operand(builder.materialise(builder.view(v).transpose(order), split), dims)
    for v in node.inputs
  ]
  kept = (*shape[:-1], keep)
  to = split if keep == shape[-1] else _partition(builder, kept, size)
  values = list(node.results)
  if attributes.number is not None:  # the last of the codelet's
    values.append(values.pop(attributes.number))
  fields = schema.Sort(keys or [], compare, output, keep)
  results = []
  for value in values:
    root = builder.new_root(kept, value.dtype, to)
    builder.define(value, builder.root_view(root).transpose(inverse))
    results.append(Written(root, (*dims[:-1], -1)))
  builder.execute(
    fields,
    shape,
    split,
    operands,
    results,
    epilogue=sorting.merge(
      builder.target,
      fields,
      split,
      to,
      [v.dtype for v in node.inputs],
      [v.dtype for v in values],
    ),
    parts=split.factors[-1].parts,
  )


define(Operation(SORT, _lower, _read))
