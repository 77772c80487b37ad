"""The NumPy definition of the instruction set of register programs.

Slow and obvious: every instruction of `program/isa.py` is one entry of a table
below. f32 functions that NumPy would round twice or approximate are computed in
double precision and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import NUMPY, SIGNED, UNSIGNED, DType
from jaxlib.ipu.program import isa
from jaxlib.ipu.program.isa import Opcode, RegisterType

Array = npt.NDArray[Any]

NUMPY_REGISTER: dict[RegisterType, np.dtype[Any]] = {
  RegisterType.F32: np.dtype(np.float32),
  RegisterType.F64: np.dtype(np.float64),
  RegisterType.I32: np.dtype(np.int32),
  RegisterType.U32: np.dtype(np.uint32),
  RegisterType.I64: np.dtype(np.int64),
  RegisterType.U64: np.dtype(np.uint64),
}


# The instruction that wraps or rounds the result of arithmetic, in a register,
# to the range of a narrower element type.
NARROW: dict[DType, Opcode] = {
  DType.I8: Opcode.WRAP_I8,
  DType.I16: Opcode.WRAP_I16,
  DType.U8: Opcode.WRAP_U8,
  DType.U16: Opcode.WRAP_U16,
  DType.F16: Opcode.ROUND_F16,
  DType.BF16: Opcode.ROUND_BF16,
}


def register_type(dtype: DType) -> RegisterType:
  """The register that holds values of an element type."""
  if dtype in (DType.F64, DType.I64, DType.U64):
    return RegisterType[dtype.name]
  if dtype in SIGNED:
    return RegisterType.I32
  if dtype in UNSIGNED or dtype == DType.BOOL:
    return RegisterType.U32
  return RegisterType.F32


class Instruction(NamedTuple):
  """One decoded instruction; see `isa.INSTRUCTION`."""

  op: Opcode
  type: RegisterType
  a: int
  b: int
  c: int
  imm: int


_OPCODES = {int(op): op for op in Opcode}
_TYPES = {int(t): t for t in RegisterType}


@functools.lru_cache(maxsize=1024)
def decode(code: bytes) -> tuple[Instruction, ...]:
  """The instructions of a register program.

  Raises:
    ValueError: `code` is truncated or contains unknown numbers.
  """
  if len(code) % isa.INSTRUCTION.size:
    raise ValueError(
      f"{len(code)} bytes of register program are no multiple of "
      f"{isa.INSTRUCTION.size}"
    )
  try:
    return tuple(
      Instruction(_OPCODES[op], _TYPES[t], a, b, c, imm)
      for op, t, a, b, c, imm in isa.INSTRUCTION.iter_unpack(code)
    )
  except KeyError as e:
    raise ValueError(f"register program: unknown number {e}") from e


def arguments(i: Instruction) -> tuple[int, ...]:
  """The values that an instruction reads."""
  return (i.a, i.b, i.c)[: isa.arity(i.op)]


def load(values: Array, type_: RegisterType) -> Array:
  """Loads elements into registers."""
  return convert(_widen(values), type_)


def store(values: Array, dtype: DType) -> Array:
  """Stores registers as elements: narrower types wrap or round."""
  if dtype == DType.BOOL:
    return values != 0
  if dtype in (DType.F16, DType.BF16):
    return _to_half(NUMPY[dtype])(values)
  with np.errstate(all="ignore"):
    return values.astype(NUMPY[dtype])


def _widen(values: Array) -> Array:
  kind = values.dtype.kind
  if kind in "biu" and values.dtype.itemsize < 4:
    return values.astype(np.int32 if kind == "i" else np.uint32)
  if kind in "fV" and values.dtype.itemsize < 4:
    return _from_half(values)
  return values


# A 16-bit float that is only moved keeps all of its bits. Conversions by NumPy
# may make a signalling NaN quiet.
def _from_half(values: Array) -> Array:
  bits = values.view(np.uint16).astype(np.uint32)
  if values.dtype != np.float16:
    return (bits << 16).view(np.float32)
  wide = values.astype(np.float32)
  nan = (bits & 0x8000) << 16 | 0x7F800000 | bits << 13 & 0x7FFFFF
  return np.where(np.isnan(wide), nan, wide.view(np.uint32)).view(np.float32)


def _to_half(dtype: np.dtype[Any]) -> Callable[[Array], Array]:
  def narrow(values: Array) -> Array:
    with np.errstate(all="ignore"):
      half = values.astype(dtype)
    shift = 13 if dtype == np.float16 else 16
    mantissa = (1 << 23 - shift) - 1
    wide = values.view(np.uint32)
    fits = np.isnan(values) & (wide & ((1 << shift) - 1) == 0)
    bits = half.view(np.uint16)
    nan = (bits & ~np.uint16(mantissa)) | (wide >> shift & mantissa)
    return np.where(fits, nan, bits).astype(np.uint16).view(dtype)

  return narrow


def convert(values: Array, type_: RegisterType) -> Array:
  """Converts between register types; floats saturate to integers, NaN becomes
  0."""
  to = NUMPY_REGISTER[type_]
  if values.dtype == to:
    return values
  with np.errstate(all="ignore"):
    if values.dtype.kind != "f" or to.kind == "f":
      return values.astype(to)
    limits = np.iinfo(to)
    wide = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0))
    # float(limits.max) may be too large by one: compare, do not clip.
    inside = np.clip(wide, float(limits.min), np.nextafter(limits.max, 0))
    out = inside.astype(to)
    out = np.where(wide >= float(limits.max), to.type(limits.max), out)
    return np.where(wide <= float(limits.min), to.type(limits.min), out)


def _in_double(f: Callable[..., Array]) -> Callable[..., Array]:
  return lambda *xs: f(*(x.astype(np.float64) for x in xs)).astype(xs[0].dtype)


def _bits(x: Array) -> int:
  return x.dtype.itemsize * 8


def _unsigned(x: Array) -> Array:
  return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _sign(x: Array) -> Array:
  if x.dtype.kind == "u":
    return (x != 0).astype(x.dtype)
  # copysign keeps -0; NaN passes.
  return np.copysign(np.sign(x), x) if x.dtype.kind == "f" else np.sign(x)


def _round_away(x: Array) -> Array:
  whole = np.trunc(x)
  away = np.abs(x - whole) >= 0.5
  return np.copysign(np.where(away, whole + np.sign(x), whole), x)


def _logistic(x: Array) -> Array:
  return 1 / (1 + np.exp(-x))


def _divide(x: Array, y: Array) -> Array:
  if x.dtype.kind == "f":
    return x / y
  zero = y == 0
  if x.dtype.kind == "u":
    quotient = x // np.where(zero, x.dtype.type(1), y)
    return np.where(zero, ~x.dtype.type(0), quotient)
  # MIN / -1 wraps to MIN; its negation does the same.
  safe = np.where(zero | (y == -1), x.dtype.type(1), y)
  floor = x // safe
  truncated = floor + ((x % safe != 0) & ((x < 0) != (safe < 0)))
  truncated = np.where(y == -1, -x, truncated)
  return np.where(zero, x.dtype.type(-1), truncated).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
  if x.dtype.kind == "f":
    return np.fmod(x, y)
  # x % 0 is x; x % -1 is 0, computed apart since MIN % -1 would trap.
  one = x.dtype.type(1)
  minus_one = y == ~x.dtype.type(0) if x.dtype.kind == "i" else y != y
  result = np.fmod(x, np.where((y == 0) | minus_one, one, y))
  return np.where(y == 0, x, np.where(minus_one, 0, result)).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
  if x.dtype.kind == "f":
    # NumPy takes the square root if the exponent is a single 0.5, but
    # (-0) ** 0.5 is +0, and that of -infinity is infinity.
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = (np.broadcast_to(v, shape).reshape(-1) for v in (x, y))
    return _in_double(np.power)(x, y).reshape(shape)
  result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
  base, exponent = x, _unsigned(y)
  while exponent.any():
    result = np.where(exponent & 1, result * base, result)
    base, exponent = base * base, exponent >> 1
  return np.where((y < 0) & (np.abs(x) != 1), x.dtype.type(0), result)


def _shift(kind: Opcode, x: Array, y: Array) -> Array:
  count = _unsigned(y)
  over = count >= _bits(x)
  if kind == Opcode.SHR_ARITHMETIC:
    signed = x.view(f"i{x.dtype.itemsize}")
    limited = np.minimum(count, count.dtype.type(_bits(x) - 1))
    return (signed >> limited.view(signed.dtype)).view(x.dtype)
  bits = _unsigned(x)
  safe = np.where(over, count.dtype.type(0), count)
  moved = bits << safe if kind == Opcode.SHL else bits >> safe
  return np.where(over, bits.dtype.type(0), moved).view(x.dtype)


def _count_leading_zeros(x: Array) -> Array:
  bits = _unsigned(x)
  result = np.full(x.shape, _bits(x), x.dtype)
  for i in range(_bits(x)):
    one = (bits >> bits.dtype.type(i)) & bits.dtype.type(1)
    result = np.where(one, x.dtype.type(_bits(x) - 1 - i), result)
  return result


def _population_count(x: Array) -> Array:
  return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _wrap(to: type) -> Callable[[Array], Array]:
  return lambda x: x.astype(to).astype(x.dtype)


def _to_bits(to: type) -> Callable[[Array], Array]:
  narrow = _to_half(np.dtype(to))
  return lambda x: narrow(x).view(np.uint16).astype(np.uint32)


def _from_bits(of: type) -> Callable[[Array], Array]:
  return lambda x: _from_half(x.astype(np.uint16).view(of))


def _select(condition: Array, x: Array, y: Array) -> Array:
  return np.where(condition != 0, x, y)


def _maximum(x: Array, y: Array) -> Array:
  """NumPy's maximum, with +0 for zeros of both signs."""
  return _order_zeros(np.maximum(x, y), x, y, np.logical_and)


