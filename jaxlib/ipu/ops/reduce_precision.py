"""reduce_precision: rounds to fewer bits, by integer arithmetic on them."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.ops.bitcast_convert import UNSIGNED, bitcast
from jaxlib.ipu.ops.elementwise import define_row

# Exponent and mantissa bits.
_FORMAT = {
  DType.F16: (5, 10),
  DType.BF16: (8, 7),
  DType.F32: (8, 23),
  DType.F64: (11, 52),
}


def _read(operation: Any) -> tuple[int, int]:
  a = operation.attributes
  return a["exponent_bits"].value, a["mantissa_bits"].value


def _emit(code: Writer, args: list[int], node: Node) -> int:
  """NaN stays NaN, overflow gives infinity; if the exponent gets shorter,
  numbers below its smallest normal number become a zero of their sign."""
  (value,) = args
  dtype = node.results[0].dtype
  rounded = _Rounding(code, dtype, *node.attributes).apply(value)
  float_type = REGISTER[dtype]
  is_nan = code.emit(Opcode.NE, float_type, value, value)
  return code.emit(Opcode.SELECT, float_type, is_nan, value, rounded)


class _Rounding:
  """Rounds the bits of a float to a shorter mantissa, to nearest even."""

  def __init__(
    self, code: Writer, dtype: DType, exponent: int, mantissa: int
  ) -> None:
    self.code = code
    self.dtype = dtype
    self.exponent, self.mantissa = exponent, mantissa
    self.own_exponent, self.own_mantissa = _FORMAT[dtype]
    self.bits = UNSIGNED[SIZE[dtype]]
    self.type = REGISTER[self.bits]

  def _op(self, op: Opcode, a: int, b: int) -> int:
    return self.code.emit(op, self.type, a, b)

  def _const(self, value: int) -> int:
    return self.code.constant(value, self.type)

  def apply(self, value: int) -> int:
    """The rounded value; unspecified for NaN."""
    bits = bitcast(self.code, value, self.dtype, self.bits)
    sign_bit = 1 << (8 * SIZE[self.dtype] - 1)
    sign = self._op(Opcode.AND, bits, self._const(sign_bit))
    magnitude = self._op(Opcode.XOR, bits, sign)
    drop = self.own_mantissa - self.mantissa
    if drop > 0:
      last = self._op(
        Opcode.AND,
        self._op(Opcode.SHR_LOGICAL, magnitude, self._const(drop)),
        self._const(1),
      )
      bias = self._op(Opcode.ADD, last, self._const((1 << (drop - 1)) - 1))
      magnitude = self._op(Opcode.ADD, magnitude, bias)
      mask = (sign_bit - 1) & ~((1 << drop) - 1)
      magnitude = self._op(Opcode.AND, magnitude, self._const(mask))
    if self.exponent < self.own_exponent:
      magnitude = self._limit_exponent(magnitude)
    rounded = self._op(Opcode.OR, sign, magnitude)
    return bitcast(self.code, rounded, self.bits, self.dtype)

  def _limit_exponent(self, magnitude: int) -> int:
    code = self.code
    own_bias = (1 << (self.own_exponent - 1)) - 1
    bias = (1 << (self.exponent - 1)) - 1
    largest = (own_bias + bias) << self.own_mantissa
    largest |= (1 << self.own_mantissa) - 1
    smallest = (own_bias - bias + 1) << self.own_mantissa
    infinity = ((1 << self.own_exponent) - 1) << self.own_mantissa
    over = code.emit(Opcode.GT, self.type, magnitude, self._const(largest))
    magnitude = code.emit(
      Opcode.SELECT, self.type, over, self._const(infinity), magnitude
    )
    under = code.emit(Opcode.LT, self.type, magnitude, self._const(smallest))
    return code.emit(Opcode.SELECT, self.type, under, self._const(0), magnitude)


define_row("reduce_precision", _emit, _read)
