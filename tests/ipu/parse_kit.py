"""Modules as text that hold many small programs, and what they compute.

A program is a few operations on constants and arguments with one result; its
expected value is computed with Python's integers, or by NumPy. A module has
hundreds of programs, so that a sweep takes seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import jax
from jax import export
from jaxlib.ipu.dtypes import MLIR_NAME, NUMPY
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_A_MODULE = 400  # programs

SIGNED = [f"i{n}" for n in (2, 4, 8, 16, 32, 64)]
UNSIGNED = [f"u{t}" for t in SIGNED]
INTEGERS = ["i1", *SIGNED, *UNSIGNED]


def width(type_: str) -> int:
  """The bits of an integer type."""
  return int(type_.lstrip("ui"))


def wrap(value: int, type_: str) -> int:
  """An integer modulo 2^bits, as a value of the type."""
  bits = width(type_)
  value &= (1 << bits) - 1
  return value - (1 << bits) if type_ in SIGNED and value >> bits - 1 else value


def edges(type_: str) -> list[int]:
  """0, 1, 2, -1, the least, the greatest, and the top bit alone."""
  top = 1 << width(type_) - 1
  numbers = (0, 1, 2, 3, -1, -2, top, top - 1, top + 1, top // 2)
  return list(dict.fromkeys(wrap(n, type_) for n in numbers))


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
  "EQ": lambda a, b: a == b,
  "NE": lambda a, b: a != b,
  "LT": lambda a, b: a < b,
  "LE": lambda a, b: a <= b,
  "GT": lambda a, b: a > b,
  "GE": lambda a, b: a >= b,
}


def comparison(type_: str) -> str:
  """StableHLO's type of comparison for an element type."""
  if type_ == "i1" or type_ in UNSIGNED:
    return "UNSIGNED"
  return "SIGNED" if type_ in SIGNED else "FLOAT"


def array(values: Sequence[Any] | np.ndarray, type_: str) -> np.ndarray:
  """Values as an array of an element type of MLIR."""
  dtype = NUMPY[MLIR_NAME[type_]]
  if type_ in INTEGERS and width(type_) > 8:
    return np.array(values, dtype)
  if type_ in INTEGERS:
    return np.array(values, np.int64).astype(dtype)
  with np.errstate(all="ignore"):
    return np.asarray(values).astype(dtype)


def tensor(type_: str, *shape: int) -> str:
  """`tensor<2x3xi8>`."""
  return f"tensor<{'x'.join([*map(str, shape), type_])}>"


def dense(values: np.ndarray, type_: str) -> str:
  """A constant's attribute; elements are written as bits."""
  if type_ == "i1":
    text = np.vectorize(lambda v: "true" if v else "false")(values)
  elif type_ in INTEGERS:
    text = np.asarray(values).astype(object)
  else:
    item = values.dtype.itemsize
    flat = np.ascontiguousarray(values).reshape(-1).view(f"u{item}")
    hexadecimal = [f"0x{n:0{2 * item}X}" for n in flat]
    text = np.array(hexadecimal, object).reshape(values.shape)
  if not values.size:
    return f"dense<> : {tensor(type_, *values.shape)}"
  listed = str(text.tolist()).replace("'", "")
  return f"dense<{listed}> : {tensor(type_, *values.shape)}"


@dataclasses.dataclass(frozen=True)
class Argument:
  """A run-time or a constant operand.

  Attributes:
    values: of an element type of NumPy.
    type_: of an element, in MLIR.
    constant: whether it is part of the program.
  """

  values: np.ndarray
  type_: str
  constant: bool

  @property
  def tensor(self) -> str:
    """Its type in MLIR."""
    return tensor(self.type_, *self.values.shape)


@dataclasses.dataclass(frozen=True)
class Case:
  """A program.

  Attributes:
    name: for messages.
    operands: of the operations.
    body: operations as text; `{0}` is an operand, `{p}` a prefix for names of
      other values, `{r}` the result.
    result: the type of its elements in MLIR.
    expected: its value.
    matters: where elements are compared; None: everywhere.
  """

  name: str
  operands: Sequence[Argument]
  body: str
  result: str
  expected: np.ndarray
  matters: np.ndarray | None = None


