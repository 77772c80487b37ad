"""Errors and reports for programs that exceed a tile's SRAM.

They show what is on the fullest tile at its peak, with the largest tensors
first and by the user's names, and give advice, with the bytes of that tile that
each change would save according to the plan.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from jaxlib.ipu.diagnostics import CompileError, resource_exhausted
from jaxlib.ipu.dtypes import NAME, DType
from jaxlib.ipu.ir.graph import Module, Placement, Shape
from jaxlib.ipu.location import location_text
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.memory import MemoryPlan, overflows, peaks_of
from jaxlib.ipu.target import TARGETS
from jaxlib.ipu.tile.code import NAMES
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import tile_bytes

_NAMED = 5  # tensors, and pieces of advice of one kind


_logger = logging.getLogger("jaxlib.ipu")

# What takes memory on a tile: the tensor of this number, the buffers of a step,
# or a kind of non-tensor memory, by name.
_What = int | str | Step


class _Live(NamedTuple):
  """What takes memory on the fullest tile at its peak, and its bytes there."""

  bytes: int
  what: _What


def check(
  builder: Builder,
  module: Module,
  memory: MemoryPlan,
  allow: bool,
  written: Path | None = None,
) -> None:
  """Raises RESOURCE_EXHAUSTED if a tile exceeds its SRAM, unless allowed; warns
  of code that exceeds its region. The error names the report `written`."""
  if overflows(builder, memory) and not allow:
    raise error(builder, module, memory, written)
  if memory.code.executable.max(initial=0) > builder.target.executable_bytes:
    _logger.warning("%s", code_warning(builder, module, memory))


def error(
  builder: Builder,
  module: Module,
  memory: MemoryPlan,
  written: Path | None = None,
) -> CompileError:
  """The error RESOURCE_EXHAUSTED, with the report and advice as its text, and
  where the page with all tiles was written."""
  more = f"\n  All tiles are shown in {written}" if written else ""
  if memory.admitted_bytes <= builder.target.bytes_per_tile:
    text = code_warning(builder, module, memory)
    return resource_exhausted(f"out of memory: {text}{more}")
  helps = "".join(f"\n    {line}" for line in advice(builder, module, memory))
  return resource_exhausted(
    f"out of memory: {report(builder, module, memory)}\n"
    f"  What would help, and what it saves of that tile:{helps}\n"
    "    smaller arrays, narrower types\n"
    "  To run on the model regardless: "
    'POPLAR_ENGINE_OPTIONS=\'{"debug.allowOutOfMemory": "true"}\'' + more
  )


def code_warning(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that says by how much the code of a tile exceeds the region that
  can hold code."""
  target, parts = builder.target, memory.code
  tile = int(parts.executable.argmax())
  needed, room = int(parts.executable[tile]), target.executable_bytes
  return (
    f"program {module.name} would not run on an IPU: tile {tile} needs "
    f"{needed:,} bytes for its code (exchanges {parts.exchange[tile]:,}, "
    f"vertices {parts.vertices[tile]:,}, control {parts.control[tile]:,}), "
    f"{needed - room:,} more than the {room:,} of an {target.version} tile's "
    "SRAM that can hold code\n"
    "  What would help: loops (jax.lax.scan, jax.lax.fori_loop) instead of "
    "unrolled code, fewer different operations in one program"
  )


