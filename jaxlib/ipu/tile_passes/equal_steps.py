"""Equal sequences of steps: those that can share one function's code.

Steps are equal but for the tensors they access and the constants of their
register programs. Of sequences of equal steps (repeats.py), tensors have to
correspond one to one. What may differ: any root; of placed tensors those that
are accessed nowhere but in one sequence. All others have to be the same.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from jaxlib.ipu.ir.repeats import Repeat
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.plan.cost import Epilogue
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.code import CALL, FUNCTION
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import accesses

# Storage of roots that may not differ: that of the host, and constants, of
# which kernels may know that they are.
_KEPT = (schema.HOST, schema.CONSTANT)


@dataclasses.dataclass(slots=True)
class Place:
  """A step in its region, or the end of a region.

  Attributes:
    region, index: where it is.
    kind: a number that equal steps have in common.
    tensors: that it accesses, nested steps included, in order.
    roots: of those that are placed, in this order.
    accessed: the tensor of each access.
    written: the tensors that it writes.
    times: how often a run comes here; loops whose trip count data decide count
      once.
  """

  region: Region
  index: int
  kind: int
  tensors: Sequence[int] = ()
  roots: Sequence[int] = ()
  accessed: Sequence[int] = ()
  written: frozenset[int] = frozenset()
  times: int = 1

  @property
  def step(self) -> Step:
    return self.region[self.index]

  def steps(self, length: int) -> list[Step]:
    """So many steps from here on."""
    return self.region[self.index : self.index + length]


class Kinds:
  """Numbers of what is equal, for all searches of one program.

  A step has the same place in all of them, but for where it is; not so one with
  regions, in which steps may have become functions.
  """

  def __init__(self) -> None:
    # By the step's id, with the step, which may have left the program.
    self.places: dict[int, tuple[Step, Place]] = {}
    self._kinds: dict[Any, int] = {}
    # By the id of what copies have in common, and the price of a word of code.
    self._copies: dict[tuple[int, int], int] = {}

  def of(self, key: Any) -> int:
    """The number of a value."""
    return self._kinds.setdefault(key, len(self._kinds))

  def of_step(self, step: Step, name: Callable[[int], int]) -> int:
    """The number of a step whose tensors are named by their order; the same for
    all of its copies."""
    if step.regions:
      return self.of(_plain(step.renamed(name)))
    key = id(step.common), step.word_price
    found = self._copies.get(key)
    if found is None:
      found = self._copies[key] = self.of(_plain(step.renamed(name)))
    return found


class Places(list[Place]):
  """The steps of a program that are not in functions, region by region."""

  def __init__(self, program: TileProgram, kinds: Kinds) -> None:
    super().__init__()
    self.tensors = program.tensors
    self._assembled = program.assembled
    self._kinds = kinds
    begins: dict[int, int] = {}  # by region
    for region, times in _with_times(program.steps, 1):
      begins[id(region)] = len(self)
      for i, step in enumerate(region):
        known = kinds.places.get(id(step))
        if known is None:
          known = step, self._place(region, i)
          if step.callee is not None or not step.regions:
            kinds.places[id(step)] = known
        _, place = known
        place.region, place.index, place.times = region, i, times
        self.append(place)
      self.append(Place(region, len(region), kinds.of(object())))
    # By the number of a place with regions, those of the places in them.
    self._inner = {
      number: [begins[id(r)] + i for r in regions for i in range(len(r))]
      for number, place in enumerate(self)
      for regions in (_own_regions(place),)
      if regions
    }
    self._outer = {i: n for n, inner in self._inner.items() for i in inner}
    self.uses = Counter(itertools.chain.from_iterable(map(_uses, self)))

  def covered(self, begins: Sequence[int], length: int) -> set[int]:
    """The places of sequences, and those in them and around them."""
    todo = [i for b in begins for i in range(b, b + length)]
    for i in todo:
      todo += self._inner.get(i, ())
    found = set(todo)
    for b in begins:
      outer = self._outer.get(b)
      while outer is not None:
        found.add(outer)
        outer = self._outer.get(outer)
    return found

  def _place(self, region: Region, index: int) -> Place:
    step = region[index]
    every = [*accesses([step])]
    accessed = [n for n, _ in every]
    tensors = [*dict.fromkeys(accessed)]
    roots = self._roots(tensors)
    if step.callee is not None:
      # All its calls access the same tensors.
      kind = self._kinds.of(("call", step.callee))
      return Place(region, index, kind, tensors, roots, accessed)
    numbers = {n: i for i, n in enumerate(tensors)}
    written = frozenset([n for n, wrote in every if wrote])
    key: Any = object()  # the first part of an assembled root is like no other
    if not step.is_end and self._assembled.isdisjoint((*tensors, *roots)):
      signatures = tuple([self._signature(n, numbers) for n in tensors])
      key = self._kinds.of_step(step, numbers.__getitem__), signatures
    kind = self._kinds.of(key)
    return Place(region, index, kind, tensors, roots, accessed, written)

  def _roots(self, numbers: Iterable[int]) -> list[int]:
    """The roots of placed tensors."""
    some = ((n, self.tensors[n].root) for n in numbers)
    return [root for n, root in some if root != n]

  def _signature(self, number: int, numbers: dict[int, int]) -> Any:
    """What has to be the same of a tensor for steps to be equal. Roots that may
    differ are named by their numbers in the step (`numbers`)."""
    info = self.tensors[number]
    root = self.tensors[info.root]
    return (
      info.dtype,
      info.shape,
      info.layout,
      info.offset,
      info.strides,
      info.root if root.space in _KEPT else -1,
      numbers.get(info.root, -1),
      root.dtype,
      root.shape,
      root.layout,
    )


@dataclasses.dataclass(slots=True)
class Sequences:
  """Sequences of steps that can be one function.

  Attributes:
    begins: their places.
    length: number of steps.
    names: for each of them, its tensors by those of the first one.
    saved: bytes of code that a function saves, before its arguments.
  """

  begins: list[int]
  length: int
  names: list[dict[int, int]]
  saved: int = 0

  def only(self, chosen: Sequence[int]) -> Sequences:
    """Some of them, their tensors by those of the first of them."""
    first = self.names[chosen[0]]
    names = [
      {there: self.names[i][here] for here, there in first.items()}
      for i in chosen
    ]
    begins = [self.begins[i] for i in chosen]
    return Sequences(begins, self.length, names, self.saved)


def equal_sequences(
  places: Places, repeat: Repeat, size: Callable[[Place], int]
) -> Iterator[Sequences]:
  """The parts of a repeat that can be functions, one after the other.

  Args:
    places: the program's.
    repeat: of the kinds of its steps.
    size: bytes of a step's code.
  """
  begin, begins = 0, repeat.begins
  while begin < repeat.length:
    match = _Match(places, [b + begin for b in begins])
    best: tuple[int, int, list[int]] | None = None
    total, after = 0, repeat.length
    for offset in range(repeat.length - begin):
      if not match.step(offset):
        after = begin + offset + 1
        break
      total += size(places[match.begins[0] + offset])
      closed = match.closed()
      if len(closed) > 1:
        saved = (len(closed) - 1) * total - len(closed) * CALL * WORD
        if saved > max(best[0] if best else 0, FUNCTION * WORD):
          best = saved, offset + 1, closed
    if best is not None:
      after = begin + best[1]
      yield match.sequences(*best)
    begin = after


class _Match:
  """Compares sequences step by step.

  Attributes:
    begins: their places.
    names: for each, its tensors by those of the first one.
    alive: those that are equal to the first one so far.
  """

  def __init__(self, places: Places, begins: list[int]) -> None:
    self._tensors = places.tensors
    self._places = places
    self.begins = begins
    self.alive = [*range(len(begins))]
    self.names: list[dict[int, int]] = [{} for _ in begins]
    self._named: list[set[int]] = [set() for _ in begins]
    self._renamed: set[int] = set()  # placed tensors of the first one
    # Accesses of each sequence's renamed placed tensors in the program, and of
    # those of any sequence in its steps so far.
    self._uses = [0] * len(begins)
    self._inside = 0

  def step(self, offset: int) -> bool:
    """Compares the next step of all; returns whether any are left."""
    first = self._places[self.begins[0] + offset]
    known = self.names[0]
    placed = [
      n for n in first.tensors if n not in known and self._tensors[n].root != n
    ]
    for n in (*first.tensors, *first.roots):
      known[n] = n
    before = {n for n in placed if n not in first.written}
    left = [0]
    for i in self.alive[1:]:
      if self._bind(i, first, self._places[self.begins[i] + offset], before):
        left.append(i)
    self.alive = left
    for n in placed:
      names = [self.names[i][n] for i in left]
      if names.count(n) < len(names):
        self._renamed.add(n)
        for i, name in zip(left, names, strict=True):
          self._uses[i] += self._places.uses[name]
    if self._renamed:
      self._inside += sum(n in self._renamed for n in first.accessed)
    return len(left) > 1

  def _bind(self, i: int, first: Place, place: Place, before: Set[int]) -> bool:
    """Whether a sequence's step has the tensors that correspond to those of the
    first sequence, or new ones; of those that were placed `before`, the same.
    """
    names, named = self.names[i], self._named[i]
    here = itertools.chain(first.tensors, first.roots)
    there = itertools.chain(place.tensors, place.roots)
    for one, other in zip(here, there, strict=True):
      known = names.get(one)
      if known is None:
        if other in named or (one != other and one in before):
          return False
        names[one] = other
        named.add(other)
      elif known != other:
        return False
    return True

  def closed(self) -> list[int]:
    """The sequences that contain all accesses of placed tensors that differ."""
    found = [i for i in self.alive if self._uses[i] == self._inside]
    return found if found[:1] == [0] else []

  def sequences(
    self, saved: int, length: int, chosen: Sequence[int]
  ) -> Sequences:
    """The first steps of some of the sequences."""
    begin = self.begins[0]
    own = {n for p in self._places[begin : begin + length] for n in p.tensors}
    own |= {self._tensors[n].root for n in own}
    names = [{n: self.names[i][n] for n in own} for i in chosen]
    return Sequences([self.begins[i] for i in chosen], length, names, saved)


def outside_functions(steps: Region) -> Iterator[Region]:
  """A region and those of loops and branches in it."""
  yield steps
  for step in steps:
    if step.callee is None:
      for region in step.regions:
        yield from outside_functions(region)


def _with_times(steps: Region, times: int) -> Iterator[tuple[Region, int]]:
  """As `outside_functions`, with how often a run comes to each region."""
  yield steps, times
  for step in steps:
    if step.callee is None:
      for region in step.regions:
        yield from _with_times(region, times * (step.trips or 1))


def _own_regions(place: Place) -> Sequence[Region]:
  """The regions of a place's step that are not a function's."""
  if place.index == len(place.region) or place.step.callee is not None:
    return ()
  return place.step.regions


def _uses(place: Place) -> Sequence[int]:
  """The tensor of each access at a place, without those at other places."""
  if not _own_regions(place):
    return place.accessed
  decision = place.step.decision
  return [] if decision is None else [decision.tensor]


# Fields in which equal steps may differ, and those that follow from the others.
_BESIDE = frozenset(
  "location own buffers origins operation has_effect time staying within packed"
  " hints passed common".split()
)


def _plain(value: Any) -> Any:
  """A step as a value that can be compared, without constants of register
  programs."""
  kind = value.__class__
  names = _compared(kind)
  if names is not None:
    return kind.__name__, *[_plain(getattr(value, name)) for name in names]
  if isinstance(value, Code):
    return value.abstract
  if isinstance(value, Epilogue):
    return value.exchanges, value.words
  if isinstance(value, list | tuple):
    return tuple([v if type(v) is int else _plain(v) for v in value])
  return value


@functools.cache
def _compared(kind: type) -> tuple[str, ...] | None:
  """The fields of a step, or of a record of the wire format, that are compared;
  None of other types."""
  if not issubclass(kind, Step) and kind.__module__ != schema.__name__:
    return None
  if not dataclasses.is_dataclass(kind):
    return None
  names = (f.name for f in dataclasses.fields(kind))
  return tuple(name for name in names if name not in _BESIDE)
