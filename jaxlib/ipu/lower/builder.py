"""Builds a program: compute sets with their exchanges, control flow.

Operations' lowerings describe operands to a `Builder` as views. Operands that
are not on the vertices' tiles are copied there first (lower/exchange.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._codelet import Codelet
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Users, Value, users
from jaxlib.ipu.ir.map_program import MAP
from jaxlib.ipu.ir.registry import REGISTRY, has_effect
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.exchange import Exchanges, Operand
from jaxlib.ipu.lower.function import Function
from jaxlib.ipu.lower.product import Product
from jaxlib.ipu.lower.reuse import Reuse
from jaxlib.ipu.lower.scope import Scope
from jaxlib.ipu.moves.storage_order import StorageOrder, storage_order
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.plan import cost, indexed
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import Choices
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.tensor import bytes_of
from jaxlib.ipu.tile.view import View


class Written(NamedTuple):
  """A result of a compute set: a root and its dimensions, as in `Operand`."""

  root: int
  dims: tuple[int, ...]


class Builder(Exchanges):
  """The program under construction.

  Attributes:
    products: compute sets that may load one operand 128 bits at a time.
    functions: of the graph, those that were lowered.
  """

  def __init__(self, target: Target, choices: Choices | None = None) -> None:
    super().__init__(target, choices)
    self.products: list[Product] = []
    self.functions: list[Function] = []
    self._graph: Graph | None = None
    self._readers: dict[int, list[Node]] | None = None
    self._users: Users | None = None

  def share_of_steps(self) -> float:
    """The share of a tile's SRAM for a step with run-time indices
    (plan/indexed.py)."""
    self.used.indexes = True
    return indexed.FRUGAL if self.choices.frugal else indexed.ROOMY

  def interleaved(self) -> set[int]:
    """The tensors that have to be in interleaved memory, because they are
    loaded 128 bits at a time."""
    found = {product.weights() for product in self.products}
    return {number for number in found if number is not None}

  def outline(self, names: Mapping[int, int]) -> None:
    """Takes note of tensors that functions have instead of those of the steps
    that they were made from (tile_passes/outline.py)."""
    self.products = [
      *self.products,
      *(
        p._replace(operands=[names.get(n, n) for n in p.operands])
        for p in self.products
        if not names.keys().isdisjoint(p.operands)
      ),
    ]

  # --- Compute sets --------------------------------------------------------

  def execute(
    self,
    fields: Any,
    shape: Shape,
    partition: Layout,
    operands: Sequence[Operand],
    results: Sequence[Written],
    epilogue: cost.Epilogue | None = None,
    hoists: bool = True,
    keeps: bool = True,
    hints: Hints | None = None,
  ) -> None:
    """Adds a compute set and the exchange it needs.

    Args:
      fields: the codelet's record.
      shape: the iteration space.
      partition: how its elements are split over tiles.
      operands: read by its vertices.
      results: written by them.
      epilogue: the supersteps after the vertices, if any.
      hoists: whether loop-invariant operands may be copied before the loop.
      keeps: whether copies made for earlier steps may be kept for this one.
      hints: of the type `Codelet.hints`; none by default. The operands' scalars
        and walks are added.

    If all results are empty, no step is added.
    """
    if all(self.tensors[r.root].size == 0 for r in results):
      return
    codelet = CODELETS[type(fields)]
    read = self._bring(codelet, shape, partition, operands, hoists, keeps)
    written = [schema.Access(r.root, list(r.dims)) for r in results]
    hints = codelet.hints() if hints is None else hints
    if math.prod(shape) > 1:
      hints = hints.reading(shape, [a.dims for a in read])
    computing = self.target, fields, shape, partition
    dtypes = [o.view.dtype for o in operands]
    own = cost.compute_set(
      *computing, dtypes, [self.tensors[r.root].dtype for r in results], hints
    )
    if cost.has_weights(self.target, fields):
      numbers = [a.tensor for a in read]
      self.products.append(Product(computing, dtypes, hints, numbers))
    packed, buffers = self._packed(codelet, shape, partition, read, written)
    if epilogue is not None:
      own = cost.add(own, epilogue.cost)
      buffers = buffers if epilogue.buffers is None else epilogue.buffers
    self.mapping(partition)
    self.steps.append(
      Execute(
        fields=fields,
        shape=tuple(shape),
        partition=partition,
        operands=read,
        results=written,
        own=own,
        location=self.location,
        buffers=buffers,
        epilogue=epilogue,
        hints=hints,
        packed=packed,
      )
    )
    for result in results:
      self.wrote(result.root)

  def _bring(
    self,
    codelet: Codelet,
    shape: Shape,
    partition: Layout,
    operands: Sequence[Operand],
    hoists: bool,
    keeps: bool,
  ) -> list[schema.Access]:
    """Adds the exchange after which vertices have all operands on their tiles;
    returns how they access them there. For the arguments see `execute`."""
    moves: list[schema.Move] = []
    traffic: list[Traffic] = []
    accesses = []
    ordered, apart = codelet.one_order, codelet.reads_apart
    for operand in operands:
      layout, dims, view = self.needed(operand, shape, partition, ordered)
      number = self.place(view, layout, moves, traffic, hoists, apart, keeps)
      accesses.append(schema.Access(number, list(dims)))
    if moves:
      self._exchange(moves, traffic)
    return accesses

  def _packed(
    self,
    codelet: Codelet,
    shape: Shape,
    partition: Layout,
    read: Sequence[schema.Access],
    written: Sequence[schema.Access],
  ) -> tuple[tuple[int, ...], np.ndarray | None]:
    """The copies that tiles make for vertices that access all in one order: the
    slowest tile's bytes, as `Step.packed`, and the bytes each tile needs."""
    if not codelet.one_order:
      return (), None
    orders = [
      StorageOrder(a.tensor, storage_order(tuple(a.dims)), SIZE[info.dtype])
      for a in (*read, *written)
      for info in (self.tensors[a.tensor],)
    ]
    copies = self.order_copies(shape, partition, orders)
    if not copies:
      return (), None
    room = np.zeros(self.target.num_tiles, np.int64)
    for one in copies:
      layout = self.tensors[one.tensor].layout
      room += bytes_of(layout, one.item_bytes, self.target.num_tiles)
    return (sum(copies.values()),), room

  def copy_to(self, pairs: Sequence[tuple[View, View]]) -> None:
    """As `Exchanges.copy_to`. What is broadcast to all of a root is written by
    vertices, on tiles that receive each element once, if that takes less."""
    roots = {destination.root for _, destination in pairs}
    filled, rest = [], []
    for source, to in pairs:
      fills = any(not s and n > 1 for s, n in zip(source.strides, source.shape))
      whole = self.is_identity(to) and to.shape == self.tensors[to.root].shape
      alone = source.root not in roots
      chosen = fills and whole and alone and self._fills_faster(source, to)
      (filled if chosen else rest).append((source, to))
    super().copy_to(rest)
    for source, to in filled:
      self.fill(source, to.root)

  def _fills_faster(self, source: View, to: View) -> bool:
    """Whether `fill` takes less than a copy, which moves nothing to the same
    place of the same tile (`tile_passes/local_copies.py`)."""
    if not source.size:
      return False
    info = self.tensors[to.root]
    space = info.shape, info.layout
    fields, operand = self._filling(source, to.root)
    _, dims, _ = self.needed(operand, *space, True)
    filled = cost.add(
      self.exchange_cost(*space, [operand], [info.dtype]),
      cost.compute_set(
        self.target, fields, *space, [source.dtype], [info.dtype],
        Hints().reading(info.shape, [dims]),
      ),
    )  # fmt: skip
    copied = self.copy_cost([(source, to)], stays=False)
    return cost.cycles(filled) <= cost.cycles(copied)

  def fill(self, source: View, root: int) -> None:
    """Writes a view, or a scalar everywhere, to all of a root."""
    info = self.tensors[root]
    fields, operand = self._filling(source, root)
    dims = tuple(range(len(info.shape)))
    self.execute(
      fields, info.shape, info.layout, [operand], [Written(root, dims)]
    )

  def _filling(self, source: View, root: int) -> tuple[schema.Map, Operand]:
    info = self.tensors[root]
    code = Writer()
    number = code.load(0, info.dtype)
    read = tuple(
      d if d < len(source.shape) else -1 for d in range(len(info.shape))
    )
    return schema.Map(code.finish(), [number]), Operand(source, read)

  # --- Lowering graphs -----------------------------------------------------

  def lower_graph(
    self, graph: Graph, freed: Collection[int] = (), once: bool = False
  ) -> list[View]:
    """Lowers a graph's nodes in program order (tile_passes/order.py).

    Args:
      graph: its parameters are defined.
      freed: roots whose memory is free after the graph has read them.
      once: whether it is in no loop or branch, as the program and functions.

    Returns:
      Views of its results.
    """
    steps = self.steps
    begin = len(steps)
    once |= len(self._scopes) == 1
    reuse = Reuse(self, self.products, graph) if once else None
    outer = self.location, self._graph, self._readers, self._users
    self._graph, self._readers, self._users = graph, None, None
    for operation, node in enumerate(graph.nodes):
      self.locate(node)
      definition = REGISTRY.get(node.op)
      if definition is None or definition.lower is None:
        raise internal(f"nothing lowers {node.op}", node.location)
      if reuse is not None:
        reuse.lower(node, definition.lower)
      else:
        definition.lower(self, node)
      if len(steps) > begin:
        effect = has_effect(node)
        for step in steps[begin:]:
          step.operation, step.has_effect = operation, effect
          step.origins = node.origins
        begin = len(steps)
    self.location, self._graph, self._readers, self._users = outer
    results = [self.view(v) for v in graph.results]
    steps.freed = set(freed)
    steps.kept = {v.root for v in results}
    return results

  def readers(self, value: Value) -> list[Node]:
    """The nodes of the current graph that have a value as an operand."""
    if self._readers is None:
      self._readers = {}
      for node in self._graph.nodes if self._graph else ():
        for v in node.inputs:
          self._readers.setdefault(id(v), []).append(node)
    return self._readers.get(id(value), [])

  def only_reader(self, value: Value) -> Node | None:
    """The node of the current graph that is all that uses a value, once."""
    readers = self.readers(value)
    if len(readers) != 1 or self._graph is None:
      return None
    if self._users is None:
      self._users = users(self._graph)
    return readers[0] if len(self._users[id(value)]) == 1 else None

  def read_as(self, value: Value) -> Value:
    """A value under the shape in which it is read, if all it is used for at
    first is a reshape."""
    readers = self.readers(value)
    while len(readers) == 1 and readers[0].op == "stablehlo.reshape":
      (value,) = readers[0].results
      readers = self.readers(value)
    return value

  def wanted(self, value: Value) -> Layout | None:
    """The mapping that a value should have for its readers: that of an existing
    array of its shape with which it is read element by element, as a parameter
    is with its gradient."""
    for node in self.readers(value):
      if node.op != MAP:
        continue
      for other in node.inputs:
        if other.shape != value.shape or not self.is_defined(other):
          continue
        view = self.view(other)
        info = self.tensors[view.root]
        if self.is_identity(view) and info.shape == value.shape:
          return None if info.layout.replicas else info.layout
    return None

  def enter(self, trips: int = 0, carried: Collection[int] = ()) -> None:
    """Starts a nested list of steps, which `leave` ends.

    Args:
      trips: see `Scope`.
      carried: roots that a loop writes at the end of each iteration.
    """
    for root in carried:
      self.wrote(root)
    self._scopes.append(Scope(trips, len(self.tensors), carried))

  def leave(self) -> Region:
    """Ends the list of steps and returns it."""
    scope = self._scopes.pop()
    if scope.moves:
      self._exchange(scope.moves, scope.traffic)
    return scope.steps
