"""Outlining: equal sequences of steps become functions, which share their code.

A program that has too much code (`TileProgram.code_room`) is searched for
sequences of steps that are equal but for their tensors and constants
(equal_steps.py). Those that save most code for a cycle become functions, each
with tensors of its own (tile/call.py), until every tile has room for its code.
If that is not enough, those that save most become functions instead. Roots that
differ from one place to the other are copied to and from the function's, unless
they are neither needed before nor after. Constants that differ are passed, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.repeats import repeats
from jaxlib.ipu.moves.messages import VECTOR
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.call import (
  ARGUMENT_CYCLES,
  CALL_CYCLES,
  Call,
  argument_copy,
)
from jaxlib.ipu.tile.code import CALL, COPIES, COPY, FUNCTION, CodeCount
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides, no_tensor
from jaxlib.ipu.tile.walk import accesses, regions, walk
from jaxlib.ipu.tile_passes.equal_steps import (
  Kinds,
  Place,
  Places,
  Sequences,
  equal_sequences,
  outside_functions,
)
from jaxlib.ipu.tile_passes.lifetimes import lifetimes

# The least that a function saves, bytes. [G]
_LEAST = 64
# Searches: functions may call functions of earlier ones. [G]
_SEARCHES = 4
# Sequences are chosen by cycles if they seem to save this many times what they
# have to: what arguments take is not known beforehand. [G]
_SURE = 1.5

# By region and index: a number of steps, and what stands there instead.
_Edits = dict[int, dict[int, tuple[int, list[Step]]]]


def run(program: TileProgram) -> None:
  """Outlines steps until every tile has room for its code, or nothing pays."""
  if program.code_room is None:
    return
  kinds, code, program.code = Kinds(), program.code, None
  for _ in range(_SEARCHES):
    if code is None:
      count = CodeCount(program.target, program.tensors)
      count.steps(program.steps)
      code = count.finish().executable
    excess, code = code - program.code_room, None
    tile = int(excess.argmax())
    if excess[tile] <= 0 or not _Search(program, tile, kinds).outline(
      excess[tile]
    ):
      break
    program.analysis = None
  _empty_unused(program)
  program.analysis = None


class Saved:
  """A program's steps and tensors before some of them are outlined."""

  def __init__(self, program: TileProgram) -> None:
    self._program = program
    self._regions = [(r, list(r)) for r in regions(program.steps)]
    self._tensors = list(program.tensors)
    self._outlined = dict(program.outlined)
    self._functions = program.functions

  def restore(self) -> None:
    """Undoes all later calls of `run`."""
    for region, steps in self._regions:
      region[:] = steps
    self._program.tensors[:] = self._tensors
    self._program.outlined = self._outlined
    self._program.functions = self._functions
    self._program.analysis = None


