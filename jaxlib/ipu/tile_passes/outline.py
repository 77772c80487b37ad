"""Outlining: equal sequences of steps become functions, which share their code.

A program whose code does not fit (`TileProgram.code_budget`) is searched for
sequences of steps that are equal but for the tensors they access and the
constants of their register programs (`repeats.py`). Of those that save most,
each becomes a function with tensors of its own (`call.py`). Roots that differ
from one place to the other are copied to and from these, unless they are
neither needed before nor after. A function's constants are arguments, too.

What may be renamed: any root; of placed tensors those that are accessed nowhere
but in one place. All others have to be the same in all places.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.layout import linear
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.call import ArgumentCopy, Call
from jaxlib.ipu.tile.code import CodeCount
from jaxlib.ipu.tile.copy import copy_views
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import whole_view
from jaxlib.ipu.tile.walk import accesses, regions, walk
from jaxlib.ipu.tile_passes.liveness import Timeline
from jaxlib.ipu.tile_passes.repeats import Repeat, repeats

# Bytes of a call, of a copy of an argument, and of a function beside its steps
# (tile/code.py).
_CALL, _ARGUMENT, _FUNCTION = 12, 16, 20
# Storage that is never copied to a function's own: of the host, and constants,
# of which kernels may know that they are.
_KEPT = (schema.HOST, schema.CONSTANT)
# The least that a function saves, bytes. [G]
_LEAST = 64
# Searches: functions may call functions of earlier ones. [G]
_SEARCHES = 4


def run(program: TileProgram) -> None:
  """Outlines steps until the code of the fullest tile is within the budget, or
  nothing pays."""
  for _ in range(_SEARCHES):
    count = CodeCount(program.target, program.tensors)
    count.steps(program.steps)
    code = count.finish().executable
    excess = int(code.max(initial=0)) - program.code_budget
    if excess <= 0 or not _Search(program, int(code.argmax())).outline(excess):
      break
  _empty_unused(program)


class Saved:
  """A program's steps and tensors before it was outlined."""

  def __init__(self, program: TileProgram) -> None:
    self._program = program
    self._regions = [(r, list(r)) for r in regions(program.steps)]
    self._tensors = list(program.tensors)

  def restore(self) -> None:
    """Undoes `run`."""
    for region, steps in self._regions:
      region[:] = steps
    self._program.tensors[:] = self._tensors
    self._program.outlined.clear()


@dataclasses.dataclass(slots=True)
class _Place:
  """A step in its region.

  Attributes:
    region, index: where it is.
    kind: a number that equal steps have in common.
    tensors: that it accesses, nested steps included, in the order of
      `Step.renamed`.
    written: those that it writes.
  """

  region: Region
  index: int
  kind: int
  tensors: list[int]
  written: set[int]


@dataclasses.dataclass(slots=True)
class _Found:
  """Sequences of steps that can be one function.

  Attributes:
    begins: their places.
    length: number of steps.
    names: for each of them, its tensors by those of the first one.
    saved: bytes of code on the fullest tile, before arguments.
  """

  begins: list[int]
  length: int
  names: list[dict[int, int]]
  saved: int


