"""Errors and reports for programs that exceed a tile's SRAM.

They show what is on the fullest tile at its peak, with the largest tensors
first and by the user's names, what its code is for, and give advice, with the
bytes of that tile that each change would save according to the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from jaxlib.ipu.diagnostics import CompileError, resource_exhausted
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.layout import Array
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.sram.advice import advice, much_code
from jaxlib.ipu.sram.code_by_line import PARTS, code_by_line
from jaxlib.ipu.sram.contents import at_peak, describe, line_of
from jaxlib.ipu.sram.memory import MemoryPlan, excess
from jaxlib.ipu.tile.code import NAMES
from jaxlib.ipu.tile.program import TileProgram

NAMED = 5  # tensors, and lines with code

_logger = logging.getLogger("jaxlib.ipu")

_ALLOW = (
  "  To run on the model regardless: "
  'POPLAR_ENGINE_OPTIONS=\'{"debug.allowOutOfMemory": "true"}\', or '
  'jax.jit(f, compiler_options={"ipu_allow_out_of_memory": True})'
)


def check(
  builder: Builder,
  program: TileProgram,
  module: Module,
  memory: MemoryPlan,
  allow: bool,
  written: Path | None = None,
) -> None:
  """Says that a program does not fit.

  Args:
    builder, program, module: the program in its forms.
    memory: its plan.
    allow: whether it may run nevertheless: then it is a warning.
    written: where the report was written, for the error.

  Raises:
    CompileError: RESOURCE_EXHAUSTED.
  """
  if not allow:
    raise error(builder, program, module, memory, written)
  over = excess(builder.target, memory)
  says = []
  if over.sram > 0:
    says.append(needs(builder, module, memory))
  if over.code > 0:
    says.append(needs_code(builder, module, memory))
  for text in says:
    _logger.warning("out of memory, which is allowed: %s", text)


def error(
  builder: Builder,
  program: TileProgram,
  module: Module,
  memory: MemoryPlan,
  written: Path | None = None,
) -> CompileError:
  """The error RESOURCE_EXHAUSTED, with the report and advice as its text, and
  where the page with all tiles was written."""
  over = excess(builder.target, memory)
  texts, helps = [], advice(builder, module, memory)
  if over.sram > 0:
    texts.append(report(builder, module, memory))
    helps.append("smaller arrays, narrower types")
  tile = memory.peak_tile
  if over.code > 0:
    tile = int(memory.code.executable.argmax())
    texts.append(needs_code(builder, module, memory))
  if much_code(builder, memory):
    lines = _code_lines(builder, program, tile)
    texts.append(
      "\n    ".join([f"Of the code of tile {tile} most is for:", *lines])
    )
  more = f"\n  All tiles are shown in {written}" if written else ""
  shown = "".join(f"\n    {line}" for line in helps)
  return resource_exhausted(
    "out of memory: " + "\n  ".join(texts) + "\n"
    f"  What would help, and what it saves of that tile:{shown}\n"
    + _ALLOW
    + more
  )


def needs_code(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that says by how much the code of a tile exceeds the region that
  can hold code."""
  target, parts = builder.target, memory.code
  tile = int(parts.executable.argmax())
  needed, room = int(parts.executable[tile]), target.executable_bytes
  return (
    f"tile {tile} needs {needed:,} bytes for its code (exchanges "
    f"{parts.exchange[tile]:,}, vertices {parts.vertices[tile]:,}, control "
    f"{parts.control[tile]:,}, host streams {parts.host[tile]:,}) in program "
    f"{module.name}, {needed - room:,} more than the {room:,} of an "
    f"{target.version} tile's SRAM that can hold code."
  )


def needs(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that says what the fullest tile needs of its SRAM."""
  target = builder.target
  limit = target.bytes_per_tile
  bare, whole = memory.peak_tile_bytes, memory.bytes_with_gaps
  gaps = bare <= limit < whole
  needed = whole if gaps else bare
  over = needed - limit
  arguments, sram = memory.argument_bytes, limit * target.num_tiles
  return (
    f"tile {_fullest(builder, memory)} needs {needed:,} bytes of SRAM "
    f"in program {module.name}, "
    + (f"{over:,} more than " if over > 0 else "of ")
    + f"the {limit:,} that an {target.version} tile has ({target.num_tiles} "
    f"tiles, {sram:,} bytes in all). "
    + (f"Arguments alone take {arguments:,}. " if arguments > sram else "")
    + (
      "Only the gaps between tensors make it too large"
      + (
        ", or that what the matrix unit loads 128 bits of at a time has to be "
        "interleaved"
        if memory.addresses.fullest.crowded
        else ""
      )
      + f": without them no tile needs more than {bare:,} bytes."
      if gaps
      else f"With the gaps between tensors it is {whole:,} bytes."
    )
  )


def _fullest(builder: Builder, memory: MemoryPlan) -> int:
  """The number of the tile that needs most."""
  fullest = memory.addresses.fullest.tiles
  limit = builder.target.bytes_per_tile
  gaps = memory.peak_tile_bytes <= limit < memory.bytes_with_gaps
  if gaps and not fullest[memory.peak_tile]:
    return int(fullest.argmax())
  return memory.peak_tile


def report(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that names the fullest tile and its largest tensors at its
  peak."""
  lines = [
    needs(builder, module, memory) + " The largest on it at that moment:"
  ]
  for live in at_peak(builder, memory)[:NAMED]:
    lines.append(f"{live.bytes:,} bytes: {describe(builder, module, live)}")
  return "\n    ".join(lines)


def _code_lines(
  builder: Builder, program: TileProgram, tile: int
) -> Iterator[str]:
  """The lines of the user whose operations have most code on a tile."""
  by_text: dict[str, Array] = {}
  for location, found in code_by_line(program, tile).items():
    text = line_of(builder, location) or "steps without a line"
    by_text[text] = by_text.get(text, 0) + found
  most = sorted(by_text.items(), key=lambda item: -int(item[1].sum()))
  for text, found in most[:NAMED]:
    parts = ", ".join(
      f"{NAMES[part]} {size:,}"
      for part, size in zip(PARTS, found.tolist(), strict=True)
      if size
    )
    yield f"{int(found.sum()):,} bytes: {text} ({parts})"
  if len(most) > NAMED:
    rest = sum(int(found.sum()) for _, found in most[NAMED:])
    yield f"{rest:,} bytes: {len(most) - NAMED:,} other operations"