def report(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that names the fullest tile and its largest tensors at its
  peak."""
  target = builder.target
  limit = target.bytes_per_tile
  bare, whole = memory.admitted_peak_bytes, memory.admitted_bytes
  gaps = bare <= limit < whole
  needed = whole if gaps else bare
  over = needed - limit
  fullest = memory.addresses.fullest.tiles
  tile = memory.admitted_peak_tile
  if gaps and not fullest[tile]:
    tile = int(fullest.argmax())
  lines = [
    f"tile {tile} needs {needed:,} bytes of SRAM "
    f"in program {module.name}, "
    + (f"{over:,} more than " if over > 0 else "of ")
    + f"the {limit:,} that an {target.version} tile has ({target.num_tiles} "
    f"tiles, {limit * target.num_tiles:,} bytes in all). "
    + (
      "Only the gaps between tensors make it too large"
      + (
        ", or that what the matrix unit loads 128 bits of at a time has to be "
        "interleaved"
        if memory.addresses.fullest.crowded
        else ""
      )
      + f": without them no tile needs more than {bare:,} bytes. "
      if gaps
      else f"With the gaps between tensors it is {whole:,} bytes. "
    )
    + "The largest on it at that moment:"
  ]
  for live in _live(builder, memory)[:_NAMED]:
    lines.append(f"{live.bytes:,} bytes: {_describe(builder, module, live)}")
  return "\n    ".join(lines)


def addresses(builder: Builder, module: Module, memory: MemoryPlan) -> str:
  """The text that lists all addresses on the tiles that need most SRAM, with
  the times at which they are taken."""
  plan = memory.addresses
  group = plan.fullest
  tile = int(group.tiles.argmax())
  steps = {time: step.step for time, step in memory.buffers.items()}
  lines = [
    f"addresses on {int(group.tiles.sum())} tiles, tile {tile} the first",
    f"{0:#07x} {group.code:,} bytes always: code",
  ]
  places = zip(group.addresses, group.sizes, plan.allocations, strict=True)
  for address, size, allocation in sorted(places, key=lambda p: p[:2]):
    if not size:
      continue
    whats: list[_What] = [*allocation.tensors]
    if not whats:
      whats.append(steps[allocation.intervals[0][0]])
    when = " ".join(f"{begin}-{end}" for begin, end in allocation.intervals)
    first, *rest = (_describe(builder, module, _Live(size, w)) for w in whats)
    more = "".join(f", then {what}" for what in rest)
    lines.append(f"{address:#07x} {size:,} bytes at {when}: {first}{more}")
  return "\n    ".join(lines)


def _live(builder: Builder, memory: MemoryPlan) -> list[_Live]:
  """Everything on the fullest tile at its peak, largest first."""
  changes: dict[int, int] = defaultdict(int)
  held = {}
  for number, intervals in memory.lives.items():
    taken = tile_bytes(builder.tensors[number], builder.target.num_tiles)
    held[number] = int(taken[memory.admitted_peak_tile])
    for begin, end in intervals:
      changes[begin] += held[number]
      changes[end + 1] -= held[number]
  for time, buffers in memory.buffers.items():
    changes[time] += int(buffers.bytes[memory.admitted_peak_tile])
    changes[time + 2] -= int(buffers.bytes[memory.admitted_peak_tile])
  now = most = moment = 0
  for time in sorted(changes):
    now += changes[time]
    if now > most:
      most, moment = now, time
  live = [
    _Live(held[number], number)
    for number, intervals in memory.lives.items()
    if held[number] and any(b <= moment <= e for b, e in intervals)
  ]
  live += [
    _Live(int(buffers.bytes[memory.admitted_peak_tile]), buffers.step)
    for time, buffers in memory.buffers.items()
    if time <= moment <= time + 1 and buffers.bytes[memory.admitted_peak_tile]
  ]
  live += _no_data(memory)
  return sorted(live, key=_size, reverse=True)


def _no_data(memory: MemoryPlan) -> list[_Live]:
  """The fullest tile's non-tensor memory, as far as it fits."""
  tile, parts = memory.admitted_peak_tile, memory.code
  named = {name: int(getattr(parts, x)[tile]) for x, name in NAMES.items()}
  room = int(
    memory.admitted_code[tile] - parts.state[tile] - parts.stacks[tile]
  )
  if room < parts.executable[tile]:
    named = {
      "code, as much as fits": room,
      "state of vertices": int(parts.state[tile]),
      "stacks": int(parts.stacks[tile]),
    }
  return [_Live(size, name) for name, size in named.items() if size]


def _size(live: _Live) -> tuple[int, int]:
  """Sort key: by size, then by the tensor's number, i.e. by age."""
  return live.bytes, live.what if isinstance(live.what, int) else -1


def _describe(builder: Builder, module: Module, live: _Live) -> str:
  """A description in the user's terms: `argument params[0]['w'] f32[3,4]`."""
  if isinstance(live.what, str):
    return live.what
  if not isinstance(live.what, int):
    step = live.what
    return f"{step.buffers_of} {_where(builder, step.location)}".rstrip()
  info = builder.tensors[live.what]
  root = builder.tensors[info.root]
  arguments, results = module.names()
  name = ("temporary", "argument", "result", "constant")[root.space]
  if root.space == schema.ARGUMENT:
    name = f"argument {arguments[root.address]}"
  elif root.space == schema.RESULT and root.address < len(results):
    name = results[root.address]
  if info.root != live.what:
    name = f"exchanged copy of {name}"
  where = ""
  location = root.location if info.location is None else info.location
  if location is not None and root.space != schema.ARGUMENT:
    where = _where(builder, location)
  return f"{name} {_type(info.shape, info.dtype)} {where}".rstrip()


def _where(builder: Builder, location: int) -> str:
  place = list(builder.locations)[location]
  return location_text(schema.Location(*place))


def _type(shape: Shape, dtype: DType) -> str:
  """The type as XLA writes it: f32[3,4]."""
  return f"{NAME[dtype]}[{','.join(map(str, shape))}]"


# --- Advice -----------------------------------------------------------------


def advice(builder: Builder, module: Module, memory: MemoryPlan) -> list[str]:
  """What the user could change for the program to take less of the fullest
  tile, and by how much."""
  target = builder.target
  lines = _donations(builder, module, memory)
  lines += _halves(builder, module, memory)
  total = memory.code_bytes + (
    memory.argument_bytes
    + memory.result_bytes
    - memory.alias_bytes
    + memory.temporary_bytes
  )
  least = -(-total // target.bytes_per_tile)
  if least > target.num_tiles:
    machine = TARGETS.get(target.version, target)
    lines.append(
      f"all of it takes {total:,} bytes, which {least:,} tiles have: "
      + (
        "raise ipu_num_tiles or JAX_IPU_MODEL_NUM_TILES"
        if least <= machine.num_tiles
        else f"no single {target.version} has so many"
      )
    )
  return lines


def _donations(
  builder: Builder, module: Module, memory: MemoryPlan
) -> list[str]:
  """Advice to donate arguments: those of the user's parameters that contain
  arrays for which there are results of the same type."""
  arguments, _ = module.names()
  inputs, outputs = module.signature
  taken = {j for _, j in module.aliases}
  free = Counter(t for j, t in enumerate(outputs) if j not in taken)
  groups: dict[str, list[int]] = defaultdict(list)
  for i, type_ in enumerate(inputs):
    on_host = module.placements.get((False, i), Placement()).on_host
    if i not in module.donated and not on_host and free[type_]:
      free[type_] -= 1
      groups[_parameter(arguments[i])].append(i)
  saved = []
  for name, numbers in groups.items():
    donated = dataclasses.replace(module, donors=[*module.donors, *numbers])
    peaks = peaks_of(
      builder, _lives_if(builder, donated, memory), memory.buffers
    )
    saves = memory.admitted_peak_bytes - int(
      (peaks + memory.admitted_code).max()
    )
    if saves > 0:
      count = f" ({len(numbers)} arrays)" if len(numbers) > 1 else ""
      saved.append((saves, name, count))
  saved.sort(reverse=True)
  # For `*args` and `**kwargs` JAX gives no other parameter name.
  return [
    f"donating {name}{count}, by jax.jit's donate_argnums or donate_argnames: "
    f"{saves:,} bytes"
    for saves, name, count in saved[:_NAMED]
  ]


def _parameter(name: str) -> str:
  """The parameter of the user's function that contains an argument."""
  return re.split(r"\W", name, maxsplit=1)[0] or name


def _lives_if(
  builder: Builder, module: Module, memory: MemoryPlan
) -> dict[int, list[tuple[int, int]]]:
  """When tensors take SRAM if the module's donated arguments do so only while
  they are used."""
  lives = dict(memory.lives)
  for number in lives:
    info = builder.tensors[number]
    if (
      info.root == number
      and info.space == schema.ARGUMENT
      and info.address in module.donated
    ):
      lives[number] = memory.used.get(number, [])
  return lives


def _halves(builder: Builder, module: Module, memory: MemoryPlan) -> list[str]:
  """Advice to halve the batch.

  Which dimension is the batch is a guess. Candidates are the leading dimensions
  of arguments that are not state, i.e. for which there is no result of the same
  type. Of these, it is the one that tensors with the most bytes at the peak
  have.
  """
  batched: dict[int, set[int]] = defaultdict(set)
  for i, (shape, dtype) in enumerate(module.signature[0]):
    if shape and shape[0] > 1 and (shape, dtype) not in module.signature[1]:
      batched[shape[0]].add(i)
  live = _live(builder, memory)
  having = {
    extent: sum(x.bytes for x in live if _has(builder, x, extent, arguments))
    for extent, arguments in batched.items()
  }
  extent = max(having, key=lambda e: (having[e], e), default=0)
  if not extent or having[extent] < 2:
    return []
  name = module.names()[0][min(batched[extent])]
  return [
    f"half of the {extent:,} along the first dimension of {name}: about "
    f"{having[extent] // 2:,} bytes, half of what has that dimension"
  ]


def _has(
  builder: Builder, live: _Live, extent: int, arguments: set[int]
) -> bool:
  """Whether a tensor seems to have the leading dimension of some arguments,
  given its extent.

  Of the arguments themselves only those given do, and constants do not. For
  computed tensors the extent decides: that of the leading dimension, or in
  exchanged copies, which may be transposed, that of any dimension.
  """
  if not isinstance(live.what, int):
    return False
  info = builder.tensors[live.what]
  root = builder.tensors[info.root]
  if root.space == schema.ARGUMENT:
    return root.address in arguments
  if root.space == schema.CONSTANT:
    return False
  dims = info.shape[:1] if info.root == live.what else info.shape
  return extent in dims