class _Search:
  """One search of a program, whose fullest tile is `tile`."""

  def __init__(self, program: TileProgram, tile: int, kinds: Kinds) -> None:
    self._program = program
    self._tile = tile
    self._sizes: dict[int, int] = {}
    self._vertices: dict[int, int] = {}
    self._writes: dict[int, set[int]] = {}  # by place
    self._places = Places(program, kinds)
    self._line = lifetimes(program).line

  def outline(self, excess: int) -> bool:
    """Outlines what saves most, until `excess` bytes are saved; returns whether
    it found anything."""
    recurring = [*repeats([p.kind for p in self._places])]
    self._program.used.recurs |= bool(recurring)
    found = [
      f
      for repeat in recurring
      for f in equal_sequences(
        self._places, repeat, lambda place: sum(self._size(place))
      )
    ]
    found.sort(key=lambda f: -f.saved)
    cheap = sorted(found, key=lambda f: -f.saved / self._cycles(f))
    if sum(f.saved for f in _apart(cheap)) >= _SURE * excess:
      found = cheap
    taken: set[int] = set()
    instead: _Edits = defaultdict(dict)
    for f in found:
      if excess <= 0:
        break
      some = _free(f, taken)
      if some is None:
        continue
      # The code of copies on a tile may not be there yet.
      some = self._enough(some, max(excess, _LEAST) + COPIES)
      saved = self._saved(some)
      if saved >= _LEAST:
        self._take(some, instead)
        excess -= saved
        taken.update(self._places.covered(some.begins, some.length))
    for region in outside_functions(self._program.steps):
      new = instead.get(id(region), {})
      for index in sorted(new, reverse=True):
        length, steps = new[index]
        region[index : index + length] = steps
    return bool(taken)

  def _size(self, place: Place) -> tuple[int, int]:
    """Bytes of a step's code on the fullest tile, and of its vertices' code if
    that has constants."""
    if place.kind not in self._sizes:
      # A fresh count would add a call's function, and not know what is copied.
      if place.step.known_code is not None:
        return place.step.known_code, 0
      count = CodeCount(self._program.target, self._program.tensors)
      count.steps([place.step])
      code = count.finish()
      self._sizes[place.kind] = int(
        (code.executable - code.vertices)[self._tile]
      )
      # Vertices of equal steps are shared, but for their constants.
      some = place.step.constants
      self._vertices[place.kind] = int(code.vertices[self._tile]) if some else 0
    return self._sizes[place.kind], self._vertices[place.kind]

  # --- Functions -----------------------------------------------------------

  def _enough(self, f: Sequences, excess: int) -> Sequences:
    """The first of the sequences, as many as save `excess` bytes, or all."""
    number = 1 + math.ceil(excess * (len(f.begins) - 1) / f.saved)
    while number < len(f.begins):
      few = f.only(range(max(number, 2)))
      if self._saved(few) >= excess:
        return few
      number *= 2
    return f

  def _saved(self, f: Sequences) -> int:
    """Bytes of code that a function saves on the tile."""
    _, ends = self._arguments(f)
    arguments = len(set().union(*(set(a) | set(b) for a, b in ends)))
    count = len(f.begins)
    saved = -count * (CALL * WORD + COPY * WORD * arguments) - FUNCTION * WORD
    for i in range(f.length):
      size, vertices = self._size(self._places[f.begins[0] + i])
      saved += (count - 1) * size
      if vertices:
        made = [self._places[b + i] for b in f.begins]
        programs = {p.step.constants for p in made}
        saved += (len(programs) - 1) * vertices
    return saved

  def _arguments(
    self, f: Sequences
  ) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
    """The tensors that differ between the sequences, and for each sequence the
    roots to copy in and those to copy out, all by the first one's names."""
    differing = [
      n for n in f.names[0] if any(names[n] != n for names in f.names)
    ]
    roots = [n for n in differing if self._program.tensors[n].root == n]
    return differing, [self._ends(f, i, roots) for i in range(len(f.begins))]

  def _take(self, f: Sequences, instead: _Edits) -> None:
    """Makes a function."""
    differing, ends = self._arguments(f)
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
      steps = place.steps(f.length)
      body = _renamed(steps, {names[n]: own[n] for n in own})
      for step, number in zip(_inside(body), passed, strict=True):
        step.passed = number
      location = steps[0].location
      call = Call(
        function=self._program.functions, body=body, location=location
      )
      instead[id(place.region)][place.index] = (
        f.length,
        [
          *self._copies([(names[n], own[n]) for n in before], location),
          call,
          *self._copies([(own[n], names[n]) for n in after], location),
        ],
      )
    self._program.functions += 1

  def _cycles(self, f: Sequences) -> float:
    """Cycles that a run takes for the calls of a function, with the copies of
    arguments that one of them has; an estimate, as allocation has them share
    storage where it can."""
    tensors = self._program.tensors
    names = f.names[1]
    roots = [n for n in names if tensors[n].root == n and names[n] != n]
    copied = {n for some in self._ends(f, 1, roots) for n in some}
    each = CALL_CYCLES
    for n in copied:
      info = tensors[n]
      held = info.layout.max_elements * SIZE[info.dtype]
      each += ARGUMENT_CYCLES + held / VECTOR
    return each * sum(self._places[b].times for b in f.begins)

  def _copies(
    self, pairs: Sequence[tuple[int, int]], location: int
  ) -> list[Step]:
    """The step that copies roots to others of the same mapping, if any."""
    program = self._program
    found = argument_copy(program.target, program.tensors, pairs, location)
    return [] if found is None else [found]

  def _ends(
    self, f: Sequences, i: int, roots: Sequence[int]
  ) -> tuple[list[int], list[int]]:
    """Of the differing roots, those that the i-th sequence reads before it
    writes them, and those that are needed after it and that it writes."""
    tensors = self._program.tensors
    places = self._places[f.begins[i] : f.begins[i] + f.length]
    last = places[-1]
    begin = places[0].step.time
    if last.index + 1 < len(last.region):
      end = last.region[last.index + 1].time
    else:
      end = 2 + max(s.time for s in walk([last.step]))
    written = self._written(f.begins[i], f.length)
    before, after = [], []
    for n in roots:
      root = f.names[i][n]
      live = self._line.intervals.get(root, ())
      fixed = tensors[root].space in (schema.ARGUMENT, schema.CONSTANT)
      for b, e in live:
        if b <= begin <= e and (b < begin or fixed):
          before.append(n)
          break
      for b, e in live if root in written else ():
        if b < end <= e:
          after.append(n)
          break
    return before, after

  def _written(self, begin: int, length: int) -> set[int]:
    """The roots that a sequence writes."""
    return set().union(*map(self._written_at, range(begin, begin + length)))

  def _written_at(self, number: int) -> set[int]:
    """The roots that the step at a place writes, those in it included. It is
    asked for by each sequence that may become a function."""
    found = self._writes.get(number)
    if found is None:
      tensors = self._program.tensors
      # An exchange does not write the roots of which it places copies.
      found = self._writes[number] = {
        tensors[n].root
        for s in walk([self._places[number].step])
        for n in s.writes()
        if tensors[n].root == n or not s.moves
      }
    return found

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

  def _passed(self, f: Sequences) -> list[int]:
    """For each compute set of the sequences how many of its constants differ
    between them."""
    rows = []
    for begin in f.begins:
      place = self._places[begin]
      steps = place.steps(f.length)
      rows.append([s.constants for s in _inside(steps)])
    return [
      sum(len(set(values)) > 1 for values in zip(*column, strict=True))
      for column in zip(*rows, strict=True)
    ]


