"""The folder of a program, in which reports and dumps are written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from jaxlib.ipu.diagnostics import CompileError, invalid_argument

# Characters of a module's name in the name of its folder: a guess of what tells
# modules apart. File systems allow 255 bytes.
_LONGEST = 100


def make(root: Path, module: str) -> Path:
  """Makes a new folder `0012.jit_f` in `root` for a program.

  Programs of all processes that use a folder have different numbers. What
  exists is neither changed nor opened, as it may be a link or a pipe.

  Raises:
    CompileError: the folder cannot be made.
  """
  name = re.sub(r"[^\w.-]", "_", module)[:_LONGEST]
  try:
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
      found = (re.match(r"\d+(?=\.)", entry) for entry in os.listdir(root))
      number = 1 + max((int(m[0]) for m in found if m), default=-1)
      folder = root / f"{number:04}.{name}"
      folder.mkdir()
  except OSError as e:
    raise unwritable(root, e) from e
  return folder


def unwritable(root: Path, error: OSError) -> CompileError:
  """The error for a folder in which nothing can be written."""
  return invalid_argument(
    f"cannot write a report to {root}: {error}; autoReport.directory in "
    "POPLAR_ENGINE_OPTIONS, or the compiler option ipu_report_to or "
    "ipu_dump_to, names another folder"
  )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
  """Holds a folder against other processes and threads that write reports."""
  handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
  finally:
    os.close(handle)
