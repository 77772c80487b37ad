#!/usr/bin/env python3
"""Writes ipu/docs/coverage.md: what is compiled for the IPU, and how.

python build/coverage.py, with a Python that has JAX on IPU. Everything goes the
way of a user's program, `jax.jit(f).lower(x).compile()`; how an operation is
made is read from the compiler's registry and from the programs themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import pathlib
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import jax
from jaxlib.ipu import ops
from jaxlib.ipu.dtypes import (
  COMPLEX,
  INTEGERS,
  NAME,
  NARROW,
  NARROW_INTEGERS,
  NUMPY,
  SIZE,
  UNBUFFERED,
  DType,
)
from jaxlib.ipu.ir.registry import REGISTRY, Operation
from jaxlib.ipu.ops.elementwise import left_outside
from jaxlib.ipu.program import container, schema
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from tools import function_samples
from tools.operation_samples import SAMPLES

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "ipu" / "docs" / "coverage.md"
# What build/jax_tests.py has counted, a file for each version of JAX.
PASS_RATES = ROOT / "tests" / "ipu" / "data"
_COUNTED = "jax_tests_"

_SMALL_FLOATS = [d for d in DType if d in NARROW and d not in NARROW_INTEGERS]
GROUPS: dict[str, list[DType]] = {
  "bool": [DType.BOOL],
  "int2 to uint4": [d for d in DType if d in NARROW_INTEGERS],
  "int8 to uint64": [d for d in DType if d in INTEGERS],
  "float4 to float8": _SMALL_FLOATS,
  "float16 to float64": [DType.F16, DType.BF16, DType.F32, DType.F64],
  "complex": [d for d in DType if d in COMPLEX],
}
# The element type whose program tells how an operation is made: the first of
# these that JAX has it for.
_SHOWN = (DType.F32, DType.I32, DType.BOOL, DType.C64)


@dataclasses.dataclass
class Outcome:
  """What came of compiling one program.

  Attributes:
    known: whether JAX has the operation for the type at all.
    program: what was compiled; None if it was refused.
    stablehlo: the program that the compiler was asked for.
  """

  known: bool
  program: schema.Program | None = None
  stablehlo: str = ""


def compile_for_ipu(f: Callable[..., Any], *arguments: Any) -> Outcome:
  """Compiles f for arguments of the given shapes and types.

  Errors of JAX before the compiler is asked mean that it has no such program,
  and so do refusals of XLA:CPU.
  """
  with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter("ignore")
    try:
      lowered = _lower(f, arguments, "ipu")
      text = lowered.as_text()
    except Exception:
      return Outcome(known=False)
    try:
      compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
      if "UNIMPLEMENTED" not in str(error):
        raise
      try:
        _lower(f, arguments, "cpu").compile()
      except Exception:
        return Outcome(known=False)
      return Outcome(known=True, stablehlo=text)
  data = compiled.runtime_executable().serialize()
  program, _ = container.read(data[data.index(container.MAGIC) :])
  return Outcome(True, program, text)


def _lower(f: Callable[..., Any], arguments: Any, platform: str) -> Any:
  device = jax.devices(platform)[0]
  sharding = jax.sharding.SingleDeviceSharding(device)
  placed = jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
    arguments,
  )
  with jax.default_device(device):
    return jax.jit(lambda *a: f(*a)).lower(*placed)


def compile_sample(name: str, dtype: DType) -> Outcome:
  """Compiles the sample of an operation for an array of an element type."""
  sample = SAMPLES[name]
  boundary = NUMPY[DType.F32 if dtype in UNBUFFERED else dtype]

  def f(x: Any) -> Any:
    x = x.astype(NUMPY[dtype])
    out = sample(x) if callable(sample) else _from_text(sample, dtype, x)
    unbuffered = [NUMPY[d] for d in UNBUFFERED]
    return jax.tree.map(
      lambda y: y.astype(np.float32) if y.dtype in unbuffered else y, out
    )

  wide = SIZE[dtype] > 4 and dtype is not DType.C64
  with jax.enable_x64(True) if wide else contextlib.nullcontext():
    outcome = compile_for_ipu(f, np.ones((4, 4), boundary))
  if f"stablehlo.{name}" not in outcome.stablehlo.replace('"', ""):
    return Outcome(known=False)  # JAX says it otherwise for this type
  return outcome


def _from_text(text: str, dtype: DType, x: Any) -> Any:
  """Calls a StableHLO function."""
  text = string.Template(text).substitute(
    T=f"tensor<4x4x{NAME[dtype]}>", E=NAME[dtype]
  )
  exported = jax.export.export(jax.jit(lambda x: x), platforms=("ipu", "cpu"))(
    jax.typeof(x)
  )
  empty: Any = jax.jit(lambda: 0).lower().compiler_ir("stablehlo")
  with empty.context:
    module = ir.Module.parse(text, empty.context)
    code = stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version()
    )
  return dataclasses.replace(exported, mlir_module_serialized=code).call(x)


def _steps(steps: Sequence[Any]) -> Iterator[Any]:
  """All steps, those of bodies included."""
  for step in steps:
    yield step
    for name in ("condition", "body"):
      yield from _steps(getattr(step, name, ()))
    for branch in getattr(step, "branches", ()):
      yield from _steps(branch.steps)


def made_by(definition: Operation) -> str:
  """How an operation is made, by the registry."""

  def file(function: Callable[..., Any]) -> str:
    return function.__module__.removeprefix("jaxlib.ipu.ops.") + ".py"

  if definition.elementwise is not None:
    return "instructions"
  if definition.is_view:
    return "view"
  if definition.lower is None:
    assert definition.decompose is not None
    return f"decomposition, {file(definition.decompose)}"
  if definition.decompose is None:
    return f"lowering, {file(definition.lower)}"
  outside = definition.lower is left_outside
  here = file(definition.decompose if outside else definition.lower)
  return f"lowering or decomposition, {here}"


def runs_as(program: schema.Program) -> str:
  """The codelets and the control flow of a program, or what else it is."""
  found: dict[str, None] = {}
  for step in _steps(program.steps):
    if isinstance(step, schema.Execute):
      found[type(step.fields).__name__] = None
    elif isinstance(step, schema.HostCallback):
      found["host"] = None
    elif not isinstance(step, schema.Copy | schema.HostCopy):
      found[type(step).__name__.lower()] = None
  return ", ".join(found) or "copies"


def operations() -> list[str]:
  """Of StableHLO, without its name before them."""
  ops.load()
  prefix = "stablehlo."
  names = sorted(n.removeprefix(prefix) for n in REGISTRY if prefix in n)
  if missing := sorted(set(names) ^ set(SAMPLES)):
    raise AssertionError(
      f"build/tools/operation_samples.py must have a sample of {missing}, or "
      "the compiler the operation"
    )
  return names


def operation_row(name: str) -> str:
  """The line of the table of operations."""
  outcomes = {
    dtype: compile_sample(name, dtype)
    for group in GROUPS.values()
    for dtype in group
  }
  programs = (outcomes[d].program for d in (*_SHOWN, *outcomes))
  shown = next((p for p in programs if p is not None), None)
  if shown is None:
    raise AssertionError(f"no sample of {name} is compiled")
  cells = [f"`{name}`", made_by(REGISTRY["stablehlo." + name]), runs_as(shown)]
  for group in GROUPS.values():
    known = [d for d in group if outcomes[d].known]
    refused = [NAME[d] for d in known if outcomes[d].program is None]
    if not known:
      cells.append("–")
    elif not refused:
      cells.append("yes")
    elif len(refused) == len(known):
      cells.append("no")
    else:
      cells.append(f"not {', '.join(refused)}")
  return f"| {' | '.join(cells)} |"


def pass_rates() -> list[str]:
  """The table of JAX's own tests, from what was counted."""
  found = {
    path.stem.removeprefix(_COUNTED): json.loads(path.read_text())
    for path in PASS_RATES.glob(f"{_COUNTED}*.json")
  }
  if not found:
    return []
  versions = sorted(found, key=lambda v: [int(n) for n in v.split(".")])
  runs = ", ".join(
    f"`--cases={found[v]['cases']}` for JAX {v}" for v in versions
  )
  titles = ["file", *(t for v in versions for t in (f"passed, {v}", "of"))]
  lines = ["", "## JAX's own tests", "", _TESTS.format(runs=runs), ""]
  lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
  total = dict.fromkeys(itertools.product(versions, ("passed", "of")), 0)
  for file in sorted({f for v in versions for f in found[v]["files"]}):
    cells = [f"`{file}`"]
    for version, what in total:
      counts = found[version]["files"].get(file)
      cells.append(f"{counts[what]:,}" if counts else "")
      total[version, what] += counts[what] if counts else 0
    lines.append(f"| {' | '.join(cells)} |")
  return [*lines, f"| all | {' | '.join(f'{n:,}' for n in total.values())} |"]


