"""The compiler: named phases from a StableHLO module to a program's bytes."""

from __future__ import annotations

import copy
import dataclasses
import enum
import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxlib.ipu import ops
from jaxlib.ipu.dtypes import COMPLEX, NARROW
from jaxlib.ipu.emit import emit
from jaxlib.ipu.ir import bytecode_strings, importer, stored_module
from jaxlib.ipu.ir.detached_arrays import Arrays, Detached, detach
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.layout import Array
from jaxlib.ipu.lower import signature
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.partition.options import Partitioned, Sharding
from jaxlib.ipu.passes import (
  dce,
  decompose,
  flatten_branches,
  fold_transposes,
  fuse,
  fuse_producers,
  hoist_products,
  partial_sorts,
  rotate_loops,
  simplify,
  sink_scalars,
  trip_counts,
)
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.sram import memory
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import Choices, smaller
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile_passes import (
  allocate,
  assembled,
  coalesce,
  copy_late,
  in_place,
  local_copies,
  order,
  outline,
  pack,
)

ops.load()


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
  stablehlo: Any = None
  arrays: Arrays = dataclasses.field(default_factory=dict)
  module: Module | None = None
  decomposed: bool = False  # whether any operation was
  hoists: bool = True  # whether products may leave loops
  hoisted: bool = False  # whether any did
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


def compile_module(code: bytes | memoryview, options: Options) -> State:
  """Runs the phases.

  Args:
    code: a StableHLO portable artifact.
    options: see `Options`.

  Raises:
    CompileError: with a PJRT code and a message for the user.
  """
  state = State(code)
  with _no_collection:
    _run(state, options)
  return state


def _run(state: State, options: Options) -> None:
  for phase in Phase:
    if options.on_phase is not None:
      options.on_phase(phase.value, state)
    _RUN[phase](state, options)
    if options.verify or options.dump:
      from jaxlib.ipu import inspection

      inspection.after(phase, state, options)
    if phase is options.stop_after:
      break


