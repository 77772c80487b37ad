"""The instruction set of element-wise register programs.

A register program is a list of 16-byte instructions in static single
assignment: instruction i defines value i, operands name earlier values.
Values have one of six register types; narrower element types live in wider
registers and are brought back to their own range by the `WRAP_*` and
`ROUND_*` instructions, so that arithmetic exists once:

  element type        register  after arithmetic
  bool                U32       (0 or 1 by construction)
  i8, i16 / u8, u16   I32 / U32 WRAP_I8 ... WRAP_U16
  f16, bf16           F32       ROUND_F16, ROUND_BF16
  i32, u32, i64, u64, f32, f64  their own

The numbers below are the wire format; `generate_header.py` hands them to C++.
"""

from __future__ import annotations

import enum
import struct


class RegisterType(enum.IntEnum):
  """What a value of a register program is."""

  F32 = 0
  F64 = 1
  I32 = 2
  U32 = 3
  I64 = 4
  U64 = 5


class Opcode(enum.IntEnum):
  """Instructions. The comment gives (operands) and what `imm` means."""

  # Sources.
  LOAD = 0  # (): imm = operand; converts from its element type
  CONST = 1  # (): imm = the bits of the value, low bytes first
  IOTA = 2  # (): imm = dimension; the index along it, as `type`
  # Conversions.
  CONVERT = 3  # (a): b = register type of a. Float to integer saturates (to the
  #              register: clamp before for narrower types) and takes NaN to 0;
  #              otherwise as C does
  BITCAST = 4  # (a): b = register type of a, of the same width
  WRAP_I8 = 5  # (a) on I32
  WRAP_I16 = 6
  WRAP_U8 = 7  # (a) on U32
  WRAP_U16 = 8
  ROUND_F16 = 9  # (a) on F32: to the nearest f16, ties to even
  ROUND_BF16 = 10
  BITS_F16 = 11  # (a) on F32 -> U32: the 16 bits of the f16 value
  BITS_BF16 = 12
  FROM_BITS_F16 = 13  # (a) on U32 -> F32
  FROM_BITS_BF16 = 14
  # Unary. `type` is the type of operand and result unless said.
  NEGATE = 20
  ABS = 21
  SIGN = 22  # NaN stays NaN, -0 stays -0
  NOT = 23  # bitwise, integers
  FLOOR = 24
  CEIL = 25
  ROUND_AFZ = 26  # nearest, ties away from zero
  ROUND_EVEN = 27  # nearest, ties to even
  EXP = 28
  EXPM1 = 29
  LOG = 30
  LOG1P = 31
  SQRT = 32
  RSQRT = 33
  CBRT = 34
  SIN = 35
  COS = 36
  TAN = 37
  TANH = 38
  LOGISTIC = 39
  IS_FINITE = 40  # -> U32 0 or 1
  POPCNT = 41
  CLZ = 42
  # Binary (a, b), of `type`.
  ADD = 60
  SUB = 61
  MUL = 62
  DIV = 63  # integers: x/0 = -1 (all ones), MIN/-1 = MIN
  REM = 64  # sign of the dividend; integers: x%0 = x, MIN%-1 = 0
  MAX = 65  # floats: NaN wins, -0 < +0
  MIN = 66
  POW = 67  # integers, as XLA: base ** (exponent & 63), but 0 if the exponent
  #           is negative as a signed number and the base neither 1 nor -1
  ATAN2 = 68
  AND = 69
  OR = 70
  XOR = 71
  SHL = 72  # counts of the width or more (unsigned) give 0
  SHR_LOGICAL = 73
  SHR_ARITHMETIC = 74  # ... or all sign bits
  # Comparisons (a, b) of `type` -> U32 0 or 1; floats as IEEE 754.
  EQ = 90
  NE = 91
  LT = 92
  LE = 93
  GT = 94
  GE = 95
  # Ternary (a, b, c).
  SELECT = 110  # a is U32: a ? b : c, b and c of `type`
  CLAMP = 111  # MIN(MAX(b, a), c): (low, value, high)


class ReduceKind(enum.IntEnum):
  """How a reduction or a scatter combines two elements.

  As the instruction of the same name, but for one thing: of zeros of both
  signs MAX and MIN may give either. The order in which elements meet is not
  defined, nor is that of what a machine's own reductions do with zeros.
  """

  SET = 0  # scatter only: the new one
  SUM = 1
  PRODUCT = 2
  MAX = 3
  MIN = 4
  AND = 5
  OR = 6
  XOR = 7
  ARGMAX = 8  # NaN wins, then the smaller index
  ARGMIN = 9
  GENERAL = 10


def arity(op: int) -> int:
  """How many of a, b, c name values."""
  if op <= Opcode.IOTA:
    return 0
  if op < Opcode.ADD:
    return 1
  return 2 if op < Opcode.SELECT else 3


# op, type, a, b, c, imm
INSTRUCTION = struct.Struct("<BBHHHQ")


def encode(
  op: int, type_: int, a: int = 0, b: int = 0, c: int = 0, imm: int = 0
) -> bytes:
  """One instruction's 16 bytes."""
  return INSTRUCTION.pack(op, type_, a, b, c, imm)


def text(code: bytes) -> list[str]:
  """A register program, one line per instruction."""
  lines = []
  for number, word in enumerate(INSTRUCTION.iter_unpack(code)):
    op, type_, a, b, c, imm = word
    name = f"{Opcode(op).name.lower()}.{RegisterType(type_).name.lower()}"
    operands = [f"v{value}" for value in (a, b, c)[: arity(op)]]
    if op in (Opcode.CONVERT, Opcode.BITCAST):
      operands.append(f"from {RegisterType(b).name.lower()}")
    lines.append(f"v{number} = {name} {' '.join(operands) or hex(imm)}")
  return lines
