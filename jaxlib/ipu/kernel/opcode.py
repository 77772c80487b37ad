"""The instruction set of register programs: a row for each opcode.

A row has the number in the wire format and everything else that the compiler
knows about the opcode (`isa.Row`). In comments a, b and c are the operands, and
`imm` is the immediate.

Guesses of cycles: 64-bit integers take twice the 32-bit loop. f64 has no
hardware; it takes soft-float calls of compiler-rt's size (an addition unpacks,
aligns, normalises and rounds two words: about 70 instructions; a product takes
four 32-bit multiplications into 64 bits more; quotient and root 28 to 60
iterations), functions as polynomials of 14 multiply-adds and a range reduction.
"""

from __future__ import annotations

import enum
from typing import Any, Self

from jaxlib.ipu.kernel.isa import (
  ALL,
  FLOATS,
  INTEGERS,
  OWN,
  SOURCE,
  RegisterType,
  Row,
)

_F32, _I32, _U32 = RegisterType.F32, RegisterType.I32, RegisterType.U32


def _row(types: frozenset[RegisterType], arity: int, **facts: Any) -> Row:
  """An opcode whose operands have its own type."""
  return Row(types=types, operands=(OWN,) * arity, **facts)


def _function(meaning: str, weight: int = 10, **facts: Any) -> Row:
  """A function of floats that both NumPy and the engine approximate."""
  return _row(
    FLOATS,
    1,
    meaning=meaning,
    in_double=True,
    approximate=True,
    weight=weight,
    **facts,
  )


def _narrowing(register: RegisterType, element: str) -> Row:
  """Wraps or rounds to a narrower element type."""
  facts = {"element": element, "meaning": f"narrow_{element}"}
  return _row(frozenset({register}), 1, **facts)


def _compare(meaning: str, **facts: Any) -> Row:
  return _row(
    ALL, 2, result=_U32, meaning=meaning, element="i1", exact_in_f16=True,
    guessed="f64 30/1", **facts,
  )  # fmt: skip


class _Numbered(enum.IntEnum):
  """Members are integers that have a row."""

  row: Row

  def __new__(cls, number: int, row: Row) -> Self:
    member = int.__new__(cls, number)
    member._value_ = number
    member.row = row
    return member


