"""Collectives: devices exchange arrays over the links between them.

An operation becomes one step between dense roots, which works along their
leading dimension (`schema.Collective`). Transposes before and after it bring
the operation's own dimension there; they are views, so an ordinary exchange
moves the data on the chip where that is needed. Complex arrays travel as two.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlib.ipu import topology
from jaxlib.ipu.diagnostics import invalid_argument, unimplemented
from jaxlib.ipu.dtypes import COMPLEX, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.ir.partitions import (
  Groups,
  groups_of,
  has_channel,
  pairs_of,
  partitions_of,
  places_of,
)
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost, links
from jaxlib.ipu.program.schema import CollectiveKind
from jaxlib.ipu.tile.collective import Collective, PartitionId
from jaxlib.mlir import ir

_PARTITION_ID = "stablehlo.partition_id"
_RAGGED = "ragged_all_to_all"

# The operations' names, and what their steps do.
_KINDS = {
  "all_reduce": CollectiveKind.ALL_REDUCE,
  "all_gather": CollectiveKind.ALL_GATHER,
  "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
  "all_to_all": CollectiveKind.ALL_TO_ALL,
  "collective_permute": CollectiveKind.PERMUTE,
  "collective_broadcast": CollectiveKind.BROADCAST,
  _RAGGED: CollectiveKind.RAGGED_ALL_TO_ALL,
}
_USERS_NAMES = {_RAGGED: f"stablehlo.custom_call @{_RAGGED}"}


@dataclasses.dataclass(frozen=True)
class _Across:
  """How devices take part.

  Attributes:
    places: of the devices among the machine's IPUs.
    groups: those that meet.
    dimensions: the operation's, in the order of its attributes.
    sources: of a permute, each device's source or -1.
    reduction: of the reducing operations, once their region is known.
  """

  places: tuple[int, ...]
  groups: Groups
  dimensions: tuple[int, ...] = ()
  sources: tuple[int, ...] = ()
  reduction: ReduceKind = ReduceKind.SET

  @property
  def alone(self) -> bool:
    """Whether every device is a group of its own."""
    return all(len(group) == 1 for group in self.groups)


# --- Attributes --------------------------------------------------------------


def _reader(*dimensions: str, everybody: bool = True) -> Callable[[Any], Any]:
  def read(operation: Any) -> _Across:
    attributes = operation.attributes
    across = "use_global_device_ids" in attributes or (
      operation.name not in _FLATTENED and has_channel(attributes)
    )
    groups = groups_of(operation, attributes, across, everybody)
    found = tuple(ir.IntegerAttr(attributes[d]).value for d in dimensions)
    if everybody and dimensions and len(set(map(len, groups))) > 1:
      raise invalid_argument(
        f"{operation.name} over groups of different sizes, {groups}",
        operation.location,
      )
    return _Across(places_of(operation), groups, found)

  return read


# These meet across replicas and partitions, unless they use global device ids.
_FLATTENED = {
  f"stablehlo.{name}" for name in ("all_reduce", "all_gather", "reduce_scatter")
}


def _read_permute(operation: Any) -> _Across:
  """The devices that pairs join meet; each of the others is alone."""
  count = partitions_of(operation)
  sources = [-1] * count
  joined = [{device} for device in range(count)]
  for source, target in pairs_of(operation):
    sources[target] = source
    both = joined[source] | joined[target]
    for device in both:
      joined[device] = both
  groups = {tuple(sorted(devices)): None for devices in joined}
  return _Across(places_of(operation), tuple(groups), sources=tuple(sources))


def _read_ragged(operation: Any) -> _Across:
  attributes = operation.attributes
  name = next(
    n for n in ("mhlo.backend_config", "backend_config") if n in attributes
  )
  config = attributes[name]
  if not isinstance(config, ir.DictAttr) or "replica_groups" not in config:
    raise invalid_argument(
      f"custom call @{_RAGGED} with the configuration {config}: expected "
      "replica_groups",
      operation.location,
    )
  across = has_channel(config) or "channel_id" not in config
  groups = groups_of(operation, config, across)
  if len(set(map(len, groups))) > 1:
    raise invalid_argument(
      f"@{_RAGGED} over groups of different sizes, {groups}",
      operation.location,
    )
  return _Across(places_of(operation), groups)


# --- Rules -------------------------------------------------------------------


def _all_reduce(e: Emitter, node: Node) -> list[Value]:
  across = _reducing(node)
  if across.alone:
    return list(node.inputs)
  return _exchanged(
    e, "all_reduce", across, node.inputs, [v.shape for v in node.inputs]
  )


def _reduce_scatter(e: Emitter, node: Node) -> list[Value]:
  across: _Across = _reducing(node)
  (dimension,), (value,) = across.dimensions, node.inputs
  count = len(across.groups[0])
  if across.alone:
    return [value]
  front = _front(e, value, dimension)
  shape = (front.shape[0] // count, *front.shape[1:])
  (part,) = _exchanged(e, "reduce_scatter", across, [front], [shape])
  return [_back(e, part, dimension)]


def _all_gather(e: Emitter, node: Node) -> list[Value]:
  across: _Across = node.attributes
  (dimension,) = across.dimensions
  count = len(across.groups[0])
  if across.alone:
    return list(node.inputs)
  fronts = [_front(e, v, dimension) for v in node.inputs]
  shapes = [(count * v.shape[0], *v.shape[1:]) for v in fronts]
  found = _exchanged(e, "all_gather", across, fronts, shapes)
  return [_back(e, v, dimension) for v in found]


def _all_to_all(e: Emitter, node: Node) -> list[Value]:
  across: _Across = node.attributes
  split, concat = across.dimensions
  count = len(across.groups[0])
  if across.alone:
    return list(node.inputs)
  fronts = []
  for value in node.inputs:
    shape = list(value.shape)
    shape[split : split + 1] = [count, shape[split] // count]
    fronts.append(_front(e, e.reshape(value, shape), split))
  found = _exchanged(e, "all_to_all", across, fronts, [v.shape for v in fronts])
  results = []
  for value in found:
    _, *shape = value.shape
    shape[concat] *= count
    results.append(e.reshape(_back(e, value, concat), shape))
  return results


def _permute(e: Emitter, node: Node) -> list[Value]:
  """Devices that are nobody's target get zeros."""
  across: _Across = node.attributes
  if across.sources == tuple(range(len(across.sources))):
    return list(node.inputs)
  if set(across.sources) == {-1}:
    return [e.constant(0, v.dtype, v.shape) for v in node.results]
  shapes = [v.shape for v in node.inputs]
  return _exchanged(e, "collective_permute", across, node.inputs, shapes)


