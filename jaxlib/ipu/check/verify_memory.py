"""The storage of roots, and which of them share memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema

Place = tuple[tuple[int, int], int, int]


def dense(shape: Sequence[int]) -> list[int]:
  """Row-major strides."""
  strides, step = [], 1
  for extent in reversed(shape):
    strides.append(step)
    step *= max(extent, 1)
  return strides[::-1]


def place(program: schema.Program, number: int) -> Place:
  """The storage of a root: its space and buffer, begin, end.

  A result that aliases an argument is stored in the argument's buffer.
  """
  t = program.tensors[number]
  size = SIZE[DType(t.dtype)] * math.prod(t.shape)
  if t.space in (schema.ARENA, schema.HOST):
    return (schema.ARENA, 0), t.address, t.address + size
  if t.space == schema.CONSTANT:
    return (t.space, 0), t.address, t.address + size
  if t.space == schema.RESULT:
    for alias in program.aliases:
      if alias.result == t.address:
        return (schema.ARGUMENT, alias.argument), 0, size
  return (t.space, t.address), 0, size


def sharers(program: schema.Program) -> dict[int, set[int]]:
  """For each root, the other roots that have bytes in common with it."""
  buffers: dict[tuple[int, int], list[tuple[int, int, int]]]
  buffers = defaultdict(list)
  for number, t in enumerate(program.tensors):
    if t.root != number:
      continue
    buffer, begin, end = place(program, number)
    if begin < end:
      buffers[buffer].append((begin, end, number))
  shared: dict[int, set[int]] = defaultdict(set)
  for pieces in buffers.values():
    pieces.sort()
    open_: list[tuple[int, int]] = []  # (end, root) of earlier ones
    for begin, end, number in pieces:
      open_ = [(last, other) for last, other in open_ if last > begin]
      for _, other in open_:
        shared[number].add(other)
        shared[other].add(number)
      open_.append((end, number))
  return shared