class _Search:
  """One search of a program, whose fullest tile is `tile`."""

  def __init__(self, program: TileProgram, tile: int) -> None:
    self._program = program
    self._tile = tile
    self._kinds: dict[Any, int] = {}
    self._sizes: dict[int, int] = {}
    self._vertices: dict[int, int] = {}
    self._places: list[_Place] = []
    begins: dict[int, int] = {}  # by region
    for region in _outside_functions(program.steps):
      begins[id(region)] = len(self._places)
      self._places += [self._place(region, i) for i in range(len(region))]
      self._places.append(
        _Place(region, len(region), self._unique(), [], set())
      )
    # By the number of a place with regions, those of the places in them.
    self._inner: dict[int, list[int]] = {}
    for number, place in enumerate(self._places):
      step = (
        place.region[place.index] if place.index < len(place.region) else None
      )
      if step is None or isinstance(step, Call):
        continue
      self._inner[number] = [
        begins[id(r)] + i for r in step.regions for i in range(len(r))
      ]
    self._outer = {i: n for n, inner in self._inner.items() for i in inner}
    self._uses = Counter(a.tensor for a in _all_accesses(program.steps))
    self._line = Timeline(program.steps, program.tensors, program.assembled)
    self._line.analyse(program.results)
    self._functions = 1 + max(
      (s.function for s in walk(program.steps) if isinstance(s, Call)),
      default=-1,
    )

  def outline(self, excess: int) -> bool:
    """Outlines what saves most, until `excess` bytes are saved; returns whether
    it found anything."""
    found = [
      f
      for repeat in repeats([p.kind for p in self._places])
      for f in self._matching(repeat)
    ]
    found.sort(key=lambda f: -f.saved)
    taken: set[int] = set()
    instead: dict[int, dict[int, tuple[int, list[Step]]]] = defaultdict(dict)
    for f in found:
      if excess <= 0:
        break
      free = [
        i
        for i, b in enumerate(f.begins)
        if taken.isdisjoint(range(b, b + f.length))
      ]
      if len(free) < 2:
        continue
      f = self._only(f, free)
      saved = self._take(f, instead)
      if saved > 0:
        excess -= saved
        taken.update(self._covered(f))
    for region in _outside_functions(self._program.steps):
      new = instead.get(id(region), {})
      for index in sorted(new, reverse=True):
        length, steps = new[index]
        region[index : index + length] = steps
    return bool(taken)

  def _covered(self, f: _Found) -> set[int]:
    """The places of sequences, and those in them and around them."""
    found: set[int] = set()
    todo = [i for b in f.begins for i in range(b, b + f.length)]
    for i in todo:
      todo += self._inner.get(i, ())
    found.update(todo)
    for b in f.begins:
      outer = self._outer.get(b)
      while outer is not None:
        found.add(outer)
        outer = self._outer.get(outer)
    return found

  # --- Steps ---------------------------------------------------------------

  def _unique(self) -> int:
    return self._kinds.setdefault(object(), len(self._kinds))

  def _place(self, region: Region, index: int) -> _Place:
    step = region[index]
    if isinstance(step, Call):
      kind = self._kinds.setdefault(("Call", step.function), len(self._kinds))
      return _Place(region, index, kind, [], set())
    numbers: dict[int, int] = {}
    plain = step.renamed(lambda n: numbers.setdefault(n, len(numbers)))
    found = [*accesses([step])]
    written = {a.tensor for a in found if a.written}
    tensors = self._program.tensors
    roots = {tensors[n].root for n in numbers}
    if not roots.isdisjoint(self._program.assembled):
      return _Place(region, index, self._unique(), [*numbers], written)
    key = _plain(plain), tuple(self._signature(n, numbers) for n in numbers)
    kind = self._kinds.setdefault(key, len(self._kinds))
    return _Place(region, index, kind, [*numbers], written)

  def _signature(self, number: int, numbers: dict[int, int]) -> Any:
    """What equal steps know of a tensor; `numbers` has the step's own."""
    info = self._program.tensors[number]
    root = self._program.tensors[info.root]
    return (
      info.dtype,
      info.shape,
      info.layout,
      info.offset,
      info.strides,
      info.root if root.space in _KEPT else numbers.get(info.root, -1),
      root.dtype,
      root.shape,
      root.layout,
    )

  def _size(self, place: _Place) -> tuple[int, int]:
    """Bytes of a step's code on the fullest tile, and of its vertices' code if
    that has constants."""
    if place.kind not in self._sizes:
      step = place.region[place.index]
      # Fresh counts would add the function, and not know what will be copied.
      if isinstance(step, Call):
        return _CALL, 0
      if isinstance(step, ArgumentCopy):
        return _ARGUMENT * len(step.moves), 0
      count = CodeCount(self._program.target, self._program.tensors)
      count.steps([place.region[place.index]])
      code = count.finish()
      self._sizes[place.kind] = int(
        (code.executable - code.vertices)[self._tile]
      )
      # Vertices of equal steps are shared, but for their constants.
      some = _constants(place.region[place.index])
      self._vertices[place.kind] = int(code.vertices[self._tile]) if some else 0
    return self._sizes[place.kind], self._vertices[place.kind]

  # --- Matching ------------------------------------------------------------

  def _matching(self, repeat: Repeat) -> Iterator[_Found]:
    """The parts of a repeat that can be functions, one after the other."""
    begin, begins = 0, repeat.begins.tolist()
    while begin < repeat.length:
      match = _Match(self, [b + begin for b in begins])
      best: _Found | None = None
      size = 0
      for offset in range(repeat.length - begin):
        if not match.step(offset):
          begin += offset + 1
          break
        size += sum(self._size(self._places[match.begins[0] + offset]))
        closed = match.closed()
        saved = (len(closed) - 1) * size - len(closed) * _CALL - _FUNCTION
        if len(closed) > 1 and saved > (best.saved if best else 0):
          names = [match.names[i] for i in closed]
          begins_of = [match.begins[i] for i in closed]
          best = _Found(begins_of, offset + 1, names, saved)
      else:
        begin = repeat.length
      if best is not None:
        begin = max(best.begins[0] - begins[0] + best.length, 0)
        yield self._only(best, [*range(len(best.begins))])

  def _only(self, f: _Found, chosen: Sequence[int]) -> _Found:
    """Some of the sequences, their tensors by those of the first of them."""
    first = {there: here for here, there in f.names[chosen[0]].items()}
    own = set().union(
      *(self._places[f.begins[chosen[0]] + i].tensors for i in range(f.length))
    )
    names = []
    for i in chosen:
      of = f.names[i]
      found = {}
      for n in own | {self._program.tensors[n].root for n in own}:
        if n in first:
          found[n] = of[first[n]]
      names.append(found)
    return _Found([f.begins[i] for i in chosen], f.length, names, f.saved)

  # --- Functions -----------------------------------------------------------

  def _take(
    self,
    f: _Found,
    instead: dict[int, dict[int, tuple[int, list[Step]]]],
  ) -> int:
    """Makes a function, if it saves anything; returns how many bytes."""
    tensors = self._program.tensors
    differing = [
      n for n in f.names[0] if any(names[n] != n for names in f.names)
    ]
    roots = [n for n in differing if tensors[n].root == n]
    # By place: roots to copy in, and those to copy out.
    ends = [self._ends(f, i, roots) for i in range(len(f.begins))]
    arguments = len(set().union(*(set(a) | set(b) for a, b in ends)))
    count = len(f.begins)
    saved = -count * (_CALL + _ARGUMENT * arguments)
    for i in range(f.length):
      size, vertices = self._size(self._places[f.begins[0] + i])
      saved += (count - 1) * size
      if vertices:
        made = [self._places[b + i] for b in f.begins]
        programs = {_constants(p.region[p.index]) for p in made}
        saved += (len(programs) - 1) * vertices
    if saved < _FUNCTION + _LEAST:
      return 0
    own = self._own(differing)
    self._program.outlined |= {
      there: own[here]
      for names in f.names
      for here, there in names.items()
      if here in own
    }
    passed = self._passed(f)
    for begin, names, (before, after) in zip(
      f.begins, f.names, ends, strict=True
    ):
      place = self._places[begin]
      steps = place.region[place.index : place.index + f.length]
      body = _renamed(steps, {names[n]: own[n] for n in own})
      for step, number in zip(_executes(body), passed, strict=True):
        step.passed = number
      location = steps[0].location
      call = Call(function=self._functions, body=body, location=location)
      instead[id(place.region)][place.index] = (
        f.length,
        [
          *self._copies([(names[n], own[n]) for n in before], location),
          call,
          *self._copies([(own[n], names[n]) for n in after], location),
        ],
      )
    self._functions += 1
    return saved - _FUNCTION

  def _copies(
    self, pairs: Sequence[tuple[int, int]], location: int
  ) -> list[Step]:
    """A step that copies roots to others of the same mapping; none if they are
    all empty."""
    program = self._program
    views = [
      (whole_view(program.tensors, source), whole_view(program.tensors, to))
      for source, to in pairs
    ]
    found = copy_views(program.target, program.tensors, views, location)
    if found is None:
      return []
    return [
      ArgumentCopy(
        moves=found.moves,
        staying=found.staying,
        own=found.own,
        location=location,
      )
    ]

  def _ends(
    self, f: _Found, i: int, roots: Sequence[int]
  ) -> tuple[list[int], list[int]]:
    """Of the differing roots, those that the i-th sequence reads before it
    writes them, and those that are needed after it and that it writes."""
    tensors = self._program.tensors
    places = self._places[f.begins[i] : f.begins[i] + f.length]
    last = places[-1]
    begin = places[0].region[places[0].index].time
    if last.index + 1 < len(last.region):
      end = last.region[last.index + 1].time
    else:
      end = 2 + max(s.time for s in walk([last.region[last.index]]))
    # An exchange does not write the roots of which it places copies.
    steps = walk([p.region[p.index] for p in places])
    written = {
      tensors[n].root
      for s in steps
      for n in s.writes()
      if tensors[n].root == n or not s.moves
    }
    before, after = [], []
    for n in roots:
      root = f.names[i][n]
      fixed = tensors[root].space in (schema.ARGUMENT, schema.CONSTANT)
      live = self._line.intervals.get(root, [])
      if any(b <= begin <= e and (b < begin or fixed) for b, e in live):
        before.append(n)
      if root in written and any(b < end <= e for b, e in live):
        after.append(n)
    return before, after

  def _own(self, differing: Sequence[int]) -> dict[int, int]:
    """The function's tensors for those of the first sequence that differ."""
    program = self._program
    tensors = program.tensors
    own: dict[int, int] = {}
    for n in sorted(differing, key=lambda n: tensors[n].root != n):
      info = tensors[n]
      number = len(tensors)
      own[n] = number
      if info.root == n:
        strides = dense_strides(info.shape)
        made = TensorInfo(
          info.dtype, info.shape, info.layout, number, 0, strides
        )
      else:
        root = own.get(info.root, info.root)
        made = dataclasses.replace(info, root=root)
      made.location = info.location
      tensors.append(made)
    return own

  def _passed(self, f: _Found) -> list[int]:
    """For each compute set of the sequences how many of its constants differ
    between them."""
    rows = []
    for begin in f.begins:
      place = self._places[begin]
      steps = place.region[place.index : place.index + f.length]
      rows.append([_constants(s) for s in _executes(steps)])
    return [
      sum(len(set(values)) > 1 for values in zip(*column, strict=True))
      for column in zip(*rows, strict=True)
    ]


