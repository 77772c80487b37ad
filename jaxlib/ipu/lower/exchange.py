"""Exchanges that move the operands of compute sets to their vertices' tiles.

An operand that is not on its vertices' tiles is copied there, to a placed
tensor. Existing copies are reused where possible, and loop-invariant operands
are copied once, before the loop.

A write to a root invalidates its copies (`wrote`). A root that a loop carries
is not invariant in it, so it is copied in each iteration (`Scope.carried`).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.layout import Layout, project
from jaxlib.ipu.lower.scope import Placed, Scope
from jaxlib.ipu.lower.tensors import Tensors
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic, staying
from jaxlib.ipu.moves.storage_order import (
  StorageOrder,
  ascending,
  order_copies,
  storage_order,
)
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import Choices, Used
from jaxlib.ipu.tile.copy import Copy, copy_views, ends
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import (
  View,
  as_in_memory,
  as_walked,
  dense_strides,
)


class Operand(NamedTuple):
  """An operand of a compute set.

  Attributes:
    view: its elements.
    dims: for each dimension of the iteration space, the view's dimension with
      the same index; -1 where the operand is broadcast.
    layout: the mapping that the operand needs; None for that which follows from
      the partition.
  """

  view: View
  dims: tuple[int, ...]
  layout: Layout | None = None


# A copy that takes more than this part of a tile does not stay for later
# operations: those in between need the SRAM. [G]
_LARGEST_KEPT = 1 / 16


class Exchanges(Tensors):
  """The tensors of a program under construction, and the exchanges between
  them.

  Attributes:
    choices: the optimisations that may be applied.
    used: the optimisations that have been applied.
    assembled: roots that are written by several copies, one part each, before
      any part is read (tile_passes/assembled.py).
  """

  def __init__(self, target: Target, choices: Choices | None = None) -> None:
    super().__init__(target)
    self.choices = choices or Choices()
    self.used = Used()
    self._scopes = [Scope(1, 0, ())]
    self.assembled: set[int] = set()
    self._rounds = math.inf  # tensors from here on belong to the current rounds

  @property
  def steps(self) -> Region:
    """The list that new steps are added to."""
    return self._scopes[-1].steps

  @property
  def copies_at_hand(self) -> dict[int, dict[View, dict[Layout, Placed]]]:
    """The copies made in the current list of steps (`Scope.placed`)."""
    return self._scopes[-1].placed

  def place(
    self,
    view: View,
    layout: Layout,
    moves: list[Any],
    traffic: list[Traffic],
    hoists: bool = True,
    apart: bool = False,
    keeps: bool = True,
  ) -> int:
    """The tensor that holds a view under a layout: its root, an existing copy,
    or a new placed tensor.

    Args:
      view: the elements.
      layout: the mapping that they need.
      moves, traffic: the exchange to which a new tensor's move and traffic are
        added, unless the move is hoisted.
      hoists: whether the move may be hoisted out of the loops in which the root
        is invariant.
      apart: see `Codelet.reads_apart`.
      keeps: whether a copy that would be dead by now may be kept alive.
    """
    info = self.tensors[view.root]
    identity = self.is_identity(view)
    if identity and info.layout == layout and info.shape == view.shape:
      return view.root
    for there, copy, stays in self._copies(view, moves, apart):
      if there.covers(layout) and (stays or keeps):
        self.used.keeps |= not stays
        return copy
    level = self._level(view.root) if hoists else len(self._scopes) - 1
    loop = None
    if level + 1 < len(self._scopes):
      self.used.hoists = True
      loop = self._scopes[level + 1]
      moves, traffic = loop.moves, loop.traffic
    number = len(self.tensors)
    self.tensors.append(
      TensorInfo(
        info.dtype, view.shape, layout, view.root, view.offset, view.strides
      )
    )
    copies = self._scopes[level].placed.setdefault(view.root, {})
    whole = not apart or not self._lies_apart(view, layout)
    copies.setdefault(view, {})[layout] = Placed(number, loop, whole)
    moves.append(
      schema.Move(
        view.root, view.offset, list(view.strides), number, 0,
        list(dense_strides(view.shape)), list(view.shape),
      )
    )  # fmt: skip
    traffic.append(self._traffic(view, layout, apart))
    return number

  def _copies(
    self,
    view: View,
    moves: Sequence[schema.Move] = (),
    apart: bool = False,
  ) -> Iterator[tuple[Layout, int, bool]]:
    """Yields the existing copies of a view, as (mapping, tensor, stays).

    `stays` says that the copy is live anyway: for all of a loop around the
    current step, or because `moves` make it. Other copies have to be kept for
    another use, throughout all iterations of loops that began after they were
    made.

    Args:
      view: the elements.
      moves: the exchange before the current step, as far as it is known.
      apart: whether the copy is for vertices that read single elements; others
        need copies that they can load as vectors.
    """
    for scope in self._scopes:
      copies = scope.placed.get(view.root, {}).get(view, {})
      for layout, (number, loop, whole) in copies.items():
        if not (whole or apart):
          continue
        stays = loop in self._scopes or any(
          move.destination == number for move in moves
        )
        size = layout.max_elements * SIZE[view.dtype]
        small = size <= self.target.bytes_per_tile * _LARGEST_KEPT
        if stays or (self.choices.keeps and (small or number >= self._rounds)):
          yield layout, number, stays

  @contextlib.contextmanager
  def rounds(self) -> Iterator[None]:
    """A context for the rounds of one operation. Copies made in it are kept for
    later rounds regardless of their size: the rounds were planned to leave room
    for the copies that the first one makes."""
    before, self._rounds = self._rounds, min(self._rounds, len(self.tensors))
    yield
    self._rounds = before

  def wrote(self, root: int) -> None:
    """Invalidates the copies of a root that a step has written."""
    for scope in self._scopes:
      scope.placed.pop(root, None)

  def existing_mappings(
    self, operand: Operand
  ) -> list[tuple[Layout, tuple[int, ...]]]:
    """The mappings under which all of an operand exists: those of its copies,
    and that of its root if the operand is the whole root. Each comes with the
    operand's dimensions of the iteration space in the mapping's order."""
    view, dims = as_in_memory(operand.view, operand.dims)
    along = tuple(dims.index(to) for to in range(len(view.shape)))
    found = [layout for layout, _, _ in self._copies(view)]
    if self.is_identity(view):
      found.append(self.tensors[view.root].layout)
    return [(layout, along) for layout in found]

  def _level(self, root: int) -> int:
    """The number of the outermost scope to which an exchange of a root can be
    hoisted."""
    level = len(self._scopes) - 1
    if self.choices.hoists:
      constant = self.tensors[root].space == schema.CONSTANT
      while self._scopes[level].trips and level:
        if not constant and not self._scopes[level].keeps(root):
          break
        level -= 1
    return level

  def weight(self, view: View) -> float:
    """The fraction of a view's exchange that is charged to each iteration of
    the enclosing loops: less than 1 if it is hoisted."""
    inner = self._scopes[self._level(view.root) + 1 :]
    return 1 / math.prod(scope.trips for scope in inner)

  def _traffic(self, view: View, layout: Layout, apart: bool) -> Traffic:
    """The traffic of moving a view to a layout, for vertices that read single
    elements (`apart`) or vectors."""
    sides = self._placing(view, layout)
    return move_traffic(*sides, view.shape, SIZE[view.dtype], True, not apart)

  def _lies_apart(self, view: View, layout: Layout) -> bool:
    """Whether what stays on its tile when a view is moved to a layout cannot be
    loaded as vectors there."""
    sides = self._placing(view, layout)
    size = SIZE[view.dtype]
    return staying(*sides, view.shape, size, narrow=True) is not None

  def _placing(self, view: View, layout: Layout) -> tuple[MoveEnd, MoveEnd]:
    """The source and the destination of a move to a placed tensor."""
    info = self.tensors[view.root]
    return (
      MoveEnd(info.layout, view.offset, view.strides),
      MoveEnd(layout, 0, dense_strides(view.shape)),
    )

  def copy_to(self, pairs: Sequence[tuple[View, View]]) -> None:
    """Adds one exchange that copies each source view to its destination
    view."""
    step = copy_views(self.target, self.tensors, pairs, self.location)
    if step is not None:
      self.steps.append(step)
      for _, destination in pairs:
        self.wrote(destination.root)

  def copy_cost(
    self, pairs: Sequence[tuple[View, View]], stays: bool = True
  ) -> schema.Cost:
    """The cost of `copy_to`. `stays` says that elements that stay on their tile
    also stay in their place, so they need not be copied."""
    some = [(s, d) for s, d in pairs if s.size]
    sides = [
      (*ends(self.tensors, s, d), s.shape, SIZE[s.dtype]) for s, d in some
    ]
    total = cost.exchange(self.target, [move_traffic(*end) for end in sides])
    if stays:
      return total
    kept = [x for end in sides if (x := staying(*end)) is not None]
    return cost.add(total, cost.local_copies(self.target, kept))

  def copy_cost_to(self, source: View, layout: Layout) -> schema.Cost:
    """The cost of copying a view to a new root with this mapping."""
    a = self.tensors[source.root]
    moving = move_traffic(
      MoveEnd(a.layout, source.offset, source.strides),
      MoveEnd(layout, 0, dense_strides(source.shape)),
      source.shape, SIZE[source.dtype], False,
    )  # fmt: skip
    return cost.exchange(self.target, [moving])

  def materialise(self, view: View, layout: Layout | None = None) -> View:
    """Copies a view to a root of its own, unless it is a whole root already."""
    if self.is_identity(view) and self.tensors[view.root].shape == view.shape:
      return view
    root = self.new_root(view.shape, view.dtype, layout)
    self.copy_to([(view, self.root_view(root))])
    return self.root_view(root)

  def _exchange(self, moves: list[schema.Move], traffic: list[Traffic]) -> None:
    self.steps.append(
      Copy(
        moves=moves,
        own=cost.exchange(self.target, traffic),
        location=self.location,
      )
    )

  def exchange_cost(
    self,
    shape: Shape,
    partition: Layout,
    operands: Sequence[Operand],
    ordered: Sequence[DType] = (),
    apart: bool = False,
  ) -> schema.Cost:
    """The cost of the exchange before a compute set.

    Args:
      shape: the iteration space.
      partition: its mapping.
      operands: the compute set's operands.
      ordered: the types of its results, if its vertices access all operands and
        results in one storage order; the cost then includes the copies that
        this takes (moves/storage_order.py).
      apart: see `Codelet.reads_apart`.
    """
    traffic, packed, orders = [], [], []
    for i, operand in enumerate(operands):
      layout, dims, view = self.needed(operand, shape, partition, bool(ordered))
      orders.append(StorageOrder(i, storage_order(dims), SIZE[view.dtype]))
      copies = self._copies(view, apart=apart)
      if not any(there.covers(layout) for there, _, _ in copies):
        found = self._traffic(view, layout, apart)
        share = self.weight(view)
        if share < 1:
          received, sent = (
            np.ceil(share * x).astype(np.int64)
            for x in (found.received, found.sent)
          )
          copying = cost.packing(self.target, [found], share)
          if copying is not None:
            packed.append(copying)
          found = Traffic(received, sent, found.alike)
        traffic.append(found)
    if ordered:
      every = tuple(range(len(shape)))
      orders += [
        StorageOrder(-1 - i, every, SIZE[d]) for i, d in enumerate(ordered)
      ]
      into_order = self.order_copies(shape, partition, orders)
      if into_order:
        packed.append(cost.local_copy(self.target, sum(into_order.values())))
    total = cost.exchange(self.target, traffic)
    return functools.reduce(cost.add, packed, total)

  def order_copies(
    self, shape: Shape, partition: Layout, orders: Sequence[StorageOrder]
  ) -> dict[StorageOrder, int]:
    """The operands and results that tiles have to copy because vertices access
    all of them in one storage order, with the bytes of each copy in vectors."""
    if all(ascending(one.order) for one in orders):
      return {}
    cell = cost.largest_cell(partition, shape)
    return order_copies(cell, orders) if len(cell) == len(shape) else {}

  def needed(
    self,
    operand: Operand,
    shape: Shape,
    partition: Layout,
    ordered: bool = False,
  ) -> tuple[Layout, tuple[int, ...], View]:
    """The mapping that an operand needs; for each dimension of the iteration
    space the operand's dimension; and the operand's view.

    The view is in storage order. But if vertices access all operands in one
    order (`ordered`) and the operand has to be moved in any case, it is moved
    to the iteration space's order, if that takes fewer cycles than a copy on
    the tiles afterwards.
    """
    view, dims, layout = operand
    if layout is not None:
      return layout, dims, view
    found = self._needed(as_in_memory(view, dims), operand, shape, partition)
    if not ordered or ascending(storage_order(found[1])):
      return found
    layout, _, needed_view = found
    if (
      self.is_identity(needed_view) and self.tensors[view.root].layout == layout
    ):
      return found
    in_order = self._needed(as_walked(view, dims), operand, shape, partition)
    return min(
      (in_order, found),
      key=lambda way: self._move_cycles(way, shape, partition),
    )

  def _move_cycles(
    self,
    way: tuple[Layout, tuple[int, ...], View],
    shape: Shape,
    partition: Layout,
  ) -> float:
    """Cycles of moving a single operand, if needed, and of copying it on its
    tiles into the iteration space's order, which is repeated in each iteration
    of a loop even if the move is hoisted."""
    layout, dims, view = way
    size = SIZE[view.dtype]
    cycles = 0.0
    if not any(there.covers(layout) for there, _, _ in self._copies(view)):
      moving = cost.exchange(self.target, [self._traffic(view, layout, False)])
      cycles = self.weight(view) * cost.cycles(moving)
    results = StorageOrder(-1, tuple(range(len(shape))), size)
    orders = [StorageOrder(0, storage_order(dims), size), results]
    copied = sum(self.order_copies(shape, partition, orders).values())
    if copied:
      cycles += cost.cycles(cost.local_copy(self.target, copied))
    return cycles

  def _needed(
    self,
    part: tuple[View, tuple[int, ...]],
    operand: Operand,
    shape: Shape,
    partition: Layout,
  ) -> tuple[Layout, tuple[int, ...], View]:
    """Like `needed`, given the operand's view and dimensions without those
    along which it is broadcast (`part`)."""
    small, renumbered = part
    kept = tuple(renumbered.index(to) for to in range(len(small.shape)))
    projected = project(partition, shape, kept)
    if projected is None:
      # A block of the partition straddles dimensions: the operand is expanded
      # to the iteration space, and each tile receives an element for each of
      # its indices.
      view, dims, _ = operand
      full = tuple(view.strides[to] if to >= 0 else 0 for to in dims)
      expanded = view._replace(shape=shape, strides=full)
      return partition, tuple(range(len(shape))), expanded
    return projected, renumbered, small
