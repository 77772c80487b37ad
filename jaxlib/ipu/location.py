"""Maps MLIR locations to the user's file and line.

JAX names each operation's location after the primitive and nests in it the
Python frames that led there, the innermost first, without frames of JAX itself.
The user's line is the innermost one outside installed packages. Locations are
resolved lazily, only for reports.
"""

from __future__ import annotations

import functools
import os
import site
from collections.abc import Iterator
from typing import Any

from jaxlib.ipu.program import schema
from jaxlib.mlir import ir

UNKNOWN = schema.Location(operation="", name="", file="", line=0)


def resolve(location: Any, operation: str = "") -> schema.Location:
  """The operation's name in the traced program and the user's line.

  Args:
    location: an MLIR location, a resolved one, or None.
    operation: the StableHLO operation.

  Returns:
    The file is the user's; preceded by the innermost frame of an installed
    package if there is one: `flax/linen/linear.py:700, called from train.py`.
    If all frames are in packages, the innermost counts as the user's.
  """
  if isinstance(location, schema.Location):
    return location
  name = _name(location)
  first = None
  for file, line in _frames(location):
    if installed(file) is None:
      if first is not None:
        file = f"{installed(first[0])}:{first[1]}, called from {file}"
      return schema.Location(operation, name, file, line)
    first = first or (file, line)
  file, line = first or ("", 0)
  return schema.Location(operation, name, file, line)


def location_text(location: schema.Location) -> str:
  """A location in words, as far as it is known.

  `NAME at train.py:31`, or `NAME at flax/linen/linear.py:700, called from
  train.py:31`.
  """
  if not location.file:
    return location.name
  name = f"{location.name} " if location.name else ""
  return f"{name}at {location.file}:{location.line}"


def _name(location: Any) -> str:
  """The name of an operation; an inlined one is prefixed by its call's name,
  `jit(f)/layer/jit(relu)/max`, as JAX names it without calls."""
  if isinstance(location, ir.NameLoc):
    return location.name_str
  if isinstance(location, ir.CallSiteLoc):
    callee, caller = _name(location.callee), _scope(location.caller)
    return f"{caller}/{callee}" if caller and callee else callee or caller
  return next(filter(None, map(_name, reversed(_inner(location)))), "")


def _scope(location: Any) -> str:
  """The name of a call; "" for names of Python functions, which their line
  already identifies."""
  if isinstance(location, ir.NameLoc) and isinstance(
    location.child_loc, ir.FileLineColLoc
  ):
    return ""
  return _name(location)


def _frames(location: Any) -> Iterator[tuple[str, int]]:
  """File and line of each Python frame, the innermost first."""
  todo = [location]
  while todo:
    at = todo.pop()
    if isinstance(at, ir.FileLineColLoc):
      yield at.filename, at.start_line
    elif isinstance(at, ir.NameLoc):
      todo.append(at.child_loc)
    else:
      todo += _inner(at)


def _inner(location: Any) -> list[Any]:
  """The parts of a location, in reverse order of precedence."""
  if isinstance(location, ir.CallSiteLoc):
    return [location.caller, location.callee]
  if isinstance(location, ir.FusedLoc):
    return list(reversed(location.locations))
  return []


@functools.cache
def _package_folders() -> tuple[str, ...]:
  """The folders of Python's installed packages, the longest path first."""
  folders = {os.path.dirname(os.__file__), site.getusersitepackages()}
  folders.update(site.getsitepackages())
  folders |= {os.path.realpath(folder) for folder in folders}
  return tuple(sorted((f + os.sep for f in folders), key=len, reverse=True))


@functools.lru_cache(maxsize=4096)
def installed(file: str) -> str | None:
  """A file's path below the folder that it is installed in; None if it is
  outside installed packages and the standard library."""
  for folder in _package_folders():
    if file.startswith(folder):
      return file[len(folder) :]
  for name in ("site-packages", "dist-packages"):
    _, found, rest = file.rpartition(f"{os.sep}{name}{os.sep}")
    if found:
      return rest
  return file if file.startswith("<frozen ") else None
