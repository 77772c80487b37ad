"""Operations that are lowered like an earlier one.

The layers of a network are the same operations on other tensors. Where the
mappings of the operands, their copies and everything else that a lowering reads
are the same, too, so are its steps, but for the tensors' numbers: they are
copied, and nothing is planned or priced again.

An operation takes part if it says what its lowering reads besides its
attributes, its operands and their copies (`Operation.context`). The programs
are the same as without.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from jaxlib.ipu.ir.graph import Graph, Node
from jaxlib.ipu.ir.registry import REGISTRY, Lower
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.exchange import Exchanges
from jaxlib.ipu.lower.product import Product
from jaxlib.ipu.lower.scope import Placed
from jaxlib.ipu.plan.alternatives import Planned
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import View

# Operands with more copies are rarely alike, and comparing them takes long. [G]
_MOST_TENSORS = 100


class _Question(NamedTuple):
  """What a lowering depends on.

  Attributes:
    key: equal for operations that are lowered alike.
    tensors: the numbers of the operands' roots and of their copies, in an order
      that is the same for equal keys.
  """

  key: Any
  tensors: list[int]


class _Lowered(NamedTuple):
  """How an operation was lowered.

  Attributes:
    operands: `_Question.tensors`.
    first: the number of the first tensor that it made.
    tensors: those that it made.
    steps, products, planned: what it added to the lists of the builder.
    assembled: roots that it added to those of the builder.
    placed: the new copies of a root's views.
    views: of its results.
  """

  operands: list[int]
  first: int
  tensors: list[TensorInfo]
  steps: list[Step]
  products: list[Product]
  planned: list[Planned]
  assembled: list[int]
  placed: list[tuple[View, Layout, Placed]]
  views: list[View]


class Reuse:
  """Lowers the nodes of a graph that is not in a loop or branch.

  `products` is the builder's list of them.
  """

  def __init__(
    self, builder: Exchanges, products: list[Product], graph: Graph
  ) -> None:
    self._builder = builder
    self._products = products
    self._lowered: dict[Any, _Lowered] = {}
    numbers: dict[Any, int] = {}
    self._kinds = {
      id(node): numbers.setdefault(_kind(node), len(numbers))
      for node in graph.nodes
    }
    self._alike = Counter(self._kinds.values())

  def lower(self, node: Node, lower: Lower) -> None:
    """Adds a node's steps: by `lower`, or by copying those of an equal one."""
    question = self._question(node)
    if question is None:
      lower(self._builder, node)
    elif (found := self._lowered.get(question.key)) is not None:
      self._copy(node, found, question)
    else:
      self._record(node, lower, question)

  def _question(self, node: Node) -> _Question | None:
    """What a node's lowering depends on; None if no node is like it, or if that
    is not known."""
    kind = self._kinds[id(node)]
    context = REGISTRY[node.op].context
    if context is None or self._alike[kind] == 1:
      return None
    beside = context(self._builder, node)
    if beside is None:
      return None
    placed = self._builder.copies_at_hand
    roots: dict[int, int] = {}
    views, held, numbers = [], [], []
    for value in node.inputs:
      view = self._builder.view(value)
      views.append((roots.setdefault(view.root, len(roots)), *view[1:]))
    for root in roots:
      info = self._builder.tensors[root]
      constant = info.space == schema.CONSTANT
      copies = placed.get(root, {})
      held.append((
        root if constant else -1, info.dtype, info.shape, info.layout,
        *(
          (*view[1:], *((layout, p.whole) for layout, p in by_layout.items()))
          for view, by_layout in copies.items()
        ),
      ))  # fmt: skip
      numbers.append(root)
      for by_layout in copies.values():
        numbers += [p.number for p in by_layout.values()]
    if len(numbers) > _MOST_TENSORS:
      return None
    return _Question((kind, beside, *views, *held), numbers)

  def _record(self, node: Node, lower: Lower, question: _Question) -> None:
    """Lowers a node, and takes note of how, if others can be lowered alike."""
    builder = self._builder
    first = len(builder.tensors)
    begin, products = len(builder.steps), len(self._products)
    planned = len(builder.used.planned)
    constants = len(builder.constants)
    lower(builder, node)
    tensors = builder.tensors[first:]
    steps = builder.steps[begin:]
    known = {*question.tensors, *range(first, len(builder.tensors))}
    if (
      len(builder.constants) > constants
      or any(step.regions for step in steps)
      or any(step.location != builder.location for step in steps)
      or any(not known.issuperset(_accessed(step)) for step in steps)
      or any(t.root not in known for t in tensors)
    ):
      return
    placed = [
      (view, layout, copy)
      for root in known
      for view, copies in builder.copies_at_hand.get(root, {}).items()
      for layout, copy in copies.items()
      if copy.number >= first
    ]
    self._lowered[question.key] = _Lowered(
      question.tensors,
      first,
      tensors,
      steps,
      self._products[products:],
      builder.used.planned[planned:],
      [n for n in range(first, len(builder.tensors)) if n in builder.assembled],
      placed,
      [builder.view(v) for v in node.results],
    )

  def _copy(self, node: Node, found: _Lowered, question: _Question) -> None:
    """Adds what lowering an equal node has added, for a node's own tensors."""
    builder, location = self._builder, self._builder.location
    names = dict(zip(found.operands, question.tensors, strict=True))
    begin = len(builder.tensors)
    for number in range(len(found.tensors)):
      names[found.first + number] = begin + number
    name = names.__getitem__
    for t in found.tensors:
      builder.tensors.append(
        TensorInfo(
          t.dtype, t.shape, t.layout, names[t.root], t.offset, t.strides,
          location=None if t.location is None else location,
        )
      )  # fmt: skip
    for step in found.steps:
      copy = step.renamed(name)
      copy.location = location
      builder.steps.append(copy)
    self._products += [
      p._replace(operands=[*map(name, p.operands)]) for p in found.products
    ]
    builder.used.planned += [
      p._replace(location=location) for p in found.planned
    ]
    builder.assembled.update(map(name, found.assembled))
    for view, layout, placed in found.placed:
      copies = builder.copies_at_hand.setdefault(name(view.root), {})
      here = copies.setdefault(view._replace(root=name(view.root)), {})
      here[layout] = placed._replace(number=name(placed.number))
    for value, view in zip(node.results, found.views, strict=True):
      builder.define(value, view._replace(root=name(view.root)))


def _kind(node: Node) -> Any:
  """What nodes that are lowered alike have in common."""
  definition = REGISTRY.get(node.op)
  if definition is None or definition.context is None:
    return None
  types = tuple([(v.shape, v.dtype) for v in node.results])
  return node.op, node.attributes, types


def _accessed(step: Step) -> set[int]:
  """All tensors that a step names."""
  moved = (n for m in step.moves for n in (m.source, m.destination))
  return {*moved, *(n for n, _ in step.accesses())}
