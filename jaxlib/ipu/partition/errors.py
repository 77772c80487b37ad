"""Errors of XLA's partitioner, for users."""

from __future__ import annotations

import re

from jaxlib.ipu.diagnostics import Code, CompileError

_STATUS = re.compile(r"([A-Z_]+): ")
_LINE = re.compile(r'source_file="(.*?)" source_line=(\d+)')
_CODES = {
  "INVALID_ARGUMENT": Code.INVALID_ARGUMENT,
  "UNIMPLEMENTED": Code.UNIMPLEMENTED,
}


def of_partitioner(error: Exception, program: str, count: int) -> CompileError:
  """XLA's error as one of this compiler.

  What XLA cannot split is not implemented, unless it says that the program is
  invalid.
  """
  text = str(error)
  code = Code.UNIMPLEMENTED
  if status := _STATUS.match(text):
    code = _CODES.get(status[1], code)
    text = text[status.end() :]
  where = ""
  if line := _LINE.search(text):
    where = f"\n  in {line[1]}:{line[2]}"
  return CompileError(
    code,
    f"XLA cannot split program {program} over {count} IPUs: {text}{where}\n"
    "  What to do: constrain the values there with "
    "jax.lax.with_sharding_constraint, or use jax.shard_map, which leaves "
    "nothing to the partitioner",
  )
