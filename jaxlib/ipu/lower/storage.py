"""Assigns storage: donated memory first, then the arena."""

from __future__ import annotations

from collections import defaultdict

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.allocate import Interval, allocate, overlap, union
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.program import schema


def place_storage(
  builder: Builder, module: Module, arguments: list[int], results: list[int]
) -> tuple[Timeline, int]:
  """Allocates; returns the timeline and the arena's bytes.

  A result that may be written over a donated argument must not be written
  while the argument is still read: then it is made in the arena and copied at
  the end, when all arguments are dead.
  """
  aliases = {results[j]: arguments[i] for i, j in module.aliases}
  line, reserved = _analysed(builder, results, aliases)
  copies = []
  for j, made in enumerate(results):
    free = made not in reserved or not overlap(
      reserved[made], union(line.intervals.get(made, []), [])
    )
    if free:
      continue
    info = builder.tensors[made]
    info.space, info.address = schema.ARENA, 0
    results[j] = builder.new_root(info.shape, info.dtype, info.layout)
    final = builder.tensors[results[j]]
    final.space, final.address = schema.RESULT, j
    aliases[results[j]] = aliases.pop(made)
    copies.append((builder.root_view(made), builder.root_view(results[j])))
  if copies:
    builder.copy_to(copies)
    line, reserved = _analysed(builder, results, aliases)
  return line, allocate(line, builder.tensors, reserved)


def _analysed(
  builder: Builder, results: list[int], aliases: dict[int, int]
) -> tuple[Timeline, dict[int, list[Interval]]]:
  """When roots are live, and for each result root that may take a donated
  argument's memory (`aliases`), when that memory still holds the argument.

  A copy reads its sources until it is done: only the copy of an argument to its
  own result, which moves nothing, may write while it reads.
  """
  line = Timeline(builder.steps, builder.tensors, builder.assembled)
  line.analyse(results)
  reads: dict[int, list[tuple[int, int]]] = defaultdict(list)
  for event in line.events:
    for move in event.copies:
      reads[move.source].append((move.destination, event.time))
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
  return line, reserved