class Opcode(_Numbered):
  """Instructions."""

  # Sources.
  LOAD = 0, Row()  # imm: the operand; converts from its element type
  CONST = 1, Row()  # imm: the bits of the value, low bytes first
  IOTA = 2, Row()  # imm: a dimension; the index along it

  # Conversions. imm of the first two: the register type of a.
  # Float to integer saturates (to the register: clamp before for narrower
  # types) and takes NaN to 0; otherwise as C does.
  CONVERT = 3, Row(operands=(SOURCE,))
  BITCAST = 4, Row(operands=(SOURCE,))  # to a type of the same width
  WRAP_I8 = 5, _narrowing(_I32, "i8")
  WRAP_I16 = 6, _narrowing(_I32, "i16")
  WRAP_U8 = 7, _narrowing(_U32, "ui8")
  WRAP_U16 = 8, _narrowing(_U32, "ui16")
  ROUND_F16 = 9, _narrowing(_F32, "f16")  # to the nearest, ties to even
  ROUND_BF16 = 10, _narrowing(_F32, "bf16")
  # The 16 bits of an f16 or bf16 value, and back.
  BITS_F16 = (
    11,
    Row(operands=(_F32,), result=_U32, meaning="bits_f16", element="ui16"),
  )
  BITS_BF16 = (
    12,
    Row(operands=(_F32,), result=_U32, meaning="bits_bf16", element="ui16"),
  )
  FROM_BITS_F16 = (
    13,
    Row(operands=(_U32,), result=_F32, meaning="from_bits_f16", element="f16"),
  )
  FROM_BITS_BF16 = (
    14,
    Row(
      operands=(_U32,), result=_F32, meaning="from_bits_bf16", element="bf16"
    ),
  )

  # Unary.
  NEGATE = 20, _row(
    ALL, 1, meaning="negative", exact_in_f16=True,
    cycles="f32 2/2 f16 2/4 i32 2s i64 5s",
    guessed="ui32 2s f64 8/1",
  )  # fmt: skip
  ABS = 21, _row(
    ALL, 1, meaning="absolute", exact_in_f16=True,
    cycles="f32 1s f16 1s i32 2s i64 10s",
    guessed="f64 8/1",
  )  # fmt: skip
  SIGN = 22, _row(  # NaN stays NaN, -0 stays -0
    ALL, 1, meaning="signum", exact_in_f16=True,
    cycles="f32 5v f16 5v i32 5s",
    guessed="ui32 5s i64 10s f64 8/1",
  )  # fmt: skip
  NOT = 23, _row(  # bitwise
    INTEGERS, 1, meaning="invert",
    cycles="i32 1v ui32 1v i64 3v i16 2/4 i1 17s",
  )  # fmt: skip
  FLOOR = 24, _row(
    FLOATS, 1, meaning="floor", exact_in_f16=True,
    cycles="f32 2v f16 2v", guessed="f64 40/1",
  )  # fmt: skip
  CEIL = 25, _row(
    FLOATS, 1, meaning="ceil", exact_in_f16=True,
    cycles="f32 2v f16 2v", guessed="f64 40/1",
  )  # fmt: skip
  ROUND_AFZ = 26, _row(  # to the nearest, ties away from zero
    FLOATS, 1, meaning="round_away", exact_in_f16=True,
    cycles="f32 2v f16 2v", guessed="f64 40/1",
  )  # fmt: skip
  ROUND_EVEN = 27, _row(  # to the nearest, ties to even
    FLOATS, 1, meaning="rint", exact_in_f16=True,
    cycles="f32 2v f16 2v", guessed="f64 40/1",
  )  # fmt: skip
  EXP = 28, _function("exp", cycles="f32 6/2 f16 4/4", guessed="f64 3200/1")
  EXPM1 = 29, _function("expm1", cycles="f32 4s f16 5v", guessed="f64 3400/1")
  LOG = 30, _function("log", cycles="f32 12/2 f16 4/4", guessed="f64 3200/1")
  LOG1P = 31, _function("log1p", cycles="f32 18v f16 18v", guessed="f64 3400/1")
  SQRT = 32, _row(
    FLOATS, 1, meaning="sqrt", weight=4,
    cycles="f32 10/2 f16 23/4", guessed="f64 900/1",
  )  # fmt: skip
  RSQRT = (
    33,
    _function(
      "inverse_root", 4, cycles="f32 8/2 f16 19/4", guessed="f64 1400/1"
    ),
  )
  CBRT = 34, _function("cbrt", cycles="f32 27v f16 17v", guessed="f64 3400/1")
  SIN = 35, _function("sin", cycles="f32 2300s f16 25/1", guessed="f64 3600/1")
  COS = 36, _function("cos", cycles="f32 2300s f16 25/1", guessed="f64 3600/1")
  TAN = (
    37,
    _function("tan", cycles="f32 5100/1 f16 5700/1", guessed="f64 7200/1"),
  )
  TANH = 38, _function("tanh", cycles="f32 12/2 f16 4/4", guessed="f64 4000/1")
  LOGISTIC = (
    39,
    _function("logistic", cycles="f32 12/2 f16 6/4", guessed="f64 4000/1"),
  )
  IS_FINITE = 40, _row(  # 0 or 1
    FLOATS, 1, result=_U32, meaning="isfinite", element="i1", exact_in_f16=True,
    cycles="f32 5v f16 5v", guessed="f64 12/1",
  )  # fmt: skip
  POPCNT = 41, _row(
    INTEGERS, 1, meaning="population_count",
    cycles="i32 1s ui32 1s", guessed="i64 12/1",
  )  # fmt: skip
  CLZ = 42, _row(
    INTEGERS, 1, meaning="count_leading_zeros",
    cycles="i32 1s ui32 1s", guessed="i64 12/1",
  )  # fmt: skip

  # Binary.
  ADD = 60, _row(
    ALL, 2, meaning="add", commutes=True,
    cycles="f32 1v f16 1v i32 7/1 ui32 7/1 i64 11/1",
    by_scalar="f32 1v f16 1v i32 6/1 ui32 6/1 i64 9/1",
    guessed="f64 75/1 i1 5/4",
  )  # fmt: skip
  SUB = 61, _row(
    ALL, 2, meaning="subtract",
    cycles="f32 1v f16 1v i32 7/1 ui32 7/1 i64 11/1",
    by_scalar="f32 1v f16 1v i32 6/1 ui32 6/1 i64 9/1",
    guessed="f64 75/1",
  )  # fmt: skip
  MUL = 62, _row(
    ALL, 2, meaning="multiply", commutes=True,
    cycles="f32 1v f16 1v i32 7/1 ui32 7/1 i64 30/1",
    by_scalar="f32 1v f16 1v i32 6/1 ui32 6/1 i64 26/1",
    guessed="f64 155/1 i1 5/4",
  )  # fmt: skip
  DIV = 63, _row(  # integers: x/0 = -1 (all ones), MIN/-1 = MIN
    ALL, 2, meaning="quotient", weight=4,
    cycles="f32 10/2 f16 21/4 i32 277/1 ui32 265/1 i64 130/1",
    by_scalar="f32 6/2 f16 8/2 i32 277/1 ui32 260/1 i64 103/1",
    guessed="f64 600/1",
  )  # fmt: skip
  # With the sign of the dividend. Integers: x%0 = x, MIN%-1 = 0.
  REM = 64, _row(
    ALL, 2, meaning="rest", weight=10,
    cycles="f32 133/2 f16 300/4 i32 292/1 ui32 282/1 i64 166/1",
    by_scalar="f32 93/2 f16 225/4 i32 280/1 ui32 267/1 i64 137/1",
    guessed="f64 1200/1",
  )  # fmt: skip
  MAX = 65, _row(  # floats: NaN wins, -0 < +0
    ALL, 2, meaning="larger", exact_in_f16=True, commutes=True,
    cycles="f32 3/2 f16 4/4 i32 7/1 ui32 8/1 i64 15/1",
    by_scalar="f32 3/2 f16 3/4 i32 6/1 ui32 7/1 i64 14/1",
    guessed="f64 30/1 i1 5/4",
  )  # fmt: skip
  MIN = 66, _row(
    ALL, 2, meaning="smaller", exact_in_f16=True, commutes=True,
    cycles="f32 3/2 f16 4/4 i32 7/1 ui32 8/1 i64 15/1",
    by_scalar="f32 3/2 f16 3/4 i32 6/1 ui32 8/1 i64 14/1",
    guessed="f64 30/1 i1 5/4",
  )  # fmt: skip
  # Integers wrap; a negative exponent gives 0 but for 1 and -1.
  POW = 67, _row(
    ALL, 2, meaning="raised", approximate=True, weight=20,
    cycles="f32 312/1 f16 325/1 i32 32/1",
    by_scalar="f32 312/1 f16 325/1 i32 23/1",
    guessed="ui32 32/1 i64 300/1 f64 7000/1",
  )  # fmt: skip
  ATAN2 = 68, _row(
    FLOATS, 2, meaning="arctan2", in_double=True, approximate=True, weight=20,
    cycles="f32 272/2 f16 578/4",
    by_scalar="f32 272/2 f16 578/4",
    guessed="f64 5000/1",
  )  # fmt: skip
  AND = 69, _row(
    INTEGERS, 2, meaning="bitwise_and", commutes=True,
    cycles="i32 7/1 ui32 7/1 i1 5/4 i64 9/1 i16 3/4",
    by_scalar="i32 6/1 ui32 6/1 i1 4/4 i64 7/1 i16 2/4",
  )  # fmt: skip
  OR = 70, _row(
    INTEGERS, 2, meaning="bitwise_or", commutes=True,
    cycles="i32 7/1 ui32 7/1 i1 5/4 i64 9/1 i16 3/4",
    by_scalar="i32 6/1 ui32 6/1 i1 4/4 i64 7/1 i16 2/4",
  )  # fmt: skip
  XOR = 71, _row(
    INTEGERS, 2, meaning="bitwise_xor", commutes=True,
    cycles="i32 7/1 ui32 7/1 i1 5/4 i64 9/1 i16 5/2",
    by_scalar="i32 6/1 ui32 6/1 i64 7/1 i16 4/2",
  )  # fmt: skip
  # By a count of the width or more, unsigned: 0, or all sign bits.
  SHL = 72, _row(
    INTEGERS, 2, meaning="shift_left",
    cycles="i32 7/1 ui32 7/1 i64 18/1",
    by_scalar="i32 6/1 ui32 6/1 i64 16/1",
  )  # fmt: skip
  SHR_LOGICAL = 73, _row(
    INTEGERS, 2, meaning="shift_right",
    cycles="i32 7/1 ui32 7/1 i64 6/1",
    by_scalar="i32 6/1 ui32 6/1 i64 5/1",
  )  # fmt: skip
  SHR_ARITHMETIC = 74, _row(
    INTEGERS, 2, meaning="shift_right_signed",
    cycles="i32 7/1 i64 19/1",
    by_scalar="i32 6/1 i64 17/1",
    guessed="ui32 7/1",
  )  # fmt: skip

  # Comparisons: 0 or 1; floats as IEEE 754.
  EQ = 90, _compare(
    "equal", commutes=True,
    cycles="f32 14/4 f16 9/4 i32 22/4 ui32 22/4 i1 6/4 i64 48/4 i16 22/4",
    by_scalar="f32 12/4 f16 8/4 i32 16/4 ui32 16/4 i1 14/4 i64 32/4 i16 16/4",
  )  # fmt: skip
  NE = 91, _compare(
    "not_equal", commutes=True,
    cycles="f32 20/4 f16 11/4 i32 22/4 ui32 22/4 i1 5/4 i64 48/4 i16 22/4",
    by_scalar="f32 18/4 f16 10/4 i32 16/4 ui32 16/4 i1 4/4 i64 32/4 i16 16/4",
  )  # fmt: skip
  LT = (
    92,
    _compare(
      "less",
      cycles="f32 14/4 f16 9/4 i32 22/4 ui32 22/4 i1 28/4 i64 56/4",
      by_scalar="f32 12/4 f16 8/4 i32 16/4 ui32 16/4 i1 16/4 i64 38/4",
    ),
  )
  LE = (
    93,
    _compare(
      "less_equal",
      cycles="f32 14/4 f16 9/4 i32 26/4 ui32 26/4 i1 28/4 i64 62/4",
      by_scalar="f32 12/4 f16 8/4 i32 20/4 ui32 20/4 i1 16/4 i64 50/4",
    ),
  )
  GT = (
    94,
    _compare(
      "greater",
      cycles="f32 14/4 f16 9/4 i32 22/4 ui32 22/4 i1 31/4 i64 56/4",
      by_scalar="f32 12/4 f16 8/4 i32 16/4 ui32 16/4 i1 12/4 i64 38/4",
    ),
  )
  GE = (
    95,
    _compare(
      "greater_equal",
      cycles="f32 14/4 f16 9/4 i32 26/4 ui32 26/4 i1 28/4 i64 62/4",
      by_scalar="f32 12/4 f16 8/4 i32 20/4 ui32 20/4 i1 12/4 i64 50/4",
    ),
  )

  # Ternary.
  # a ? b : c. 5 cycles per element; BroadcastSelect on bool: 17 per 4.
  SELECT = 110, Row(
    operands=(_U32, OWN, OWN), meaning="select", exact_in_f16=True,
    cycles="f32 5/1 f16 5/1 i32 5/1 ui32 5/1 i1 17/4 i16 5/1",
    guessed="i64 10/1 f64 10/1",
  )  # fmt: skip
  # MIN(MAX(b, a), c): (low, value, high). 2 cycles per vector of floats, 7 per
  # integer, between bounds that are the same for all elements.
  CLAMP = 111, _row(
    ALL, 3, meaning="clamp", exact_in_f16=True, loads=1,
    cycles="f32 2/2 f16 2/4 i32 7/1 ui32 7/1",
    guessed="i64 26/1 f64 60/1",
  )  # fmt: skip


class Fused(_Numbered):
  """Several instructions fused. Programs do not contain them: the engine makes
  them when it loads a program. They round as the separate ones."""

  ROTATE_LEFT = 200, _row(INTEGERS, 1)  # by imm bits
  ROTATE_XOR = 201, _row(INTEGERS, 2)  # rotates a left by imm, xor b
  # (a, reciprocal): the quotient by a constant; imm: a shift.
  DIVIDE_BY = 202, _row(INTEGERS, 2)
  REMAINDER_BY = 203, _row(INTEGERS, 3)  # (a, reciprocal, divisor)
  MUL_ADD = 210, _row(ALL, 3)  # a * b + c
  MUL_SUB = 211, _row(ALL, 3)  # a * b - c
  NEG_MUL_ADD = 212, _row(ALL, 3)  # c - a * b
  MUL_MUL = 213, _row(ALL, 3)  # (a * b) * c
  ADD_ADD = 214, _row(ALL, 3)  # (a + b) + c
  ADD_MUL = 215, _row(ALL, 3)  # (a + b) * c
  SUB_MUL = 216, _row(ALL, 3)  # (a - b) * c
