"""Errors of XLA's partitioner, for users."""

from __future__ import annotations

import re
from typing import Any

from jaxlib.ipu.diagnostics import CompileError, ErrorCode, at
from jaxlib.ipu.location import resolve
from jaxlib.mlir import ir

_STATUS = re.compile(r"([A-Z_]+): ")
_CODES = {
  "INVALID_ARGUMENT": ErrorCode.INVALID_ARGUMENT,
  "UNIMPLEMENTED": ErrorCode.UNIMPLEMENTED,
}

# After its message XLA may list the user's frames, which the module has too.
_FRAMES = "Suspected Python Code Location:"
_NAME = re.compile(r'op_name="(.*?)"')


def of_partitioner(error: Exception, module: Any, count: int) -> CompileError:
  """XLA's error as one of this compiler.

  What XLA cannot split is not implemented, unless it says that the program is
  invalid.

  Args:
    error: of jaxlib.
    module: the whole module.
    count: of devices.
  """
  text = str(error).partition(_FRAMES)[0]
  code = ErrorCode.UNIMPLEMENTED
  if status := _STATUS.match(text):
    code = _CODES.get(status[1], code)
    text = text[status.end() :]
  name = _NAME.search(text)
  where = _location(module, name[1]) if name else None
  return CompileError(
    code,
    f"XLA cannot split this program over {count} IPUs: {text.strip()}"
    f"{at(where)}\n"
    "  What to do: constrain the values there with "
    "jax.lax.with_sharding_constraint, or use jax.shard_map, which leaves "
    "nothing to the partitioner",
  )


def _location(module: Any, name: str) -> Any:
  """That of the first operation of a name."""
  found = []

  def look(operation: Any) -> Any:
    if resolve(operation.location).name != name:
      return ir.WalkResult.ADVANCE
    found.append(operation.location)
    return ir.WalkResult.INTERRUPT

  module.operation.walk(look)
  return found[0] if found else None