def _broadcast(e: Emitter, node: Node) -> list[Value]:
  across: _Across = node.attributes
  members = sum(map(len, across.groups))
  if across.alone and members == across.dimensions[0]:
    return list(node.inputs)
  shapes = [v.shape for v in node.inputs]
  return _exchanged(e, "collective_broadcast", across, node.inputs, shapes)


def _read_broadcast(operation: Any) -> _Across:
  across = _reader(everybody=False)(operation)
  return dataclasses.replace(across, dimensions=(partitions_of(operation),))


def _ragged(e: Emitter, node: Node) -> list[Value]:
  """Slices along the leading dimension; also those of one device."""
  across: _Across = node.attributes
  array, output, *numbers = node.inputs
  if len(node.inputs) != 6 or any(
    len(v.shape) != 1 or v.shape != numbers[0].shape for v in numbers
  ):
    raise invalid_argument(
      f"custom call @{_RAGGED} of {[v.type for v in node.inputs]}: expected an "
      "operand, an output, and vectors of input offsets, send sizes, output "
      "offsets and receive sizes",
      node.location,
    )
  count = len(across.groups[0])
  if numbers[0].shape[0] % count:
    raise invalid_argument(
      f"custom call @{_RAGGED} of {numbers[0].shape[0]} slices over groups of "
      f"{count} devices",
      node.location,
    )
  return _by_parts(
    e,
    [array, output],
    lambda parts: list(
      e.node(
        f"ipu.{_RAGGED}",
        [*parts, *numbers],
        [(parts[1].shape, parts[1].dtype)],
        across,
      )
    ),
  )


def _reducing(node: Node) -> _Across:
  """What a reducing operation does.

  Raises:
    CompileError: its region is not one commutative operation.
  """
  across: _Across = node.attributes
  (region,) = node.regions
  kind = monoid(region)
  if across.alone:
    return across
  dtypes = {v.dtype for v in node.inputs}
  if kind is None or (dtypes & COMPLEX and kind is not ReduceKind.SUM):
    raise unimplemented(
      f"{node.op} by {_described(region)} of "
      f"{', '.join(v.type for v in node.inputs)}",
      node.location,
      "reduce by add, multiply, max, min, and, or, xor (complex numbers by "
      "add), or gather the operands with jax.lax.all_gather and reduce them "
      "on each device",
    )
  return dataclasses.replace(across, reduction=kind)


def _described(region: Graph) -> str:
  names = [node.op.removeprefix("stablehlo.") for node in region.nodes]
  return f"a function of {', '.join(names) or 'no operation'}"


# --- Values ------------------------------------------------------------------


