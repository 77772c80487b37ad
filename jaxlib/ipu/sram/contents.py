"""What is on the fullest tile at its peak, in the user's terms."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from jaxlib.ipu.dtypes import NAME, DType
from jaxlib.ipu.ir.graph import Module, Shape
from jaxlib.ipu.location import location_text
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.memory import MemoryPlan
from jaxlib.ipu.tile.code import NAMES
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import tile_bytes

# What takes memory on a tile: the tensor of this number, the buffers of a step,
# or a kind of non-tensor memory, by name.
What = int | str | Step


class Live(NamedTuple):
  """What takes memory on the fullest tile at its peak, and its bytes there."""

  bytes: int
  what: What


def at_peak(builder: Builder, memory: MemoryPlan) -> list[Live]:
  """Everything on the fullest tile at its peak, largest first."""
  changes: dict[int, int] = defaultdict(int)
  held = {}
  for number, intervals in memory.lives.items():
    taken = tile_bytes(builder.tensors[number], builder.target.num_tiles)
    held[number] = int(taken[memory.peak_tile])
    for begin, end in intervals:
      changes[begin] += held[number]
      changes[end + 1] -= held[number]
  for time, buffers in memory.buffers.items():
    changes[time] += int(buffers.bytes[memory.peak_tile])
    changes[time + 2] -= int(buffers.bytes[memory.peak_tile])
  now = most = moment = 0
  for time in sorted(changes):
    now += changes[time]
    if now > most:
      most, moment = now, time
  live = [
    Live(held[number], number)
    for number, intervals in memory.lives.items()
    if held[number] and any(b <= moment <= e for b, e in intervals)
  ]
  live += [
    Live(int(buffers.bytes[memory.peak_tile]), buffers.step)
    for time, buffers in memory.buffers.items()
    if time <= moment <= time + 1 and buffers.bytes[memory.peak_tile]
  ]
  live += _no_data(memory)
  return sorted(live, key=_size, reverse=True)


def _no_data(memory: MemoryPlan) -> list[Live]:
  """The fullest tile's non-tensor memory."""
  tile, parts = memory.peak_tile, memory.code
  named = {name: int(getattr(parts, x)[tile]) for x, name in NAMES.items()}
  return [Live(size, name) for name, size in named.items() if size]


def _size(live: Live) -> tuple[int, int]:
  """Sort key: by size, then by the tensor's number, i.e. by age."""
  return live.bytes, live.what if isinstance(live.what, int) else -1


def describe(builder: Builder, module: Module, live: Live) -> str:
  """A description in the user's terms: `argument params[0]['w'] f32[3,4]`."""
  if isinstance(live.what, str):
    return live.what
  if not isinstance(live.what, int):
    step = live.what
    return f"{step.buffers_of} {line_of(builder, step.location)}".rstrip()
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
    where = line_of(builder, location)
  return f"{name} {_type(info.shape, info.dtype)} {where}".rstrip()


def line_of(builder: Builder, location: int) -> str:
  """A source location by its number: "dot_general at model.py:12"; "" if it has
  none."""
  place = list(builder.locations)[location]
  return location_text(schema.Location(*place))


def _type(shape: Shape, dtype: DType) -> str:
  """The type as XLA writes it: f32[3,4]."""
  return f"{NAME[dtype]}[{','.join(map(str, shape))}]"


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
    whats: list[What] = [*allocation.tensors]
    if not whats:
      whats.append(steps[allocation.intervals[0][0]])
    when = " ".join(f"{begin}-{end}" for begin, end in allocation.intervals)
    first, *rest = (describe(builder, module, Live(size, w)) for w in whats)
    more = "".join(f", then {what}" for what in rest)
    lines.append(f"{address:#07x} {size:,} bytes at {when}: {first}{more}")
  return "\n    ".join(lines)