_TESTS = """\
Tests of JAX that pass on the CPU, and how many of them pass on `ipu`:
`python build/jax_tests.py CHECKOUT`,
with {runs}.
More cases are a longer run. Files without numbers have not been counted with
that JAX, or have no test that passes on the CPU."""

_HEAD = """\
# What is compiled, and how

Written by `python build/coverage.py`; do not edit. All of it was compiled as a
user's program is, `jax.jit(f).lower(x).compile()` on a device of `ipu`, with
JAX {version}. `tests/ipu` checks the results, against those of XLA:CPU.

## Operations of StableHLO

*made by*: element-wise operations are **instructions** of a register program,
fused with their neighbours; **views** move nothing by themselves; a
**lowering** is a file of `jaxlib/ipu/ops`, a **decomposition** writes simpler
operations. *program*: the codelets and control flow of a small program with
the operation in it, for float32 if JAX has it for that; all of them run on
tiles, but what says *host*. *element types*, of the array that the function of
JAX is called with: yes, all for which XLA:CPU compiles the operation too; –, it
does for none, or JAX uses other operations.
"""


def page() -> str:
  """The whole document."""
  lines = [_HEAD.format(version=jax.__version__)]
  titles = ["operation", "made by", "program", *GROUPS]
  lines.append(f"| {' | '.join(titles)} |")
  lines.append("|---" * len(titles) + "|")
  lines += [operation_row(name) for name in operations()]
  lines += function_samples.section(compile_for_ipu)
  lines += pass_rates()
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  os.environ.setdefault("JAX_IPU_USE_MODEL", "true")
  PAGE.write_text(page())