def _exchanged(
  e: Emitter,
  name: str,
  across: _Across,
  values: Sequence[Value],
  shapes: Sequence[Shape],
) -> list[Value]:
  """The results of these shapes, of the operands' types."""
  shape_of = dict(zip(map(id, values), shapes, strict=True))

  def exchange(value: Value, parts: list[Value]) -> list[Value]:
    shape = shape_of[id(value)]
    if not math.prod(shape):
      return [e.constant(0, p.dtype, shape) for p in parts]
    types = [(shape, p.dtype) for p in parts]
    return list(e.node(f"ipu.{name}", parts, types, across))

  if (
    len(values) == 1
    or any(0 in s for s in shapes)
    or any(v.dtype in COMPLEX for v in values)
  ):
    return [
      _by_parts(e, [v], functools.partial(exchange, v))[0] for v in values
    ]
  types = [(s, v.dtype) for s, v in zip(shapes, values, strict=True)]
  return list(e.node(f"ipu.{name}", values, types, across))


def _by_parts(
  e: Emitter,
  values: Sequence[Value],
  f: Callable[[list[Value]], list[Value]],
) -> list[Value]:
  """f of real values: of the real and of the imaginary parts."""
  if values[0].dtype not in COMPLEX:
    return f(list(values))
  real = f([e.real(v) for v in values])
  imaginary = f([e.imag(v) for v in values])
  return [e.complex(*pair) for pair in zip(real, imaginary, strict=True)]


def _front(e: Emitter, value: Value, dimension: int) -> Value:
  """A value with a dimension moved to the front."""
  rest = [d for d in range(len(value.shape)) if d != dimension]
  return e.transpose(value, [dimension, *rest])


def _back(e: Emitter, value: Value, dimension: int) -> Value:
  """The inverse of `_front`."""
  order = list(range(1, len(value.shape)))
  order.insert(dimension, 0)
  return e.transpose(value, order)


# --- Lowering ----------------------------------------------------------------


def _lower(name: str, builder: Builder, node: Node) -> None:
  across: _Across = node.attributes
  builder.locate(node, _USERS_NAMES.get(name, f"stablehlo.{name}"))
  operands = [builder.materialise(builder.view(v)).root for v in node.inputs]
  results = []
  for index, value in enumerate(node.results):
    info = builder.tensors[operands[index]]
    layout = None
    if info.shape == value.shape and not info.layout.replicas:
      layout = info.layout
    results.append(builder.result(node, layout, index))
  builder.steps.append(
    Collective(
      kind=_KINDS[name],
      reduction=across.reduction,
      operands=operands,
      results=results,
      groups=across.groups,
      sources=across.sources,
      own=_price(name, builder, across, operands),
      location=builder.location,
    )
  )
  for root in results:
    builder.wrote(root)


def _price(
  name: str, builder: Builder, across: _Across, operands: Sequence[int]
) -> cost.Sourced:
  """The cost of a collective on the smallest machine that has its places."""
  target = builder.target
  try:
    machine = topology.of(target.version, max(across.places) + 1)
  except ValueError as e:
    raise invalid_argument(str(e), builder.location) from e
  groups: Sequence[Sequence[int]] = across.groups
  if across.sources:
    groups = [(s, to) for to, s in enumerate(across.sources) if s >= 0]
  groups = [[across.places[d] for d in group] for group in groups]
  tensors = [builder.tensors[n] for n in operands]
  found = links.collective(
    target, machine, name, sum(t.bytes for t in tensors), groups
  )
  return links.superstep(target, found, tensors[0].dtype)


def _lower_partition_id(builder: Builder, node: Node) -> None:
  root = builder.result(node)
  builder.steps.append(PartitionId(tensor=root, location=builder.location))
  builder.wrote(root)


def _partition_id(e: Emitter, node: Node) -> list[Value] | None:
  return [e.constant(0, DType.U32, ())] if node.attributes == 1 else None


def _zero(e: Emitter, node: Node) -> list[Value]:
  return [e.constant(0, DType.U32, ())]


def _identity(e: Emitter, node: Node) -> list[Value]:
  return list(node.inputs)


_RULES: dict[str, tuple[Any, Any]] = {
  "all_reduce": (_reader(), _all_reduce),
  "all_gather": (_reader("all_gather_dim"), _all_gather),
  "reduce_scatter": (_reader("scatter_dimension"), _reduce_scatter),
  "all_to_all": (_reader("split_dimension", "concat_dimension"), _all_to_all),
  "collective_permute": (_read_permute, _permute),
  "collective_broadcast": (_read_broadcast, _broadcast),
  f"custom_call @{_RAGGED}": (_read_ragged, _ragged),
}
for _name, (_read, _rule) in _RULES.items():
  define(Operation(f"stablehlo.{_name}", read=_read, decompose=_rule))
for _name in _KINDS:
  define(Operation(f"ipu.{_name}", functools.partial(_lower, _name)))
define(
  Operation(
    _PARTITION_ID, _lower_partition_id, partitions_of, decompose=_partition_id
  )
)
define(Operation("stablehlo.replica_id", decompose=_zero))
# Left by Shardy and GSPMD in programs of one device.
for _name in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"):
  define(Operation(f"stablehlo.custom_call @{_name}", decompose=_identity))
