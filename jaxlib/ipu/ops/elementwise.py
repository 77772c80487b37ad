"""Element-wise operations: rows of a table, no C++.

A row defines which instructions compute the operation for each element type.
Most are one opcode; special cases of types (bool arithmetic, narrow integers,
total order) are in the small functions below the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import FLOATS, SIGNED, SIZE, DType
from jaxlib.ipu.ir.attributes import Comparison
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.region import inline
from jaxlib.ipu.ir.registry import ElementwiseRow, Emit, Operation, Read, define
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.ops import _constant_operands
from jaxlib.mlir.dialects import stablehlo

U32 = RegisterType.U32

# (register program, two of its values, their type) -> value, or None.
ByConstant = Callable[[Writer, int, int, DType], int | None]


def left_outside(builder: Any, node: Node) -> None:
  """The lowering of operations that are always fused into register programs."""
  raise internal(f"{node.op} was not fused into a register program")


def define_row(name: str, emit: Emit, read: Read | None = None) -> None:
  """Registers `stablehlo.NAME` as a row of the table."""
  define(
    Operation(
      f"stablehlo.{name}", left_outside, read, elementwise=ElementwiseRow(emit)
    )
  )


def _arithmetic(opcode: Opcode, bool_opcode: Opcode | None = None) -> Emit:
  """One opcode whose result is wrapped or rounded to the element's range."""

  def emit(code: Writer, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    if dtype is DType.BOOL and bool_opcode is not None:
      return code.emit(bool_opcode, U32, *args)
    return code.narrow(code.emit(opcode, REGISTER[dtype], *args), dtype)

  return emit


def _exact(opcode: Opcode, bool_opcode: Opcode | None = None) -> Emit:
  """One opcode whose result is in range whenever its inputs are."""

  def emit(code: Writer, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    op = opcode
    if dtype is DType.BOOL and bool_opcode is not None:
      op = bool_opcode
    return code.emit(op, REGISTER[dtype], *args)

  return emit


def _signed(opcode: Opcode) -> Emit:
  """Changes the sign: exact for floats, where NaN keeps its other bits."""

  def emit(code: Writer, args: list[int], node: Node) -> int:
    way = _exact if node.results[0].dtype in FLOATS else _arithmetic
    return way(opcode)(code, args, node)

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
}.items():
  define_row(_name, _arithmetic(_opcode))

for _name, _opcode in {"negate": Opcode.NEGATE, "abs": Opcode.ABS}.items():
  define_row(_name, _signed(_opcode))

for _name, _opcode in {
  "sign": Opcode.SIGN,
  "floor": Opcode.FLOOR,
  "ceil": Opcode.CEIL,
  "round_nearest_afz": Opcode.ROUND_AFZ,
  "round_nearest_even": Opcode.ROUND_EVEN,
}.items():
  define_row(_name, _exact(_opcode))


def _is_finite(code: Writer, args: list[int], node: Node) -> int:
  return code.emit(Opcode.IS_FINITE, REGISTER[_input_dtype(node)], *args)


def _not(code: Writer, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  if dtype is DType.BOOL:
    return code.emit(Opcode.XOR, U32, args[0], code.constant(1, U32))
  return code.narrow(code.emit(Opcode.NOT, REGISTER[dtype], *args), dtype)


def unsigned_bits(code: Writer, value: int, dtype: DType) -> int:
  """A narrow signed value with the sign bits above its width cleared."""
  if dtype in SIGNED and SIZE[dtype] < 4:
    mask = code.constant((1 << 8 * SIZE[dtype]) - 1, REGISTER[dtype])
    return code.emit(Opcode.AND, REGISTER[dtype], value, mask)
  return value


def _popcnt(code: Writer, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  bits = unsigned_bits(code, args[0], dtype)
  return code.emit(Opcode.POPCNT, REGISTER[dtype], bits)


def _count_leading_zeros(code: Writer, args: list[int], node: Node) -> int:
  dtype = node.results[0].dtype
  type_ = REGISTER[dtype]
  count = code.emit(Opcode.CLZ, type_, unsigned_bits(code, args[0], dtype))
  if SIZE[dtype] < 4:
    extra = code.constant(32 - 8 * SIZE[dtype], type_)
    return code.emit(Opcode.SUB, type_, count, extra)
  return count


define_row("is_finite", _is_finite)
define_row("not", _not)
define_row("popcnt", _popcnt)
define_row("count_leading_zeros", _count_leading_zeros)


# --- Binary ----------------------------------------------------------------

for _name, _opcode, _bool_opcode in (
  ("add", Opcode.ADD, Opcode.OR),
  ("subtract", Opcode.SUB, Opcode.XOR),
  ("multiply", Opcode.MUL, Opcode.AND),
  ("atan2", Opcode.ATAN2, None),
):
  define_row(_name, _arithmetic(_opcode, _bool_opcode))

for _name, _opcode, _bool_opcode in (
  ("maximum", Opcode.MAX, Opcode.OR),
  ("minimum", Opcode.MIN, Opcode.AND),
  ("and", Opcode.AND, None),
  ("or", Opcode.OR, None),
  ("xor", Opcode.XOR, None),
):
  define_row(_name, _exact(_opcode, _bool_opcode))


def _by_constant(by: ByConstant, otherwise: Emit) -> Emit:
  """Uses a cheaper form for some constant second operands."""

  def emit(code: Writer, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    value, operand = args
    found = by(code, value, operand, dtype)
    if found is None:
      return otherwise(code, args, node)
    return code.narrow(found, dtype)

  return emit


def _remainder(code: Writer, args: list[int], node: Node) -> int:
  """Integer remainders by a quotient, which most programs with a remainder also
  need: a REMAINDER of PopLibs takes longer than a DIVIDE. Correct for divisors
  of 0 and -1 as well, where quotients are -1 and wrap."""
  dtype = node.results[0].dtype
  type_ = REGISTER[dtype]
  if dtype in FLOATS:
    return code.emit(Opcode.REM, type_, *args)
  multiple = code.emit(
    Opcode.MUL, type_, code.emit(Opcode.DIV, type_, *args), args[1]
  )
  return code.emit(Opcode.SUB, type_, args[0], multiple)


for _name, _by, _otherwise in (
  ("power", _constant_operands.power, _arithmetic(Opcode.POW)),
  ("divide", _constant_operands.quotient, _arithmetic(Opcode.DIV)),
  ("remainder", _constant_operands.remainder, _remainder),
):
  define_row(_name, _by_constant(_by, _otherwise))


def _shift(opcode: Opcode) -> Emit:
  """Shifts; narrow types must treat counts of their own width or more alike."""

  def emit(code: Writer, args: list[int], node: Node) -> int:
    dtype = node.results[0].dtype
    type_ = REGISTER[dtype]
    value, count = args
    if opcode is Opcode.SHR_LOGICAL:
      value = unsigned_bits(code, value, dtype)
    if SIZE[dtype] < 4 and opcode is Opcode.SHR_ARITHMETIC:
      if dtype not in SIGNED:
        value = _sign_extend(code, value, dtype)
    shifted = code.emit(opcode, type_, value, count)
    return code.narrow(shifted, dtype)

  return emit


def _sign_extend(code: Writer, value: int, dtype: DType) -> int:
  """An unsigned narrow value with its top bit extended upwards."""
  by = code.constant(32 - 8 * SIZE[dtype], U32)
  up = code.emit(Opcode.SHL, U32, value, by)
  return code.emit(Opcode.SHR_ARITHMETIC, U32, up, by)


define_row("shift_left", _shift(Opcode.SHL))
define_row("shift_right_logical", _shift(Opcode.SHR_LOGICAL))
define_row("shift_right_arithmetic", _shift(Opcode.SHR_ARITHMETIC))


# --- Compare, select, clamp ------------------------------------------------


def _read_compare(operation: Any) -> Comparison:
  attributes = operation.attributes
  direction = stablehlo.ComparisonDirectionAttr(
    attributes["comparison_direction"]
  ).value
  total = False
  if "compare_type" in attributes:
    kind = stablehlo.ComparisonTypeAttr(attributes["compare_type"]).value
    total = kind == "TOTALORDER"
  return Comparison(Opcode[direction], total)


def _ordered_bits(code: Writer, value: int, type_: RegisterType) -> int:
  """An integer with the order of floats' total order."""
  wide = type_ is RegisterType.F64
  int_type = RegisterType.I64 if wide else RegisterType.I32
  bits = code.emit(Opcode.BITCAST, int_type, value)
  last = code.constant(63 if wide else 31, int_type)
  one = code.constant(1, int_type)
  sign = code.emit(Opcode.SHR_ARITHMETIC, int_type, bits, last)
  flip = code.emit(Opcode.SHR_LOGICAL, int_type, sign, one)
  return code.emit(Opcode.XOR, int_type, bits, flip)


def _compare(code: Writer, args: list[int], node: Node) -> int:
  comparison: Comparison = node.attributes
  type_ = REGISTER[_input_dtype(node)]
  if comparison.total_order and _input_dtype(node) in FLOATS:
    args = [_ordered_bits(code, a, type_) for a in args]
    wide = type_ is RegisterType.F64
    type_ = RegisterType.I64 if wide else RegisterType.I32
  return code.emit(comparison.opcode, type_, *args)


def _select(code: Writer, args: list[int], node: Node) -> int:
  return code.emit(Opcode.SELECT, REGISTER[node.results[0].dtype], *args)


define_row("compare", _compare, _read_compare)
define_row("select", _select)
define_row("clamp", _exact(Opcode.CLAMP))


# --- Convert ---------------------------------------------------------------

# The range to which a conversion from float saturates, for types narrower than
# their register.
_RANGE = {
  DType.I8: (-128, 127),
  DType.I16: (-32768, 32767),
  DType.U8: (0, 255),
  DType.U16: (0, 65535),
}


def convert(code: Writer, value: int, source: DType, to: DType) -> int:
  """Converts an element as StableHLO's convert does."""
  type_from, type_to = REGISTER[source], REGISTER[to]
  if to is DType.BOOL:
    if source is DType.BOOL:
      return value
    zero = code.constant(0, type_from)
    return code.emit(Opcode.NE, type_from, value, zero)
  if source in FLOATS and to in _RANGE:
    low, high = (code.constant(v, type_to) for v in _RANGE[to])
    wide = code.convert(value, type_to)
    return code.emit(Opcode.CLAMP, type_to, low, wide, high)
  value = code.convert(value, type_to)
  same_float = source is to or (source in (DType.F16, DType.BF16) and
                                to is DType.F32)  # fmt: skip
  return value if same_float else code.narrow(value, to)


def _convert(code: Writer, args: list[int], node: Node) -> int:
  return convert(code, args[0], _input_dtype(node), node.results[0].dtype)


define_row("convert", _convert)


# --- Scalar functions --------------------------------------------------------


def _map(code: Writer, args: list[int], node: Node) -> int:
  """StableHLO's map; scatters over a whole operand are simplified to it."""
  return inline(code, node.regions[0], args)[0]


define_row("map", _map)
