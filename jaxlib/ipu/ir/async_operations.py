"""Replaces `async_start` and `async_done` by the operation inside.

Work between the two could overlap with it on another machine. Here exchange and
compute are separate supersteps, so nothing is lost.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.search import operations
from jaxlib.mlir import ir

_START, _DONE = "stablehlo.async_start", "stablehlo.async_done"
_CALL = "stablehlo.custom_call"


def make_synchronous(module: ir.Module) -> None:
  """Inlines the body of each `async_start`."""
  for start in operations(module, _START):
    _inline(start)


def _inline(start: Any) -> None:
  (block,) = start.regions[0].blocks
  for parameter, value in zip(block.arguments, start.operands, strict=True):
    parameter.replace_all_uses_with(value)
  *body, end = block.operations
  for operation in body:
    operation.move_before(start)
  (value,) = end.operands
  (future,) = start.results
  for user in dict.fromkeys(use.owner.operation for use in future.uses):
    if user.name == _DONE:
      user.results[0].replace_all_uses_with(value)
      user.erase()
    elif user.name == _CALL and not list(user.results):
      user.erase()  # `control_dep`: only asks for an order of operations
  if not list(future.uses):  # otherwise the passes refuse the future
    start.erase()