def _minimum(x: Array, y: Array) -> Array:
  """NumPy's minimum, with -0 for zeros of both signs."""
  return _order_zeros(np.minimum(x, y), x, y, np.logical_or)


def _order_zeros(
  extreme: Array, x: Array, y: Array, negative: Callable[..., Array]
) -> Array:
  if x.dtype.kind != "f":
    return extreme
  signed = np.where(negative(np.signbit(x), np.signbit(y)), -0.0, 0.0)
  zeros = (x == 0) & (y == 0)
  return np.where(zeros, signed.astype(extreme.dtype), extreme)


def _clamp(low: Array, x: Array, high: Array) -> Array:
  return _minimum(_maximum(x, low), high)


FUNCTIONS: dict[Opcode, Callable[..., Array]] = {
  **{op: _wrap(NUMPY[dtype].type) for dtype, op in NARROW.items()},
  Opcode.BITS_F16: _to_bits(np.float16),
  Opcode.BITS_BF16: _to_bits(ml_dtypes.bfloat16),
  Opcode.FROM_BITS_F16: _from_bits(np.float16),
  Opcode.FROM_BITS_BF16: _from_bits(ml_dtypes.bfloat16),
  Opcode.NEGATE: np.negative,
  Opcode.ABS: np.abs,
  Opcode.SIGN: _sign,
  Opcode.NOT: np.invert,
  Opcode.FLOOR: np.floor,
  Opcode.CEIL: np.ceil,
  Opcode.ROUND_AFZ: _round_away,
  Opcode.ROUND_EVEN: np.rint,
  Opcode.EXP: _in_double(np.exp),
  Opcode.EXPM1: _in_double(np.expm1),
  Opcode.LOG: _in_double(np.log),
  Opcode.LOG1P: _in_double(np.log1p),
  Opcode.SQRT: np.sqrt,
  Opcode.RSQRT: _in_double(lambda x: 1 / np.sqrt(x)),
  Opcode.CBRT: _in_double(np.cbrt),
  Opcode.SIN: _in_double(np.sin),
  Opcode.COS: _in_double(np.cos),
  Opcode.TAN: _in_double(np.tan),
  Opcode.TANH: _in_double(np.tanh),
  Opcode.LOGISTIC: _in_double(_logistic),
  Opcode.IS_FINITE: np.isfinite,
  Opcode.POPCNT: _population_count,
  Opcode.CLZ: _count_leading_zeros,
  Opcode.ADD: np.add,
  Opcode.SUB: np.subtract,
  Opcode.MUL: np.multiply,
  Opcode.DIV: _divide,
  Opcode.REM: _remainder,
  Opcode.MAX: _maximum,
  Opcode.MIN: _minimum,
  Opcode.POW: _power,
  Opcode.ATAN2: _in_double(np.arctan2),
  Opcode.AND: np.bitwise_and,
  Opcode.OR: np.bitwise_or,
  Opcode.XOR: np.bitwise_xor,
  Opcode.SHL: functools.partial(_shift, Opcode.SHL),
  Opcode.SHR_LOGICAL: functools.partial(_shift, Opcode.SHR_LOGICAL),
  Opcode.SHR_ARITHMETIC: functools.partial(_shift, Opcode.SHR_ARITHMETIC),
  Opcode.EQ: np.equal,
  Opcode.NE: np.not_equal,
  Opcode.LT: np.less,
  Opcode.LE: np.less_equal,
  Opcode.GT: np.greater,
  Opcode.GE: np.greater_equal,
  Opcode.SELECT: _select,
  Opcode.CLAMP: _clamp,
}

