"""The instruction set of element-wise register programs.

A register program is a list of 16-byte instructions in static single
assignment: instruction i defines value i, operands name earlier values.
Values have one of six register types; narrower element types live in wider
registers and are wrapped or rounded to their own range by the `WRAP_*` and
`ROUND_*` instructions, so that arithmetic exists once:

  element type        register  after arithmetic
  bool                U32       (0 or 1 by construction)
  i8, i16 / u8, u16   I32 / U32 WRAP_I8 ... WRAP_U16
  f16, bf16           F32       ROUND_F16, ROUND_BF16
  i32, u32, i64, u64, f32, f64  their own

The numbers below are the wire format. They and the instructions' signatures
(`SIGNATURES`) reach C++ through `generate_header.py`.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple


class RegisterType(enum.IntEnum):
  """The type of a value of a register program."""

  F32 = 0
  F64 = 1
  I32 = 2
  U32 = 3
  I64 = 4
  U64 = 5


class Opcode(enum.IntEnum):
  """Instructions. Comments give the (operands) and the meaning of `imm`."""

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
  # Unary. Operand and result have type `type` unless noted.
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
  POW = 67  # integers: wraps; a negative exponent gives 0 but for 1 and -1
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

  As the instruction of the same name, except that MAX and MIN of zeros of both
  signs may give either. The order in which elements are combined is undefined,
  as is what a machine's own reductions do with zeros.
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


class CollectiveKind(enum.IntEnum):
  """What the devices of a group do with their operands.

  Operands and results are dense; parts are equal slices of the leading
  dimension, one for each device of the group, in the group's order.
  """

  ALL_REDUCE = 0  # all operands, combined
  ALL_GATHER = 1  # the operands, one after the other
  REDUCE_SCATTER = 2  # the device's own part of all operands, combined
  ALL_TO_ALL = 3  # the device's own part of each operand, one after the other
  PERMUTE = 4  # the operand of the device's source; zeros if it has none
  BROADCAST = 5  # the operand of the group's first device; zeros in no group
  RAGGED_ALL_TO_ALL = 6  # slices of which run-time values tell place and size


class FactorKind(enum.IntEnum):
  """What `schema.Factorise` computes of each matrix A [m, n]; k = min(m, n).

  Reflectors I - tau v v^T are packed as in LAPACK: v is 1 in its first row, and
  the rest is stored in the column that it made zero.
  """

  CHOLESKY = 0  # L of A = L L^T; NaN in all of the triangle if there is none
  LU = 1  # L below the diagonal and U; pivots [k] and the rows' order [m], I32
  QR = 2  # R and below it the reflectors; tau [k]
  INVERSE = 3  # of the lower triangle
  UNIT_INVERSE = 4  # of the lower triangle with ones for its diagonal
  HESSENBERG = 5  # Q^T A Q and below it the reflectors of Q; tau [n - 1]
  TRIDIAGONAL = 6  # the same of a symmetric matrix, zero above the diagonal
  BIDIAGONAL = 7  # Q^T A P, zero but on the diagonal and right of it; m >= n


class Fused(enum.IntEnum):
  """Several instructions fused. Programs do not contain them: the engine makes
  them when it loads a program. They round as the separate ones."""

  ROTATE_LEFT = 200  # (a): by imm bits
  ROTATE_XOR = 201  # (a, b): rotates a left by imm, xor b
  DIVIDE_BY = 202  # (a, reciprocal): the quotient by a constant; imm: a shift
  REMAINDER_BY = 203  # (a, reciprocal, divisor): as DIVIDE_BY
  MUL_ADD = 210  # a * b + c
  MUL_SUB = 211  # a * b - c
  NEG_MUL_ADD = 212  # c - a * b
  MUL_MUL = 213  # (a * b) * c
  ADD_ADD = 214  # (a + b) + c
  ADD_MUL = 215  # (a + b) * c
  SUB_MUL = 216  # (a - b) * c


# Types that depend on the instruction: its own, and the one given by `b`.
OWN, SOURCE = 254, 255


class Signature(NamedTuple):
  """The types of an instruction.

  Attributes:
    types: allowed values of `type`.
    operands: the types of the values named by a, b, c, as many as there are.
    result: the type of the instruction's value.
  """

  types: frozenset[RegisterType]
  operands: tuple[int, ...]
  result: int = OWN


_F32, _U32 = RegisterType.F32, RegisterType.U32
_FLOATS = frozenset({RegisterType.F32, RegisterType.F64})
_ALL = frozenset(RegisterType)
_INTEGERS = _ALL - _FLOATS
_ONE, _TWO, _THREE = (OWN,), (OWN, OWN), (OWN, OWN, OWN)


def _signatures() -> dict[int, Signature]:
  o, f = Opcode, Fused
  rows: list[tuple[Signature, tuple[int, ...]]] = [
    (Signature(_ALL, ()), (o.LOAD, o.CONST, o.IOTA)),
    (Signature(_ALL, (SOURCE,)), (o.CONVERT, o.BITCAST)),
    (
      Signature(frozenset({RegisterType.I32}), _ONE),
      (o.WRAP_I8, o.WRAP_I16),
    ),
    (Signature(frozenset({_U32}), _ONE), (o.WRAP_U8, o.WRAP_U16)),
    (Signature(frozenset({_F32}), _ONE), (o.ROUND_F16, o.ROUND_BF16)),
    (Signature(_ALL, (_F32,), _U32), (o.BITS_F16, o.BITS_BF16)),
    (Signature(_ALL, (_U32,), _F32), (o.FROM_BITS_F16, o.FROM_BITS_BF16)),
    (Signature(_ALL, _ONE), (o.NEGATE, o.ABS, o.SIGN)),
    (
      Signature(_FLOATS, _ONE),
      (
        o.FLOOR, o.CEIL, o.ROUND_AFZ, o.ROUND_EVEN, o.EXP, o.EXPM1, o.LOG,
        o.LOG1P, o.SQRT, o.RSQRT, o.CBRT, o.SIN, o.COS, o.TAN, o.TANH,
        o.LOGISTIC,
      ),
    ),
    (Signature(_FLOATS, _ONE, _U32), (o.IS_FINITE,)),
    (Signature(_INTEGERS, _ONE), (o.NOT, o.POPCNT, o.CLZ, f.ROTATE_LEFT)),
    (
      Signature(_ALL, _TWO),
      (o.ADD, o.SUB, o.MUL, o.DIV, o.REM, o.MAX, o.MIN, o.POW),
    ),
    (Signature(_FLOATS, _TWO), (o.ATAN2,)),
    (
      Signature(_INTEGERS, _TWO),
      (
        o.AND, o.OR, o.XOR, o.SHL, o.SHR_LOGICAL, o.SHR_ARITHMETIC,
        f.ROTATE_XOR, f.DIVIDE_BY,
      ),
    ),
    (Signature(_INTEGERS, _THREE), (f.REMAINDER_BY,)),
    (Signature(_ALL, _TWO, _U32), (o.EQ, o.NE, o.LT, o.LE, o.GT, o.GE)),
    (Signature(_ALL, (_U32, OWN, OWN)), (o.SELECT,)),
    (
      Signature(_ALL, _THREE),
      (
        o.CLAMP, f.MUL_ADD, f.MUL_SUB, f.NEG_MUL_ADD, f.MUL_MUL, f.ADD_ADD,
        f.ADD_MUL, f.SUB_MUL,
      ),
    ),
  ]  # fmt: skip
  return {op: signature for signature, ops in rows for op in ops}


SIGNATURES = _signatures()
_ARITY = {op: len(signature.operands) for op, signature in SIGNATURES.items()}


def arity(op: int) -> int:
  """How many of a, b, c name values."""
  return _ARITY[op]


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
