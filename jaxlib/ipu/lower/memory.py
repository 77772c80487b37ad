"""The SRAM plan: what each tile holds, and when.

Every tensor takes its share on every tile of its mapping while it is live,
placed ones from their exchange to their last use. Arguments that are not
donated and constants stay for the whole run, and so does the code.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from typing import Any

import numpy as np

from jaxlib.ipu import codelets
from jaxlib.ipu.diagnostics import resource_exhausted
from jaxlib.ipu.dtypes import SIZE, type_text
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder, TensorInfo
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.lower.view import dense_strides
from jaxlib.ipu.plan.layout import Array, Layout, distinct, overlapping
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.text import location_text


@dataclasses.dataclass(slots=True)
class MemoryPlan:
  """Bytes over all tiles, and the fullest tile's at its fullest moment.

  Attributes:
    argument_bytes, result_bytes: of the signature.
    alias_bytes: results that are written over donated arguments.
    temporary_bytes: the arena, whose storage is shared, and the constants.
    code_bytes: vertices.
    peak_tile_bytes: of the fullest tile, exchanged copies included.
    peak_tile: its number.
    largest: its biggest tensors at that moment, in words.
  """

  argument_bytes: int
  result_bytes: int
  alias_bytes: int
  temporary_bytes: int
  code_bytes: int
  peak_tile_bytes: int
  peak_tile: int
  largest: list[str]

  def record(self) -> schema.Memory:
    """The program's form of it."""
    return schema.Memory(
      self.argument_bytes,
      self.result_bytes,
      self.alias_bytes,
      self.temporary_bytes,
      self.code_bytes,
      self.peak_tile_bytes,
      self.peak_tile,
    )


@functools.lru_cache(maxsize=4096)
def _bytes_of(layout: Layout, item_bytes: int, num_tiles: int) -> Array:
  return layout.elements(np.arange(num_tiles)) * item_bytes


def _tile_bytes(info: TensorInfo, num_tiles: int) -> Array:
  """What each tile holds of a tensor; windows that overlap share elements."""
  if overlapping(info.shape, info.strides):
    held = distinct(info.layout, info.shape, info.strides, num_tiles)
    return held * SIZE[info.dtype]
  return _bytes_of(info.layout, SIZE[info.dtype], num_tiles)


def plan(
  builder: Builder,
  line: Timeline,
  module: Module,
  arguments: list[int],
  results: list[int],
  arena_bytes: int,
) -> MemoryPlan:
  """Adds up what is live on each tile over the run.

  Args:
    builder: with all roots allocated.
    line: the analysed steps.
    module: says what is donated.
    arguments, results: their roots.
    arena_bytes: what the allocator gave out.
  """
  tensors = builder.tensors
  tiles = builder.target.num_tiles
  donated = {arguments[i] for i in module.donated}
  lives = _lives(builder, line, [a for a in arguments if a not in donated])
  starts: dict[int, list[Array]] = defaultdict(list)
  ends: dict[int, list[Array]] = defaultdict(list)
  for number, intervals in lives.items():
    share = _tile_bytes(tensors[number], tiles)
    for begin, end in intervals:
      starts[begin].append(share)
      ends[end + 1].append(share)
  for step, buffers in builder.buffers.items():
    share = np.zeros(tiles, np.int64)
    share[: len(buffers)] = buffers[:tiles]
    starts[line.times[step]].append(share)
    ends[line.times[step] + 2].append(share)
  code = _code_bytes(builder)
  now = np.full(tiles, code, np.int64)
  peak, peak_tile, peak_time = code, 0, 0
  for time in sorted(starts.keys() | ends.keys()):
    for share in ends[time]:
      now -= share
    for share in starts[time]:
      now += share
    if starts[time]:
      tile = int(now.argmax())
      if now[tile] > peak:
        peak, peak_tile, peak_time = int(now[tile]), tile, time
  return MemoryPlan(
    argument_bytes=sum(tensors[a].bytes for a in arguments),
    result_bytes=sum(tensors[r].bytes for r in results),
    alias_bytes=sum(tensors[results[j]].bytes for _, j in module.aliases),
    temporary_bytes=arena_bytes + len(builder.constants),
    code_bytes=code * tiles,
    peak_tile_bytes=peak,
    peak_tile=peak_tile,
    largest=_largest(builder, lives, peak_time, peak_tile),
  )