Loads = Callable[[int], Array] | Sequence[Array]


def evaluate(
  code: bytes,
  outputs: Sequence[int],
  loads: Loads,
  iota: Callable[[int], Array] | None = None,
) -> list[Array]:
  """Runs a register program over arrays.

  Args:
    code: the instructions.
    outputs: the numbers of the values to return.
    loads: the operands' elements, by number; they broadcast against each
      other.
    iota: for each dimension the index along it, to broadcast as well. If
      missing, IOTA is an error.

  Returns:
    The register values of each output; not broadcast.

  Raises:
    ValueError: the code is malformed.
  """
  get = loads if callable(loads) else loads.__getitem__
  values: list[Array] = []
  with np.errstate(all="ignore"):
    for i in decode(code):
      values.append(_step(i, values, get, iota))
  return [values[o] for o in outputs]


def _step(
  i: Instruction,
  values: Sequence[Array],
  get: Callable[[int], Array],
  iota: Callable[[int], Array] | None,
) -> Array:
  to = NUMPY_REGISTER[i.type]
  if i.op == Opcode.LOAD:
    return load(np.asarray(get(i.imm)), i.type)
  if i.op == Opcode.CONST:
    raw = i.imm.to_bytes(8, "little")[: to.itemsize]
    return np.frombuffer(raw, to)[0].reshape(())
  if i.op == Opcode.IOTA:
    if iota is None:
      raise ValueError("IOTA in a register program without an iteration space")
    return np.asarray(iota(i.imm)).astype(to)
  x = [np.asarray(values[v]) for v in arguments(i)]
  if i.op == Opcode.CONVERT:
    return convert(x[0], i.type)
  if i.op == Opcode.BITCAST:
    return x[0].view(to).reshape(x[0].shape)
  out = np.asarray(FUNCTIONS[i.op](*x))
  if out.dtype == np.bool_ and i.op != Opcode.SELECT:
    return out.astype(np.uint32)
  return out
