"""When the memory of roots is in use: the analysis behind the passes that
assign storage."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile_passes.liveness import Timeline

# The first and the last time of a closed interval.
Interval = tuple[int, int]


class Lifetimes(NamedTuple):
  """When memory is in use.

  Attributes:
    line: the analysed steps, with the times at which roots are live.
    reserved: for each result that may take a donated argument's memory, the
      times at which that memory still holds the argument.
  """

  line: Timeline
  reserved: dict[int, list[Interval]]


def lifetimes(program: TileProgram) -> Lifetimes:
  """The lifetimes in a program, which keeps them (`TileProgram.analysis`).

  A copy reads its sources until it has written everything, so an argument stays
  until its copy is done. The copy of an argument to its own result is excepted,
  as it moves nothing.
  """
  if program.analysis is not None:
    found: Lifetimes = program.analysis
    return found
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
  program.analysis = Lifetimes(line, reserved)
  return program.analysis


def overlap(a: list[Interval], b: list[Interval]) -> bool:
  """Whether two ascending lists of closed intervals share a time."""
  i = j = 0
  while i < len(a) and j < len(b):
    if a[i][1] < b[j][0]:
      i += 1
    elif b[j][1] < a[i][0]:
      j += 1
    else:
      return True
  return False


def union(a: list[Interval], b: list[Interval]) -> list[Interval]:
  """The times in either of two lists of closed intervals, ascending and
  merged."""
  out: list[Interval] = []
  for begin, end in sorted(a + b):
    if out and begin <= out[-1][1] + 1:
      out[-1] = (out[-1][0], max(out[-1][1], end))
    else:
      out.append((begin, end))
  return out