def _lives(
  builder: Builder, line: Timeline, lent: list[int]
) -> dict[int, list[tuple[int, int]]]:
  """When each tensor takes SRAM; `lent` are the arguments not donated."""
  lives = {r: list(i) for r, i in line.intervals.items()}
  constants = [r for r in lives if builder.tensors[r].space == schema.CONSTANT]
  for root in (*constants, *lent):
    lives[root] = [(0, line.end)]
  for number, intervals in line.placed_intervals.items():
    if not _is_root_itself(builder.tensors, number):
      lives[number] = intervals
  return lives


def _is_root_itself(tensors: list[TensorInfo], number: int) -> bool:
  """Whether a placed tensor is its root under another shape, where it is."""
  placed = tensors[number]
  root = tensors[placed.root]
  return (
    placed.layout == root.layout
    and placed.offset == 0
    and placed.size == root.size
    and tuple(placed.strides) == dense_strides(placed.shape)
  )


def _code_bytes(builder: Builder) -> int:
  """Vertex state and code, as if every tile took part in every step.

  Steps whose vertices are the same codelet, or the same generated program,
  share its code.
  """
  total = 0
  codes: dict[Any, int] = {}
  todo = [builder.steps]
  while todo:
    for step in todo.pop():
      if isinstance(step, schema.Execute):
        codelet = codelets.CODELETS[type(step.fields)]
        total += codelet.state_bytes(len(step.operands))
        program = getattr(step.fields, "code", b"")
        codes[codelet, program] = codelet.code_bytes(step.fields)
      elif isinstance(step, schema.While):
        todo += [step.condition, step.body]
      elif isinstance(step, schema.Repeat):
        todo.append(step.body)
      elif isinstance(step, schema.Switch):
        todo += [b.steps for b in step.branches]
  return total + sum(codes.values())


def _largest(
  builder: Builder,
  lives: dict[int, list[tuple[int, int]]],
  time: int,
  tile: int,
) -> list[str]:
  """The biggest tensors on the fullest tile at its fullest moment."""
  sizes = []
  for number, intervals in lives.items():
    if any(begin <= time <= end for begin, end in intervals):
      info = builder.tensors[number]
      share = _tile_bytes(info, builder.target.num_tiles)
      sizes.append((int(share[tile]), number))
  sizes.sort(reverse=True)
  places = list(builder.locations)
  lines = []
  for size, number in sizes[:5]:
    info = builder.tensors[number]
    where = ""
    if info.location is not None:
      where = location_text(schema.Location(*places[info.location]))
    kind = ("temporary", "argument", "result", "constant")[info.space]
    if info.root != number:
      kind = "exchanged copy"
    type_ = type_text(info.shape, info.dtype)
    lines.append(f"{size:,} bytes: {kind} {type_} {where}".rstrip())
  return lines


def overflows(builder: Builder, memory: MemoryPlan) -> bool:
  """Whether a tile needs more than its SRAM."""
  return memory.peak_tile_bytes > builder.target.bytes_per_tile


def check(builder: Builder, memory: MemoryPlan, allow: bool) -> None:
  """Raises RESOURCE_EXHAUSTED if a tile is over its SRAM, unless allowed."""
  limit = builder.target.bytes_per_tile
  if allow or not overflows(builder, memory):
    return
  largest = "\n    ".join(memory.largest)
  total = limit * builder.target.num_tiles
  code = memory.code_bytes // builder.target.num_tiles
  raise resource_exhausted(
    f"out of memory: tile {memory.peak_tile} needs "
    f"{memory.peak_tile_bytes:,} bytes of SRAM, an {builder.target.version} "
    f"tile has {limit:,} ({builder.target.num_tiles} tiles, {total:,} bytes "
    f"in all). {code:,} bytes are the program's vertices. The largest tensors "
    f"on it at that moment:\n    {largest}\n"
    "  Use smaller arrays or batches, narrower types, donate state "
    "(jax.jit(..., donate_argnums=...)), or more tiles. To run on the model "
    'regardless: POPLAR_ENGINE_OPTIONS=\'{"debug.allowOutOfMemory": "true"}\''
  )
