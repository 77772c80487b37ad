"""Element-wise operations: rows of a table, no C++.

A row says which instructions compute the operation for each element type.
Most are one opcode; what differs between types (bool arithmetic, narrow
integers, total order) stands in the small functions below the tables.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import FLOATS, SIGNED, SIZE, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Emit, Operation, Read, Row, define
from jaxlib.ipu.lower.code import REGISTER, Code
from jaxlib.ipu.lower.region import inline
from jaxlib.ipu.program.isa import Opcode, RegisterType

U32 = RegisterType.U32


def _lower(builder: Any, node: Node) -> None:
  raise internal(f"{node.op} was left outside every register program")


def _define(name: str, emit: Emit, read: Read | None = None) -> None:
  define(Operation(f"stablehlo.{name}", _lower, read, elementwise=Row(emit)))


def _arithmetic(opcode: Opcode, bool_opcode: Opcode | None = None) -> Emit:
  """One opcode whose result is brought back into the element's range."""

  def emit(code: Code, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    if dtype is DType.BOOL and bool_opcode is not None:
      return code.emit(bool_opcode, U32, *args)
    return code.narrow(code.emit(opcode, REGISTER[dtype], *args), dtype)

  return emit


def _exact(opcode: Opcode, bool_opcode: Opcode | None = None) -> Emit:
  """One opcode whose result is in range whenever its inputs are."""

  def emit(code: Code, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    op = opcode
    if dtype is DType.BOOL and bool_opcode is not None:
      op = bool_opcode
    return code.emit(op, REGISTER[dtype], *args)

  return emit


def _input_dtype(node: Node) -> DType:
  return node.inputs[0].dtype


# --- Unary -----------------------------------------------------------------

for _name, _opcode in {
  "exponential": Opcode.EXP,
  "exponential_minus_one": Opcode.EXPM1,
  "log": Opcode.LOG,
  "log_plus_one": Opcode.LOG1P,
  "sqrt": Opcode.SQRT,
  "rsqrt": Opcode.RSQRT,
  "cbrt": Opcode.CBRT,
  "sine": Opcode.SIN,
  "cosine": Opcode.COS,
  "tan": Opcode.TAN,
  "tanh": Opcode.TANH,
  "logistic": Opcode.LOGISTIC,
  "negate": Opcode.NEGATE,
  "abs": Opcode.ABS,
}.items():
  _define(_name, _arithmetic(_opcode))

for _name, _opcode in {
  "sign": Opcode.SIGN,
  "floor": Opcode.FLOOR,
  "ceil": Opcode.CEIL,
  "round_nearest_afz": Opcode.ROUND_AFZ,
  "round_nearest_even": Opcode.ROUND_EVEN,
}.items():
  _define(_name, _exact(_opcode))


def _is_finite(code: Code, args: list[int], node: Node) -> int:
  return code.emit(Opcode.IS_FINITE, REGISTER[_input_dtype(node)], *args)


def _not(code: Code, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  if dtype is DType.BOOL:
    return code.emit(Opcode.XOR, U32, args[0], code.constant(1, U32))
  return code.narrow(code.emit(Opcode.NOT, REGISTER[dtype], *args), dtype)


def _unsigned_bits(code: Code, value: int, dtype: DType) -> int:
  """A narrow signed value without the sign bits above its own width."""
  if dtype in SIGNED and SIZE[dtype] < 4:
    mask = code.constant((1 << 8 * SIZE[dtype]) - 1, REGISTER[dtype])
    return code.emit(Opcode.AND, REGISTER[dtype], value, mask)
  return value


def _popcnt(code: Code, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  bits = _unsigned_bits(code, args[0], dtype)
  return code.emit(Opcode.POPCNT, REGISTER[dtype], bits)


def _count_leading_zeros(code: Code, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  type_ = REGISTER[dtype]
  count = code.emit(Opcode.CLZ, type_, _unsigned_bits(code, args[0], dtype))
  if SIZE[dtype] < 4:
    extra = code.constant(32 - 8 * SIZE[dtype], type_)
    return code.emit(Opcode.SUB, type_, count, extra)
  return count


_define("is_finite", _is_finite)
_define("not", _not)
_define("popcnt", _popcnt)
_define("count_leading_zeros", _count_leading_zeros)


# --- Binary ----------------------------------------------------------------

for _name, _opcode, _bool_opcode in (
  ("add", Opcode.ADD, Opcode.OR),
  ("subtract", Opcode.SUB, Opcode.XOR),
  ("multiply", Opcode.MUL, Opcode.AND),
  ("divide", Opcode.DIV, None),
  ("power", Opcode.POW, None),
  ("atan2", Opcode.ATAN2, None),
):
  _define(_name, _arithmetic(_opcode, _bool_opcode))

for _name, _opcode, _bool_opcode in (
  ("maximum", Opcode.MAX, Opcode.OR),
  ("minimum", Opcode.MIN, Opcode.AND),
  ("and", Opcode.AND, None),
  ("or", Opcode.OR, None),
  ("xor", Opcode.XOR, None),
  ("remainder", Opcode.REM, None),
):
  _define(_name, _exact(_opcode, _bool_opcode))


def _shift(opcode: Opcode) -> Emit:
  """Shifts by the width or more: narrow types must meet their own width."""

  def emit(code: Code, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    type_ = REGISTER[dtype]
    value, count = args
    if opcode is Opcode.SHR_LOGICAL:
      value = _unsigned_bits(code, value, dtype)
    if SIZE[dtype] < 4 and opcode is Opcode.SHR_ARITHMETIC:
      if dtype not in SIGNED:
        value = _sign_extend(code, value, dtype)
    shifted = code.emit(opcode, type_, value, count)
    return code.narrow(shifted, dtype)

  return emit


def _sign_extend(code: Code, value: int, dtype: DType) -> int:
  """An unsigned narrow value with its top bit repeated upwards."""
  by = code.constant(32 - 8 * SIZE[dtype], U32)
  up = code.emit(Opcode.SHL, U32, value, by)
  return code.emit(Opcode.SHR_ARITHMETIC, U32, up, by)


_define("shift_left", _shift(Opcode.SHL))
_define("shift_right_logical", _shift(Opcode.SHR_LOGICAL))
_define("shift_right_arithmetic", _shift(Opcode.SHR_ARITHMETIC))


# --- Compare, select, clamp ------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparison:
  """`total_order`: -NaN < -inf < ... < -0 < +0 < ... < NaN."""

  opcode: Opcode
  total_order: bool


def _read_compare(operation: Any) -> Comparison:
  from jaxlib.mlir.dialects import stablehlo

  attributes = operation.attributes
  direction = stablehlo.ComparisonDirectionAttr(
    attributes["comparison_direction"]
  ).value
  total = False
  if "compare_type" in attributes:
    kind = stablehlo.ComparisonTypeAttr(attributes["compare_type"]).value
    total = kind == "TOTALORDER"
  return Comparison(Opcode[direction], total)


def _ordered_bits(code: Code, value: int, type_: RegisterType) -> int:
  """An integer that orders as the total order of floats does."""
  wide = type_ is RegisterType.F64
  int_type = RegisterType.I64 if wide else RegisterType.I32
  bits = code.emit(Opcode.BITCAST, int_type, value, type_)
  last = code.constant(63 if wide else 31, int_type)
  one = code.constant(1, int_type)
  sign = code.emit(Opcode.SHR_ARITHMETIC, int_type, bits, last)
  flip = code.emit(Opcode.SHR_LOGICAL, int_type, sign, one)
  return code.emit(Opcode.XOR, int_type, bits, flip)


def _compare(code: Code, args: list[int], node: Node) -> int:
  comparison: Comparison = node.attributes
  type_ = REGISTER[_input_dtype(node)]
  if comparison.total_order and _input_dtype(node) in FLOATS:
    args = [_ordered_bits(code, a, type_) for a in args]
    wide = type_ is RegisterType.F64
    type_ = RegisterType.I64 if wide else RegisterType.I32
  return code.emit(comparison.opcode, type_, *args)


def _select(code: Code, args: list[int], node: Node) -> int:
  return code.emit(Opcode.SELECT, REGISTER[node.results[0].dtype], *args)


_define("compare", _compare, _read_compare)
_define("select", _select)
_define("clamp", _exact(Opcode.CLAMP))


# --- Convert ---------------------------------------------------------------

# What a conversion from float saturates to, for types narrower than their
# register.
_RANGE = {
  DType.I8: (-128, 127),
  DType.I16: (-32768, 32767),
  DType.U8: (0, 255),
  DType.U16: (0, 65535),
}


def convert(code: Code, value: int, source: DType, to: DType) -> int:
  """Converts an element as StableHLO's convert does."""
  type_from, type_to = REGISTER[source], REGISTER[to]
  if to is DType.BOOL:
    if source is DType.BOOL:
      return value
    zero = code.constant(0, type_from)
    return code.emit(Opcode.NE, type_from, value, zero)
  if source in FLOATS and to in _RANGE:
    low, high = (code.constant(v, type_to) for v in _RANGE[to])
    wide = code.convert(value, type_from, type_to)
    return code.emit(Opcode.CLAMP, type_to, low, wide, high)
  value = code.convert(value, type_from, type_to)
  same_float = source is to or (source in (DType.F16, DType.BF16) and
                                to is DType.F32)  # fmt: skip
  return value if same_float else code.narrow(value, to)


def _convert(code: Code, args: list[int], node: Node) -> int:
  return convert(code, args[0], _input_dtype(node), node.results[0].dtype)


_define("convert", _convert)


_BITS = {DType.F16: Opcode.BITS_F16, DType.BF16: Opcode.BITS_BF16}
_FROM_BITS = {
  DType.F16: Opcode.FROM_BITS_F16,
  DType.BF16: Opcode.FROM_BITS_BF16,
}


def bitcast(code: Code, value: int, source: DType, to: DType) -> int:
  """The same bits as another element type of the same width."""
  if source in _BITS:
    value, type_ = code.emit(_BITS[source], U32, value), U32
    width_type = DType.U16
  else:
    type_, width_type = REGISTER[source], source
  if to in _FROM_BITS:
    value = _unsigned_bits(code, value, width_type)
    value = _bits(code, value, type_, U32)
    return code.emit(_FROM_BITS[to], RegisterType.F32, value)
  return code.narrow(_bits(code, value, type_, REGISTER[to]), to)


def _bits(
  code: Code, value: int, source: RegisterType, to: RegisterType
) -> int:
  if source == to:
    return value
  return code.emit(Opcode.BITCAST, to, value, source)


def _reduce_precision(code: Code, args: list[int], node: Node) -> int:
  """Rounds to fewer exponent and mantissa bits, by integer arithmetic."""
  dtype = node.results[0].dtype
  exponent_bits, mantissa_bits = node.attributes
  return _Rounding(code, dtype, exponent_bits, mantissa_bits).apply(args[0])


def _read_reduce_precision(operation: Any) -> tuple[int, int]:
  a = operation.attributes
  return a["exponent_bits"].value, a["mantissa_bits"].value


_FORMAT = {
  DType.F16: (5, 10),
  DType.BF16: (8, 7),
  DType.F32: (8, 23),
  DType.F64: (11, 52),
}


class _Rounding:
  """The bits of a float, rounded to nearest even at a shorter mantissa."""

  def __init__(self, code: Code, dtype: DType, exponent: int, mantissa: int):
    self.code = code
    self.dtype = dtype
    self.exponent, self.mantissa = exponent, mantissa
    # f16 and bf16 live in F32 registers, with F32's exponent range.
    self.wide = dtype is DType.F64
    self.type = RegisterType.U64 if self.wide else RegisterType.U32
    self.float_type = RegisterType.F64 if self.wide else RegisterType.F32
    self.own_exponent, self.own_mantissa = _FORMAT[
      DType.F64 if self.wide else DType.F32
    ]

  def _op(self, op: Opcode, a: int, b: int) -> int:
    return self.code.emit(op, self.type, a, b)

  def _const(self, value: int) -> int:
    return self.code.constant(value, self.type)

  def apply(self, value: int) -> int:
    """The rounded value; NaN stays NaN, overflow gives infinity, what is
    below the smallest normal number becomes a zero of its sign."""
    code = self.code
    bits = code.emit(Opcode.BITCAST, self.type, value, self.float_type)
    width = 64 if self.wide else 32
    sign = self._op(Opcode.AND, bits, self._const(1 << (width - 1)))
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
      mask = ((1 << (width - 1)) - 1) & ~((1 << drop) - 1)
      magnitude = self._op(Opcode.AND, magnitude, self._const(mask))
    if self.exponent < self.own_exponent:
      magnitude = self._limit_exponent(magnitude)
    rounded = code.emit(
      Opcode.BITCAST,
      self.float_type,
      self._op(Opcode.OR, sign, magnitude),
      self.type,
    )
    is_nan = code.emit(Opcode.NE, self.float_type, value, value)
    return code.emit(Opcode.SELECT, self.float_type, is_nan, value, rounded)

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


_define("reduce_precision", _reduce_precision, _read_reduce_precision)


# --- A function of scalars ---------------------------------------------------


def _map(code: Code, args: list[int], node: Node) -> int:
  """StableHLO's map; a scatter over a whole operand is simplified to it."""
  return inline(code, node.regions[0], args)[0]


_define("map", _map)
