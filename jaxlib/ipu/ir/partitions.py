"""The devices that run a program together, as a module states them.

Devices are numbered 0 ... N - 1, the partitions of XLA. There is one replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import invalid_argument, unimplemented
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

Groups = tuple[tuple[int, ...], ...]

# A module's attribute: the place of each device among the machine's IPUs.
PLACES = "ipu.places"


def num_partitions(module: Any) -> int:
  """The number of devices that run a module's program together.

  Raises:
    CompileError: the module does not state a number >= 1.
  """
  if "mhlo.num_partitions" not in module.attributes:
    return 1
  attribute = module.attributes["mhlo.num_partitions"]
  count = attribute.value if isinstance(attribute, ir.IntegerAttr) else 0
  if count < 1:
    raise invalid_argument(
      f"mhlo.num_partitions = {attribute}: expected an integer >= 1"
    )
  return count


def partitions_of(operation: Any) -> int:
  """`num_partitions` of the module that holds an operation."""
  while operation.parent is not None:
    operation = operation.parent
  return num_partitions(operation)


def places_of(operation: Any) -> tuple[int, ...]:
  """The places of the devices among the machine's IPUs, by their numbers; in
  order if the module that holds the operation does not state them.

  Raises:
    CompileError: two devices are in one place, or one is in none.
  """
  while operation.parent is not None:
    operation = operation.parent
  count = num_partitions(operation)
  if PLACES not in operation.attributes:
    return tuple(range(count))
  attribute = operation.attributes[PLACES]
  places: tuple[int, ...] = ()
  if isinstance(attribute, ir.DenseI64ArrayAttr):
    places = tuple(attribute)
  if len(set(places)) != count or len(places) != count or min(places) < 0:
    raise invalid_argument(
      f"{PLACES} = {attribute}: expected {count} different integers >= 0"
    )
  return places


def groups_of(
  operation: Any, attributes: Any, across: bool, everybody: bool = True
) -> Groups:
  """The groups of devices that an operation names in `replica_groups`.

  Args:
    operation: of a module.
    attributes: which have the groups.
    across: whether groups consist of partitions; those of replicas, of which
      there is one, are a device alone, or, with a channel, all devices.
    everybody: whether each device has to be in a group.

  Raises:
    CompileError: a device is in no group, or in several, or does not exist.
  """
  count = partitions_of(operation)
  where = operation.location
  dense = _dense(attributes["replica_groups"], where)
  groups = [tuple(int(d) for d in row if d >= 0) for row in dense]
  groups = [group for group in groups if group]
  if not across:
    if groups not in ([], [(0,)]):
      raise invalid_argument(
        f"{operation.name} over replicas {_text(groups)}: there is one replica",
        where,
      )
    everyone = tuple(range(count))
    return (
      (everyone,) if has_channel(attributes) else tuple((d,) for d in everyone)
    )
  if not groups:
    groups = [tuple(range(count))]
  members = [d for group in groups for d in group]
  if len(set(members)) < len(members) or max(members) >= count:
    raise invalid_argument(
      f"{operation.name} over {_text(groups)}: expected each of the {count} "
      "devices once",
      where,
    )
  if everybody and len(members) < count:
    left = sorted(set(range(count)) - set(members))
    raise invalid_argument(
      f"{operation.name} over {_text(groups)}: devices {left} are in no group",
      where,
    )
  return tuple(groups)


def has_channel(attributes: Any) -> bool:
  """Whether an operation is one across partitions."""
  if "channel_handle" not in attributes:
    return "channel_id" in attributes and attributes["channel_id"].value > 0
  handle = attributes["channel_handle"]
  return stablehlo.ChannelHandle(handle).handle > 0


def pairs_of(operation: Any) -> list[tuple[int, int]]:
  """The (source, target) pairs of a permute.

  Raises:
    CompileError: a device is the source or the target of two pairs, or does
      not exist.
  """
  attributes = operation.attributes
  dense = _dense(attributes["source_target_pairs"], operation.location)
  pairs = [(int(source), int(target)) for source, target in dense]
  count = partitions_of(operation) if has_channel(attributes) else 1
  for ends in zip(*pairs, strict=True):
    if len(set(ends)) < len(ends) or max(ends) >= count or min(ends) < 0:
      raise invalid_argument(
        f"{operation.name} of the pairs {pairs}: expected each of the {count} "
        f"{'devices' if has_channel(attributes) else 'replicas'} at most once "
        "as a source, and at most once as a target",
        operation.location,
      )
  if not has_channel(attributes) and pairs:
    return [(d, d) for d in range(partitions_of(operation))]
  return pairs


def _dense(attribute: Any, where: Any) -> np.ndarray:
  if not isinstance(attribute, ir.DenseIntElementsAttr):
    raise unimplemented(
      f"the groups {attribute}", where, "list the devices of each group"
    )
  return np.array(attribute)


def _text(groups: Sequence[Sequence[int]]) -> str:
  return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