class _NoCollection:
  """Disables Python's cyclic garbage collector while any thread compiles.

  There is hardly any cyclic garbage, and every collection visits all nodes of a
  large program: that took 40 % of the time of compiling 20,000 operations.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._compiling = 0
    self._was_enabled = False

  def __enter__(self) -> None:
    with self._lock:
      if not self._compiling:
        self._was_enabled = gc.isenabled()
        gc.disable()
      self._compiling += 1

  def __exit__(self, *_: object) -> None:
    with self._lock:
      self._compiling -= 1
      if not self._compiling and self._was_enabled:
        gc.enable()


_no_collection = _NoCollection()


def _partition(state: State, options: Options) -> None:
  if options.sharding is None:
    return
  from jaxlib.ipu import partition

  state.partitioned = partition.partition(
    state.code, options.sharding, options.target
  )
  state.code = state.partitioned.code


def _parse(state: State, options: Options) -> None:
  # Dumps show the arrays.
  found = detach(state.code) if options.dump is None else Detached(state.code)
  state.stablehlo, state.arrays = importer.parse(found.code), found.arrays


def _import(state: State, options: Options) -> None:
  try:
    state.module = importer.import_module(state.stablehlo, state.arrays)
  except importer.ArrayLost:
    state.stablehlo, state.arrays = importer.parse(state.code), {}
    state.module = importer.import_module(state.stablehlo)
  if bytecode_strings.mentions(state.code, b"annotate_device_placement"):
    from jaxlib.ipu.passes import host_memory  # few programs need it

    host_memory.run(state.module)
  simplify.simplify(state.module.graph)


def _decompose(state: State, options: Options) -> None:
  assert state.module is not None
  module = state.module
  # Imported only by the few programs that need them.
  if not module.dtypes.isdisjoint(NARROW):
    from jaxlib.ipu.passes import narrow_types

    module.graph = narrow_types.widen(module.graph)
    state.decomposed = True
  if not module.dtypes.isdisjoint(COMPLEX):
    from jaxlib.ipu.passes import complex_planes

    decompose.decompose(module.graph, options.target, complex_planes.handles)
    module.graph = complex_planes.split_complex(module.graph, options.target)
    state.decomposed = True
  state.decomposed |= decompose.decompose(module.graph, options.target)
  if state.decomposed:
    simplify.merge(module.graph)


def _fuse(state: State, options: Options) -> None:
  assert state.module is not None
  graph = fold_transposes.fold_transposes(state.module.graph)
  if state.hoists:
    state.hoisted = hoist_products.hoist_products(graph, options.target)
  graph = flatten_branches.flatten_branches(graph, options.target)
  graph = rotate_loops.rotate_loops(trip_counts.find_trip_counts(graph))
  graph = partial_sorts.shorten_sorts(dce.eliminate(graph))
  graph = sink_scalars.sink_scalars(fuse.fuse(graph))
  state.module.graph = dce.eliminate(fuse_producers.fuse_producers(graph))


def _lower(state: State, options: Options) -> None:
  builder = _lower_once(state, options, Choices())
  # Layouts of arguments and loop-carried values are chosen before their readers
  # are lowered; whether they were right shows afterwards.
  if builder.used.unpriced:
    builder = _try(state, options, replace(builder.choices, layouts=False))
  if builder.used.boxes:
    builder = _try(state, options, replace(builder.choices, boxes=False))
  if builder.used.leaves:
    carried = builder.used.leaves
    _try(state, options, replace(builder.choices, carried=carried))


def _try(state: State, options: Options, choices: Choices) -> Builder:
  """Lowers with other choices, and keeps the cheaper program."""
  before = copy.copy(state)
  assert before.builder is not None
  after = _lower_once(state, options, choices)
  if _cycles(after) < _cycles(before.builder):
    return after
  _go_back(state, before)
  return before.builder


def _go_back(state: State, before: State) -> None:
  for field in dataclasses.fields(State):
    setattr(state, field.name, getattr(before, field.name))


def _lower_once(state: State, options: Options, choices: Choices) -> Builder:
  assert state.module is not None
  target = options.target
  if not choices.wide:
    narrow = min(target.coefficient_load_bytes, target.data_path_bytes)
    target = replace(target, coefficient_load_bytes=narrow)
  if choices.products < 1:
    share = choices.products * target.available_memory_proportion
    target = replace(target, available_memory_proportion=share)
  builder = state.builder = Builder(target, choices)
  arguments = signature.bind_arguments(builder, state.module)
  donated = {arguments[i] for i in state.module.donated}
  views = builder.lower_graph(state.module.graph, donated)
  results = signature.bind_results(builder, state.module, views)
  state.tiles = TileProgram(
    builder.target,
    builder.tensors,
    builder.steps,
    arguments,
    results,
    state.module.aliases,
    builder.assembled,
    builder.location,
    builder.choices,
    builder.used,
  )
  _run_passes(state, options, Phase.LOWER, _LOWERED)
  return builder


Passes = dict[str, Callable[[TileProgram], None]]

# Passes over the tile program as it was lowered; before storage is assigned; if
# it has too much code; and those that assign storage.
_LOWERED: Passes = {
  "order": order.run,
  "divide_copies": assembled.run,
  "in_place": in_place.run,
}
_STORED: Passes = {"copy_late": copy_late.run}
_OUTLINED: Passes = {"outline": outline.run}
_PACKED: Passes = {"pack": pack.run}
_PLACED: Passes = {
  "coalesce": coalesce.run,
  "allocate": allocate.run,
  "local_copies": local_copies.run,
}
_OF_PHASE = {
  Phase.LOWER: [*_LOWERED],
  Phase.ALLOCATE: [*_STORED, *_PLACED, *_OUTLINED, *_PACKED],
}


def _run_passes(
  state: State, options: Options, phase: Phase, passes: Passes
) -> None:
  assert state.tiles is not None
  for name, run in passes.items():
    run(state.tiles)
    if options.verify or options.dump:
      from jaxlib.ipu import inspection

      number = _OF_PHASE[phase].index(name) + 1
      inspection.after_pass(phase, f"{number}_{name}", state, options)


def _cycles(builder: Builder) -> float:
  return totals(builder.target, builder.steps, builder.tensors).cycles


def _allocate(state: State, options: Options) -> None:
  plan = _plan_memory(state, options)
  builder, first = state.builder, copy.copy(state)
  assert state.module is not None and builder is not None
  builder, plan = _uncrowded(state, options, builder, plan)
  builder, plan = _with_less_code(state, options, builder, plan)
  plan = _with_long_messages(state, options, plan)
  target = options.target
  sram = target.num_tiles * target.bytes_per_tile
  for choices in smaller(builder.choices, builder.used):
    if memory.fits(target, plan) or plan.argument_bytes > sram:
      break
    # Less data mostly takes more code. But sequences that use copies of others
    # share no code.
    shares = builder.used.recurs and builder.choices.keeps > choices.keeps
    if memory.excess(target, plan).code > 0 and not shares:
      continue
    builder = _lower_once(state, options, choices)
    builder, plan = _uncrowded(
      state, options, builder, _plan_memory(state, options)
    )
    plan = _with_long_messages(state, options, plan)
  fits = memory.fits(target, plan)
  if not fits and state.hoisted:
    _keep_products(state, options)
    return
  if not fits:
    # Nothing fits: keep the first, faster program.
    _go_back(state, first)
    assert first.builder is not None
    builder, plan = first.builder, _place(state, options)
  written = _report(state, options)
  if not fits:
    from jaxlib.ipu.sram import overflow  # few programs need its imports

    allow = options.allow_out_of_memory
    assert state.tiles is not None
    overflow.check(builder, state.tiles, state.module, plan, allow, written)


def _keep_products(state: State, options: Options) -> None:
  """Compiles a program that does not fit once more, with all products in their
  loops: those of all iterations together take more."""
  again = State(
    state.code, state.partitioned, folders=state.folders, hoists=False
  )
  phases = [*Phase]
  begin, end = phases.index(Phase.PARSE), phases.index(Phase.ALLOCATE)
  for phase in phases[begin : end + 1]:
    _RUN[phase](again, options)
  _go_back(state, again)


def _report(state: State, options: Options) -> Path | None:
  """Writes the report, of programs that do not fit, too."""
  if options.report is None:
    return None
  from jaxlib.ipu.reporting import write  # few compilations need it

  return write.write(state, options)


def _uncrowded(
  state: State, options: Options, builder: Builder, plan: memory.MemoryPlan
) -> tuple[Builder, memory.MemoryPlan]:
  """Lowers with narrower loads, if there is too little interleaved memory."""
  if not plan.addresses.fullest.crowded:
    return builder, plan
  builder = _lower_once(state, options, replace(builder.choices, wide=False))
  return builder, _plan_memory(state, options)


def _with_less_code(
  state: State, options: Options, builder: Builder, plan: memory.MemoryPlan
) -> tuple[Builder, memory.MemoryPlan]:
  """Lowers with loops over serial steps, if there is more code than there may
  be and they have less."""
  target, room, used = options.target, _code_room(options, plan), builder.used
  if (plan.code.executable <= room).all():
    return builder, plan
  if used.steps == 1 and not used.shares_rows:
    return builder, plan
  before = copy.copy(state)
  builder = _lower_once(state, options, replace(builder.choices, repeats=True))
  looped = _plan_memory(state, options)
  if _rank(target, looped) < _rank(target, plan):
    return builder, looped
  _go_back(state, before)
  assert before.builder is not None
  return before.builder, plan


# How often messages are packed: their buffers take room from code. [G]
_PACKINGS = 4


def _with_long_messages(
  state: State, options: Options, plan: memory.MemoryPlan
) -> memory.MemoryPlan:
  """Packs messages, if there is more code than there may be and that makes
  room for all of it."""
  assert state.tiles is not None
  room = _packed_room(options, plan)
  if (plan.code.executable <= room).all():
    return plan
  packed = plan
  for _ in range(_PACKINGS):
    state.tiles.code_room = room
    _run_passes(state, options, Phase.ALLOCATE, _PACKED)
    if not state.tiles.packed:
      break
    packed = _place(state, options)
    # Buffers of messages take some of the room.
    room = np.minimum(room, _packed_room(options, packed))
    if (packed.code.executable <= room).all():
      return packed
  if packed is plan:
    return plan
  pack.undo(state.tiles)
  return _place(state, options)


def _packed_room(options: Options, plan: memory.MemoryPlan) -> Array:
  """The bytes of executable code that each tile may have once messages are
  packed."""
  if options.code_budget is None:
    return memory.code_room(options.target, plan)
  return _code_room(options, plan)


def _plan_memory(state: State, options: Options) -> memory.MemoryPlan:
  assert state.module is not None and state.builder is not None
  assert state.tiles is not None
  _run_passes(state, options, Phase.ALLOCATE, _STORED)
  plan = _place(state, options)
  room = _code_room(options, plan)
  while (plan.code.executable > room).any():
    before, products = outline.Saved(state.tiles), state.builder.products
    state.tiles.code_room, functions = room, state.tiles.functions
    _run_passes(state, options, Phase.ALLOCATE, _OUTLINED)
    if state.tiles.functions == functions:
      break
    state.builder.outline(state.tiles.outlined)
    outlined = _place(state, options)
    if _rank(options.target, outlined) >= _rank(options.target, plan):
      # The functions' arguments take more.
      before.restore()
      state.builder.products = products
      return _place(state, options)
    plan, room, last = outlined, _code_room(options, outlined), room
    if (room >= last).all():
      break
  return plan


def _code_room(options: Options, plan: memory.MemoryPlan) -> Array:
  """The bytes of executable code that each tile may have."""
  room = memory.executable_room(options.target, plan)
  if options.code_budget is None:
    return room
  return np.full_like(room, options.code_budget)


def _rank(target: Target, plan: memory.MemoryPlan) -> tuple[int, int]:
  """Sort key of plans: by what is missing for them to fit, then by code."""
  missing = sum(max(part, 0) for part in memory.excess(target, plan))
  return missing, int(plan.code.executable.max(initial=0))


def _place(state: State, options: Options) -> memory.MemoryPlan:
  assert state.module is not None and state.builder is not None
  assert state.tiles is not None
  _run_passes(state, options, Phase.ALLOCATE, _PLACED)
  state.memory = memory.plan(state.builder, state.tiles, state.module)
  return state.memory


def _emit(state: State, options: Options) -> None:
  assert state.module is not None and state.builder is not None
  assert state.tiles is not None and state.memory is not None
  constants = state.builder.constants
  try:
    code, omissions, more = stored_module.bytecode(
      state.stablehlo, state.arrays, constants
    )
  except (ValueError, IndexError):  # of a form that is not known
    code, omissions, more = stored_module.bytecode(
      importer.parse(state.code), {}, constants
    )
  parts = state.partitioned
  state.program = emit.program(
    state.builder,
    state.tiles,
    state.module,
    state.memory,
    code,
    omissions,
    parts.shardings if parts else [],
  )
  state.pieces = container.pieces(state.program, *constants, *more)


_RUN = {
  Phase.PARTITION: _partition,
  Phase.PARSE: _parse,
  Phase.IMPORT: _import,
  Phase.DECOMPOSE: _decompose,
  Phase.FUSE: _fuse,
  Phase.LOWER: _lower,
  Phase.ALLOCATE: _allocate,
  Phase.EMIT: _emit,
}
assert list(_RUN) == list(Phase)
