"""Cheaper instructions for powers, quotients and remainders by constants.

popops does the same for powers of 2, 1, 1/2, -1/2 and -1, and for unsigned
integers by powers of two (ElementWiseInternal.cpp, `optimiseBinary`).
"""

from __future__ import annotations

from jaxlib.ipu.dtypes import FLOATS, SIGNED, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer

_WIDE = (RegisterType.I64, RegisterType.U64)
# A limit: the rounding errors of more multiplications are too large.
_MOST = 4


def power(code: Writer, base: int, exponent: int, dtype: DType) -> int | None:
  """A power of a float whose exponent is a small multiple of 1/2; else None.
  Signed zeros, infinities and NaN are those of POW."""
  known = code.known(exponent)
  if known is None or dtype not in FLOATS:
    return None
  whole, half = divmod(abs(known), 1)
  if not 0 < abs(known) <= _MOST or half not in (0, 0.5):
    return None
  type_ = REGISTER[dtype]
  if not half and known < 0:  # invert first: keeps powers of small bases exact
    base = code.emit(Opcode.DIV, type_, code.constant(1, type_), base)
  factors = [base] if whole % 2 else []
  if whole >= 2:
    square = code.emit(Opcode.MUL, type_, base, base)
    factors += [square] * (int(whole) // 2)
  if half:
    factors.append(code.emit(Opcode.SQRT, type_, base))
  product = factors[0]
  for factor in factors[1:]:
    product = code.emit(Opcode.MUL, type_, product, factor)
  if not half:
    return product
  # The root of -0 is -0, that of -infinity is NaN.
  infinity = code.constant(float("inf"), type_)
  lowest = code.constant(float("-inf"), type_)
  positive = code.emit(Opcode.ADD, type_, product, code.constant(0, type_))
  is_lowest = code.emit(Opcode.EQ, type_, base, lowest)
  product = code.emit(Opcode.SELECT, type_, is_lowest, infinity, positive)
  if known > 0:
    return product
  return code.emit(Opcode.DIV, type_, code.constant(1, type_), product)


def quotient(
  code: Writer, value: int, divisor: int, dtype: DType
) -> int | None:
  """An integer's quotient by a power of two, rounded towards zero; None for
  other divisors."""
  shift = _exponent(code, divisor, dtype)
  if shift is None:
    return None
  type_ = REGISTER[dtype]
  by = code.constant(shift, type_)
  if dtype not in SIGNED:
    return code.emit(Opcode.SHR_LOGICAL, type_, value, by)
  if not shift:
    return value
  bits = 64 if type_ in _WIDE else 32
  sign = code.emit(
    Opcode.SHR_ARITHMETIC, type_, value, code.constant(bits - 1, type_)
  )
  less_than_one = code.emit(
    Opcode.SHR_LOGICAL, type_, sign, code.constant(bits - shift, type_)
  )
  rounded = code.emit(Opcode.ADD, type_, value, less_than_one)
  return code.emit(Opcode.SHR_ARITHMETIC, type_, rounded, by)


def remainder(
  code: Writer, value: int, divisor: int, dtype: DType
) -> int | None:
  """An integer's remainder by a power of two, with its sign; None for other
  divisors."""
  shift = _exponent(code, divisor, dtype)
  if shift is None:
    return None
  type_ = REGISTER[dtype]
  if dtype not in SIGNED:
    mask = code.constant((1 << shift) - 1, type_)
    return code.emit(Opcode.AND, type_, value, mask)
  times = quotient(code, value, divisor, dtype)
  assert times is not None
  multiple = code.emit(Opcode.SHL, type_, times, code.constant(shift, type_))
  return code.emit(Opcode.SUB, type_, value, multiple)


def _exponent(code: Writer, divisor: int, dtype: DType) -> int | None:
  """The exponent of a constant power of two; None for other values."""
  if dtype in FLOATS or dtype is DType.BOOL:
    return None
  known = code.known(divisor)
  if known is None or known <= 0 or int(known).bit_count() != 1:
    return None
  return int(known).bit_length() - 1
