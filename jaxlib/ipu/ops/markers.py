"""Operations that compute nothing: tokens, and markers for other compilers."""

from __future__ import annotations

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define


def _token(e: Emitter, node: Node) -> list[Value]:
  """Tokens have no elements: steps run in program order, which respects their
  order."""
  return [e.constant(False, v.dtype, v.shape) for v in node.results]


def _same(e: Emitter, node: Node) -> list[Value]:
  return list(node.inputs[: len(node.results)])


for _name in ("after_all", "create_token"):
  define(Operation(f"stablehlo.{_name}", decompose=_token))
# `dce_sink` and `control_dep` (a requested order of operations) have no
# results. Only arguments and results can be in the host's memory: all other
# values are on the tiles.
for _name in (
  "annotate_device_placement",
  "control_dep",
  "dce_sink",
  "LayoutConstraint",
):
  define(Operation(f"stablehlo.custom_call @{_name}", decompose=_same))
# Arrays that are to be sharded alike; one device has all of each.
define(Operation("sdy.sharding_group", decompose=_same))
