"""Operations that compute nothing: tokens, and markers for other compilers."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.mlir import ir

# Puts a value into a memory, which is its attribute: "device", "pinned_host".
PLACEMENT = "stablehlo.custom_call @annotate_device_placement"


def _token(e: Emitter, node: Node) -> list[Value]:
  """Tokens have no elements: steps run in program order, which respects their
  order."""
  return [e.constant(False, v.dtype, v.shape) for v in node.results]


def _same(e: Emitter, node: Node) -> list[Value]:
  return list(node.inputs[: len(node.results)])


def _read_memory(operation: Any) -> str:
  attributes = operation.attributes
  if "mhlo.frontend_attributes" not in attributes:
    return ""
  found = ir.DictAttr(attributes["mhlo.frontend_attributes"])
  if "_xla_buffer_placement" not in found:
    return ""
  return ir.StringAttr(found["_xla_buffer_placement"]).value


for _name in ("after_all", "create_token"):
  define(Operation(f"stablehlo.{_name}", decompose=_token))
# Placements that passes/host_memory.py has left keep the value where it is.
define(Operation(PLACEMENT, read=_read_memory, decompose=_same))
# `dce_sink` and `control_dep` (a requested order of operations) have no
# results.
for _name in ("control_dep", "dce_sink", "LayoutConstraint"):
  define(Operation(f"stablehlo.custom_call @{_name}", decompose=_same))
# Arrays that are to be sharded alike; one device has all of each.
define(Operation("sdy.sharding_group", decompose=_same))
