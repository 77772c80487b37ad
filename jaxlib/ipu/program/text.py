"""A program as text: tensors with their tile mappings, steps with costs."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import NAME, DType, type_text
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.program import schema

_SPACES = ("arena", "argument", "result", "constant", "host")


def program_text(program: schema.Program) -> str:
  """The whole program, one line per tensor and step."""
  t = program.target
  lines = [
    f"program {program.name} for {t.version}, {t.num_tiles} tiles of "
    f"{t.bytes_per_tile} bytes, {t.clock_hz / 1e9:g} GHz",
    f"arena {program.arena_bytes} bytes, admitted "
    f"{program.memory.peak_tile_bytes} bytes of a tile",
    f"partitions {program.num_partitions}",
    "tensors",
  ]
  for number in range(len(program.tensors)):
    lines.append(f"  {_tensor(program, number)}")
  lines.append("steps")
  lines += _steps(program, program.steps, "  ")
  for number, function in enumerate(program.functions):
    lines.append(f"function {number}: {function.code_bytes} bytes of code")
  lines.append("cost analysis")
  lines += [f"  {v.name}: {v.value:g}" for v in program.cost_analysis]
  return "\n".join(lines) + "\n"


def _tensor(program: schema.Program, number: int) -> str:
  tensor = program.tensors[number]
  mapping = _mapping(program.mappings[tensor.mapping])
  if tensor.root == number:
    where = f"{_SPACES[tensor.space]} {tensor.address}"
  else:
    where = f"view of t{tensor.root} +{tensor.offset} {tensor.strides}"
  type_ = type_text(tensor.shape, DType(tensor.dtype))
  return f"t{number}: {type_}  {where}  on {mapping}"


def _mapping(m: schema.Mapping) -> str:
  """Factors as extent/block*stride, replicas as xcount*stride."""
  factors = " ".join(
    f"{e}/{b}*{s}" for e, b, s in zip(m.extents, m.blocks, m.strides)
  )
  replicas = "".join(
    f" x{c}*{s}" for c, s in zip(m.replica_counts, m.replica_strides)
  )
  return f"[{factors}{replicas}]" + (f"+{m.base}" if m.base else "")


def _cost(cost: schema.Cost) -> str:
  return (
    f"{cost.compute_cycles:.0f} compute + {cost.exchange_cycles:.0f} exchange "
    f"+ {cost.sync_cycles:.0f} sync cycles, {cost.exchange_bytes:.0f} bytes"
  )


def _steps(program: schema.Program, steps: list[Any], indent: str) -> list[str]:
  lines = []
  for step in steps:
    where = _location(program.locations[step.location])
    if isinstance(step, schema.Execute):
      lines.append(f"{indent}{_execute(program, step)}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
      lines += [f"{indent}    {line}" for line in _code(step.fields)]
    elif isinstance(step, schema.Copy):
      lines.append(f"{indent}exchange{where}")
      lines += [f"{indent}    {_move(m)}" for m in step.moves]
      lines.append(f"{indent}    {_cost(step.cost)}")
    elif isinstance(step, schema.HostCopy):
      way = "from host to" if step.to_device else "to host from"
      lines.append(f"{indent}stream {way} t{step.tensor}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
    elif isinstance(step, schema.HostCallback):
      lines.append(f"{indent}{_host_callback(step)}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
    elif isinstance(step, schema.PartitionId):
      lines.append(f"{indent}t{step.tensor} = partition id{where}")
    elif isinstance(step, schema.Collective):
      lines.append(f"{indent}{_collective(step)}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
    elif isinstance(step, schema.HostMove | schema.Infeed | schema.Outfeed):
      lines.append(f"{indent}{_stream(program, step)}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
    elif isinstance(step, schema.Call):
      lines.append(f"{indent}call function {step.function}{where}")
      lines.append(f"{indent}    {_cost(step.cost)}")
      lines += _steps(program, step.body, indent + "  ")
    elif isinstance(step, schema.Repeat):
      lines.append(f"{indent}repeat {step.count}{where}")
      lines += _steps(program, step.body, indent + "  ")
    elif isinstance(step, schema.While):
      lines.append(f"{indent}while{where}")
      lines += _steps(program, step.condition, indent + "  ")
      lines.append(f"{indent}do if t{step.predicate}")
      lines += _steps(program, step.body, indent + "  ")
    elif isinstance(step, schema.Switch):
      lines.append(f"{indent}switch t{step.selector}{where}")
      for i, branch in enumerate(step.branches):
        lines.append(f"{indent}branch {i}")
        lines += _steps(program, branch.steps, indent + "  ")
  return lines


def _accesses(items: list[schema.Access]) -> str:
  return ", ".join(f"t{a.tensor}{a.dims}" for a in items)


def _host_callback(step: schema.HostCallback) -> str:
  told = "".join(f" {a.name}={a.data.hex()}" for a in step.attributes)
  return (
    f"{_host_arrays(step.results)} = host @{step.target}"
    f"({_host_arrays(step.operands)}){told}"
  )


def _collective(step: schema.Collective) -> str:
  results, operands = (
    ", ".join(f"t{t}" for t in tensors)
    for tensors in (step.results, step.operands)
  )
  kind = schema.CollectiveKind(step.kind).name.lower()
  if step.reduction:
    kind += f" {ReduceKind(step.reduction).name.lower()}"
  groups = ",".join(
    "{" + ",".join(map(str, group.devices)) + "}" for group in step.groups
  )
  sources = f" from {step.sources}" if step.sources else ""
  return f"{results} = {kind}({operands}) over {groups}{sources}"


def _stream(
  program: schema.Program,
  step: schema.HostMove | schema.Infeed | schema.Outfeed,
) -> str:
  if isinstance(step, schema.Outfeed):
    return f"outfeed {_host_arrays(step.operands)}"
  if isinstance(step, schema.Infeed):
    feed = "" if step.feed == schema.NONE else f" of feed t{step.feed}"
    valid = "" if step.valid == schema.NONE else f", t{step.valid} if there is"
    return f"{_host_arrays(step.results)}{valid} = infeed{feed}"
  to_host = program.tensors[step.destination].space == schema.HOST
  way = "to host" if to_host else "from host"
  part = "" if step.index == schema.NONE else f", part t{step.index}"
  return f"stream {way}{part}: t{step.source} -> t{step.destination}"


def _host_arrays(items: list[schema.HostArray]) -> str:
  return ", ".join(f"t{a.tensor}{a.dims}:{NAME[DType(a.dtype)]}" for a in items)


def _execute(program: schema.Program, step: schema.Execute) -> str:
  shape = "x".join(map(str, step.shape)) or "scalar"
  mapping = _mapping(program.mappings[step.partition])
  return (
    f"{_accesses(step.results)} = {type(step.fields).__name__}"
    f"({_accesses(step.operands)}) over {shape} on {mapping}"
  )


def _move(move: schema.Move) -> str:
  return (
    f"t{move.source}+{move.source_offset} {move.source_strides} -> "
    f"t{move.destination}+{move.destination_offset} "
    f"{move.destination_strides} shape {move.shape}"
  )


def location_text(location: schema.Location) -> str:
  """A location in words, as far as it is known.

  `NAME at train.py:31`, or `NAME at flax/linen/linear.py:700, called from
  train.py:31`.
  """
  if not location.file:
    return location.name
  name = f"{location.name} " if location.name else ""
  return f"{name}at {location.file}:{location.line}"


def _location(location: schema.Location) -> str:
  where = location_text(location)
  return f"  # {where}" if where else ""


def _code(fields: Any) -> list[str]:
  """The register programs of a codelet, if any."""
  lines = []
  if code := getattr(fields, "code", ()):
    lines += [*code.lines(), f"outputs {fields.outputs}"]
  if combine := getattr(fields, "combine", ()):
    lines += ["combine", *combine.lines()]
    one = [getattr(fields, "combine_output", None)]
    lines.append(f"outputs {getattr(fields, 'combine_outputs', one)}")
  return lines