class _Match:
  """Compares sequences step by step.

  Attributes:
    begins: their places.
    names: for each, its tensors by those of the first one.
    alive: those that are equal to the first one so far.
  """

  def __init__(self, search: _Search, begins: list[int]) -> None:
    self._tensors = search._program.tensors
    self._places = search._places
    self._total = search._uses
    self.begins = begins
    self.alive = [*range(len(begins))]
    self.names: list[dict[int, int]] = [{} for _ in begins]
    self._back: list[dict[int, int]] = [{} for _ in begins]
    self._renamed: set[int] = set()  # placed tensors of the first one
    # Accesses of each sequence's renamed placed tensors that are outside.
    self._outside = [0] * len(begins)

  def step(self, offset: int) -> bool:
    """Compares the next step of all; returns whether any are left."""
    first = self._places[self.begins[0] + offset]
    known = self.names[0]
    new = [n for n in first.tensors if n not in known]
    for n in [*new, *(self._tensors[n].root for n in new)]:
      known[n] = self._back[0][n] = n
    left = [0]
    for i in self.alive[1:]:
      if self._bind(i, first, self._places[self.begins[i] + offset]):
        left.append(i)
    self.alive = left
    for n in new:
      if self._tensors[n].root == n:
        continue
      if any(self.names[i][n] != n for i in left):
        self._renamed.add(n)
        for i in left:
          self._outside[i] += self._total[self.names[i][n]]
    for i in left:
      place = self._places[self.begins[i] + offset]
      found = accesses([place.region[place.index]]) if place.tensors else ()
      for a in found:
        if self._back[i].get(a.tensor) in self._renamed:
          self._outside[i] -= 1
    return len(left) > 1

  def _bind(self, i: int, first: _Place, place: _Place) -> bool:
    """Whether a sequence's step has the tensors that correspond to those of the
    first sequence, or new ones."""
    names, back = self.names[i], self._back[i]
    for a, b in zip(first.tensors, place.tensors, strict=True):
      pairs = (a, b), (self._tensors[a].root, self._tensors[b].root)
      for here, there in pairs:
        if here in names or there in back:
          if names.get(here) != there or back.get(there) != here:
            return False
          continue
        placed_before = (
          self._tensors[here].root != here and here not in first.written
        )
        if placed_before and here != there:
          return False
        names[here], back[there] = there, here
    return True

  def closed(self) -> list[int]:
    """The sequences that contain all accesses of placed tensors that differ."""
    found = [i for i in self.alive if not self._outside[i]]
    return found if found[:1] == [0] else []


