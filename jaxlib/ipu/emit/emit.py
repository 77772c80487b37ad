"""Assembles the program's record once everything in it is decided."""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.emit.cost_analysis import cost_analysis
from jaxlib.ipu.emit.host_time import host_seconds
from jaxlib.ipu.ir.graph import Module, Placement
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.consumer_layouts import moving_cost
from jaxlib.ipu.program import codec, schema
from jaxlib.ipu.sram.memory import MemoryPlan
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile.walk import of_regions


def program(
  builder: Builder,
  tiles: TileProgram,
  module: Module,
  memory: MemoryPlan,
  code: bytes,
  omissions: list[schema.Omission],
  shardings: list[schema.Sharding],
) -> schema.Program:
  """The finished record; `code` is the module, without `omissions`."""
  tensors = [_tensor(builder, t) for t in tiles.tensors]
  target = builder.target
  figures = analysis(builder, tiles, module, memory)
  return schema.Program(
    name=module.name,
    shardings=shardings,
    target=schema.Target(
      target.version, target.num_tiles, target.bytes_per_tile, target.clock_hz
    ),
    mappings=[layout.record() for layout in builder.layouts],
    tensors=tensors,
    arguments=tiles.arguments,
    results=tiles.results,
    host_types=_host_types(tiles, module),
    layouts=_layouts(builder, tiles, module),
    aliases=[schema.Alias(i, j) for i, j in module.aliases],
    donors=module.donors,
    arena_bytes=tiles.arena_bytes,
    steps=_steps(builder, tiles),
    locations=[schema.Location(*key) for key in builder.locations],
    cost_analysis=[schema.NamedValue(n, v) for n, v in figures.items()],
    memory=memory.record(target),
    estimated_seconds=host_seconds(target, tiles.steps, tiles.tensors),
    module=code,
    omissions=omissions,
    num_partitions=module.num_partitions,
    functions=[schema.Function(int(f.max())) for f in memory.code.functions],
  )


def _steps(builder: Builder, tiles: TileProgram) -> list[schema.Step]:
  """The records of the steps. Calls that differ in nothing have one body."""
  bodies: dict[int, codec.Shared] = {}  # by the id of a region

  def shared(body: Region) -> codec.Shared:
    return codec.Shared(
      [s.record(builder.target, builder.mapping) for s in body]
    )

  records = []
  for step in tiles.steps:
    if step.callee is None:
      records.append(step.record(builder.target, builder.mapping))
      continue
    (body,) = of_regions(step, bodies, shared)
    price = step.price(builder.target)
    records.append(schema.Call(step.callee, body, price, step.location))
  return records


def analysis(
  builder: Builder,
  tiles: TileProgram,
  module: Module,
  memory: MemoryPlan,
) -> dict[str, float]:
  """The entries of `compiled.cost_analysis()`."""
  target, tensors = builder.target, tiles.tensors
  return cost_analysis(
    target,
    tiles.steps,
    totals(target, tiles.steps, tensors),
    memory,
    _layouts(builder, tiles, module),
    [tensors[a] for a in tiles.arguments],
    [tensors[r] for r in tiles.results],
  )


def _host_types(tiles: TileProgram, module: Module) -> list[schema.HostType]:
  """Those types of the user's arguments and results that differ from the types
  of their tensors, or have a placement."""
  out = []
  ends = zip((False, True), module.signature, (tiles.arguments, tiles.results))
  for is_result, types, roots in ends:
    for i, ((shape, dtype), root) in enumerate(zip(types, roots)):
      placement = module.placements.get((is_result, i))
      if placement or dtype is not tiles.tensors[root].dtype:
        order, on_host = placement or Placement()
        out.append(
          schema.HostType(
            int(is_result), i, dtype, list(shape), list(order), int(on_host)
          )
        )
  return out


def _layouts(
  builder: Builder, tiles: TileProgram, module: Module
) -> list[schema.ArrayLayout]:
  """The layouts of arguments that are not the default one, and those of the
  results that replace these arguments."""
  out = []
  for i, layout in builder.used.layouts.items():
    info = tiles.tensors[tiles.arguments[i]]
    default = builder.default_layout(info.shape, info.dtype)
    there, back = (
      moving_cost(builder.target, info.shape, info.dtype, *ends)
      for ends in ((default, layout), (layout, default))
    )
    mapping = builder.mapping(layout)
    size = layout.max_elements * SIZE[info.dtype]
    ends = [(0, i), *((1, b) for a, b in module.aliases if a == i)]
    out += [
      schema.ArrayLayout(*end, mapping, size, there, back) for end in ends
    ]
  return out


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
