"""What a compilation is asked for, and the results of its phases."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxlib.ipu.ir import importer
from jaxlib.ipu.ir.bytecode_strings import Strings
from jaxlib.ipu.ir.detached_arrays import Arrays
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.partition.options import Partitioned, Sharding
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram import memory
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.program import TileProgram


class Phase(enum.Enum):
  """The phases, in order, with their results."""

  PARTITION = "partition"  # the program of each device, if there are several
  PARSE = "parse"  # canonical StableHLO, calls inlined
  IMPORT = "import"  # a graph of StableHLO operations, simplified
  DECOMPOSE = "decompose"  # no operation that has a rule
  FUSE = "fuse"  # element-wise operations grouped, dead nodes gone
  LOWER = "lower"  # tensors with tile mappings, steps with costs
  ALLOCATE = "allocate"  # addresses; the SRAM plan
  EMIT = "emit"  # the program's record, and its bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of a compilation.

  Attributes:
    target: the machine to compile for.
    sharding: how to split the program over several devices; None: it is for
      one device.
    allow_out_of_memory: compile programs that do not fit the SRAM.
    code_budget: bytes of executable code on the fullest tile above which
      repeated steps become functions and serial ones loops; None: those with
      which a program fits.
    stop_after: the last phase to run; None runs all.
    dump: a folder for each phase's result as text; None: no dumps.
    report: a folder for the program's report; None: no report.
    verify: check the result of each phase.
    given: the user's options by name, for the report.
    on_phase: is called before each phase with its name and the state.
  """

  target: Target
  sharding: Sharding | None = None
  allow_out_of_memory: bool = False
  code_budget: int | None = None
  stop_after: Phase | None = None
  dump: Path | None = None
  report: Path | None = None
  verify: bool = False
  given: dict[str, Any] = dataclasses.field(default_factory=dict)
  on_phase: Callable[[str, State], None] | None = None


@dataclasses.dataclass(slots=True)
class State:
  """The results of the phases so far."""

  code: bytes | memoryview
  partitioned: Partitioned | None = None
  strings: Strings | None = None
  stablehlo: Any = None
  arrays: Arrays = dataclasses.field(default_factory=dict)
  module: Module | None = None
  decomposed: bool = False  # whether any operation was
  hoists: bool = True  # whether products may leave loops
  hoisted: bool = False  # whether any did
  shares: bool = True  # whether repeated operations may become functions
  builder: Builder | None = None
  tiles: TileProgram | None = None
  memory: memory.MemoryPlan | None = None
  program: schema.Program | None = None
  pieces: Sequence[bytes | memoryview] = ()
  folders: dict[Path, Path] = dataclasses.field(default_factory=dict)

  @property
  def data(self) -> bytes:
    """The program's bytes; a copy of the pieces."""
    return b"".join(self.pieces)

  @property
  def name(self) -> str:
    """The module's."""
    if self.stablehlo is not None:
      return importer.module_name(self.stablehlo)
    assert self.partitioned is not None
    return self.partitioned.name

  @property
  def known_name(self) -> str:
    """The module's; "" before it is parsed."""
    return self.name if self.stablehlo or self.partitioned else ""

  def folder(self, root: Path) -> Path:
    """The folder of this program in the folder of all reports."""
    if root not in self.folders:
      from jaxlib.ipu.reporting import folder  # few compilations need it

      self.folders[root] = folder.make(root, self.name)
    return self.folders[root]

  def become(self, other: State) -> None:
    """Takes over all results of another compilation of the same program."""
    for field in dataclasses.fields(State):
      setattr(self, field.name, getattr(other, field.name))
