"""Puts a program together: tensors, exchanges, compute sets, control flow.

Operations' lowerings talk to a `Builder` in terms of views. It decides which
exchange must come before a compute set (a placed tensor for each operand that
is not already where its vertices are), and stamps the costs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets._codelet import broadcast
from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.ir.registry import REGISTRY, has_effect
from jaxlib.ipu.lower.choices import Choices, Used
from jaxlib.ipu.lower.map_program import MAP
from jaxlib.ipu.lower.schedule import Task, schedule
from jaxlib.ipu.lower.scope import Placed, Scope
from jaxlib.ipu.lower.tensors import TensorInfo, Tensors
from jaxlib.ipu.lower.view import View, dense_strides
from jaxlib.ipu.plan import cost, indexed
from jaxlib.ipu.plan.layout import Layout, project
from jaxlib.ipu.plan.traffic import Traffic
from jaxlib.ipu.plan.traffic import traffic as moved
from jaxlib.ipu.plan.walk import Side
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
  """What a compute set reads: a view, and for each dimension of the iteration
  space the view's dimension that goes with it, or -1.

  `layout` overrides where the operand must be; None takes what the partition
  implies.
  """

  view: View
  dims: tuple[int, ...]
  layout: Layout | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
  """What a compute set writes: a root and its dimensions, as `Operand`."""

  root: int
  dims: tuple[int, ...]


# A copy that takes more than this part of a tile does not stay for later
# operations: what happens meanwhile needs the SRAM. [G]
_LARGEST_KEPT = 1 / 16


class StepBuffers(NamedTuple):
  """A step, and the bytes that each tile needs while it runs, beside tensors:
  for candidates, partial results, parts of what is sorted."""

  step: schema.Execute
  bytes: np.ndarray


class Builder(Tensors):
  """The program under construction.

  Attributes:
    choices: what it may do.
    used: what it did.
    buffers: steps that need room beside tensors while they run, by their id.
  """

  def __init__(self, target: Target, choices: Choices | None = None) -> None:
    super().__init__(target)
    self.choices = choices or Choices()
    self.used = Used()
    self._scopes = [Scope(1, 0, ())]
    self.buffers: dict[int, StepBuffers] = {}
    self._graph: Graph | None = None
    self._readers: dict[int, list[Node]] | None = None
    # Copies by their ids, and what each move keeps on its tile (plan/traffic).
    self.staying: dict[int, tuple[schema.Copy, list[Any]]] = {}

  @property
  def steps(self) -> list[Any]:
    """The list that new steps go to."""
    return self._scopes[-1].steps

  def share_of_steps(self) -> float:
    """The share of a tile's SRAM for a step whose places are known at run time
    only (plan/indexed.py)."""
    self.used.indexes = True
    return indexed.FRUGAL if self.choices.frugal else indexed.ROOMY

  # --- Exchange ------------------------------------------------------------

  def place(
    self,
    view: View,
    layout: Layout,
    moves: list[Any],
    traffic: list[Traffic],
    hoists: bool = True,
  ) -> int:
    """The tensor that holds `view` under `layout`: its root, or a new placed
    one with its move and what the move costs added to the lists; or to those
    of the outermost loop that leaves the root alone."""
    info = self.tensors[view.root]
    identity = self.is_identity(view)
    if identity and info.layout == layout and info.shape == view.shape:
      return view.root
    for there, copy, stays in self._copies(view, moves):
      if there.covers(layout):
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
    placed = self._scopes[level].placed.setdefault(view, {})
    placed[layout] = Placed(number, loop)
    moves.append(
      schema.Move(
        view.root, view.offset, list(view.strides), number, 0,
        list(dense_strides(view.shape)), list(view.shape),
      )
    )  # fmt: skip
    traffic.append(self._traffic(view, layout))
    return number

  def _copies(
    self, view: View, moves: Sequence[schema.Move] = ()
  ) -> Iterator[tuple[Layout, int, bool]]:
    """What a view has been placed as, if that may be used: mappings, tensors,
    and whether they are there in any case: for all of a loop around the present
    step, or made by `moves`. Others have to stay for it, for all iterations of
    a loop that began later."""
    for scope in self._scopes:
      for layout, (number, loop) in scope.placed.get(view, {}).items():
        stays = loop in self._scopes or any(
          move.destination == number for move in moves
        )
        size = layout.max_elements * SIZE[view.dtype]
        small = size <= self.target.bytes_per_tile * _LARGEST_KEPT
        if stays or (self.choices.keeps and small):
          yield layout, number, stays

  def homes(self, operand: Operand) -> list[tuple[Layout, tuple[int, ...]]]:
    """Where all of an operand is already: the mappings of its copies, and of
    its root if that is no more; with the dimensions of the iteration space
    that the operand's go with, in the mapping's order."""
    view, dims = _in_memory(operand.view, operand.dims)
    walked = tuple(dims.index(to) for to in range(len(view.shape)))
    found = [layout for layout, _, _ in self._copies(view)]
    if self.is_identity(view):
      found.append(self.tensors[view.root].layout)
    return [(layout, walked) for layout in found]

  def _level(self, root: int) -> int:
    """The scope in which an exchange of a root is made, rather than in each
    iteration of a loop within it."""
    level = len(self._scopes) - 1
    if self.choices.hoists:
      constant = self.tensors[root].space == schema.CONSTANT
      while self._scopes[level].trips and level:
        if not constant and not self._scopes[level].keeps(root):
          break
        level -= 1
    return level

  def weight(self, view: View) -> float:
    """The share of an exchange of a view that each iteration of the loops
    around pays for."""
    inner = self._scopes[self._level(view.root) + 1 :]
    return 1 / math.prod(scope.trips for scope in inner)

  def _traffic(self, view: View, layout: Layout) -> Traffic:
    """What it takes to bring a view's elements to a layout."""
    info = self.tensors[view.root]
    return moved(
      Side(info.layout, view.offset, view.strides),
      Side(layout, 0, dense_strides(view.shape)),
      view.shape, SIZE[info.dtype], once=True,
    )  # fmt: skip

  def copy_to(self, pairs: Sequence[tuple[View, View]]) -> None:
    """One exchange: each source view's elements go to its destination view."""
    moves = []
    traffic = []
    for source, destination in pairs:
      if source.size == 0:
        continue
      moves.append(
        schema.Move(
          source.root, source.offset, list(source.strides),
          destination.root, destination.offset, list(destination.strides),
          list(source.shape),
        )
      )  # fmt: skip
      traffic.append(self._copied(source, destination))
    if moves:
      self._exchange(moves, traffic)
      step = self.steps[-1]
      self.staying[id(step)] = step, [t.kept for t in traffic]

  def copying(self, pairs: Sequence[tuple[View, View]]) -> schema.Cost:
    """What `copy_to` would cost."""
    return cost.exchange(self.target, [self._copied(*p) for p in pairs])

  def _copied(self, source: View, destination: View) -> Traffic:
    a, b = self.tensors[source.root], self.tensors[destination.root]
    return moved(
      Side(a.layout, source.offset, source.strides),
      Side(b.layout, destination.offset, destination.strides),
      source.shape, SIZE[source.dtype],
    )  # fmt: skip

  def materialise(self, view: View, layout: Layout | None = None) -> View:
    """A view as a dense root of its own; nothing if it is one already."""
    if self.is_identity(view) and self.tensors[view.root].shape == view.shape:
      return view
    root = self.new_root(view.shape, view.dtype, layout)
    self.copy_to([(view, self.root_view(root))])
    return self.root_view(root)

  def _exchange(self, moves: list[Any], traffic: list[Traffic]) -> None:
    self.steps.append(
      schema.Copy(moves, cost.exchange(self.target, traffic), self.location)
    )

  # --- Compute sets --------------------------------------------------------

  def execute(
    self,
    fields: Any,
    shape: Shape,
    partition: Layout,
    operands: Sequence[Operand],
    results: Sequence[Written],
    handed: cost.Handed | None = None,
    hoists: bool = True,
    **hints: Any,
  ) -> None:
    """Adds a compute set and the exchange it needs.

    Args:
      fields: the codelet's record.
      shape: the iteration space.
      partition: how its elements are split over tiles.
      operands: what its vertices read.
      results: what they write.
      handed: what follows the vertices, if anything does.
      hoists: whether what a loop leaves alone may be brought before it.
      **hints: what the codelet's cycle formula wants to know beside.

    Where all results are empty there is nothing to do, and no step.
    """
    if all(self.tensors[r.root].size == 0 for r in results):
      return
    moves: list[Any] = []
    traffic: list[Traffic] = []
    accesses = []
    for operand in operands:
      view = operand.view
      layout = operand.layout
      dims = operand.dims
      if layout is None:
        layout, dims, view = self._needed(view, dims, shape, partition)
      number = self.place(view, layout, moves, traffic, hoists)
      accesses.append(schema.Access(number, list(dims)))
    if moves:
      self._exchange(moves, traffic)
    if math.prod(shape) > 1:
      hints["scalars"] = tuple(
        i for i, a in enumerate(accesses) if all(d < 0 for d in a.dims)
      )
      hints["walks"] = broadcast(shape, (a.dims for a in accesses))
    total = cost.compute_set(
      self.target,
      fields,
      shape,
      partition,
      [o.view.dtype for o in operands],
      [self.tensors[r.root].dtype for r in results],
      **hints,
    )
    if handed is not None:
      total = cost.add(total, handed.cost)
    step = schema.Execute(
      fields,
      list(shape),
      self.mapping(partition),
      accesses,
      [schema.Access(r.root, list(r.dims)) for r in results],
      total,
      self.location,
    )
    self.steps.append(step)
    if handed is not None and handed.buffers is not None:
      self.buffers[id(step)] = StepBuffers(step, handed.buffers)

  def bringing(
    self, shape: Shape, partition: Layout, operands: Sequence[Operand]
  ) -> schema.Cost:
    """What the exchange before such a compute set costs."""
    traffic = []
    for operand in operands:
      layout, _, view = self._needed(
        operand.view, operand.dims, shape, partition
      )
      if not any(there.covers(layout) for there, _, _ in self._copies(view)):
        found = self._traffic(view, layout)
        share = self.weight(view)
        if share < 1:
          received, sent = (
            np.ceil(share * x).astype(np.int64)
            for x in (found.received, found.sent)
          )
          found = Traffic(received, sent, found.alike)
        traffic.append(found)
    return cost.exchange(self.target, traffic)

  def _needed(
    self, view: View, dims: tuple[int, ...], shape: Shape, partition: Layout
  ) -> tuple[Layout, tuple[int, ...], View]:
    """Where an operand must be, and how it is walked there."""
    small, renumbered = _in_memory(view, dims)
    kept = tuple(renumbered.index(to) for to in range(len(small.shape)))
    projected = project(partition, shape, kept)
    if projected is None:
      # A block straddles dimensions: give each tile its elements one by one.
      full = tuple(view.strides[to] if to >= 0 else 0 for to in dims)
      expanded = dataclasses.replace(view, shape=shape, strides=full)
      return partition, tuple(range(len(shape))), expanded
    return projected, renumbered, small

  # --- Walking graphs ------------------------------------------------------

  def lower_graph(
    self, graph: Graph, freed: Collection[int] = ()
  ) -> list[View]:
    """Lowers a graph's nodes, in an order of little SRAM (lower/schedule.py).

    Args:
      graph: its parameters are defined.
      freed: roots whose memory is free once the graph has read them.

    Returns:
      Where its results are.
    """
    begin = end = len(self.steps)
    tasks = []
    outer = self.location, self._graph, self._readers
    self._graph, self._readers = graph, None
    for node in graph.nodes:
      self.locate(node)
      definition = REGISTRY.get(node.op)
      if definition is None or definition.lower is None:
        raise internal(f"nothing lowers {node.op}", node.location)
      definition.lower(self, node)
      if len(self.steps) > end:
        tasks.append(Task(self.steps[end:], has_effect(node)))
        end = len(self.steps)
    self.location, self._graph, self._readers = outer
    results = [self.view(v) for v in graph.results]
    self.steps[begin:] = schedule(
      tasks,
      self.tensors,
      self.target.num_tiles,
      freed,
      {v.root for v in results},
    )
    return results

  def readers(self, value: Value) -> list[Node]:
    """The nodes of the present graph that have a value as an operand."""
    if self._readers is None:
      self._readers = {}
      for node in self._graph.nodes if self._graph else ():
        for v in node.inputs:
          self._readers.setdefault(id(v), []).append(node)
    return self._readers.get(id(value), [])

  def wanted(self, value: Value) -> Layout | None:
    """The mapping that a value has to have for those who read it: that of an
    array of its shape that is there already, and is read with it element by
    element; as a parameter is with its gradient."""
    for node in self.readers(value):
      if node.op != MAP:
        continue
      for other in node.inputs:
        if other.shape != value.shape or id(other) not in self._values:
          continue
        view = self.view(other)
        info = self.tensors[view.root]
        if self.is_identity(view) and info.shape == value.shape:
          return None if info.layout.replicas else info.layout
    return None

  def enter(self, trips: int = 0, carried: Collection[int] = ()) -> None:
    """Starts a list of steps inside the present one, which `leave` ends.

    Args:
      trips: see `Scope`.
      carried: roots that a loop writes at the end of each iteration.
    """
    self._scopes.append(Scope(trips, len(self.tensors), carried))

  def leave(self) -> list[Any]:
    """Ends the list of steps and returns it."""
    scope = self._scopes.pop()
    if scope.moves:
      self._exchange(scope.moves, scope.traffic)
    return scope.steps


def _in_memory(
  view: View, dims: tuple[int, ...]
) -> tuple[View, tuple[int, ...]]:
  """An operand as it lies in memory, outer dimensions first: whoever needs the
  same elements, in whatever order, finds the same view.

  The view's dimensions that stand still (stride 0) are dropped: they cost
  neither SRAM nor exchange.
  """
  walked = [
    to
    for to in range(len(view.shape))
    if view.strides[to] != 0 and view.shape[to] != 1
  ]
  walked.sort(key=lambda to: -abs(view.strides[to]))
  if walked == list(range(len(view.shape))):
    return view, dims
  place = {to: i for i, to in enumerate(walked)}
  small = dataclasses.replace(
    view,
    shape=tuple(view.shape[to] for to in walked),
    strides=tuple(view.strides[to] for to in walked),
  )
  return small, tuple(place.get(to, -1) for to in dims)
