"""Digests of the programs that a process compiles, field by field.

Also a pytest plugin: with DIGESTS set to a file's name, a test run writes the
digests of what its tests compile to it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlib.ipu import pipeline
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.program import container, schema
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import mhlo, sdy, stablehlo

DIGESTS = "JAX_IPU_DIGESTS"

# A record's name and one of its fields, to the digest of all values that the
# program has there.
Fields = dict[str, str]

# These depend on where the sources are, not on what was compiled.
_ABOUT_SOURCES = (
  "Location.file",
  "Location.line",
  "Program.module",
  "Program.omissions",
)


def digests(data: bytes) -> Fields:
  """The digest of each field of a program and of its constants."""
  program, constants = container.read(data)
  columns: dict[str, list[Any]] = collections.defaultdict(list)
  _collect(program, columns)
  for name in _ABOUT_SOURCES:
    columns.pop(name, None)
  found = {name: _digest(repr(c).encode()) for name, c in columns.items()}
  # The module's own constants end the section; they are not named here.
  end = max((_end(t) for t in program.tensors), default=0)
  return found | {"constants": _digest(constants[:end])}


def _end(tensor: schema.Tensor) -> int:
  if tensor.space != schema.CONSTANT:
    return 0
  size = SIZE[DType(tensor.dtype)] * int(np.prod(tensor.shape, dtype=object))
  return tensor.address + size


def _collect(value: Any, columns: dict[str, list[Any]]) -> Any:
  """Adds the fields of a record, and of those in it, to the columns.

  Returns what stands for the value in the column of the record around it: the
  name of its type for a record, itself for anything else.
  """
  if isinstance(value, list):
    return [_collect(v, columns) for v in value]
  if isinstance(value, Code):
    return value.wire
  if not dataclasses.is_dataclass(value):
    return value
  record = type(value).__name__
  for field in dataclasses.fields(value):
    content = _collect(getattr(value, field.name), columns)
    columns[f"{record}.{field.name}"].append(content)
  return record


def _digest(data: bytes | memoryview) -> str:
  return hashlib.sha256(data).hexdigest()[:16]


class Recorder:
  """Replaces `pipeline.compile_module` while it is entered.

  Attributes:
    programs: the fields of each program. Its key is a digest of its module,
      without locations, and of the compiler's options, and how often both had
      been compiled before. If the compiler raises an error, its kind is the
      only field.
  """

  def __init__(self) -> None:
    self.programs: dict[str, Fields] = {}
    self._count: collections.Counter[str] = collections.Counter()

  def __enter__(self) -> Recorder:
    self._compile = pipeline.compile_module
    recorded = functools.partial(self._compile_module, self._compile)
    pipeline.compile_module = recorded
    return self

  def __exit__(self, *_: object) -> None:
    pipeline.compile_module = self._compile

  def _compile_module(
    self,
    compile_module: Callable[..., pipeline.State],
    code: bytes | memoryview,
    options: pipeline.Options,
  ) -> pipeline.State:
    key = self._key(code, options)
    try:
      state = compile_module(code, options)
    except Exception as e:
      kind = e.code.name if isinstance(e, CompileError) else type(e).__name__
      self.programs[key] = {"error": kind}
      raise
    if state.pieces:
      self.programs[key] = digests(state.data)
    return state

  def _key(self, code: bytes | memoryview, options: pipeline.Options) -> str:
    settings = dataclasses.replace(options, dump=None, verify=False)
    digest = _digest(f"{_chosen(settings)}\n{_text(code)}".encode())
    self._count[digest] += 1
    return f"{digest}.{self._count[digest]}"


def _chosen(settings: Any) -> dict[str, Any]:
  """The fields of a record of settings that do not have their defaults, so that
  keys stay the same when a field is added."""
  chosen = {}
  for field in dataclasses.fields(settings):
    value = getattr(settings, field.name)
    if dataclasses.is_dataclass(value):
      chosen[field.name] = _chosen(value)
    elif isinstance(value, dict):  # options, in any order
      chosen[field.name] = dict(sorted(value.items()))
    elif value != field.default:
      chosen[field.name] = value
  return chosen


def _text(code: bytes | memoryview) -> str:
  """A module without locations; the elements of large constants are left out.

  Bytes that are not a module stand for themselves.
  """
  try:
    with ir.Context() as context:
      stablehlo.register_dialect(context)
      sdy.register_dialect(context)
      mhlo.register_mhlo_dialect(context)
      module = stablehlo.deserialize_portable_artifact(context, bytes(code))
      return str(module.operation.get_asm(large_elements_limit=64))
  except (ir.MLIRError, ValueError):
    return bytes(code).hex()


def write(recorder: Recorder, path: pathlib.Path) -> None:
  """Writes what was recorded as JSON."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(recorder.programs, indent=0) + "\n")


def pytest_sessionstart(session: Any) -> None:
  """Starts to record."""
  session.recorder = Recorder().__enter__()


def pytest_sessionfinish(session: Any) -> None:
  """Writes what was recorded."""
  session.recorder.__exit__()
  write(session.recorder, pathlib.Path(os.environ[DIGESTS]))
