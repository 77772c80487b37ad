"""Checks of collectives: between which devices, and of which arrays."""

from __future__ import annotations

import math

from jaxlib.ipu.check.verify_state import Verifier
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import CollectiveKind

_REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
# Kinds of which a device may be in no group, or groups differ in size.
_SOME = (CollectiveKind.PERMUTE, CollectiveKind.BROADCAST)
_ANY_SIZE = (*_SOME, CollectiveKind.ALL_REDUCE)
_INDICES = (DType.I32, DType.U32, DType.I64, DType.U64)


def check(v: Verifier, step: schema.Collective) -> None:
  """Checks one collective."""
  v.require(step.kind in set(CollectiveKind), f"kind {step.kind}")
  kind = CollectiveKind(step.kind)
  monoids = range(ReduceKind.SUM, ReduceKind.XOR + 1)
  v.require(
    step.reduction in (monoids if kind in _REDUCING else (0,)),
    f"a {kind.name} by {step.reduction}",
  )
  _groups(v, step, kind)
  for tensor in (*step.operands, *step.results):
    v.require(v.tensor(tensor).root == tensor, f"exchanges {tensor}, a view")
  for tensor in step.operands:
    v.reads(tensor)
  if kind is CollectiveKind.RAGGED_ALL_TO_ALL:
    _ragged(v, step)
  else:
    _sizes(v, step, kind)
  in_place = kind is CollectiveKind.ALL_REDUCE and len(step.results) == 1
  for result in step.results:
    for source in step.operands:
      v.keeps_apart(source, result, in_place)
    v.writes(result)


def _groups(v: Verifier, step: schema.Collective, kind: CollectiveKind) -> None:
  count = v.program.num_partitions
  members = [d for group in step.groups for d in group.devices]
  v.require(
    sorted(set(members)) == sorted(members)
    and all(d < count for d in members)
    and (kind in _SOME or len(members) == count),
    f"a {kind.name} over {members} of {count} devices",
  )
  sizes = {len(group.devices) for group in step.groups}
  v.require(
    0 not in sizes and (kind in _ANY_SIZE or len(sizes) == 1),
    f"a {kind.name} over groups of {sizes} devices",
  )
  group_of = {d: i for i, g in enumerate(step.groups) for d in g.devices}
  expected = count if kind is CollectiveKind.PERMUTE else 0
  v.require(
    len(step.sources) == expected
    and all(
      source == -1
      or (d in group_of and group_of[d] == group_of.get(source, -1))
      for d, source in enumerate(step.sources)
    ),
    f"devices receive from {step.sources}, which they do not meet",
  )


def _sizes(v: Verifier, step: schema.Collective, kind: CollectiveKind) -> None:
  v.require(
    len(step.operands) == len(step.results),
    f"{len(step.operands)} operands, {len(step.results)} results",
  )
  count = len(step.groups[0].devices) if step.groups else 1
  for operand, result in zip(step.operands, step.results, strict=True):
    a, b = v.tensor(operand), v.tensor(result)
    given, got = math.prod(a.shape), math.prod(b.shape)
    if kind is CollectiveKind.ALL_GATHER:
      given *= count
    elif kind is CollectiveKind.REDUCE_SCATTER:
      got *= count
    v.require(
      a.dtype == b.dtype
      and given == got
      and (kind is not CollectiveKind.ALL_TO_ALL or given % count == 0),
      f"a {kind.name} of tensor {operand} to {result} over {count} devices",
    )


def _ragged(v: Verifier, step: schema.Collective) -> None:
  v.require(
    len(step.operands) == 6 and len(step.results) == 1,
    f"{len(step.operands)} operands, {len(step.results)} results",
  )
  array, output, *numbers = (v.tensor(t) for t in step.operands)
  result = v.tensor(step.results[0])
  v.require(
    array.dtype == output.dtype == result.dtype
    and output.shape == result.shape
    and bool(array.shape)
    and array.shape[1:] == output.shape[1:],
    "exchanges slices of different rows",
  )
  first = numbers[0]
  v.require(
    first.dtype in _INDICES
    and len(first.shape) == 1
    and first.shape[0] % len(step.groups[0].devices) == 0
    and all((t.dtype, t.shape) == (first.dtype, first.shape) for t in numbers),
    "the slices' places and sizes are no vectors of one type",
  )
