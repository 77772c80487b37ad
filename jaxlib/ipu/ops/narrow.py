"""Integers and floats of at most 8 bits: bytes to wider numbers and back.

`ipu.decode` converts the bytes (u8) of a narrow type to its wide type: i32, u32
or f32. `ipu.encode` converts back, as XLA:CPU does: integers are truncated,
floats rounded to nearest, ties to even. Both are element-wise integer
arithmetic on the bits: tiles have no instruction for these formats. Bits of a
byte above the type's own are ignored by `ipu.decode` and zero after
`ipu.encode`.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.dtypes import NARROW_BITS, NARROW_INTEGERS, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import ElementwiseRow, Operation, define
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.ops.elementwise import left_outside

DECODE = "ipu.decode"
ENCODE = "ipu.encode"

F32, F64 = RegisterType.F32, RegisterType.F64
I32, U32, U64 = RegisterType.I32, RegisterType.U32, RegisterType.U64


def wide(dtype: DType) -> DType:
  """The type in which a narrow type is computed."""
  if dtype in NARROW_INTEGERS:
    return DType.I32 if dtype.name.startswith("I") else DType.U32
  return DType.F32


@dataclasses.dataclass(frozen=True)
class Format:
  """A narrow float with a sign bit above exponent and mantissa.

  Attributes:
    exponent, mantissa: bits.
    bias: of the exponent.
    largest: the magnitude's bits of the largest finite number; above it are
      infinity (if there is one) and NaN.
    overflow: the bits of larger magnitudes.
    nan: the bits of NaN, without its sign.
  """

  exponent: int
  mantissa: int
  bias: int
  largest: int
  overflow: int
  nan: int

  @property
  def sign(self) -> int:
    """The sign bit."""
    return 1 << (self.exponent + self.mantissa)

  @property
  def has_minus_zero(self) -> bool:
    """Whether -0 exists; otherwise its bits are NaN."""
    return self.nan != self.sign or self.overflow != self.nan


def _ieee(exponent: int, mantissa: int, bias: int) -> Format:
  """Infinities and NaNs as in IEEE 754."""
  infinity = ((1 << exponent) - 1) << mantissa
  quiet = infinity | (1 << (mantissa - 1))
  return Format(exponent, mantissa, bias, infinity - 1, infinity, quiet)


def _fn(exponent: int, mantissa: int, bias: int) -> Format:
  """No infinity; NaN has all bits set."""
  nan = (1 << (exponent + mantissa)) - 1
  return Format(exponent, mantissa, bias, nan - 1, nan, nan)


def _fnuz(exponent: int, mantissa: int, bias: int) -> Format:
  """No infinity; NaN is where -0 would be."""
  nan = 1 << (exponent + mantissa)
  return Format(exponent, mantissa, bias, nan - 1, nan, nan)


def _finite(exponent: int, mantissa: int, bias: int) -> Format:
  """Neither infinity nor NaN; overflow saturates, NaN becomes -0."""
  sign = 1 << (exponent + mantissa)
  return Format(exponent, mantissa, bias, sign - 1, sign - 1, sign)


FORMATS = {
  DType.F8E5M2: _ieee(5, 2, 15),
  DType.F8E4M3: _ieee(4, 3, 7),
  DType.F8E3M4: _ieee(3, 4, 3),
  DType.F8E4M3FN: _fn(4, 3, 7),
  DType.F8E4M3FNUZ: _fnuz(4, 3, 8),
  DType.F8E4M3B11FNUZ: _fnuz(4, 3, 11),
  DType.F8E5M2FNUZ: _fnuz(5, 2, 16),
  DType.F4E2M1FN: _finite(2, 1, 1),
  DType.F6E2M3FN: _finite(2, 3, 1),
  DType.F6E3M2FN: _finite(3, 2, 3),
}

_F32_MANTISSA, _F32_BIAS = 23, 127
_NAN = 0x7FC00000


class _Bits:
  """Shorthands for integer instructions of one register type."""

  def __init__(self, code: Writer, type_: RegisterType) -> None:
    self.code = code
    self.type = type_

  def const(self, value: int) -> int:
    return self.code.constant(value, self.type)

  def op(self, opcode: Opcode, a: int, b: int) -> int:
    """`b` is a number, not a value."""
    return self.code.emit(opcode, self.type, a, self.const(b))

  def select(self, condition: int, a: int, b: int) -> int:
    return self.code.emit(Opcode.SELECT, self.type, condition, a, b)


def decode(code: Writer, value: int, dtype: DType) -> int:
  """A byte (in a U32 register) as a value of the wide type."""
  u = _Bits(code, U32)
  if dtype in NARROW_INTEGERS:
    bits = NARROW_BITS[dtype]
    if wide(dtype) is DType.U32:
      return u.op(Opcode.AND, value, (1 << bits) - 1)
    unused = code.constant(32 - bits, I32)
    top = code.emit(Opcode.BITCAST, I32, value)
    top = code.emit(Opcode.SHL, I32, top, unused)
    return code.emit(Opcode.SHR_ARITHMETIC, I32, top, unused)
  if dtype is DType.F8E8M0FNU:
    bits = u.op(Opcode.SHL, value, _F32_MANTISSA)
    bits = u.select(
      u.op(Opcode.EQ, value, 0), u.const(1 << (_F32_MANTISSA - 1)), bits
    )
    bits = u.select(u.op(Opcode.EQ, value, 0xFF), u.const(_NAN), bits)
    return code.emit(Opcode.BITCAST, F32, bits)
  return _decode_float(code, value, FORMATS[dtype])


def _decode_float(code: Writer, value: int, f: Format) -> int:
  u = _Bits(code, U32)
  magnitude = u.op(Opcode.AND, value, f.sign - 1)
  sign = u.op(Opcode.AND, value, f.sign)
  place = _F32_MANTISSA - f.mantissa
  bits = u.op(Opcode.SHL, magnitude, place)
  bits = u.op(Opcode.ADD, bits, (_F32_BIAS - f.bias) << _F32_MANTISSA)
  # Denormals: multiples of the smallest.
  unit = code.constant(2.0 ** (1 - f.bias - f.mantissa), F32)
  small = code.convert(magnitude, F32)
  small = code.emit(Opcode.MUL, F32, small, unit)
  small = code.emit(Opcode.BITCAST, U32, small)
  is_small = u.op(Opcode.LT, magnitude, 1 << f.mantissa)
  bits = u.select(is_small, small, bits)
  if f.overflow > f.largest and f.nan != f.overflow:  # IEEE 754
    special = u.op(Opcode.SHL, magnitude, place)
    special = u.op(Opcode.OR, special, 0x7F800000)
    bits = u.select(u.op(Opcode.GT, magnitude, f.largest), special, bits)
  elif f.nan == f.overflow and f.has_minus_zero:
    is_nan = u.op(Opcode.EQ, magnitude, f.nan)
    bits = u.select(is_nan, u.const(_NAN), bits)
  elif not f.has_minus_zero:
    used = u.op(Opcode.AND, value, 2 * f.sign - 1)
    bits = u.select(u.op(Opcode.EQ, used, f.nan), u.const(_NAN), bits)
  top = u.op(Opcode.SHL, sign, 31 - (f.exponent + f.mantissa))
  bits = code.emit(Opcode.OR, U32, bits, top)
  return code.emit(Opcode.BITCAST, F32, bits)


def encode(code: Writer, value: int, source: DType, dtype: DType) -> int:
  """A number as a byte, in a U32 register.

  Args:
    code: gets the instructions.
    value: of the wide type, or an F64 register for a float.
    source: `value`'s element type.
    dtype: the narrow type.
  """
  if dtype in NARROW_INTEGERS:
    if REGISTER[source] is I32:
      value = code.emit(Opcode.BITCAST, U32, value)
    return _Bits(code, U32).op(Opcode.AND, value, (1 << NARROW_BITS[dtype]) - 1)
  if dtype is DType.F8E8M0FNU:
    return _Encoder(code, value, source).exponent()
  return _Encoder(code, value, source).signed(FORMATS[dtype])


class _Encoder:
  """Rounds the bits of an f32 or f64."""

  def __init__(self, code: Writer, value: int, source: DType) -> None:
    self.code = code
    double = source is DType.F64
    self.float_type = F64 if double else F32
    self.mantissa, self.bias = (52, 1023) if double else (23, 127)
    self.width = 64 if double else 32
    self.type = U64 if double else U32
    self.u = _Bits(code, self.type)
    bits = code.emit(Opcode.BITCAST, self.type, value)
    self.sign = self.u.op(Opcode.SHR_LOGICAL, bits, self.width - 1)
    self.magnitude = self.u.op(Opcode.AND, bits, (1 << (self.width - 1)) - 1)
    self.infinity = (2 * self.bias + 1) << self.mantissa

  def signed(self, f: Format) -> int:
    """A byte of a signed format."""
    u, emit, type_ = self.u, self.code.emit, self.type
    drop = self.mantissa - f.mantissa
    odd = u.op(Opcode.SHR_LOGICAL, self.magnitude, drop)
    odd = u.op(Opcode.AND, odd, 1)
    half = u.op(Opcode.ADD, self.magnitude, (1 << (drop - 1)) - 1)
    rounded = emit(Opcode.ADD, type_, half, odd)
    rounded = u.op(Opcode.SHR_LOGICAL, rounded, drop)
    rounded = u.op(Opcode.SUB, rounded, (self.bias - f.bias) << f.mantissa)
    # Denormals: a multiple of the smallest, as an integer.
    smallest = (self.bias - f.bias + 1) << self.mantissa
    is_small = u.op(Opcode.LT, self.magnitude, smallest)
    rounded = u.select(is_small, self._multiple(f), rounded)
    over = u.op(Opcode.GT, rounded, f.largest)
    rounded = u.select(over, u.const(f.overflow), rounded)
    is_nan = u.op(Opcode.GT, self.magnitude, self.infinity)
    rounded = u.select(is_nan, u.const(f.nan), rounded)
    sign = u.op(Opcode.SHL, self.sign, f.exponent + f.mantissa)
    if not f.has_minus_zero:
      sign = u.select(u.op(Opcode.EQ, rounded, 0), rounded, sign)
    byte = emit(Opcode.OR, type_, rounded, sign)
    return self.code.convert(byte, U32)

  def _multiple(self, f: Format) -> int:
    type_ = self.float_type
    emit = self.code.emit
    unit = self.code.constant(2.0 ** (f.bias - 1 + f.mantissa), type_)
    size = emit(Opcode.BITCAST, type_, self.magnitude)
    size = emit(Opcode.MUL, type_, size, unit)
    size = emit(Opcode.ROUND_EVEN, type_, size)
    return emit(Opcode.CONVERT, self.type, size)

  def exponent(self) -> int:
    """A byte of F8E8M0FNU: the nearest power of two, ties upwards; zero,
    negative numbers and overflow give NaN."""
    u = self.u
    half = u.op(Opcode.ADD, self.magnitude, 1 << (self.mantissa - 1))
    rounded = u.op(Opcode.SHR_LOGICAL, half, self.mantissa)
    first = self.bias - _F32_BIAS
    if first:
      is_small = u.op(Opcode.LT, rounded, first)
      rounded = u.op(Opcode.SUB, rounded, first)
      rounded = u.select(is_small, u.const(0), rounded)
    else:  # denormal: all above 2**-127 become 2**-126, as in ml_dtypes
      upper = u.op(Opcode.GT, self.magnitude, 1 << (self.mantissa - 1))
      small = u.select(upper, u.const(1), u.const(0))
      is_small = u.op(Opcode.LT, self.magnitude, 1 << self.mantissa)
      rounded = u.select(is_small, small, rounded)
    bad = u.op(Opcode.GE, rounded, 0xFF)
    rounded = u.select(bad, u.const(0xFF), rounded)
    zero = u.op(Opcode.EQ, self.magnitude, 0)
    rounded = u.select(zero, u.const(0xFF), rounded)
    negative = u.op(Opcode.NE, self.sign, 0)
    rounded = u.select(negative, u.const(0xFF), rounded)
    return self.code.convert(rounded, U32)


def _decode_row(code: Writer, args: list[int], node: Node) -> int:
  return decode(code, args[0], node.attributes)


def _encode_row(code: Writer, args: list[int], node: Node) -> int:
  return encode(code, args[0], node.inputs[0].dtype, node.attributes)


define(Operation(DECODE, left_outside, elementwise=ElementwiseRow(_decode_row)))
define(Operation(ENCODE, left_outside, elementwise=ElementwiseRow(_encode_row)))
