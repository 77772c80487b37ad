"""The report of an executable, which is made by compiling its module again.

An executable holds its program: steps, costs, mappings, and the module that it
was compiled from. What else a report shows is known only while a program is
compiled. So the module is compiled once more, which gives the same program, or
an error if it does not.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

from jaxlib.ipu import clients, compiler, options, pipeline
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.report import runs
from jaxlib.ipu.reporting import collect, document

# The beginning of the executable's fields (runtime/pjrt/serialized_executable).
_MAGIC = b"\x0a\x10ipu-executable-1"
_OPTIONS, _PROGRAM = 2, 3

_NOT_FOR_IPU = (
  "the program was not compiled for an IPU: lower it with arguments on one, or "
  "with jax.jit(f, backend='ipu')"
)


class ReportError(RuntimeError):
  """No report can be made of an object; says why and what to do."""


def of(program: Any, trace: str | os.PathLike | None = None) -> document.Report:
  """The report of a program, with its last runs.

  Args:
    program: `jax.jit(f).lower(...)`, which may be too large for the machine, or
      `jax.jit(f).lower(...).compile()`, of this process, or loaded from JAX's
      compilation cache or a file.
    trace: a folder or file that `jax.profiler.trace` has written, with the runs
      to show. By default a compiled program's last run on each of its devices
      is shown, if nothing else has run there since.

  Raises:
    ReportError: it is neither, not of an IPU, or this compiler no longer
      makes the same program of its module.
    TraceError: the trace cannot be read.
    JaxRuntimeError: a lowered program cannot be compiled.
  """
  executable = None
  if hasattr(program, "runtime_executable"):
    executable = program.runtime_executable()
  elif hasattr(program, "serialize") and hasattr(program, "hlo_modules"):
    executable = program
  elif not (hasattr(program, "compile") and hasattr(program, "compiler_ir")):
    raise ReportError(
      f"no report of a {type(program).__name__}: expected "
      "jax.jit(f).lower(...) or jax.jit(f).lower(...).compile()"
    )
  made = _of_executable(executable) if executable else _of_lowered(program)
  runs.add(made, executable, trace)
  return made


def _of_lowered(lowered: Any) -> document.Report:
  with tempfile.TemporaryDirectory() as made:
    try:
      lowered.compile(compiler_options={"ipu_report_to": made})
    except Exception as error:
      if "No such compile option" in str(error):
        raise ReportError(_NOT_FOR_IPU) from error
      # Programs that do not fit have a report; other errors are the user's.
      if not any(Path(made).iterdir()):
        raise
    found = sorted(Path(made).iterdir())
    if not found:
      raise ReportError(_NOT_FOR_IPU)
    return document.load(found[0])


def _of_executable(executable: Any) -> document.Report:
  try:
    raw = bytes(executable.serialize())
  except Exception as error:
    raise ReportError(f"the executable has no bytes: {error}") from error
  begin = raw.find(_MAGIC)
  if begin < 0:
    raise ReportError(
      "no report of an executable of another platform: compile it for an IPU"
    )
  fields = _fields(raw, begin)
  program, constants = container.read(bytes(fields[_PROGRAM]))
  state, made = _compile(
    _module(program, constants), bytes(fields[_OPTIONS]), program
  )
  assert state.program is not None
  if _encoded(program) != _encoded(state.program):
    raise ReportError(
      f"compiling {program.name} again gives another program, so no report of "
      "it can be made: it was compiled under other flags, or by another "
      "version; compile it again with autoReport.all"
    )
  return collect.collect(state, made.target, made.given)


def _encoded(program: schema.Program) -> bytes:
  """A program's bytes but for its module, whose encoding may differ, and for
  the shardings of the whole module, which this one was made from."""
  bare = dataclasses.replace(program, module=b"", omissions=[], shardings=[])
  return container.write(bare)


def _fields(raw: bytes, at: int) -> dict[int, memoryview]:
  """The fields with bytes of the message that begins at `at`, up to the
  program, which is the last."""
  view, found = memoryview(raw), {}
  while _PROGRAM not in found:
    key, at = _varint(view, at)
    size, at = _varint(view, at)
    if key & 7 == 2:
      found[key >> 3] = view[at : at + size]
      at += size
  return found


def _varint(view: memoryview, at: int) -> tuple[int, int]:
  """A base-128 number and the position after it."""
  value = shift = 0
  while True:
    byte = view[at]
    at += 1
    value |= (byte & 127) << shift
    shift += 7
    if byte < 128:
      return value, at


def _module(program: schema.Program, constants: memoryview) -> bytes:
  """The program's module, with what is among the constants put back."""
  parts: list[bytes | memoryview] = []
  at = 0
  for omission in program.omissions:
    parts.append(program.module[at : omission.position])
    at = omission.position
    begin = omission.address
    parts.append(constants[begin : begin + omission.size])
  return b"".join([*parts, program.module[at:]])


def _compile(
  code: bytes, compile_options: bytes, program: schema.Program
) -> tuple[pipeline.State, pipeline.Options]:
  """Compiles a module as the executable was, for the machine of its client."""
  settings = clients.settings_for(program.target.version)
  with options.use(settings):
    given = compiler.read_options(compile_options)
    without = pipeline.Options(
      target=given.target, allow_out_of_memory=True, given=given.given
    )
    return pipeline.compile_module(code, without), without
