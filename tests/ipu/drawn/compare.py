"""Runs a program on the IPU and on XLA:CPU and compares results."""

from __future__ import annotations

import dataclasses
import enum
import functools
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import jax
import jax.numpy as jnp

from . import values as types
from .program import Program

# Absolute error for results of a magnitude up to 4, proportionally larger
# otherwise: what several functions in a row may make of some units in the last
# place.
_TOLERANCE = {
  "float16": 0.06, "bfloat16": 0.4, "float32": 1e-3, "float64": 1e-8,
}  # fmt: skip
# Halves the time that XLA:CPU takes to compile small programs, and follows
# their text more closely.
_CPU = {
  "xla_backend_optimization_level": 0,
  "xla_llvm_disable_expensive_passes": True,
  "xla_cpu_parallel_codegen_split_count": 1,
}
# Halves it again, but crashes for types narrower than a byte, and is not in
# every release.
_QUICK = {"xla_cpu_use_fusion_emitters": False}


class Outcome(enum.Enum):
  """The outcome of a program."""

  AGREE = "agree"
  UNSTABLE = "differ where a last bit of the arguments matters as much"
  REFERENCE = "XLA:CPU fails"  # or contradicts itself
  DIFFER = "differ"
  ERROR = "error"
  CRASH = "crash"
  HANG = "hang"

  @property
  def bad(self) -> bool:
    return self in (Outcome.DIFFER, Outcome.ERROR, Outcome.CRASH, Outcome.HANG)


@dataclasses.dataclass(frozen=True)
class Verdict:
  outcome: Outcome
  message: str = ""


def run(
  traced: jax.stages.Traced, platform: str, options: dict[str, Any]
) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
  """A program compiled for a device, from NumPy arrays to NumPy arrays."""
  device = jax.devices(platform)[0]
  with warnings.catch_warnings(), jax.default_device(device):
    warnings.simplefilter("ignore")  # of donation
    f = traced.lower().compile(options)

  def call(arguments: list[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(r) for r in f(*arguments)]

  return call


def check(
  program: Program, stage: Callable[[str], None] = lambda _: None
) -> Verdict:
  """Runs and compares.

  Args:
    program: the program to run.
    stage: called with what runs next, `cpu` or `ipu`.
  """
  with jax.enable_x64(program.x64):
    arguments = program.values()
    stage("cpu")
    try:
      traced = _traced(program, arguments)
      reference = run(traced, "cpu", _cpu_options(program))
      expected = reference(arguments)
    except Exception as error:  # an error of the reference, not of the IPU
      return Verdict(Outcome.REFERENCE, _line(error))
    stage("ipu")
    options = {"ipu_num_tiles": program.tiles, "ipu_allow_out_of_memory": True}
    try:
      actual = run(traced, "ipu", options)(arguments)
    except Exception as error:
      return Verdict(Outcome.ERROR, _line(error))
    message, jumps = _differences(program, actual, expected)
    if not message:
      return Verdict(Outcome.AGREE)
    stage("cpu")
    unstable = not jumps and _unstable(
      program, reference, arguments, actual, expected
    )
    if unstable:
      return Verdict(Outcome.UNSTABLE, message)
    if _differs_from_its_operations(program, arguments, actual):
      return Verdict(Outcome.DIFFER, message)
  return Verdict(Outcome.REFERENCE, f"{message}\nXLA:CPU agrees without jit")


def _differs_from_its_operations(
  program: Program, arguments: list[np.ndarray], actual: list[np.ndarray]
) -> bool:
  """Whether results differ from those of XLA:CPU running one operation at a
  time: compiled as a whole, some programs give it other results."""
  try:
    with jax.disable_jit(), jax.default_device(jax.devices("cpu")[0]):
      expected = [np.asarray(r) for r in program.function()(*arguments)]
  except Exception:  # some programs need jit: then the difference is reported
    return True
  return bool(_differences(program, actual, expected)[0])


def _traced(program: Program, arguments: list[np.ndarray]) -> jax.stages.Traced:
  """The program for both devices: tracing takes a sixth of the time."""
  f = jax.jit(program.function(), donate_argnums=program.donated)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of truncated integers
    return f.trace(*arguments)


def _cpu_options(program: Program) -> dict[str, Any]:
  named = program.text + " ".join(program.arguments)
  narrow = any(t.name in named for t in types.NARROW)
  return _CPU if narrow or not _has_quick() else _CPU | _QUICK


@functools.cache
def _has_quick() -> bool:
  try:
    with jax.default_device(jax.devices("cpu")[0]):
      jax.jit(lambda: 0).lower().compile(_QUICK)
  except jax.errors.JaxRuntimeError:
    return False
  return True


def _line(error: Exception) -> str:
  return f"{type(error).__name__}: {error}"


def _wide(x: np.ndarray) -> np.ndarray:
  return x.astype(np.complex128 if types.is_complex(x.dtype) else np.float64)


def _error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """The error of each element; 0 for equal infinities and for NaN."""
  x, y = _wide(a), _wide(b)
  with np.errstate(all="ignore"):
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf))


