"""Collectives of a program that runs on one device, where they are no-ops.

Programs for several devices do not reach the compiler yet; groups of several
devices would be refused here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.refusals import instead_of
from jaxlib.ipu.ir.registry import Operation, define


def _read_groups(operation: Any) -> None:
  """Refuses groups of several devices."""
  groups = operation.attributes["replica_groups"]
  if np.array(groups).shape[-1] != 1:
    name = operation.name
    raise unimplemented(
      f"{name} over {groups}", operation.location, instead_of(name)
    )


def _identity(e: Emitter, node: Node) -> list[Value]:
  return list(node.inputs)


def _read_pairs(operation: Any) -> bool:
  """Whether the device sends to itself."""
  pairs = np.array(operation.attributes["source_target_pairs"])
  if pairs.size and pairs.any():
    name = operation.name
    raise unimplemented(
      f"{name} over {pairs.tolist()}", operation.location, instead_of(name)
    )
  return pairs.size > 0


def _permute(e: Emitter, node: Node) -> list[Value]:
  """Results that no device sends are zero."""
  if node.attributes:
    return _identity(e, node)
  return [e.constant(0, v.dtype, v.shape) for v in node.results]


def _first(e: Emitter, node: Node) -> list[Value]:
  return [e.constant(0, DType.U32, ())]


for _name in (
  "all_gather",
  "all_reduce",
  "all_to_all",
  "collective_broadcast",
  "reduce_scatter",
):
  define(
    Operation(f"stablehlo.{_name}", read=_read_groups, decompose=_identity)
  )
define(
  Operation(
    "stablehlo.collective_permute", read=_read_pairs, decompose=_permute
  )
)
for _name in ("partition_id", "replica_id"):
  define(Operation(f"stablehlo.{_name}", decompose=_first))
# Left by Shardy and GSPMD in programs of one device.
for _name in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"):
  define(Operation(f"stablehlo.custom_call @{_name}", decompose=_identity))
