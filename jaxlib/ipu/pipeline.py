"""The compiler: named phases from a StableHLO module to a program's bytes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxlib.ipu import fitting, ops
from jaxlib.ipu.compilation import Options as Options
from jaxlib.ipu.compilation import Phase as Phase
from jaxlib.ipu.compilation import State as State
from jaxlib.ipu.dtypes import COMPLEX, NARROW
from jaxlib.ipu.emit import emit
from jaxlib.ipu.ir import importer, stored_module
from jaxlib.ipu.ir.bytecode_strings import Strings
from jaxlib.ipu.ir.detached_arrays import Detached, detach
from jaxlib.ipu.ir.graph import Graph, Module
from jaxlib.ipu.passes import (
  dce,
  decompose,
  flatten_branches,
  fold_transposes,
  fuse,
  fuse_producers,
  hoist_invariants,
  hoist_products,
  join_updates,
  partial_sorts,
  recompute_operands,
  rotate_loops,
  share_repeats,
  simplify,
  sink_scalars,
  stack_scalars,
  trip_counts,
)
from jaxlib.ipu.program import container

ops.load()


def compile_module(code: bytes | memoryview, options: Options) -> State:
  """Runs the phases.

  Args:
    code: a StableHLO portable artifact.
    options: see `Options`.

  Raises:
    CompileError: with a PJRT code and a message for the user.
  """
  state = State(code)
  with no_collection:
    _run(state, options)
  return state


def _run(state: State, options: Options) -> None:
  for phase, run in _RUN.items():
    if options.on_phase is not None:
      options.on_phase(phase.value, state)
    run(state, options)
    if options.verify or options.dump:
      from jaxlib.ipu import inspection

      inspection.after(phase, state, options)
    if phase is options.stop_after:
      break


class _NoCollection:
  """Disables Python's cyclic garbage collector while any thread compiles.

  Every collection visits all nodes of a large program: that took 40 % of the
  time of compiling 20,000 operations. The only cyclic garbage are graphs, whose
  nodes and values refer to each other: they are freed at the end. A caller that
  keeps less than the state nests its own, so that this is after the state.
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

  def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
    with self._lock:
      self._compiling -= 1
      if self._compiling or not self._was_enabled:
        return
      gc.enable()
    if error is None:  # otherwise its traceback holds all that was allocated
      # The next allocation would do so: all that was allocated is young.
      gc.collect(0)


no_collection = _NoCollection()


def _partition(state: State, options: Options) -> None:
  if options.sharding is None:
    return
  from jaxlib.ipu.partition.partition import partition  # for several devices

  state.partitioned = partition(state.code, options.sharding, options.target)
  state.code = state.partitioned.code


def _parse(state: State, options: Options) -> None:
  # Dumps show the arrays.
  found = detach(state.code) if options.dump is None else Detached(state.code)
  state.strings = Strings(state.code)
  state.stablehlo = importer.parse(found.code, state.strings)
  state.arrays = found.arrays


def _import(state: State, options: Options) -> None:
  try:
    state.module = importer.import_module(state.stablehlo, state.arrays)
  except importer.ArrayLost:
    state.stablehlo, state.arrays = importer.parse(state.code), {}
    state.module = importer.import_module(state.stablehlo)
  assert state.strings is not None
  if state.strings.mentions(b"annotate_device_placement"):
    from jaxlib.ipu.passes import host_memory  # few programs need it

    host_memory.run(state.module)
  if state.shares:
    _share(state.module, state, options)
  _each(state.module, simplify.simplify)


# Repeats may have so many bytes of code for an operation: BERT-base and
# GPT-2-small have 220 to 260 (docs/code.md). Programs for which this is not
# much are not searched for repeats. [G]
_MOST_BYTES = 250


def _share(module: Module, state: State, options: Options) -> None:
  """Makes functions of what a program would by far have too much code for."""
  least = fitting.much_code(options) / _MOST_BYTES
  if len(module.graph.nodes) < least:
    return
  if not module.dtypes.isdisjoint({*NARROW, *COMPLEX}):
    return  # decomposing them changes the types and numbers of operands
  assert state.strings is not None
  if state.strings.mentions(b"optimization_barrier"):
    # What rematerialisation computes again is computed once.
    simplify.simplify(module.graph)
  share_repeats.share_repeats(module, least)
  recompute_operands.recompute_operands(module)


def _each(module: Module, run: Callable[[Graph], Graph]) -> None:
  """Runs a pass on the graph of a module and on those of its functions."""
  for function in module.functions:
    function.graph = run(function.graph)
  module.graph = run(module.graph)


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
  for graph in (*(f.graph for f in module.functions), module.graph):
    state.decomposed |= decompose.decompose(graph, options.target)
  if state.decomposed:
    _each(module, simplify.merge)


def _fuse(state: State, options: Options) -> None:
  module = state.module
  assert module is not None
  for function in module.functions:
    function.graph = _fused(function.graph, [], state, options)
  module.graph = _fused(module.graph, module.aliases, state, options)


def _fused(
  graph: Graph,
  aliases: Sequence[tuple[int, int]],
  state: State,
  options: Options,
) -> Graph:
  target = options.target
  graph = fold_transposes.fold_transposes(graph)
  if state.hoists:
    state.hoisted |= hoist_invariants.hoist_invariants(graph, target)
    state.hoisted |= hoist_products.hoist_products(graph, target)
  graph = flatten_branches.flatten_branches(graph, target)
  graph = rotate_loops.rotate_loops(trip_counts.find_trip_counts(graph))
  graph = partial_sorts.shorten_sorts(dce.eliminate(graph))
  graph = sink_scalars.sink_scalars(fuse.fuse(graph))
  graph = join_updates.join_updates(graph, aliases, target)
  graph = stack_scalars.stack_scalars(graph, target)
  return dce.eliminate(fuse_producers.fuse_producers(graph))


def _lower(state: State, options: Options) -> None:
  if not fitting.lower(state, options):
    _again(state, options, Phase.LOWER, shares=False, hoists=state.hoists)


def _allocate(state: State, options: Options) -> None:
  fits = fitting.allocate(state, options)
  assert state.module is not None
  if not fits and state.module.functions and fitting.may_fit(state, options):
    _again(state, options, Phase.ALLOCATE, shares=False, hoists=state.hoists)
    return
  if not fits and state.hoisted:
    # The products of all iterations together take more.
    _again(state, options, Phase.ALLOCATE, shares=state.shares, hoists=False)
    return
  written = _report(state, options)
  if not fits:
    from jaxlib.ipu.sram import overflow  # few programs need its imports

    assert state.builder is not None and state.tiles is not None
    assert state.memory is not None
    allow = options.allow_out_of_memory
    overflow.check(
      state.builder, state.tiles, state.module, state.memory, allow, written
    )


def _again(
  state: State, options: Options, last: Phase, *, shares: bool, hoists: bool
) -> None:
  """Compiles a program once more from its module on, up to a phase.

  Each time without one more of functions and hoisted products, which the caller
  has found not to help: no program is compiled more than three times.
  """
  again = State(
    state.code,
    state.partitioned,
    folders=state.folders,
    shares=shares,
    hoists=hoists,
  )
  phases = [*Phase]
  begin, end = phases.index(Phase.PARSE), phases.index(last)
  for phase in phases[begin : end + 1]:
    _RUN[phase](again, options)
  state.become(again)


def _report(state: State, options: Options) -> Path | None:
  """Writes the report, of programs that do not fit, too."""
  if options.report is None:
    return None
  from jaxlib.ipu.reporting import write  # few compilations need it

  return write.write(state, options)


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
