"""The steps from a whole module to that of each device."""

from __future__ import annotations

import functools
from typing import Any

from jaxlib.ipu import host_functions, topology
from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.host_functions import PYTHON_TARGET, PYTHON_TARGET_OF_PARTS
from jaxlib.ipu.ir import canonical, importer, partitions
from jaxlib.ipu.ir.bytecode import Bytes
from jaxlib.ipu.ir.bytecode_strings import Strings
from jaxlib.ipu.partition import (
  all_reduces,
  batches,
  mend,
  replica_groups,
  signature,
  xla,
)
from jaxlib.ipu.partition.options import Partitioned, Sharding
from jaxlib.ipu.plan import links
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# A module that mentions none of these is one device's already.
_SHARDED = (
  b"sdy",
  b"mhlo.sharding",
  b"SPMDFullToShardShape",
  b"SPMDShardToFullShape",
)

# Calls with addresses of this process among their strings.
_WITH_ADDRESSES = (b"InspectSharding", b"CustomSPMDPartitioning")

# XLA splits a call with side effects only if it knows what is called, and moves
# to another memory only by a name of its own.
_MOVE, _XLAS_MOVE = "annotate_device_placement", "MoveToHost"
_KNOWN_TARGETS = {
  PYTHON_TARGET: "xla_ffi_python_cpu_callback",
  PYTHON_TARGET_OF_PARTS: "xla_ffi_partitioned_python_cpu_callback",
  _MOVE: _XLAS_MOVE,
  **batches.NAMES,
}
_OUR_TARGETS = dict.fromkeys(_KNOWN_TARGETS.values(), PYTHON_TARGET)
_OUR_TARGETS[_XLAS_MOVE] = _MOVE
_OUR_TARGETS |= {ours: name for name, ours in batches.NAMES.items()}

_TARGET, _CONFIG = "call_target_name", "backend_config"
_NAME = "sym_name"


def partition(code: Bytes, sharding: Sharding, target: Target) -> Partitioned:
  """The module of each device.

  Custom calls that carry addresses of this process, such as those of
  `jax.debug.inspect_array_sharding` and `custom_partitioning`, call back while
  XLA partitions. Threads may partition at the same time.

  Args:
    code: the whole module, a StableHLO portable artifact. A module without any
      sharding is taken for the program of each device.
    sharding: how it is split.
    target: the machine, whose links decide which all-reduces are combined.

  Raises:
    CompileError: it is not StableHLO, or XLA cannot split it.
  """
  strings = Strings(code)
  if not strings.mentions(*_WITH_ADDRESSES):
    strings.check()
  given = functools.partial(_text, code)
  try:
    with canonical.passes(len(code)) as passes:
      module = stablehlo.deserialize_portable_artifact(
        passes.context, bytes(code)
      )
      name = importer.module_name(module)
      if not strings.mentions(*_SHARDED):
        shardings = _replicated(_main(module))
      else:
        with passes.context:
          passes.expand(module, strings)
          code, shardings = _split(module, sharding, target, name)
  except (ir.MLIRError, ValueError) as e:
    raise invalid_argument(
      f"the IPU compiler cannot split this StableHLO module: {e}"
    ) from e
  return Partitioned(
    code=code,
    shardings=shardings,
    name=name,
    given=given,
  )


def _text(code: Bytes) -> str:
  with canonical.passes(len(code)) as passes:
    module = stablehlo.deserialize_portable_artifact(
      passes.context, bytes(code)
    )
    return str(module.operation.get_asm(enable_debug_info=True))


def _records(protos: list[bytes]) -> list[schema.Sharding]:
  return [schema.Sharding(proto) for proto in protos]


def _replicated(main: Any) -> list[schema.Sharding]:
  """The shardings of a module that is one device's: JAX is told that all
  devices have the same."""
  type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
  one = xla.load().replicated(1)
  results = xla.load().replicated(len(type_.results))
  return _records([*[one] * len(type_.inputs), results])


