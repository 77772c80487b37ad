"""Runs devices together in the interpreter: each up to its next collective in
turn, and then the collectives of which all devices have arrived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Trap
from jaxlib.ipu.codelets import _monoids as monoids
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.registers import load, store
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import CollectiveKind


def run(
  machines: Sequence[Machine], runs: Sequence[Iterator[schema.Collective]]
) -> None:
  """Runs all devices of a program, which are in the order of the partitions.

  Args:
    machines: the devices.
    runs: of their programs, which stop at each collective.

  Raises:
    Trap: of kind `mismatch` if devices wait for each other for ever.
  """
  waiting: dict[int, schema.Collective] = {}
  ready = set(range(len(machines)))
  while ready:
    for device in sorted(ready):
      step = next(runs[device], None)
      if step is not None:
        waiting[device] = step
    ready = set()
    for device, step in sorted(waiting.items()):
      group = _group(step, device)
      if device in ready or any(waiting.get(d) is not step for d in group):
        continue
      _exchange(step, [machines[d] for d in group])
      ready.update(group)
    for device in ready:
      del waiting[device]
  if waiting:
    places = [
      f"device {d} waits at step {machines[d].path}" for d in sorted(waiting)
    ]
    raise Trap("mismatch", "; ".join(places))


def _group(step: schema.Collective, device: int) -> list[int]:
  """The devices that meet a device, itself included."""
  return next((g.devices for g in step.groups if device in g.devices), [device])


def _exchange(step: schema.Collective, group: Sequence[Machine]) -> None:
  """Runs a collective for the devices of a group."""
  operands = [[_whole(m, t) for t in step.operands] for m in group]
  kind = CollectiveKind(step.kind)
  if kind is CollectiveKind.RAGGED_ALL_TO_ALL:
    results = [[r] for r in _ragged(operands)]
  else:
    columns = [
      _exchanged(step, kind, group, [given[k] for given in operands], dtype)
      for k, dtype in enumerate(_dtypes(step, group[0]))
    ]
    results = [list(own) for own in zip(*columns, strict=True)]
  for machine, own in zip(group, results, strict=True):
    for tensor, values in zip(step.results, own, strict=True):
      everything = np.ones(values.size, np.bool_)
      machine.writable(tensor).write_all(values.reshape(-1), everything)
      machine.wrote(tensor, everything)
    sent = (machine.memory[t] for t in step.operands)
    machine.count(step.cost, sum(m.size * SIZE[m.dtype] for m in sent))


def _whole(machine: Machine, tensor: int) -> Array:
  m = machine.memory[tensor]
  values, defined = m.gather_all()
  if not defined.all():
    raise Trap(
      "undefined",
      f"element {int(np.argmin(defined))} is sent but was never written",
      tensor=tensor,
    )
  machine.used(tensor)
  return values.reshape(m.shape)


def _dtypes(step: schema.Collective, machine: Machine) -> list[DType]:
  return [machine.memory[t].dtype for t in step.operands]


def _exchanged(
  step: schema.Collective,
  kind: CollectiveKind,
  group: Sequence[Machine],
  given: list[Array],
  dtype: DType,
) -> list[Array]:
  """The results of one operand on each device of a group."""
  count = len(group)
  match kind:
    case CollectiveKind.ALL_REDUCE:
      return [_reduced(step, given, dtype)] * count
    case CollectiveKind.REDUCE_SCATTER:
      return np.split(_reduced(step, given, dtype).reshape(-1), count)
    case CollectiveKind.ALL_GATHER:
      return [np.concatenate([x.reshape(-1) for x in given])] * count
    case CollectiveKind.ALL_TO_ALL:
      parts = [np.split(x.reshape(-1), count) for x in given]
      return [np.concatenate(own) for own in zip(*parts, strict=True)]
    case CollectiveKind.BROADCAST:
      alone = not any(group[0].partition in g.devices for g in step.groups)
      return [np.zeros_like(x) if alone else given[0] for x in given]
  by_device = dict(zip((m.partition for m in group), given, strict=True))
  return [
    by_device.get(step.sources[m.partition], np.zeros_like(x))
    for m, x in zip(group, given, strict=True)
  ]


def _reduced(
  step: schema.Collective, given: list[Array], dtype: DType
) -> Array:
  """Elements of all devices combined, in the group's order, in registers."""
  first, *rest = (load(x, REGISTER[dtype]) for x in given)
  for other in rest:
    first = monoids.apply(ReduceKind(step.reduction), first, other)
  return store(first, dtype)


def _ragged(operands: list[list[Array]]) -> list[Array]:
  outputs = [given[1].copy() for given in operands]
  for device, (array, _, starts, sizes, ends, _) in enumerate(operands):
    each = len(starts) // len(operands)
    for number, (start, size, end) in enumerate(zip(starts, sizes, ends)):
      to = outputs[number // each]
      if min(start, size, end) < 0 or (
        start + size > len(array) or end + size > len(to)
      ):
        raise Trap("slice", f"slice {number} of device {device} is outside")
      to[end : end + size] = array[start : start + size]
  return outputs
