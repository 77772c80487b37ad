"""Splits of gathers, scatters and dynamic slices over tiles."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._kinds import IndexedCodelet, UpdatingCodelet
from jaxlib.ipu.codelets._windows import along_dynamic
from jaxlib.ipu.codelets.dynamic_slice import copy_cycles
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.graph import Shape, Value
from jaxlib.ipu.layout import Factor, Layout, project, single
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.ops.concatenate import part
from jaxlib.ipu.plan import cost, indexed, indexed_cycles
from jaxlib.ipu.plan.indexed_blocks import Lookups
from jaxlib.ipu.plan.indexed_split import IndexedSplit
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.tensor import dense_strides
from jaxlib.ipu.tile.view import View


def index_view(view: View, indexing: Indexing) -> View:
  """The start indices as (batch..., components)."""
  rank = len(view.shape)
  if indexing.index_vector_dim == rank:
    return view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))
  last = indexing.index_vector_dim
  order = [d for d in range(rank) if d != last] + [last]
  return view.transpose(order)


def indexed_windows(
  codelet: IndexedCodelet,
  fields: schema.Gather | schema.Scatter,
  shape: Shape,
  operand: View,
  indices: View,
  num_tiles: int,
) -> Lookups:
  """The windows of a gather or a scatter; `indices` as from `index_view`."""
  return Lookups(
    shape,
    operand.shape,
    codelet.along(fields, shape, operand.shape),
    fields.num_batch_dims,
    SIZE[operand.dtype],
    SIZE[indices.dtype] * indices.shape[-1],
    num_tiles,
  )


def index_operand(
  view: View, rank: int, num_batch: int, split: Layout, shape: Shape
) -> Operand:
  """The start indices; each tile gets all components of those in its cell of
  the iteration space."""
  dims = tuple(range(num_batch)) + (-1,) * (rank - num_batch)
  own = project(split, shape, tuple(range(num_batch)))
  if own is None:
    assert 0 in shape, "a grid's blocks do not straddle dimensions"
    own = single(math.prod(view.shape[:-1]))  # there are no lookups
  components = view.shape[-1]
  factors = (*own.factors, Factor(components, max(components, 1), 0))
  return Operand(view, dims, dataclasses.replace(own, factors=factors))


def whole_root(builder: Builder, view: View) -> bool:
  """Whether an indexed operand is a whole root, which can stay in place."""
  info = builder.tensors[view.root]
  return builder.is_identity(view) and info.shape == view.shape


def operand_layout(builder: Builder, view: View) -> Layout:
  """The mapping that an indexed operand has, or would get."""
  if whole_root(builder, view):
    return builder.tensors[view.root].layout
  return builder.default_layout(view.shape, view.dtype)


def updated_layout(
  builder: Builder, operand: View, result: Value
) -> tuple[Layout, bool]:
  """The mapping that an updated operand has, or that its result should have,
  and whether it can be updated there: a whole root can, and so can one element
  that is broadcast, such as the zeros to which gradients are added."""
  if whole_root(builder, operand):
    return builder.tensors[operand.root].layout, True
  if any(operand.strides):
    return operand_layout(builder, operand), False
  wanted = builder.wanted(result)
  return wanted or builder.default_layout(operand.shape, operand.dtype), True


def bringing(builder: Builder, operand: View) -> indexed.Exchanges:
  """Computes the charge of moving slices' operand to a split's mapping, in one
  exchange with the indices, which synchronises."""

  def charged(w: Lookups, plan: IndexedSplit) -> tuple[float, float]:
    rank = len(w.shape)
    table = Operand(operand, (-1,) * rank, plan.windowed)
    found = builder.exchange_cost(w.shape, plan.partition, [table])
    return found.compute_cycles + found.exchange_cycles, 0.0

  return charged


def exchanging(
  builder: Builder,
  operand: View,
  own: Layout,
  read: Sequence[View],
  operands: Callable[[Sequence[View], IndexedSplit], list[Operand]],
  w: Lookups,
) -> indexed.Exchanges:
  """Computes the charges of the exchanges of updates.

  Args:
    builder: of the program.
    operand: copied to be updated, and moved to its own mapping afterwards.
    own: see `updated_layout`.
    read: views that rounds take a part of.
    operands: makes the vertices' operands, given parts of these and a split.
    w: the windows of all rounds.
  """
  d = w.rounds_along
  home = MoveEnd(own, 0, dense_strides(operand.shape))

  def charged(some: Lookups, plan: IndexedSplit) -> tuple[float, float]:
    there = builder.copy_cost_to(operand, plan.windowed)
    way = MoveEnd(plan.windowed, 0, home.strides), home
    back = move_traffic(*way, operand.shape, w.item_bytes)
    whole = cost.add(there, cost.exchange(builder.target, [back]))
    parts = read
    if d is not None:
      parts = [part(v, d, 0, some.shape[d]) for v in read]
    each = builder.exchange_cost(
      some.shape, plan.partition, operands(parts, plan)
    )
    return cost.cycles(whole), cost.cycles(each)

  return charged


def partials(
  codelet: UpdatingCodelet, fields: Any, dtype: DType
) -> indexed_cycles.Partials:
  """The partial results that a team of tiles adds up for updates."""
  item_bytes = codelet.partial_bytes(fields, dtype)
  each = codelet.combining(fields, dtype) if item_bytes else Cycles(0.0)
  cleared_bytes = codelet.cleared_bytes(fields, dtype)
  return indexed_cycles.Partials(item_bytes, each, cleared_bytes)


@dataclasses.dataclass(frozen=True)
class SliceCycles:
  """The cycles of a slice (plan/indexed.py): each index along moving dimensions
  counts as a lookup of contiguous elements."""

  target: Target
  dtype: DType

  def __call__(
    self, lookups: Any, window: Any, parts: Any, entries: Any, team: Any = 1
  ) -> Cycles:
    del parts, entries, team
    return copy_cycles(self.target, (0,), self.dtype, (lookups, window))


def moving_windows(
  shape: Shape, windowed: Shape, dtype: DType, num_tiles: int
) -> Lookups:
  """The windows of a dynamic slice or update of `shape`."""
  along = along_dynamic(shape, windowed)
  return Lookups(shape, windowed, along, len(shape), SIZE[dtype], 0, num_tiles)
