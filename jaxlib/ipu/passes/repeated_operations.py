"""Repeated operations of a graph: equal sequences, the layers of a network.

Operations are equal but for their operands, and the operands of one sequence
correspond to those of another. Constants, and what is computed from constants
alone, are part of no sequence: each can have copies of what takes no exchange
to compute, the rest comes from elsewhere. Nor are scalars that are computed
from parameters, as an optimiser's are, and arrays that consist of one of them:
each sequence broadcasts the scalars that it has.

What all sequences have in common elsewhere, such as the updates of their
layers' weights, joins them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Graph, Node, Value, used_values
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.ir.registry import REGISTRY, has_effect, is_elementwise
from jaxlib.ipu.ir.repeats import Repeat, repeats
from jaxlib.ipu.passes.fold_constants import CONSTANT

# A sequence has at least so many operations, among them one that chooses where
# its operands are: a product, or a convolution, which becomes one. [G]
_LEAST = 16
# The least part of the sequences that longer ones have to be. [G]
_LEAST_PARTS = 0.75

# Of a node that needs values from elsewhere: see `Repeated._absorb`.
_NOWHERE = -1, -1, (-1, -1)


@dataclasses.dataclass(slots=True)
class Sequences:
  """Equal sequences of operations.

  Attributes:
    begins: the place of the first operation of each.
    nodes: the operations of each.
    outer: the values from elsewhere that each uses, in the same order.
  """

  begins: list[int]
  nodes: list[list[Node]]
  outer: list[list[Value]]


class Repeated:
  """The repeated operations of a graph.

  Attributes:
    early: the constants, and scalars that are computed from constants and
      parameters alone, with their broadcasts: they come before all others.
    nodes: those that have to stay in order: all others.
    sequences: those that are to be functions; no node is in two of them.
  """

  def __init__(self, graph: Graph) -> None:
    self._graph = graph
    self._constant: set[Node | None] = set()
    self._free: set[Node | None] = {None}
    self.early: list[Node] = []
    self.nodes: list[Node] = []
    for node in graph.nodes:
      if not all([v.node in self._free for v in node.inputs]) or (
        node.regions or has_effect(node)
      ):
        self.nodes.append(node)
      elif all([v.node in self._constant for v in node.inputs]):
        self._constant.add(node)
        self._first(node)
      elif any([v.shape for v in node.inputs]) or (
        any([v.shape for v in node.results]) and not _is_view(node)
      ):
        self.nodes.append(node)
      else:
        self._first(node)
    self._needed: dict[Value, tuple[Value, ...] | None] = {}
    self._kinds = _kinds(self.nodes)
    self._early_kinds = dict(zip(self.early, _kinds(self.early), strict=True))
    self.sequences = [*self._disjoint()]
    if self.sequences:
      self._absorb()

  def _first(self, node: Node) -> None:
    self.early.append(node)
    self._free.add(node)

  def _disjoint(self) -> Iterator[Sequences]:
    """The sequences that save most, as far as they do not overlap."""
    taken: set[int] = set()
    found = repeats(self._kinds, _LEAST)
    found += [_longer(self._kinds, r) for r in found]
    found = [r for r in found if r.length >= _LEAST]
    found.sort(key=lambda r: -r.length * (len(r.begins) - 1))
    for length, begins in map(self._at_narrowest, found):
      some = self.nodes[begins[0] : begins[0] + length]
      if _has_period(self._kinds[begins[0] : begins[0] + length]):
        continue  # shorter ones than these are repeated
      if not any(map(_is_product, some)):
        continue
      free = [b for b in begins if taken.isdisjoint(range(b, b + length))]
      alike = self._alike(free, [self.nodes[b : b + length] for b in free])
      if alike is not None:
        for b in alike.begins:
          taken.update(range(b, b + length))
        yield alike

  def _at_narrowest(self, repeat: Repeat) -> Repeat:
    """A repeat whose parts follow each other, begun where the fewest bytes go
    from one to the next, as they do between the layers of a network: it may
    begin within the first layer, if that has a different beginning."""
    length, begins = repeat
    kinds, end = self._kinds, begins[-1] + length
    if end - begins[0] > length * len(begins):
      return repeat
    later = 0
    while later < length and end + later < len(kinds):
      if kinds[end + later] != kinds[end + later - length]:
        break
      later += 1
    if not later:
      return repeat
    first = max(begins[0] - length, 0)
    places = {n: first + i for i, n in enumerate(self.nodes[first:end])}
    # By value, its last use that is no further than the next layer: gradients
    # use values of any layer, wherever these are taken to begin.
    last: dict[Value, int] = {}
    for node, place in places.items():
      for value in node.inputs:
        made = places.get(value.node) if value.node else None
        if made is not None and place - made < length:
          last[value] = place
    change = [0] * (end + 2)
    for value, place in last.items():
      assert value.node is not None
      size = math.prod(value.shape) * SIZE[value.dtype]
      change[places[value.node] + 1] += size
      change[place + 1] -= size
    alive = [*itertools.accumulate(change)]
    choices = range(begins[0], begins[0] + later + 1)
    shift = min(choices, key=alive.__getitem__) - begins[0]
    return Repeat(length, [b + shift for b in begins])

  def _alike(
    self, begins: Sequence[int], nodes: Sequence[list[Node]]
  ) -> Sequences | None:
    """The most of some sequences whose operands correspond to each other: the
    first layer may have one value twice where others have two. None if no two
    do."""
    operands = [self._operands(some) for some in nodes]
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, (own, _) in enumerate(operands):
      groups[own].append(i)
    most = max(groups.values(), key=len, default=[])
    if len(most) < 2:
      return None
    return Sequences(
      [begins[i] for i in most],
      [nodes[i] for i in most],
      [operands[i][1] for i in most],
    )

  def _operands(self, nodes: Sequence[Node]) -> tuple[Any, list[Value]]:
    """All operands of a sequence, and its values from elsewhere. An operand is
    the result of another of its operations, as (place, index); the number of a
    value from elsewhere; a constant; or a broadcast, as (None, its kind, the
    number of its scalar)."""
    places = {node: i for i, node in enumerate(nodes)}
    found: list[Any] = []
    outer: dict[Value, int] = {}
    for node in nodes:
      for value in node.inputs:
        place = places.get(value.node) if value.node else None
        if place is not None:
          found.append((place, value.index))
        elif (needed := self.leaves(value)) is not None:
          numbers = [outer.setdefault(leaf, len(outer)) for leaf in needed]
          if numbers:
            assert value.node is not None
            found.append((None, self._early_kinds[value.node], *numbers))
          else:
            found.append(value)
        else:
          found.append(outer.setdefault(value, len(outer)))
    return tuple(found), [*outer]

  def leaves(self, value: Value) -> tuple[Value, ...] | None:
    """What functions need to compute a value for themselves: nothing for a
    constant, the scalar for a broadcast one. None if they do not."""
    node = value.node
    if node is None or node not in self._free:
      return None
    if value not in self._needed:
      self._needed[value] = None
      if node not in self._constant:
        if value.shape:
          self._needed[value] = node.inputs
      elif node.op == CONSTANT or is_elementwise(node) or _is_view(node):
        if not any(self.leaves(v) is None for v in node.inputs):
          self._needed[value] = ()
    return self._needed[value]

  def _absorb(self) -> None:
    """Adds to sequences what all of them have in common of the operations
    elsewhere that need nothing but the results of one of them and parameters.
    """
    # The function and the sequence of a node, and its place in that; or, of
    # nodes elsewhere, the number of what it computes.
    owners = {
      node: (number, k, (i, -1))
      for number, f in enumerate(self.sequences)
      for k, nodes in enumerate(f.nodes)
      for i, node in enumerate(nodes)
    }
    if len(owners) == len(self.nodes):
      return
    found: list[list[dict[int, Node]]] = [
      [{} for _ in f.nodes] for f in self.sequences
    ]
    free = self._free
    numbers: dict[Any, int] = {}
    # What is computed from parameters alone goes where it is used: the decayed
    # moments of an optimiser, for instance. By node, the number of what it is.
    loose: dict[Node | None, int] = {}
    # What uses it, None for the results of the graph.
    users: dict[Node | None, set[Node | None]] = defaultdict(set)
    for value in self._graph.results:
      users[value.node].add(None)
    for node, kind in zip(self.nodes, self._kinds, strict=True):
      for value in used_values(node):
        if value.node in loose:
          users[value.node].add(node)
      if node in owners or node.regions:
        continue
      sequences = set()
      key: list[Any] = [kind]
      for value in node.inputs:
        if value.node in free:
          key.append(None if self.leaves(value) is None else value)
        elif value.node in loose:
          key.append(loose[value.node])
        else:
          assert value.node is not None
          owner = owners.get(value.node, _NOWHERE)
          sequences.add(owner[:2])
          key.append((owner[2], value.index))
      signature = numbers.setdefault(tuple(key), len(numbers))
      if not sequences and (is_elementwise(node) or _is_view(node)):
        loose[node] = signature
      if len(sequences) == 1 and _NOWHERE[:2] not in sequences:
        ((number, k),) = sequences
        if found[number][k].setdefault(signature, node) is node:
          owners[node] = number, k, (-1, signature)
    for i, (f, these) in enumerate(zip(self.sequences, found, strict=True)):
      common = set(these[0]).intersection(*these[1:])
      if common:
        absorbed = []
        for some in these:
          more: dict[Node, None] = {}
          for signature in these[0]:
            if signature in common:
              _with_operands(some[signature], loose, more)
          absorbed.append(more)
        # A call comes too late for others that use it.
        if any(
          node in loose and not users[node] <= more.keys()
          for more in absorbed
          for node in more
        ):
          continue
        longer = [
          [*nodes, *more] for nodes, more in zip(f.nodes, absorbed, strict=True)
        ]
        alike = self._alike(f.begins, longer)
        if alike is not None and len(alike.begins) == len(f.begins):
          self.sequences[i] = alike


def _longer(numbers: Sequence[int], repeat: Repeat) -> Repeat:
  """A repeat without those of its parts that end before most others: the last
  layer of a network may be followed by something else."""
  length, begins = repeat
  least = max(_LEAST_PARTS * len(begins), 2)
  while True:
    most = min(map(operator.sub, begins[1:], begins))
    if length >= min(most, len(numbers) - begins[-1]):
      break
    after = Counter([numbers[b + length] for b in begins])
    ((number, count),) = after.most_common(1)
    if count < least:
      break
    begins = [b for b in begins if numbers[b + length] == number]
    length += 1
  return Repeat(length, begins)


def _with_operands(
  node: Node, some: Collection[Node | None], found: dict[Node, None]
) -> None:
  """Adds a node, and before it those of `some` that it needs."""
  for value in node.inputs:
    if value.node is not None and value.node in some:
      _with_operands(value.node, some, found)
  found[node] = None


def _is_product(node: Node) -> bool:
  if node.op == "stablehlo.convolution":
    return True
  definition = REGISTRY.get(node.op)
  return definition is not None and definition.prefers is not None


def _is_view(node: Node) -> bool:
  definition = REGISTRY.get(node.op)
  return definition is not None and definition.is_view


def _has_period(numbers: Sequence[int]) -> bool:
  """Whether a sequence consists of equal parts."""
  count = len(numbers)
  return any(
    count % parts == 0
    and numbers[: -count // parts] == numbers[count // parts :]
    for parts in range(2, count // 2 + 1)
  )


def _kinds(nodes: Sequence[Node]) -> list[int]:
  """For each node a number that equal operations have in common."""
  known: dict[Any, int] = {}
  numbers = []
  for node in nodes:
    try:
      number = known.setdefault(_kind(node), len(known))
    except TypeError:  # attributes that are not compared
      number = known.setdefault(node, len(known))
    numbers.append(number)
  return numbers


def _kind(node: Node) -> Any:
  """What equal operations have in common; the node itself if none is equal."""
  regions: tuple[Any, ...] = ()
  if node.regions:
    regions = tuple([monoid(region) for region in node.regions])
    if None in regions:
      return node
  if has_effect(node):
    return node
  values = (*node.inputs, *node.results)
  shapes, dtypes = [v.shape for v in values], [v.dtype for v in values]
  return node.op, node.attributes, regions, *shapes, *dtypes
