"""Runs StableHLO's self-checking programs on the IPU; see stablehlo_tests.py.

Runs in its own process: reads file names, one per line, and writes a line of
JSON for each program in them.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import jax
import jax.numpy as jnp
from jax import export
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

# Check operations: operands, an optional constant, attributes, types. Their
# dialect is not registered here, so they need MLIR's generic form.
_TENSOR = r"tensor<(?:[^<>]|<[^<>]*>)*>"
_SETTINGS = r"(?P<settings>(?:\s*,\s*\w+\s*=\s*[-+.\de]+)*)"
_BRACES = r"(?P<braces>(?:\s*\{[^{}]*\})?)"
_CONSTANT = re.compile(
  r"check\.(?P<kind>expect_\w+_const)\s+(?P<operand>%[\w#]+)\s*,\s*"
  rf"(?P<constant>dense<.*?>\s*:\s*(?P<type>{_TENSOR})){_SETTINGS}{_BRACES}",
  re.DOTALL,
)
_TWO = re.compile(
  r"check\.(?P<kind>expect_\w+)\s+(?P<operands>%[\w#]+\s*,\s*%[\w#]+)"
  rf"{_SETTINGS}{_BRACES}\s*:\s*{_BRACES.replace('braces', 'more')}"
  rf"(?P<type>{_TENSOR})(?:\s*,\s*{_TENSOR})?"
)
_SETTING = re.compile(r"(\w+)\s*=\s*([-+.\de]+)")
_COMPUTED = re.compile(
  r"dynamic_(?!slice|update)|<\?|x\?|real_dynamic|@stablehlo"
)
_PREFIX = "check."
_DTYPES = {
  "i1": "bool",
  "f16": "float16",
  "bf16": "bfloat16",
  "f32": "float32",
  "f64": "float64",
  "complex<f32>": "complex64",
  "complex<f64>": "complex128",
}


def _legalize() -> Any:
  """As JAX does before it passes a module to a plugin."""
  stablehlo.register_stablehlo_passes()
  return passmanager.PassManager.parse(
    "builtin.module(func.func(chlo-legalize-to-stablehlo))"
  )


class NotHere(Exception):
  """The program needs something that these tests, or this jaxlib, do not
  support."""


@dataclasses.dataclass(frozen=True)
class Check:
  """A comparison of two results, and its kind."""

  kind: str
  tolerance: float = 1e-4
  most_ulps: int = 1
  least_ulps: int = 0

  def differs(self, actual: np.ndarray, expected: np.ndarray) -> str | None:
    """A description of any disagreement with the expected result."""
    kind = self.kind.removesuffix("_const")
    if kind in ("expect_eq", "eq"):
      wrong = ~((actual == expected) | _both_nan(actual, expected))
    elif kind == "expect_almost_eq":
      wrong = ~_near(actual, expected, self.tolerance)
    elif kind == "expect_close":
      apart = _ulps(actual, expected)
      wrong = (apart > self.most_ulps) | (apart < self.least_ulps)
    else:
      raise NotHere(f"check.{self.kind}")
    if not wrong.any():
      return None
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
    got, want = np.atleast_1d(actual)[at], np.atleast_1d(expected)[at]
    count = f"{int(wrong.sum())} of {wrong.size}"
    return f"{count} differ, at {list(at)} {got!s}, expected {want!s}"


def _both_nan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  return (a != a) & (b != b)


def _wide(x: np.ndarray) -> np.ndarray:
  return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _near(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
  x, y = _wide(a), _wide(b)
  with np.errstate(invalid="ignore"):
    return (np.abs(x - y) <= tolerance) | (x == y) | _both_nan(x, y)


def _ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """The distance in units of the last place; for complex values the larger
  part's."""
  if a.dtype.kind == "c":
    return np.maximum(_ulps(a.real, b.real), _ulps(a.imag, b.imag))
  unsigned = np.dtype(f"u{a.dtype.itemsize}")
  sign = 1 << (8 * a.dtype.itemsize - 1)

  def places(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x).reshape(-1).view(unsigned)
    magnitudes = (bits & unsigned.type(sign - 1)).astype(object)
    return np.where(bits & unsigned.type(sign), -magnitudes, magnitudes)

  apart = np.abs(places(a) - places(b)).reshape(a.shape)
  finite = np.isfinite(_wide(a)) & np.isfinite(_wide(b))
  same = (a == b) | _both_nan(a, b)
  return np.where(finite | same, np.where(same & ~finite, 0, apart), 2**64)


