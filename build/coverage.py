#!/usr/bin/env python3
"""Writes ipu/docs/coverage.md: what is compiled for the IPU, and how.

Run `python build/coverage.py` with a Python that has JAX on IPU installed.
Everything is compiled like a user's program, `jax.jit(f).lower(x).compile()`.
How an operation is implemented is read from the compiler's registry and from
the compiled programs.
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
# The results of build/jax_tests.py, one file per version of JAX.
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
# The element type of the program that is shown: the first of these for which
# JAX has the operation.
_SHOWN = (DType.F32, DType.I32, DType.BOOL, DType.C64)


@dataclasses.dataclass
class Outcome:
  """The outcome of compiling one program.

  Attributes:
    known: whether JAX has the operation for the type at all.
    program: the compiled program; None if it was refused.
    stablehlo: the input of the compiler.
  """

  known: bool
  program: schema.Program | None = None
  stablehlo: str = ""


def compile_for_ipu(f: Callable[..., Any], *arguments: Any) -> Outcome:
  """Compiles f for arguments of the given shapes and types.

  If JAX raises an error before it calls the compiler, or if XLA:CPU refuses the
  program too, then JAX has no such program.
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
  """Compiles the sample of an operation for an element type."""
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
    return Outcome(known=False)  # JAX emits something else for this type
  return outcome


def _from_text(text: str, dtype: DType, x: Any) -> Any:
  """Calls a StableHLO function given as text."""
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
  """All steps, including those of loop bodies and branches."""
  for step in steps:
    yield step
    for name in ("condition", "body"):
      yield from _steps(getattr(step, name, ()))
    for branch in getattr(step, "branches", ()):
      yield from _steps(branch.steps)


def implemented_by(definition: Operation) -> str:
  """How an operation is implemented, according to the registry."""

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
  """The codelets and control flow of a program; "copies" if there are none."""
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
  """The StableHLO operations, without the `stablehlo.` prefix."""
  ops.load()
  prefix = "stablehlo."
  names = sorted(n.removeprefix(prefix) for n in REGISTRY if prefix in n)
  if missing := sorted(set(names) ^ set(SAMPLES)):
    raise AssertionError(
      f"{missing}: missing from build/tools/operation_samples.py, or unknown "
      "to the compiler"
    )
  return names


def operation_row(name: str) -> str:
  """An operation's row of the table."""
  outcomes = {
    dtype: compile_sample(name, dtype)
    for group in GROUPS.values()
    for dtype in group
  }
  programs = (outcomes[d].program for d in (*_SHOWN, *outcomes))
  shown = next((p for p in programs if p is not None), None)
  if shown is None:
    raise AssertionError(f"no sample of {name} compiles")
  cells = [
    f"`{name}`",
    implemented_by(REGISTRY["stablehlo." + name]),
    runs_as(shown),
  ]
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
  """The table of JAX's own tests, from the recorded results."""
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
JAX's tests that pass on the CPU, and how many of them pass on `ipu`:
`python build/jax_tests.py CHECKOUT`,
with {runs}.
More cases make a longer run. Files without numbers have not been run with that
version of JAX, or have no test that passes on the CPU."""

_HEAD = """\
# Coverage

Generated by `python build/coverage.py`; do not edit. Everything was compiled
like a user's program, by `jax.jit(f).lower(x).compile()` on an `ipu` device,
with JAX {version}. `tests/ipu` checks the results against XLA:CPU.

## StableHLO operations

*implemented by*: element-wise operations are **instructions** of a register
program, fused with their neighbours; **views** move nothing by themselves; a
**lowering** is in the given file of `jaxlib/ipu/ops`; a **decomposition**
rewrites the operation in terms of simpler ones. *program*: the codelets and
control flow of a small program that contains the operation, for float32 where
JAX has it for that type. Everything runs on tiles, except for *host*. *Element
types* are those of the array that the JAX function is called with: yes, all for
which XLA:CPU compiles the operation too; –, XLA:CPU compiles it for none, or
JAX uses other operations.
"""


def page() -> str:
  """The whole page."""
  lines = [_HEAD.format(version=jax.__version__)]
  titles = ["operation", "implemented by", "program", *GROUPS]
  lines.append(f"| {' | '.join(titles)} |")
  lines.append("|---" * len(titles) + "|")
  lines += [operation_row(name) for name in operations()]
  lines += function_samples.section(compile_for_ipu)
  lines += pass_rates()
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  os.environ.setdefault("JAX_IPU_USE_MODEL", "true")
  PAGE.write_text(page())
