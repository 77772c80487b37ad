"""Assigns storage to roots: decides which results are written over donated
arguments, then allocates the arena."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.copy import copy_views
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import whole_view
from jaxlib.ipu.tile_passes.allocate import Interval, allocate, overlap, union
from jaxlib.ipu.tile_passes.liveness import Timeline


class _Analysis(NamedTuple):
  """When memory is in use.

  Attributes:
    line: the analysed steps, with the times at which roots are live.
    reserved: for each result that may take a donated argument's memory, the
      times at which that memory still holds the argument.
  """

  line: Timeline
  reserved: dict[int, list[Interval]]


def copy_late(program: TileProgram) -> None:
  """Lets results that would overwrite a donated argument too early be computed
  in the arena, and copies them over the argument at the end of the program,
  when nothing reads it any more."""
  if not program.aliases:
    return
  line, reserved = _analysed(program)
  pairs = []
  for j, made in enumerate(program.results):
    free = made not in reserved or not overlap(
      reserved[made], union(line.intervals.get(made, []), [])
    )
    if free:
      continue
    info = program.tensors[made]
    info.space, info.address = schema.ARENA, 0
    program.results[j] = root = len(program.tensors)
    program.tensors.append(
      TensorInfo(
        info.dtype, info.shape, info.layout, root, 0,
        dense_strides(info.shape), schema.RESULT, j, program.location,
      )
    )  # fmt: skip
    pairs.append(
      (whole_view(program.tensors, made), whole_view(program.tensors, root))
    )
  if not pairs:
    program.analysis = line, reserved
    return
  target, tensors = program.target, program.tensors
  step = copy_views(target, tensors, pairs, program.location)
  if step is not None:
    program.steps.append(step)


def place(program: TileProgram) -> tuple[Timeline, int]:
  """Assigns all addresses; returns the timeline and the arena's bytes. May be
  called again after steps have changed."""
  results = set(program.results)
  for number, info in enumerate(program.tensors):
    if info.space == schema.RESULT and number not in results:
      info.space, info.address = schema.ARENA, 0  # it shared a result's memory
  line, reserved = program.analysis or _analysed(program)
  program.analysis = None
  return line, allocate(line, program.tensors, reserved)


def _analysed(program: TileProgram) -> _Analysis:
  """Analyses when roots are live, and when donated memory holds arguments.

  A copy reads its sources until it has written everything, so an argument stays
  until its copy is done. The copy of an argument to its own result is excepted,
  as it moves nothing.
  """
  line = Timeline(program.steps, program.tensors, program.assembled)
  line.analyse(program.results)
  reads: dict[int, list[tuple[int, int]]] = defaultdict(list)
  for event in line.events:
    for move in event.copies:
      reads[move.source].append((move.destination, event.time))
  aliases = {
    program.results[j]: program.arguments[i] for i, j in program.aliases
  }
  reserved = {
    result: union(
      line.intervals.get(argument, []),
      [
        (time, time + 1)
        for destination, time in reads.get(argument, [])
        if destination != result
      ],
    )
    for result, argument in aliases.items()
  }
  return _Analysis(line, reserved)
