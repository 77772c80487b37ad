"""Shared checks of codelets' fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema


class Checker(Protocol):
  """The verifier's interface for codelets."""

  def require(self, condition: bool, message: str) -> None:
    """Refuses the program unless the condition holds."""

  def tensor(self, number: int) -> schema.Tensor:
    """A tensor of the program; refuses invalid numbers."""

  def layout(self, number: int) -> Layout:
    """A mapping of the program; refuses invalid numbers."""


def register_program(
  v: Checker, code: Code, outputs: Sequence[int], operands: int, rank: int
) -> None:
  """Checks that a register program only reads earlier values, of the types that
  its instructions take."""
  types: list[int] = []
  for n, i in enumerate(code):
    name = f"instruction {n} ({i.op.name})"
    row = i.op.row
    v.require(i.type in row.types, f"{name} does not exist for {i.type.name}")
    for value, taken in zip(i.operands, row.operands, strict=True):
      v.require(value < n, f"{name} reads a value that is not yet there")
      wanted = i.resolve(taken)
      v.require(
        types[value] == wanted,
        f"{name} takes a value of type {wanted}, but {value} is {types[value]}",
      )
    types.append(i.result)
    if i.op == Opcode.LOAD:
      v.require(i.imm < operands, f"instruction {n} loads operand {i.imm}")
    if i.op == Opcode.IOTA:
      v.require(i.imm < rank, f"instruction {n} counts dimension {i.imm}")
  v.require(
    all(o < len(code) for o in outputs),
    f"outputs {list(outputs)} of {len(code)} values",
  )


def values_of_matrices(
  v: Checker,
  step: schema.Execute,
  what: str,
  shapes: Sequence[Sequence[int]],
  dims: Sequence[Sequence[int]],
) -> None:
  """Checks a step over (matrix, value): its operands and then its results have
  these shapes and dimensions, and are all of f32 or all of f64."""
  tensors = [v.tensor(a.tensor) for a in (*step.operands, *step.results)]
  found = [list(t.shape) for t in tensors]
  accesses = [list(a.dims) for a in (*step.operands, *step.results)]
  v.require(
    found == [list(s) for s in shapes] and accesses == [list(d) for d in dims],
    f"{what} of {found} over {step.shape}",
  )
  types = {t.dtype for t in tensors}
  v.require(
    len(types) == 1 and types <= {DType.F32, DType.F64},
    f"{what} of element types {types}",
  )


def combiner(
  v: Checker, kind: int, code: Code, outputs: Sequence[int], values: int
) -> None:
  """Checks a function that combines `values` values with as many others."""
  if kind == ReduceKind.GENERAL:
    register_program(v, code, outputs, 2 * values, 0)
    v.require(
      len(outputs) == values, f"combines {values} values to {len(outputs)}"
    )
