"""The program that fits: which choices it is lowered with, and where its
tensors and code have room.

A program is lowered with the choices that mostly take the fewest cycles. If
what it turned out to use makes others worth a try, it is lowered with these,
too, and the cheaper one is kept. If it does not fit, steps become functions and
loops, messages are packed, and it is lowered for less data, until it does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jaxlib.ipu.compilation import Options, Phase, State
from jaxlib.ipu.layout import Array
from jaxlib.ipu.lower import signature
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.function import separate
from jaxlib.ipu.sram import memory
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.choices import Choices, smaller
from jaxlib.ipu.tile.code import CodeCount
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile_passes import (
  allocate as allocation,
)
from jaxlib.ipu.tile_passes import (
  assembled,
  coalesce,
  copy_late,
  in_place,
  local_copies,
  order,
  outline,
  pack,
)


def lower(state: State, options: Options) -> bool:
  """Lowers the graph with the choices that cost least.

  Returns:
    Whether the program needs the functions of its graph, if there are any. If
    not, it is lowered once, to know that.
  """
  builder = _lower_once(state, options, Choices())
  if builder.functions and not _needs_functions(state, options):
    return False
  # Layouts of arguments and loop-carried values are chosen before their readers
  # are lowered; whether they were right shows afterwards.
  if builder.used.unpriced:
    builder = _try(state, options, replace(builder.choices, layouts=False))
  if builder.used.boxes:
    builder = _try(state, options, replace(builder.choices, boxes=False))
  if builder.used.leaves:
    carried = builder.used.leaves
    _try(state, options, replace(builder.choices, carried=carried))
  return True


def _try(state: State, options: Options, choices: Choices) -> Builder:
  """Lowers with other choices, and keeps the cheaper program."""
  before = copy.copy(state)
  assert before.builder is not None
  after = _lower_once(state, options, choices)
  if _cycles(after) < _cycles(before.builder):
    return after
  state.become(before)
  return before.builder


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
  for f in builder.functions:
    roots = [*{v.root: None for v in f.results}]
    function = _tile_program(builder, f.body, f.own, roots)
    for run in _LOWERED.values():
      run(function)
  state.tiles = _tile_program(builder, builder.steps, arguments, results)
  state.tiles.aliases = state.module.aliases
  state.tiles.functions = len(builder.functions)
  _run_passes(state, options, Phase.LOWER, _LOWERED)
  return builder


def _tile_program(
  builder: Builder, steps: Region, arguments: list[int], results: list[int]
) -> TileProgram:
  return TileProgram(
    builder.target,
    builder.tensors,
    steps,
    arguments,
    results,
    assembled=builder.assembled,
    location=builder.location,
    choices=builder.choices,
    used=builder.used,
  )


# Programs that have less than this many times the code that they may have are
# better outlined as far as needed. [G]
_MUCH_CODE = 2.0


def much_code(options: Options) -> float:
  """The bytes of executable code on a tile above which the repeats of a program
  are functions from the beginning."""
  if options.code_budget is None:
    return _MUCH_CODE * options.target.executable_bytes
  return _MUCH_CODE * options.code_budget


def _needs_functions(state: State, options: Options) -> bool:
  """Whether the program would have so much code if the operations of its
  functions stood in the place of their calls."""
  assert state.builder is not None and state.tiles is not None
  code = memory.tile_code(state.tiles).executable
  for f in state.builder.functions:
    count = CodeCount(options.target, state.tiles.tensors)
    count.steps(f.body)
    own = count.finish()
    code = code + (len(f.calls) - 1) * (own.executable - own.vertices)
  return bool(code.max(initial=0) > much_code(options))


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
  "allocate": allocation.run,
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


def allocate(state: State, options: Options) -> bool:
  """Assigns storage, and lowers for less until all of it fits.

  Returns:
    Whether it does. If not, the result is the first, fastest program.
  """
  plan = fastest = _plan_memory(state, options)
  builder, first = state.builder, copy.copy(state)
  assert builder is not None
  builder, plan = _uncrowded(state, options, builder, plan)
  builder, plan = _with_less_code(state, options, builder, plan)
  plan = _with_long_messages(state, options, plan)
  target = options.target
  if not memory.fits(target, plan) and not builder.used.divisible:
    assert state.tiles is not None
    assembled.find_divisible(state.tiles)
  for choices in smaller(builder.choices, builder.used):
    if memory.fits(target, plan) or not may_fit(state, options):
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
  if memory.fits(target, plan):
    return True
  if plan is not fastest:
    state.become(first)
    _place(state, options)
  return False


def may_fit(state: State, options: Options) -> bool:
  """Whether all tiles together have room for the arguments."""
  assert state.memory is not None
  target = options.target
  sram = target.num_tiles * target.bytes_per_tile
  return state.memory.argument_bytes <= sram


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
  state.become(before)
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
  room, code = _packed_room(options, plan), plan.code
  if (code.executable <= room).all():
    return plan
  if (code.executable - code.exchange > room).any():
    return plan  # by other code than that of exchanges
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
  separate(state.builder, state.builder.functions)
  _run_passes(state, options, Phase.ALLOCATE, _STORED)
  plan = _place(state, options)
  room = _code_room(options, plan)
  while (plan.code.executable > room).any():
    before, products = outline.Saved(state.tiles), state.builder.products
    state.tiles.code_room, functions = room, state.tiles.functions
    state.tiles.code = plan.code.executable
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
