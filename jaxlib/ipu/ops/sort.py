"""sort: rows are distributed over tiles; if a row needs several tiles, sorted
parts are merged between them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxlib.ipu.codelets.sort import SortHints
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node, Shape
from jaxlib.ipu.ir.region import combiner
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ir.sort_keys import sort_keys
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.layout import Layout, grid
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.plan import cost, sorting
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.view import View

SORT = "stablehlo.sort"


@dataclasses.dataclass(frozen=True)
class Sorting:
  """The attributes of a sort.

  Attributes:
    dimension: the sorted one.
    keep: number of first elements that are used (passes/partial_sorts.py), the
      results' extent along the dimension; None for all.
    number: the result, if any, that has no operand but the elements' indices in
      their row (passes/partial_sorts.py).
  """

  dimension: int
  keep: int | None = None
  number: int | None = None


def _read(operation: Any) -> Sorting:
  attributes = operation.attributes
  rank = len(operation.operands[0].type.shape)
  dimension = -1  # the default: the last
  if "dimension" in attributes:
    dimension = attributes["dimension"].value
  return Sorting(dimension % rank if rank else 0)


def _splits(shape: Shape, tiles: int) -> Iterator[tuple[int, int]]:
  """Pairs of (tiles with one part of each row, parts of a row); rows are last.
  Parts are powers of two, as they are sorted in pairs, pairs of pairs and so
  on, and as many as tiles allow."""
  rows = max(min(math.prod(shape[:-1]), tiles), 1)
  most = min(shape[-1], tiles)
  powers = {1 << i for i in range(most.bit_length())}
  for parts in sorted({*powers, min(tiles // rows, most)}):
    yield tiles // parts, parts


def _grid(shape: Shape, tiles: int, parts: int) -> Layout:
  """A mapping with each row in `parts`, and rows over `tiles` tiles."""
  counts = []
  for extent in shape[:-1]:
    counts.append(max(1, min(tiles, extent)))
    tiles //= counts[-1]
  return grid(shape, [*counts, min(parts, shape[-1])])


class _SortPlan(NamedTuple):
  """A way to sort: the fields, the mapping of rows, that of the results, and
  the merge of the parts."""

  fields: schema.Sort
  split: Layout
  to: Layout
  epilogue: cost.Epilogue


def _cheapest(
  builder: Builder,
  fields: schema.Sort,
  shape: Shape,
  operands: Sequence[View],
  results: Sequence[DType],
) -> _SortPlan:
  """The cheapest way. If many of a long row's elements are kept, it sorts all:
  otherwise a single tile would merge them."""
  ways, cycles = [], []
  dtypes = [v.dtype for v in operands], results
  every = [fields]
  if fields.keep < shape[-1]:
    every.append(dataclasses.replace(fields, whole=1))
  kept = *shape[:-1], fields.keep
  for tiles, parts in _splits(shape, builder.target.num_tiles):
    split = _grid(shape, tiles, parts)
    moving = [builder.copy_cost_to(view, split) for view in operands]
    to = split
    if fields.keep < shape[-1]:
      to = builder.default_layout(kept, max(results, key=SIZE.__getitem__))
    for tried in every:
      merged = sorting.merge(builder.target, tried, split, to, *dtypes)
      vertices = cost.compute_set(
        builder.target, tried, shape, split, *dtypes,
        SortHints(parts=split.factors[-1].parts),
      )  # fmt: skip
      ways.append(_SortPlan(tried, split, to, merged))
      cycles.append(sum(map(cost.cycles, (vertices, merged.cost, *moving))))
  return ways[cycles.index(min(cycles))]


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
  compare, output = Code(), 0
  if keys is None:
    less = combiner(region)
    compare, (output,) = less.code, less.outputs
  if shape[-1] < 2:
    for value, result in zip(node.inputs, node.results, strict=True):
      builder.define(result, builder.view(value))
    return
  values = list(node.results)
  if attributes.number is not None:  # the last result of the codelet
    values.append(values.pop(attributes.number))
  views = [builder.view(v).transpose(order) for v in node.inputs]
  way = _cheapest(
    builder,
    schema.Sort(keys or [], compare, output, keep, 0),
    shape,
    views,
    [v.dtype for v in values],
  )
  # Rows are dense where they are sorted.
  operands = [Operand(builder.materialise(v, way.split), dims) for v in views]
  results = []
  for value in values:
    root = builder.new_root((*shape[:-1], keep), value.dtype, way.to)
    builder.define(value, builder.root_view(root).transpose(inverse))
    results.append(Written(root, (*dims[:-1], -1)))
  builder.execute(
    way.fields,
    shape,
    way.split,
    operands,
    results,
    epilogue=way.epilogue,
    hints=SortHints(parts=way.split.factors[-1].parts),
  )


define(Operation(SORT, _lower, _read))