def _empty_unused(program: TileProgram) -> None:
  """Makes tensors empty that no step accesses: those of sequences that have
  become functions."""
  tensors = program.tensors
  used = {a.tensor for a in accesses(program.steps)}
  used |= {*program.arguments, *program.results}
  used |= {tensors[n].root for n in used}
  for n in program.outlined.keys() - used:
    dtype = tensors[n].dtype
    tensors[n] = TensorInfo(dtype, (0,), linear(0, 1, 1), n, 0, (1,))


def _renamed(steps: Sequence[Step], names: Mapping[int, int]) -> Region:
  """The steps on other tensors."""
  return Region([s.renamed(lambda n: names.get(n, n)) for s in steps])


def _outside_functions(steps: Region) -> Iterator[Region]:
  """A region and those of loops and branches in it."""
  yield steps
  for step in steps:
    if not isinstance(step, Call):
      for region in step.regions:
        yield from _outside_functions(region)


def _all_accesses(steps: Sequence[Step]) -> Iterator[Any]:
  return accesses(steps)


def _executes(steps: Sequence[Step]) -> list[Execute]:
  """The compute sets that are not in functions, nested ones included."""
  found = []
  for step in steps:
    if isinstance(step, Execute):
      found.append(step)
    elif not isinstance(step, Call):
      for region in step.regions:
        found += _executes(region)
  return found


def _constants(step: Step) -> tuple[int, ...]:
  """The constants of a compute set's register program, in order."""
  code = getattr(getattr(step, "fields", None), "code", None)
  return code.constants if isinstance(code, Code) else ()


# What equal steps may differ in, or what follows from the rest.
_BESIDE = frozenset(
  "location own buffers origins operation has_effect time staying within packed"
  " hints passed freed kept".split()
)


def _plain(value: Any) -> Any:
  """A step as a value that can be compared, without constants of register
  programs."""
  if isinstance(value, Code):
    return value.abstract
  if isinstance(value, Step) or type(value).__module__ == schema.__name__:
    if dataclasses.is_dataclass(value):
      return type(value).__name__, *(
        _plain(getattr(value, f.name))
        for f in dataclasses.fields(value)
        if f.name not in _BESIDE
      )
  if hasattr(value, "exchanges") and hasattr(value, "words"):
    return value.exchanges, value.words  # an Epilogue
  if isinstance(value, list | tuple):
    return tuple(map(_plain, value))
  return value
