"""Emitter methods of element-wise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import PLANE, SIZE, DType
from jaxlib.ipu.ir.attributes import Comparison
from jaxlib.ipu.ir.graph import Value
from jaxlib.ipu.ir.node_emitter import NodeEmitter, Operand
from jaxlib.ipu.kernel.opcode import Opcode


def _unary(name: str) -> Callable[[ElementEmitter, Value], Value]:
  return lambda e, operand: e.elementwise(name, operand)


def _binary(name: str) -> Callable[[ElementEmitter, Operand, Operand], Value]:
  return lambda e, lhs, rhs: e.elementwise(name, lhs, rhs)


class ElementEmitter(NodeEmitter):
  """One method per operation."""

  def elementwise(
    self,
    name: str,
    *operands: Operand,
    dtype: DType | None = None,
    attributes: Any = None,
  ) -> Value:
    """An element-wise operation on operands of one type.

    Args:
      name: of the operation, without `stablehlo.`.
      *operands: values of one shape or scalars, and numbers, at least one
        value among them.
      dtype: the result's; None: the operands'.
      attributes: see `node`.
    """
    like = next(v for v in operands if isinstance(v, Value))
    values = [self._as(v, like.dtype) for v in operands]
    return self._elements(name, values, dtype or like.dtype, attributes)

  def _elements(
    self, name: str, values: list[Value], dtype: DType, attributes: Any = None
  ) -> Value:
    shapes = {v.shape for v in values} - {()}
    if len(shapes) > 1:
      types = ", ".join(v.type for v in values)
      raise internal(f"{name} of {types}", self.location)
    shape = shapes.pop() if shapes else ()
    return self._one(name, values, shape, dtype, attributes)

  negate = _unary("negate")
  sign = _unary("sign")
  sqrt = _unary("sqrt")
  rsqrt = _unary("rsqrt")
  cbrt = _unary("cbrt")
  exponential = _unary("exponential")
  exponential_minus_one = _unary("exponential_minus_one")
  log = _unary("log")
  log_plus_one = _unary("log_plus_one")
  logistic = _unary("logistic")
  sine = _unary("sine")
  cosine = _unary("cosine")
  tan = _unary("tan")
  tanh = _unary("tanh")
  floor = _unary("floor")
  ceil = _unary("ceil")
  round_nearest_afz = _unary("round_nearest_afz")
  round_nearest_even = _unary("round_nearest_even")
  not_ = _unary("not")
  popcnt = _unary("popcnt")
  count_leading_zeros = _unary("count_leading_zeros")

  add = _binary("add")
  subtract = _binary("subtract")
  multiply = _binary("multiply")
  divide = _binary("divide")
  remainder = _binary("remainder")
  power = _binary("power")
  atan2 = _binary("atan2")
  maximum = _binary("maximum")
  minimum = _binary("minimum")
  and_ = _binary("and")
  or_ = _binary("or")
  xor = _binary("xor")
  shift_left = _binary("shift_left")
  shift_right_logical = _binary("shift_right_logical")
  shift_right_arithmetic = _binary("shift_right_arithmetic")

  def real(self, operand: Value) -> Value:
    """The real parts; real numbers are unchanged."""
    dtype = PLANE.get(operand.dtype)
    return self.elementwise("real", operand, dtype=dtype) if dtype else operand

  def imag(self, operand: Value) -> Value:
    """The imaginary parts of complex numbers."""
    dtype = PLANE[operand.dtype]
    return self.elementwise("imag", operand, dtype=dtype)

  def complex(self, lhs: Value, rhs: Value) -> Value:
    """Complex numbers from their real and imaginary parts."""
    wide = lhs.dtype is DType.F64
    dtype = DType.C128 if wide else DType.C64
    return self.elementwise("complex", lhs, rhs, dtype=dtype)

  def abs(self, operand: Value) -> Value:
    """Magnitudes, which are real for complex numbers."""
    dtype = PLANE.get(operand.dtype, operand.dtype)
    return self.elementwise("abs", operand, dtype=dtype)

  def is_finite(self, operand: Value) -> Value:
    """Whether elements are neither infinite nor NaN."""
    return self.elementwise("is_finite", operand, dtype=DType.BOOL)

  def compare(
    self,
    lhs: Operand,
    rhs: Operand,
    direction: str,
    *,
    total_order: bool = False,
  ) -> Value:
    """Compares by `direction`: EQ, NE, LT, LE, GT or GE."""
    comparison = Comparison(Opcode[direction], total_order)
    return self.elementwise(
      "compare", lhs, rhs, dtype=DType.BOOL, attributes=comparison
    )

  def select(self, pred: Value, on_true: Operand, on_false: Operand) -> Value:
    """on_true where pred, else on_false; one of them must be a value."""
    like = on_true if isinstance(on_true, Value) else on_false
    assert isinstance(like, Value), "a select of two numbers has no type"
    values = [
      pred,
      self._as(on_true, like.dtype),
      self._as(on_false, like.dtype),
    ]
    return self._elements("select", values, like.dtype)

  def clamp(self, min: Operand, operand: Value, max: Operand) -> Value:
    """Clamps the operand to its bounds."""
    values = [self._as(v, operand.dtype) for v in (min, operand, max)]
    return self._elements("clamp", values, operand.dtype)

  def convert(self, operand: Value, dtype: DType) -> Value:
    """Converts the operand to another element type."""
    if operand.dtype is dtype:
      return operand
    return self.elementwise("convert", operand, dtype=dtype)

  def reduce_precision(
    self, operand: Value, exponent_bits: int, mantissa_bits: int
  ) -> Value:
    """Rounds the operand to fewer bits."""
    bits = (exponent_bits, mantissa_bits)
    return self.elementwise("reduce_precision", operand, attributes=bits)

  def bitcast_convert(self, operand: Value, dtype: DType) -> Value:
    """Bitcasts; a change of width adds or removes the last dimension."""
    shape = operand.shape
    if SIZE[operand.dtype] > SIZE[dtype]:
      shape = (*shape, SIZE[operand.dtype] // SIZE[dtype])
    elif SIZE[operand.dtype] < SIZE[dtype]:
      shape = shape[:-1]
    elif operand.dtype is dtype:
      return operand
    return self._one("bitcast_convert", [operand], shape, dtype)
