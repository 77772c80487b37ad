"""A tile program as passes see it."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.layout import Array
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import Choices, Used
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.tensor import TensorInfo


@dataclasses.dataclass(slots=True)
class TileProgram:
  """Tensors and steps, which passes rewrite.

  Attributes:
    target: the machine.
    tensors: by number.
    steps: of the program.
    arguments: their roots.
    results: their roots.
    aliases: numbers of donated arguments and of the results that may take
      their memory.
    assembled: roots that are written by several copies, one part each, before
      any part is read (tile_passes/assembled.py).
    location: the number of the location of steps that passes add.
    choices: what passes may do.
    used: what the lowering and the passes did.
    functions: how many there are (tile/call.py).
    code_room: bytes of executable code that each tile should have at most
      [tile]; None: any number.
    code: bytes of executable code on each tile [tile], if they are known; a
      pass that changes steps resets it.
    packed: whether packed messages have made room (tile_passes/pack.py).
    outlined: tensors of steps that have become functions, and the functions'
      tensors that stand for them (tile_passes/outline.py).
    arena_bytes: of the arena, once roots have addresses.
    analysis: when roots are live (tile_passes/lifetimes.py), if that is known;
      a pass that changes steps resets it.
  """

  target: Target
  tensors: list[TensorInfo]
  steps: Region
  arguments: list[int] = dataclasses.field(default_factory=list)
  results: list[int] = dataclasses.field(default_factory=list)
  aliases: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  assembled: set[int] = dataclasses.field(default_factory=set)
  location: int = 0
  choices: Choices = dataclasses.field(default_factory=Choices)
  used: Used = dataclasses.field(default_factory=Used)
  functions: int = 0
  code_room: Array | None = None
  code: Array | None = None
  packed: bool = False
  outlined: dict[int, int] = dataclasses.field(default_factory=dict)
  arena_bytes: int = 0
  analysis: Any = None
