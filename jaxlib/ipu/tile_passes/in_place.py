"""Writes concatenations in place.

A concatenation copies its parts into a new root. If one map computes all parts,
the copy moves nothing between tiles, and nothing else reads the parts, then the
map's vertices can write them directly to their places in the root: this saves
the memory of the parts and the copy. Examples are random bits, where each
counter gives several words, the gradients of an LSTM's gates, and rotated
halves.

Vertices store 8 bytes at a time. Parts that do not consist of whole vectors of
8 bytes are packed in registers first, which is charged as a copy of what is
written. [D]
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.moves.messages import VECTOR
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Common, Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import View
from jaxlib.ipu.tile.walk import exchanges, with_regions


def run(program: TileProgram) -> None:
  """Makes maps write the parts of concatenations in place. Roots that take the
  memory of donated arguments are left alone: they have to be written as late as
  possible."""
  replacing = {program.results[j] for _, j in program.aliases}
  copies = [
    step
    for step in exchanges(program.steps)
    if step.staying is not None
    and len(step.moves) > 1
    and not step.own.exchange_bytes
    and not step.passes_arguments  # to roots that others write, too
  ]
  if not copies:
    return
  uses = _Uses(program, replacing)
  for copy in copies:
    for root in dict.fromkeys(m.destination for m in copy.moves):
      if root not in replacing:
        uses.merge(copy, root)


@dataclasses.dataclass(slots=True)
class _Use:
  """A use of a root.

  Attributes:
    step: the step that uses it.
    time: the step's place in the program's order.
    steps: the list that contains the step.
  """

  step: Step
  time: int
  steps: Region


class _Uses:
  """The steps that read and write each root."""

  def __init__(self, program: TileProgram, replacing: Collection[int]) -> None:
    self._program = program
    self._replacing = replacing
    self._writes: dict[int, list[_Use]] = defaultdict(list)
    self._reads: dict[int, list[_Use]] = defaultdict(list)
    tensors = program.tensors
    for time, (step, steps) in enumerate(with_regions(program.steps)):
      use = _Use(step, time, steps)
      read, written = step.reads(), dict.fromkeys(step.writes())
      if step.decision is not None:
        read.append(step.decision.tensor)
      for number in read:
        self._reads[tensors[number].root].append(use)
      for number in written:
        if tensors[number].root == number:
          self._writes[number].append(use)

  def merge(self, copy: Step, root: int) -> None:
    """Lets the step that computes all parts of a root write them in place, if
    there is such a step and this is possible."""
    tensors = self._program.tensors
    moves = [m for m in copy.moves if m.destination == root]
    sources = [m.source for m in moves]
    (use, *others) = self._writes[root]
    makers = [w for s in sources for w in self._writes[s]]
    if others or len(makers) != len(sources) or len({*sources}) < len(sources):
      return
    step = makers[0].step
    if (
      any(w.step is not step for w in makers)
      or makers[0].steps is not use.steps
      or not step.writes_parts
      or not self._only_for(copy, root, use.time, sources)
    ):
      return
    views = [self._destination(move) for move in moves]
    whole = sum(v.size for v in views if v is not None)
    if None in views or whole != tensors[root].size:
      return
    self._rewrite(copy, root, step, moves, [v for v in views if v is not None])
    if not copy.moves:
      use.steps[:] = [s for s in use.steps if s is not copy]

  def _only_for(
    self, copy: Step, root: int, time: int, sources: list[int]
  ) -> bool:
    """Whether only the copy reads the sources, and the root is read only later.

    A root that is copied to another one may share the memory of that one. If it
    is that of a loop-carried value or of a donated argument, it would not be
    free yet when the parts are computed.
    """
    tensors = self._program.tensors
    for source in sources:
      info = tensors[source]
      (reader, *others) = self._reads[source]
      if others or reader.step is not copy or info.layout.replicas:
        return False
      if info.space != schema.ARENA:
        return False
    for reader in self._reads[root]:
      if reader.time <= time:
        return False
      for to in self._copied_to(reader.step, root):
        if tensors[to].space != schema.RESULT or to in self._replacing:
          return False
    return True

  def _copied_to(self, step: Step, root: int) -> list[int]:
    """The roots to which a step copies `root`."""
    found = [m.destination for m in step.moves if m.source == root]
    return [n for n in found if self._program.tensors[n].root == n]

  def _destination(self, move: schema.Move) -> View | None:
    """The place in a move's destination of its source, as a view of the
    source's shape; None unless the move reads the whole source in order."""
    source = self._program.tensors[move.source]
    read = View(
      move.source, move.source_offset, tuple(move.source_strides),
      tuple(move.shape), source.dtype,
    )  # fmt: skip
    if not (read.offset == 0 and read.size == source.size and read.is_dense()):
      return None
    return View(
      move.destination, move.destination_offset,
      tuple(move.destination_strides), tuple(move.shape), source.dtype,
    ).reshape(source.shape)  # fmt: skip

  def _rewrite(
    self,
    copy: Step,
    root: int,
    step: Step,
    moves: list[schema.Move],
    views: list[View],
  ) -> None:
    """Turns the sources of `moves` into views of the root, and removes the
    moves from the copy."""
    tensors = self._program.tensors
    assert copy.staying is not None
    left = [
      (move, stays)
      for move, stays in zip(copy.moves, copy.staying, strict=True)
      if move.destination != root
    ]
    if not _in_vectors(tensors[root], views):
      item = SIZE[tensors[root].dtype]
      size = tensors[root].layout.max_elements * item
      step.packed += (size,)
    for move, view in zip(moves, views, strict=True):
      source = tensors[move.source]
      source.root, source.offset = root, view.offset
      source.strides = view.strides
    copy.moves = [move for move, _ in left]
    copy.staying = [stays for _, stays in left]
    copy.common = Common()


def _in_vectors(root: TensorInfo, views: list[View]) -> bool:
  """Whether the contiguous rows of all parts begin and end at whole vectors."""
  vector = max(VECTOR // SIZE[root.dtype], 1)
  for view in views:
    run = 1
    strides = []
    for extent, stride in zip(reversed(view.shape), reversed(view.strides)):
      if extent == 1:
        continue
      if stride == run and not strides:
        run *= extent
      else:
        strides.append(stride)
    if any(n % vector for n in (run, view.offset, *strides)):
      return False
  return True