def _free(f: Sequences, taken: set[int]) -> Sequences | None:
  """Those of the sequences that do not overlap the places `taken`; None if
  there are no two of them."""
  free = [
    i
    for i, b in enumerate(f.begins)
    if taken.isdisjoint(range(b, b + f.length))
  ]
  return f.only(free) if len(free) > 1 else None


def _apart(found: Sequence[Sequences]) -> Iterator[Sequences]:
  """Those that do not overlap earlier ones."""
  taken: set[int] = set()
  for f in found:
    places = {i for b in f.begins for i in range(b, b + f.length)}
    if taken.isdisjoint(places):
      taken |= places
      yield f


def _empty_unused(program: TileProgram) -> None:
  """Makes tensors empty that no step accesses: those of sequences that have
  become functions."""
  tensors = program.tensors
  used = {n for n, _ in accesses(program.steps)}
  used |= {*program.arguments, *program.results}
  used |= {tensors[n].root for n in used}
  for n in program.outlined.keys() - used:
    tensors[n] = no_tensor(tensors[n].dtype, n)


def _renamed(steps: Sequence[Step], names: Mapping[int, int]) -> Region:
  """The steps on other tensors."""
  return Region([s.renamed(lambda n: names.get(n, n)) for s in steps])


def _inside(steps: Sequence[Step]) -> Iterator[Step]:
  """The steps that are not in functions, nested ones included."""
  for step in steps:
    yield step
    if step.callee is None:
      for region in step.regions:
        yield from _inside(region)