def _general(text: str) -> str:
  """The text with check operations in MLIR's generic form."""
  count = 0

  def check(match: re.Match[str], operands: str) -> str:
    attributes = ['kind = "{kind}"'.format(**match.groupdict())]
    for name, value in _SETTING.findall(match["settings"] + match["braces"]):
      attributes.append(f"{name} = {float(value)} : f64")
    of = match["type"]
    braces = "{" + ", ".join(attributes) + "}"
    return f'"check.c"({operands}) {braces} : ({of}, {of}) -> ()'

  def constant(match: re.Match[str]) -> str:
    nonlocal count
    count += 1
    name = f"%expected_{count}"
    made = f"{name} = stablehlo.constant {match['constant']}"
    return f"{made}\n  " + check(match, f"{match['operand']}, {name}")

  text = _CONSTANT.sub(constant, text)
  return _TWO.sub(lambda match: check(match, match["operands"]), text)


def _checks(function: Any) -> Iterator[tuple[Any, Check]]:
  """The function's check operations."""
  for op in function.body.blocks[0].operations:
    if op.operation.name == "check.c":
      settings = {
        name: ir.FloatAttr(op.attributes[name]).value
        for name in ("tolerance", "max_ulp_difference", "min_ulp_difference")
        if name in op.attributes
      }
      yield (
        op,
        Check(
          ir.StringAttr(op.attributes["kind"]).value,
          settings.get("tolerance", 1e-4),
          int(settings.get("max_ulp_difference", 1)),
          int(settings.get("min_ulp_difference", 0)),
        ),
      )
    elif op.operation.name == "stablehlo.custom_call":
      target = ir.StringAttr(op.attributes["call_target_name"]).value
      if target.startswith(_PREFIX):
        yield op, Check(target.removeprefix(_PREFIX), 1e-3, 3)


def _dtype(type_: Any) -> np.dtype:
  text = str(type_)
  if text in _DTYPES:
    return np.dtype(_DTYPES[text])
  if match := re.fullmatch(r"(u?)i(\d+)", text):
    return np.dtype(f"{'uint' if match[1] else 'int'}{match[2]}")
  if match := re.fullmatch(r"f(\d)E(\d)M(\d)(\w*)", text):
    size, exponent, mantissa, rest = match.groups()
    name = f"float{size}_e{exponent}m{mantissa}{rest.lower()}"
    return np.dtype(getattr(ml_dtypes, name))
  raise NotHere(f"results of {text}")


def _programs(path: pathlib.Path) -> Iterator[tuple[str, str]]:
  """The names of a file's programs, and their texts."""
  chunks = re.split(r"^// -----.*$", path.read_text(), flags=re.MULTILINE)
  for chunk in chunks:
    names = re.findall(r"func\.func (?:public )?@(\w+)", chunk)
    if names and _PREFIX in chunk:
      name = "main" if "main" in names else names[0]
      module = re.search(r"^module @(\w+)", chunk, flags=re.MULTILINE)
      yield (f"{module[1]}.{name}" if module else name), chunk


def _hide_constants(module: Any) -> None:
  """Puts constants behind barriers, so that nothing is folded."""
  found: list[Any] = []

  def visit(operation: Any) -> ir.WalkResult:
    if operation.name == "stablehlo.constant":
      found.append(operation)
    return ir.WalkResult.ADVANCE

  module.operation.walk(visit)
  for operation in found:
    constant = operation.results[0]
    uses = [use.owner for use in constant.uses]
    if not uses:
      continue
    with ir.InsertionPoint.after(operation), ir.Location.unknown():
      barrier = ir.Operation.create(
        "stablehlo.optimization_barrier",
        results=[constant.type],
        operands=[constant],
      )
    constant.replace_all_uses_except(barrier.results[0], barrier)