def _split(
  module: ir.Module, sharding: Sharding, target: Target, program: str
) -> tuple[bytes, list[schema.Sharding]]:
  """One device's module as an artifact, and the shardings of the whole one."""
  _rename_targets(module, _KNOWN_TARGETS)
  batches.mark(module)
  kept = signature.take(_main(module))
  name = xla.new_name()
  module.operation.attributes[_NAME] = ir.StringAttr.get(name)
  proto = xla.run(module, name, sharding)
  part = ir.Module.parse(xla.load().to_stablehlo(proto))
  _finish(part, proto, kept, program, sharding)
  is_small = functools.partial(_is_small, target)
  all_reduces.optimise(_main(part), is_small)
  shardings = _records(xla.load().shardings(proto))
  if not kept.results:
    shardings[-1:] = _records([xla.load().replicated(0)])
  version = stablehlo.get_current_version()
  return stablehlo.serialize_portable_artifact(part, version), shardings


def _finish(
  part: ir.Module,
  proto: bytes,
  kept: signature.Signature,
  name: str,
  sharding: Sharding,
) -> None:
  """Makes a module that was converted from HLO one that JAX could have made."""
  groups = {}
  meshes = [op for op in part.body.operations if op.name == "sdy.mesh"]
  if meshes:
    groups = replica_groups.read(xla.load().text(proto))
  mend.mend(part, groups)
  for mesh in meshes:
    mesh.operation.erase()
  _call_with_parts(part)
  _rename_targets(part, _OUR_TARGETS)
  attributes = part.operation.attributes
  for other in [n for n in attributes if n != _NAME]:
    del attributes[other]
  attributes[_NAME] = ir.StringAttr.get(name)
  attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(
    ir.IntegerType.get_signless(32), sharding.num_partitions
  )
  if sharding.places:
    places = ir.DenseI64ArrayAttr.get(sharding.places)
    attributes[partitions.PLACES] = places
  signature.put_back(_main(part), kept)


# The share of what an all-reduce takes whatever its size, from which it is
# combined with others. The links of larger ones would not have less to do, but
# all operands would be in SRAM at the same time. [G]
_SMALL = 0.05


def _is_small(target: Target, reduce: Any, size: int) -> bool:
  places = partitions.places_of(reduce)
  across = "use_global_device_ids" in reduce.attributes
  groups = partitions.groups_of(reduce, reduce.attributes, across)
  try:
    machine = topology.of(target.version, max(places) + 1)
  except ValueError as e:
    raise invalid_argument(str(e), reduce.location) from e
  placed = [[places[d] for d in group] for group in groups]
  found = links.collective(target, machine, "all_reduce", size, placed)
  return found.sync_cycles + found.guessed >= _SMALL * found.total


def _rename_targets(module: ir.Module, names: dict[str, str]) -> None:
  def rename(operation: Any) -> Any:
    if operation.name == "stablehlo.custom_call":
      target = ir.StringAttr(operation.attributes[_TARGET]).value
      if target in names:
        operation.attributes[_TARGET] = ir.StringAttr.get(names[target])
      if target == _MOVE:
        operation.attributes["has_side_effect"] = ir.BoolAttr.get(False)
    return ir.WalkResult.ADVANCE

  module.operation.walk(rename)


def _call_with_parts(module: ir.Module) -> None:
  """Python functions that each device calls with its parts of the arguments
  know their shapes."""
  called_with_parts = _KNOWN_TARGETS[PYTHON_TARGET_OF_PARTS]

  def change(operation: Any) -> Any:
    if operation.name == "stablehlo.custom_call":
      target = ir.StringAttr(operation.attributes[_TARGET]).value
      if target == called_with_parts:
        _call_with_its_parts(operation)
    return ir.WalkResult.ADVANCE

  module.operation.walk(change)


def _call_with_its_parts(operation: Any) -> None:
  config: Any = ir.DictAttr(operation.attributes[_CONFIG])
  items = {a.name: a.attr for a in config}
  process, number = (
    ir.IntegerAttr(items[n]).value for n in ("process", "function")
  )
  types = [operand.type for operand in operation.operands]
  shapes = [tuple(t.shape) for t in types if isinstance(t, ir.RankedTensorType)]
  part = host_functions.find(process, number).of_parts(shapes)
  items["function"] = ir.IntegerAttr.get(
    ir.IntegerType.get_unsigned(64), part.number
  )
  operation.attributes[_CONFIG] = ir.DictAttr.get(items)


def _main(module: ir.Module) -> Any:
  for op in module.body.operations:
    if op.operation.name == "func.func":
      if ir.StringAttr(op.attributes[_NAME]).value == "main":
        return op.operation
  raise invalid_argument("the StableHLO module has no function @main")
