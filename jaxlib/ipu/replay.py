"""Compiles and runs kept programs again: `python -m jaxlib.ipu replay DIR`."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxlib.ipu import artifacts, compiler, dtypes, internals, pipeline
from jaxlib.ipu.host_functions import PYTHON_TARGET, PYTHON_TARGET_OF_PARTS
from jaxlib.ipu.ir.graph import Type
from jaxlib.ipu.pipeline import Phase

# Where host functions are called by their address in the process that is gone.
_CALLBACKS = (PYTHON_TARGET, PYTHON_TARGET_OF_PARTS, "ipu_ffi")

# Of floats, by their size in bytes: the largest relative difference.
_TOLERANCES = {1: 0.3, 2: 3e-2, 4: 1e-3, 8: 1e-6}


class Outcome(NamedTuple):
  """What became of a program.

  Attributes:
    program: its folder.
    wrong: whether it does not compile or run, or gives other results.
    what: what is wrong, or how far it was replayed; "ok" if it compiles, runs
      on drawn arguments and gives XLA:CPU's results.
  """

  program: Path
  wrong: bool
  what: str


def replay(folder: Path, phases: bool = False) -> list[Outcome]:
  """Compiles and runs the programs of a folder.

  Flags are those of the first program, and settled by this process's first
  client of IPUs: call it once in a process.

  Args:
    folder: of a test, or of one program.
    phases: whether to write the results of compiler phases instead.

  Raises:
    FileNotFoundError: the folder has no programs.
  """
  found = artifacts.programs(folder)
  if not found:
    raise FileNotFoundError(
      f"{folder} has no {artifacts.MODULE}: expected a folder made by "
      "`pytest -p ipu_artifacts --ipu-artifact-dir=DIR`"
    )
  importlib.import_module("jax")  # registers MLIR's passes
  if phases:
    wrong = artifacts.write_phases(folder)
    return [Outcome(p, bool(w), w or "ok") for p, w in zip(found, wrong)]
  os.environ.update(artifacts.flags_of(found[0]))
  return [Outcome(program, *_run(program)) for program in found]


def _run(program: Path) -> tuple[bool, str]:
  """Whether something is wrong, and what."""
  code = (program / artifacts.MODULE).read_bytes()
  given = (program / artifacts.OPTIONS).read_bytes()
  try:
    on_ipu = internals.compile_for("ipu", code, given)
  except Exception as error:
    return True, f"does not compile: {error}"
  options = compiler.read_options(given)
  if options.sharding is not None:
    return False, "compiles; not run, because it is sharded"
  state = pipeline.compile_module(
    code, pipeline.Options(target=options.target, stop_after=Phase.IMPORT)
  )
  if any(name in str(state.stablehlo) for name in _CALLBACKS):
    return False, "compiles; not run, because it calls functions of the host"
  assert state.module is not None
  arguments = _draw(state.module.signature[0])
  try:
    got = internals.run_on(on_ipu, arguments)
  except Exception as error:
    return True, f"does not run: {error}"
  try:
    on_cpu = internals.compile_for("cpu", code, b"")
    expected = internals.run_on(on_cpu, arguments)
  except Exception as error:
    return False, f"runs; not compared, because XLA:CPU fails: {error}"
  what = _difference(got or (), expected or ())
  return bool(what), what or "ok"


def _draw(types: list[Type]) -> list[np.ndarray]:
  """Small numbers of each shape and type, the same in every run."""
  random = np.random.default_rng(0)
  return [
    np.asarray(random.integers(0, 4, shape)).astype(dtypes.NUMPY[dtype])
    for shape, dtype in types
  ]


def _difference(got: Any, expected: Any) -> str:
  for i, (x, y) in enumerate(zip(got, expected, strict=True)):
    if x.dtype.kind in "biu":
      same = np.array_equal(x, y)
    else:
      limit = _TOLERANCES[x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1)]
      wide = np.complex128 if x.dtype.kind == "c" else np.float64
      same = np.allclose(
        x.astype(wide), y.astype(wide), limit, limit, equal_nan=True
      )
    if not same:
      return f"result {i} differs from XLA:CPU's:\n{x}\nexpected\n{y}"
  return ""