def _run(text: str, device: Any, folded: bool) -> str | None:
  """Runs a program; returns a description of any disagreement."""
  if "interpreter." in text:
    raise NotHere("it runs several devices, or probes of the interpreter")
  module: Any = jax.jit(lambda: 0).lower().compiler_ir("stablehlo")
  context = module.context
  with context:
    context.allow_unregistered_dialects = True
    try:
      module = ir.Module.parse(_general(text), context)
    except ir.MLIRError as error:
      raise NotHere(f"this jaxlib does not parse it: {error}") from None
    finally:
      context.allow_unregistered_dialects = False
    functions: list[Any] = [
      op for op in module.body.operations if op.operation.name == "func.func"
    ]
    names = [ir.StringAttr(f.attributes["sym_name"]).value for f in functions]
    main = functions[names.index("main") if "main" in names else 0]
    found = list(_checks(main))
    if not found:
      raise NotHere("its checks are not in its main function")
    if len(main.type.inputs):
      raise NotHere("its main function has arguments")
    results = [v for op, _ in found for v in op.operation.operands]
    shaped = [ir.RankedTensorType(v.type) for v in results]
    specs = [(tuple(t.shape), _dtype(t.element_type)) for t in shaped]
    block = main.body.blocks[0]
    end = block.operations[len(block.operations) - 1]
    with ir.InsertionPoint(end), ir.Location.unknown():
      ir.Operation.create("func.return", operands=results)
    end.operation.erase()
    for op, _ in found:
      op.operation.erase()
    kind = ir.FunctionType.get([], [v.type for v in results])
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "res_attrs" in main.attributes:
      del main.attributes["res_attrs"]
    for function in functions:
      visible = "public" if function is main else "private"
      function.attributes["sym_visibility"] = ir.StringAttr.get(visible)
    main.attributes["sym_name"] = ir.StringAttr.get("main")
    try:
      if not folded:
        _hide_constants(module)
      _legalize().run(module.operation)
      code = stablehlo.serialize_portable_artifact(
        module, stablehlo.get_current_version()
      )
    except (ir.MLIRError, ValueError) as error:
      raise NotHere(f"this jaxlib does not serialise it: {error}") from None
  exported = export.export(
    jax.jit(lambda: [jnp.zeros(shape, dtype) for shape, dtype in specs]),
    platforms=("ipu",),
  )()
  call = dataclasses.replace(exported, mlir_module_serialized=code).call
  with jax.default_device(device):
    values = [np.asarray(v) for v in jax.jit(call)()]
  faults = []
  for n, (_, check) in enumerate(found):
    fault = check.differs(values[2 * n], values[2 * n + 1])
    if fault:
      faults.append(f"check {n}: {fault}")
  return "\n".join(faults) or None


def main() -> None:
  """Runs the files named on standard input."""
  jax.config.update("jax_enable_x64", True)
  device = jax.devices("ipu")[0]
  for line in sys.stdin:
    path = pathlib.Path(line.rstrip("\n"))
    for name, text in _programs(path):
      row = {"file": str(path), "program": name}
      print(json.dumps({**row, "outcome": "started"}), flush=True)
      try:
        # Computed shapes need constants.
        ways = (True,) if _COMPUTED.search(text) else (True, False)
        faults = [_run(text, device, folded) for folded in ways]
        fault = next((f for f in faults if f), None)
        row |= {"outcome": "differ" if fault else "agree"}
        row |= {"message": fault or ""}
      except NotHere as error:
        row |= {"outcome": "not run", "message": str(error)}
      except Exception as error:  # anything that the compiler or JAX raises
        what = f"{type(error).__name__}: {error}"
        row |= {"outcome": "refuse", "message": what}
      print(json.dumps(row), flush=True)
    print(json.dumps({"file": str(path), "outcome": "done"}), flush=True)


if __name__ == "__main__":
  main()