def _allowed(b: np.ndarray, worst: np.dtype) -> float:
  y = np.abs(_wide(b))
  scale = float(np.max(y, where=np.isfinite(y), initial=4.0)) / 4
  return _TOLERANCE[worst.name] * scale


def _differences(
  program: Program, actual: list[np.ndarray], expected: list[np.ndarray]
) -> tuple[str, bool]:
  """Describes differences, and whether any of them is not a matter of
  rounding."""
  worst = _worst(program, expected)
  lines, jumps = [], False
  for n, (a, b) in enumerate(zip(actual, expected, strict=True)):
    if (a.dtype, a.shape) != (b.dtype, b.shape):
      lines.append(f"result {n}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}")
      jumps = True
      continue
    error = _error(a, b)
    wrong = error > (0 if program.exact[n] else _allowed(b, worst))
    if wrong.any():
      jumps = jumps or program.exact[n]
      where = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
      got, want = np.atleast_1d(a)[where], np.atleast_1d(b)[where]
      lines.append(
        f"result {n}: {int(wrong.sum())} of {wrong.size} {a.dtype} differ, at "
        f"{list(where)} {got!s}, expected {want!s}"
      )
  return "\n".join(lines), jumps


def _worst(program: Program, results: list[np.ndarray]) -> np.dtype:
  """The coarsest float type that the program names or returns."""
  code = program.text + " ".join(program.arguments)
  code += " ".join(r.dtype.name for r in results)
  narrow = [t.name for t in types.NARROW if t.name in code]
  if "bfloat16" in code or any("float" in n for n in narrow):
    return np.dtype(jnp.bfloat16)
  if "float16" in code:
    return np.dtype(np.float16)
  # By default, Python's numbers and JAX's functions have this type.
  wide = program.x64 and "float32" not in code and "complex64" not in code
  return np.dtype(np.float64 if wide else np.float32)


def _unstable(
  program: Program,
  reference: Callable[[list[np.ndarray]], list[np.ndarray]],
  arguments: list[np.ndarray],
  actual: list[np.ndarray],
  expected: list[np.ndarray],
) -> bool:
  """Whether XLA:CPU's own results change as much if the last bits of its
  arguments do.

  Exact results are ignored.
  """
  moved = [np.zeros(e.shape) for e in expected]
  worst = _worst(program, expected)
  unit = 4 * float(ml_dtypes.finfo(worst).eps)
  for seed in range(3):
    rng = np.random.default_rng(seed)
    near = []
    for x in arguments:
      if types.is_float(x.dtype) or types.is_complex(x.dtype):
        x = (_wide(x) * (1 + unit * rng.uniform(-1, 1, x.shape))).astype(
          x.dtype
        )
      near.append(x)
    for n, result in enumerate(reference(near)):
      moved[n] = np.maximum(moved[n], _error(result, expected[n]))
  for n, (a, b) in enumerate(zip(actual, expected, strict=True)):
    if program.exact[n]:
      continue
    allowed = max(_allowed(b, worst), 8 * np.max(moved[n], initial=0))
    if (_error(a, b) > allowed).any():
      return False
  return True
