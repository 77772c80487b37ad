"""Reproducers: the programs that a piece of Python compiled, kept as files.

A program's folder `0000.program` has `module.mlirbc`, as JAX passed it;
`options.pb`, the `CompileOptionsProto`; and `flags.json`, the variables that
the client was made with. The result of each compiler phase is written beside
them when it is wanted (`write_phases`), which costs a second compilation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

from jaxlib.ipu import compiler, options
from jaxlib.ipu import pipeline as pipeline_lib
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.reporting import folder as folder_lib

MODULE, OPTIONS, FLAGS = "module.mlirbc", "options.pb", "flags.json"

_VARIABLES = ("TF_POPLAR_FLAGS", "POPLAR_ENGINE_OPTIONS")


@contextlib.contextmanager
def recording(folder: Path) -> Iterator[None]:
  """Keeps what this process compiles meanwhile in `folder`, which is made when
  the first program comes. A process that dies leaves what it has compiled."""

  def keep(code: bytes | memoryview, compile_options: bytes) -> None:
    made = folder_lib.make(folder, "program")
    (made / OPTIONS).write_bytes(compile_options)
    (made / FLAGS).write_text(json.dumps(_flags(), indent=1))
    (made / MODULE).write_bytes(code)

  before, compiler.observer = compiler.observer, keep
  try:
    yield
  finally:
    compiler.observer = before


def _flags() -> dict[str, str]:
  return {
    name: value
    for name, value in os.environ.items()
    if name in _VARIABLES or name.startswith("JAX_IPU_")
  }


def programs(folder: Path) -> list[Path]:
  """The folders of programs in `folder`, which may be one itself."""
  return sorted(path.parent for path in folder.rglob(MODULE))


def flags_of(program: Path) -> dict[str, str]:
  """The variables that a program was compiled with."""
  flags: dict[str, str] = json.loads((program / FLAGS).read_text())
  return flags


def write_phases(folder: Path) -> list[str]:
  """Compiles all programs of a folder, and writes the result of each phase.

  Returns:
    For each program its error; "" if it compiles.
  """
  return [_write_phases(program) for program in programs(folder)]


def _write_phases(program: Path) -> str:
  with options.use(options.read(flags_of(program))):
    given = compiler.read_options((program / OPTIONS).read_bytes())
    chosen = dataclasses.replace(given, dump=program, report=None)
    try:
      pipeline_lib.compile_module((program / MODULE).read_bytes(), chosen)
    except CompileError as error:
      (program / "error.txt").write_text(error.message + "\n")
      return error.message
  return ""
