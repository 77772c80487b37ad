"""What the user could change for a program to take less of the fullest tile."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict

from jaxlib.ipu.ir.graph import Module, Placement
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.contents import Live, at_peak
from jaxlib.ipu.sram.memory import MemoryPlan, excess, peaks_of
from jaxlib.ipu.target import TARGETS

NAMED = 5  # pieces of advice of one kind
# Code that is more than this part of what a tile needs is shown by line. [G]
_MUCH_CODE = 1 / 4


def advice(builder: Builder, module: Module, memory: MemoryPlan) -> list[str]:
  """What the user could change for the program to take less of the fullest
  tile, and by how much."""
  target = builder.target
  lines = []
  if much_code(builder, memory):
    lines.append(
      "less code: loops (jax.lax.scan, jax.lax.fori_loop) instead of unrolled "
      "operations, which share code only where they repeat; fewer different "
      "operations in one program"
    )
  if excess(target, memory).sram <= 0:
    return lines
  lines += _donations(builder, module, memory)
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


def much_code(builder: Builder, memory: MemoryPlan) -> bool:
  """Whether less code would help: a tile has too much, or the fullest one
  much."""
  code = int(memory.code.executable[memory.peak_tile])
  return (
    excess(builder.target, memory).code > 0
    or code > _MUCH_CODE * memory.peak_tile_bytes
  )


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
    saves = memory.peak_tile_bytes - int((peaks + memory.code.total).max())
    if saves > 0:
      count = f" ({len(numbers)} arrays)" if len(numbers) > 1 else ""
      saved.append((saves, name, count))
  saved.sort(reverse=True)
  # For `*args` and `**kwargs` JAX gives no other parameter name.
  return [
    f"donating {name}{count}, by jax.jit's donate_argnums or donate_argnames: "
    f"{saves:,} bytes"
    for saves, name, count in saved[:NAMED]
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
  live = at_peak(builder, memory)
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
  builder: Builder, live: Live, extent: int, arguments: set[int]
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
