"""From MLIR's locations to the user's file and line.

JAX names each operation's location after the primitive and nests in it the
Python frames that led there, the innermost first; frames of JAX itself are
not in it. Locations are resolved late, and only for what is reported.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.program import schema

UNKNOWN = schema.Location(operation="", name="", file="", line=0)


def resolve(location: Any, operation: str = "") -> schema.Location:
  """The operation's name in the traced program and the innermost user line.

  Args:
    location: an MLIR location, a resolved one, or None.
    operation: the StableHLO operation.
  """
  if isinstance(location, schema.Location):
    return location
  name, file, line = "", "", 0
  todo = [location]
  while todo:
    at = todo.pop()
    if hasattr(at, "child_loc"):
      name = name or at.name_str
      todo.append(at.child_loc)
    elif hasattr(at, "callee"):
      todo += [at.caller, at.callee]
    elif hasattr(at, "locations"):
      todo += reversed(at.locations)
    elif hasattr(at, "filename"):
      file, line = at.filename, at.start_line
      break
  return schema.Location(operation=operation, name=name, file=file, line=line)


def describe(location: schema.Location) -> str:
  """`NAME at FILE:LINE`, or as much of it as is known."""
  if location.file:
    name = f"{location.name} " if location.name else ""
    return f"{name}at {location.file}:{location.line}"
  return location.name