def check(device: jax.Device, cases: Iterable[Case]) -> list[str]:
  """Runs programs, many in a module; describes those with wrong results."""
  wrong = []
  with jax.enable_x64(True):
    for batch in batches(cases):
      for case, actual in zip(batch, _run(device, batch)):
        message = difference(case, actual)
        if message:
          wrong.append(message)
  return wrong


def check_folds(device: jax.Device, cases: Iterable[Case]) -> list[str]:
  """Runs programs as they are and without constants: their results must have
  the same bits. Of expected values only shapes matter."""
  wrong = []
  with jax.enable_x64(True):
    for batch in batches(cases):
      unfolded = [
        dataclasses.replace(
          case,
          operands=[
            dataclasses.replace(o, constant=False) for o in case.operands
          ],
        )
        for case in batch
      ]
      found = zip(batch, _run(device, batch), _run(device, unfolded))
      for case, actual, expected in found:
        message = difference(
          dataclasses.replace(case, expected=expected), actual
        )
        if message:
          wrong.append(message)
  return wrong


def batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
  """The programs of each module."""
  todo = iter(cases)
  while batch := list(itertools.islice(todo, _A_MODULE)):
    yield batch


def module(cases: Sequence[Case]) -> tuple[str, list[np.ndarray]]:
  """The text of a module with a result for each program, and its arguments."""
  lines, arguments, results = [], {}, []
  for number, case in enumerate(cases):
    names = []
    for place, operand in enumerate(case.operands):
      if operand.constant:
        name = f"%c{number}_{place}"
        value = dense(operand.values, operand.type_)
        lines.append(f"{name} = stablehlo.constant {value}")
      else:
        key = (operand.tensor, operand.values.tobytes())
        at = arguments.setdefault(key, (len(arguments), operand))[0]
        name = f"%a{at}"
      names.append(name)
    lines.append(case.body.format(*names, p=f"%p{number}_", r=f"%r{number}"))
    results.append(tensor(case.result, *case.expected.shape))
  parameters = ", ".join(
    f"%a{at}: {operand.tensor}" for at, operand in arguments.values()
  )
  returned = ", ".join(f"%r{n}" for n in range(len(cases)))
  types = ", ".join(results)
  text = "\n    ".join(lines)
  return (
    f"""func.func @main({parameters}) -> ({types}) {{
    {text}
    return {returned} : {types}
  }}""",
    [operand.values for _, operand in arguments.values()],
  )


def artifact(text: str) -> bytes:
  """A module as JAX hands it to the compiler."""
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  parsed = ir.Module.parse(text, context)
  with context:
    return stablehlo.serialize_portable_artifact(
      parsed, stablehlo.get_current_version()
    )


def _run(device: jax.Device, cases: Sequence[Case]) -> list[np.ndarray]:
  text, arguments = module(cases)
  types = [(c.expected.shape, NUMPY[MLIR_NAME[c.result]]) for c in cases]

  def signature(*_: Any) -> list[Any]:
    return [jax.numpy.zeros(shape, dtype) for shape, dtype in types]

  exported = export.export(
    jax.jit(signature, keep_unused=True), platforms=["ipu"]
  )(*arguments)
  program = dataclasses.replace(exported, mlir_module_serialized=artifact(text))
  with jax.default_device(device):
    found = jax.jit(program.call)(*jax.device_put(arguments, device))
    return [np.asarray(x) for x in found]


def difference(case: Case, actual: np.ndarray) -> str:
  """Says what is wrong about a result; nothing if it is right."""
  expected = np.asarray(case.expected)
  if actual.dtype.kind in "iub" or actual.dtype.itemsize == 1:
    same = actual == expected
  else:
    unsigned = f"u{actual.dtype.itemsize}"
    same = actual.view(unsigned) == expected.view(unsigned)
    with np.errstate(all="ignore"):
      same |= np.isnan(actual.astype(float)) & np.isnan(expected.astype(float))
  if case.matters is not None:
    same = same | ~case.matters
  if np.all(same):
    return ""
  operands = ", ".join(
    f"{'constant ' * o.constant}{o.type_} {o.values.tolist()}"
    for o in case.operands
  )
  return (
    f"{case.name} of {operands}: {actual.tolist()}, "
    f"expected {expected.tolist()}"
  )
