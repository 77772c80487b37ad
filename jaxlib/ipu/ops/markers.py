"""Operations that compute nothing: tokens, and marks for other compilers."""

from __future__ import annotations

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define


def _token(e: Emitter, node: Node) -> list[Value]:
  """Steps run in the order of the program, which respects that of tokens;
  the value of a token has no elements."""
  return [e.constant(False, v.dtype, v.shape) for v in node.results]


def _same(e: Emitter, node: Node) -> list[Value]:
  return list(node.inputs[: len(node.results)])


for _name in ("after_all", "create_token"):
  define(Operation(f"stablehlo.{_name}", decompose=_token))
# `dce_sink` and `control_dep` (an order of operations that users wish for) have
# no results. Only arguments and results can be in the host's
# memory: in between all values are in that of the tiles.
for _name in (
  "annotate_device_placement",
  "control_dep",
  "dce_sink",
  "LayoutConstraint",
):
  define(Operation(f"stablehlo.custom_call @{_name}", decompose=_same))
# Arrays that are to be sharded alike, of which one device has all.
define(Operation("sdy.sharding_group", decompose=_same))
