"""Register programs as data: writing, rewriting, element types, wire format."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.element_types import (
  NARROW,
  REGISTER,
  on_operands,
)
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer, extract, permute

F32, U32 = RegisterType.F32, RegisterType.U32
BF16, F16, FLOAT, BOOL = DType.BF16, DType.F16, DType.F32, DType.BOOL


def dtypes(code: Code) -> dict[Opcode, DType | None]:
  return {i.op: i.dtype for i in code}


@pytest.mark.parametrize(
  "dtype", [DType.I8, DType.U16, F16, FLOAT, DType.I64], ids=lambda d: d.name
)
def test_arithmetic_is_of_the_elements_that_it_reads_and_makes(dtype):
  code = Writer()
  x, y = code.load(0, dtype), code.load(1, dtype)
  total = code.emit(Opcode.ADD, REGISTER[dtype], x, y)
  code.narrow(total, dtype)
  found = code.finish()
  assert dtypes(found)[Opcode.ADD] is dtype
  assert found[-1].op is NARROW.get(dtype, Opcode.ADD)
  assert found[-1].dtype is dtype


def test_halves_that_are_not_only_rounded_are_computed_in_f32():
  def product(rounded: bool, used: bool) -> DType | None:
    code = Writer()
    x = code.load(0, F16)
    square = code.emit(Opcode.MUL, F32, x, x)
    if rounded:
      code.narrow(square, F16)
    if used:
      code.emit(Opcode.NEGATE, F32, square)
    return dtypes(code.finish())[Opcode.MUL]

  assert product(rounded=True, used=False) is F16
  assert product(rounded=True, used=True) is FLOAT
  assert product(rounded=False, used=True) is FLOAT
  assert product(rounded=False, used=False) is FLOAT


def test_what_is_exact_in_f16_needs_no_rounding():
  code = Writer()
  x, y = code.load(0, F16), code.load(1, F16)
  less = code.emit(Opcode.LT, F32, x, y)
  chosen = code.emit(Opcode.SELECT, F32, less, x, y)
  code.emit(Opcode.EXP, F32, chosen)
  found = dtypes(code.finish())
  assert found[Opcode.LT] is found[Opcode.SELECT] is F16
  assert found[Opcode.EXP] is FLOAT


def test_tests_make_truth_values():
  code = Writer()
  x, b = code.load(0, FLOAT), code.load(1, BOOL)
  finite = code.emit(Opcode.IS_FINITE, F32, x)
  code.emit(Opcode.AND, U32, finite, b)
  assert dtypes(code.finish())[Opcode.AND] is BOOL


def test_constants_have_the_type_of_what_they_are_combined_with():
  code = Writer()
  x, half = code.load(0, F16), code.constant(0.5, F32)
  code.narrow(code.emit(Opcode.MUL, F32, x, half), F16)
  found = dtypes(code.finish())
  assert found[Opcode.CONST] is None
  assert found[Opcode.MUL] is F16


def test_bf16_and_mixed_operands_are_computed_in_f32():
  code = Writer()
  x, y, z = code.load(0, BF16), code.load(1, F16), code.load(2, FLOAT)
  code.narrow(code.emit(Opcode.ADD, F32, x, x), BF16)
  code.narrow(code.emit(Opcode.SUB, F32, y, z), F16)
  found = dtypes(code.finish())
  assert found[Opcode.ADD] is found[Opcode.SUB] is FLOAT


def test_a_program_on_operands_of_other_types():
  code = Writer()
  x = code.load(0, F16)
  code.narrow(code.emit(Opcode.ADD, F32, x, x), F16)
  narrow = code.finish()
  wide = on_operands(narrow, [FLOAT])
  assert dtypes(wide)[Opcode.ADD] is FLOAT
  assert wide.wire == narrow.wire
  assert on_operands(narrow, [F16]) is narrow
  assert on_operands(wide, [F16]) == narrow


def test_equal_instructions_are_written_once():
  code = Writer()
  x = code.load(0, FLOAT)
  sums = [code.emit(Opcode.ADD, F32, x, code.constant(1, F32)) for _ in "ab"]
  assert sums[0] == sums[1]
  assert len(code.finish()) == 3
  assert code.emit(Opcode.ADD, F32, code.constant(1, F32), x) != sums[0]


def test_conversions_name_the_type_that_they_convert():
  code = Writer()
  x = code.load(0, FLOAT)
  finite = code.emit(Opcode.IS_FINITE, F32, x)
  assert code.convert(x, F32) == x
  assert code.convert(finite, U32) == finite
  code.convert(finite, F32)
  code.emit(Opcode.BITCAST, U32, x)
  assert [i.imm for i in code.finish()[2:]] == [U32, F32]


@pytest.mark.parametrize("op", list(Opcode), ids=lambda op: op.name)
def test_instructions_keep_everything_but_element_types_on_the_wire(op):
  types = [Instruction(Opcode.LOAD, t, (), 1 << 40) for t in RegisterType]
  operands = tuple(range(1, 1 + len(op.row.operands)))
  imm = 0 if operands else 7
  if op in (Opcode.CONVERT, Opcode.BITCAST):
    imm = RegisterType.I64
  typed = Instruction(op, max(op.row.types), operands, imm, FLOAT)
  code = Code([*types, typed])
  assert len(code.wire) == 16 * len(code)
  assert Code.of_wire(code.wire) == (*types, typed._replace(dtype=None))


def test_extracted_programs_compute_the_same():
  code = Writer()
  x, y, z = (code.load(i, FLOAT) for i in range(3))
  unused = code.emit(Opcode.EXP, F32, x)
  difference = code.emit(Opcode.SUB, F32, y, z)
  code.emit(Opcode.MUL, F32, unused, difference)
  square = code.emit(Opcode.MUL, F32, difference, difference)
  part, outputs, operands = extract(code.finish(), (square,))
  assert operands == (1, 2)
  assert [i.op for i in part] == [
    Opcode.LOAD, Opcode.LOAD, Opcode.SUB, Opcode.MUL,
  ]  # fmt: skip
  (found,) = evaluate(part, outputs, [np.float32(7), np.float32(4)])
  assert found == 9


def test_extracted_programs_may_compute_in_narrower_types():
  code = Writer()
  x = code.load(0, F16)
  square = code.emit(Opcode.MUL, F32, x, x)
  rounded = code.narrow(square, F16)
  code.emit(Opcode.EXP, F32, square)
  whole = code.finish()
  assert dtypes(whole)[Opcode.MUL] is FLOAT
  assert dtypes(extract(whole, (rounded,))[0])[Opcode.MUL] is F16


def test_programs_over_permuted_dimensions():
  code = Writer()
  row, column = code.iota(0, DType.I32), code.iota(1, DType.I32)
  code.emit(Opcode.SUB, RegisterType.I32, row, column)
  grid = np.ix_(np.arange(2), np.arange(3))
  (plain,) = evaluate(code.finish(), [2], [], grid.__getitem__)
  turned = permute(code.finish(), (1, 0))
  grid = np.ix_(np.arange(3), np.arange(2))
  (transposed,) = evaluate(turned, [2], [], grid.__getitem__)
  np.testing.assert_array_equal(transposed, plain.T)


def test_programs_are_inlined_at_their_loads():
  inner = Writer()
  a, b = inner.load(0, FLOAT), inner.load(1, FLOAT)
  inner.emit(Opcode.SUB, F32, a, b)
  code = Writer()
  x = code.load(0, FLOAT)
  two = code.constant(2, F32)
  *_, made = code.inline(inner.finish(), lambda operand: (two, x)[operand])
  (found,) = evaluate(code.finish(), [made], [np.float32(5)])
  assert found == -3


def test_the_build_reads_the_table_without_other_packages():
  root = pathlib.Path(__file__).parents[2]
  script = root / "jaxlib" / "ipu" / "program" / "generate_header.py"
  # -S: without the packages that are installed.
  words = [sys.executable, "-S", "-B", str(script), "schema"]
  done = subprocess.run(words, capture_output=True, text=True, check=True)
  for op in Opcode:
    assert f" = {int(op)},\n" in done.stdout
    assert f"  s[{int(op)}] = {{true, " in done.stdout


def test_text():
  code = Writer()
  x = code.load(3, FLOAT)
  code.convert(code.emit(Opcode.NEGATE, F32, x), U32)
  assert code.finish().lines() == [
    "v0 = load.f32 0x3",
    "v1 = negate.f32 v0",
    "v2 = convert.u32 v1 from f32",
  ]
