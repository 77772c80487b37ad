"""The program around the steps: its signature, its storage, its record.

Arguments and results are bound to roots while a graph is lowered; when all
steps are there, storage is given out and the record put together.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower import totals
from jaxlib.ipu.lower.allocate import Interval, allocate, overlap, union
from jaxlib.ipu.lower.builder import Builder, TensorInfo
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.lower.memory import MemoryPlan
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema


def bind_arguments(builder: Builder, module: Module) -> list[int]:
  """A root for each argument. What is not donated comes over the host link
  at every call; donated state is on the device already."""
  donated = module.donated
  roots = []
  for i, value in enumerate(module.graph.parameters):
    root = builder.new_root(value.shape, value.dtype)
    info = builder.tensors[root]
    info.space, info.address = schema.ARGUMENT, i
    builder.define(value, builder.root_view(root))
    if i not in donated and info.bytes:
      builder.steps.append(
        schema.HostCopy(
          root, 1, cost.host_copy(builder.target, info.bytes), builder.location
        )
      )
    roots.append(root)
  return roots


def bind_results(
  builder: Builder, module: Module, views: list[View]
) -> list[int]:
  """Makes each result a root of the result space, by a copy if it must be."""
  roots: list[int] = []
  copies = []
  for j, view in enumerate(views):
    info = builder.tensors[view.root]
    if (
      info.space == schema.ARENA
      and builder.is_identity(view)
      and info.shape == view.shape
    ):
      root = view.root
    else:
      layout = info.layout if builder.is_identity(view) else None
      root = builder.new_root(view.shape, view.dtype, layout)
      copies.append((view, builder.root_view(root)))
    result = builder.tensors[root]
    result.space, result.address = schema.RESULT, j
    roots.append(root)
  builder.copy_to(copies)
  aliased = {j for _, j in module.aliases}
  for j, root in enumerate(roots):
    info = builder.tensors[root]
    if j not in aliased and info.bytes:
      builder.steps.append(
        schema.HostCopy(
          root, 0, cost.host_copy(builder.target, info.bytes), builder.location
        )
      )
  return roots


def place_storage(
  builder: Builder, module: Module, arguments: list[int], results: list[int]
) -> tuple[Timeline, int]:
  """Allocates; returns the timeline and the arena's bytes.

  A result that may be written over a donated argument must not be written
  while the argument is still read: then it is made in the arena and copied
  at the end, when all arguments are dead.
  """
  line = Timeline(builder.steps, builder.tensors)
  line.analyse(results)
  late = []
  for result, intervals in _reserved(line, module, arguments, results).items():
    if overlap(intervals, union(line.intervals.get(result, []), [])):
      late.append(results.index(result))
  if late:
    copies = []
    for j in late:
      made = results[j]
      info = builder.tensors[made]
      info.space, info.address = schema.ARENA, 0
      results[j] = builder.new_root(info.shape, info.dtype, info.layout)
      final = builder.tensors[results[j]]
      final.space, final.address = schema.RESULT, j
      copies.append((builder.root_view(made), builder.root_view(results[j])))
    builder.copy_to(copies)
    line = Timeline(builder.steps, builder.tensors)
    line.analyse(results)
  reserved = _reserved(line, module, arguments, results)
  return line, allocate(line, builder.tensors, reserved)


def _reserved(
  line: Timeline, module: Module, arguments: list[int], results: list[int]
) -> dict[int, list[Interval]]:
  """For each result root that a donated argument's memory may become, when
  that memory still holds the argument.

  A copy reads its sources until it is done: only the copy of an argument to
  its own result, which moves nothing, may write while it reads.
  """
  reserved = {}
  for i, j in module.aliases:
    argument, result = arguments[i], results[j]
    intervals = line.intervals.get(argument, [])
    reads = [
      (event.time, event.time + 1)
      for event in line.events
      for move in event.copies
      if move.source == argument and move.destination != result
    ]
    reserved[result] = union(intervals, reads)
  return reserved


def program(
  builder: Builder,
  module: Module,
  arguments: list[int],
  results: list[int],
  arena_bytes: int,
  memory: MemoryPlan,
  code: bytes,
) -> schema.Program:
  """The finished record."""
  tensors = [_tensor(builder, t) for t in builder.tensors]
  sums = totals.totals(builder.steps, builder.tensors)
  target = builder.target
  analysis = totals.analysis(target, sums, memory.peak_tile_bytes)
  return schema.Program(
    name=module.name,
    target=schema.Target(
      target.version, target.num_tiles, target.bytes_per_tile, target.clock_hz
    ),
    mappings=[layout.record() for layout in builder.layouts],
    tensors=tensors,
    arguments=arguments,
    results=results,
    aliases=[schema.Alias(i, j) for i, j in module.aliases],
    donors=module.donors,
    arena_bytes=arena_bytes,
    steps=builder.steps,
    locations=[schema.Location(*key) for key in builder.locations],
    cost_analysis=[schema.NamedValue(n, v) for n, v in analysis.items()],
    memory=memory.record(),
    estimated_seconds=host_seconds(builder.steps, builder.tensors),
    module=code,
  )


def _tensor(builder: Builder, t: TensorInfo) -> schema.Tensor:
  return schema.Tensor(
    dtype=t.dtype,
    shape=list(t.shape),
    mapping=builder.mapping(t.layout),
    root=t.root,
    offset=t.offset,
    strides=list(t.strides),
    space=t.space,
    address=t.address,
  )


# What the model takes on the host, roughly: bytes through the caches, flops,
# and a step's own overhead. A loop of unknown length counts as 100 turns: one
# over a few scalars is then run by the calling thread, since waking another
# takes as long as a thousand turns.
_BYTES_PER_SECOND = 20e9
_FLOPS_PER_SECOND = 50e9
_STEP_SECONDS = 30e-9
_LOOP_TURNS = 100


def host_seconds(steps: list[Any], tensors: list[TensorInfo]) -> float:
  """A guess of one run's wall time on the model, seconds."""
  seconds = 0.0
  for step in steps:
    if isinstance(step, schema.Execute):
      touched = sum(tensors[a.tensor].bytes for a in step.operands)
      touched += sum(tensors[a.tensor].bytes for a in step.results)
      seconds += _STEP_SECONDS + touched / _BYTES_PER_SECOND
      seconds += step.cost.flops / _FLOPS_PER_SECOND
    elif isinstance(step, schema.Copy):
      for move in step.moves:
        info = tensors[move.destination]
        if info.root == move.destination:
          seconds += _STEP_SECONDS + info.bytes / _BYTES_PER_SECOND
    elif isinstance(step, schema.While):
      inner = host_seconds(step.condition, tensors)
      inner += host_seconds(step.body, tensors)
      seconds += _LOOP_TURNS * inner
    elif isinstance(step, schema.Repeat):
      seconds += step.count * host_seconds(step.body, tensors)
    elif isinstance(step, schema.Switch):
      seconds += max(host_seconds(b.steps, tensors) for b in step.branches)
  return seconds
