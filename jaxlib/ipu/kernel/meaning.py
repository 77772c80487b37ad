"""The NumPy definitions of instructions that are no NumPy function.

Slow and obvious. Rows of the table of opcodes name these functions
(`opcode.py`); operands and results are arrays of register types.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from jaxlib.ipu.kernel.registers import Array, narrow_half, widen_half


def in_double(f: Callable[..., Array]) -> Callable[..., Array]:
  """A function that is computed in double precision and rounded once."""
  return lambda *xs: f(*(x.astype(np.float64) for x in xs)).astype(xs[0].dtype)


def _bits(x: Array) -> int:
  return x.dtype.itemsize * 8


def _unsigned(x: Array) -> Array:
  return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def signum(x: Array) -> Array:
  """-1, 0 or 1 with the sign of x; NaN stays NaN, -0 stays -0."""
  if x.dtype.kind == "u":
    return (x != 0).astype(x.dtype)
  # copysign keeps -0; NaN passes.
  return np.copysign(np.sign(x), x) if x.dtype.kind == "f" else np.sign(x)


def round_away(x: Array) -> Array:
  """To the nearest integer, ties away from zero."""
  whole = np.trunc(x)
  away = np.abs(x - whole) >= 0.5
  return np.copysign(np.where(away, whole + np.sign(x), whole), x)


def inverse_root(x: Array) -> Array:
  """1 / sqrt(x)."""
  return 1 / np.sqrt(x)


def logistic(x: Array) -> Array:
  """1 / (1 + exp(-x))."""
  return 1 / (1 + np.exp(-x))


def quotient(x: Array, y: Array) -> Array:
  """Integers truncate; x/0 is all ones, MIN/-1 is MIN."""
  if x.dtype.kind == "f":
    return x / y
  zero = y == 0
  if x.dtype.kind == "u":
    whole = x // np.where(zero, x.dtype.type(1), y)
    return np.where(zero, ~x.dtype.type(0), whole)
  # MIN / -1 wraps to MIN; its negation does the same.
  safe = np.where(zero | (y == -1), x.dtype.type(1), y)
  floor = x // safe
  truncated = floor + ((x % safe != 0) & ((x < 0) != (safe < 0)))
  truncated = np.where(y == -1, -x, truncated)
  return np.where(zero, x.dtype.type(-1), truncated).astype(x.dtype)


def rest(x: Array, y: Array) -> Array:
  """With the sign of x; of integers, x%0 is x and MIN%-1 is 0."""
  if x.dtype.kind == "f":
    return np.fmod(x, y)
  # x % 0 is x; x % -1 is 0, computed apart since MIN % -1 would trap.
  one = x.dtype.type(1)
  minus_one = y == ~x.dtype.type(0) if x.dtype.kind == "i" else y != y
  result = np.fmod(x, np.where((y == 0) | minus_one, one, y))
  return np.where(y == 0, x, np.where(minus_one, 0, result)).astype(x.dtype)


def raised(x: Array, y: Array) -> Array:
  """x to the power y. Integers wrap; a negative exponent gives 0 but for 1 and
  -1."""
  if x.dtype.kind == "f":
    # NumPy takes the square root if the exponent is a single 0.5, but
    # (-0) ** 0.5 is +0, and that of -infinity is infinity.
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = (np.broadcast_to(v, shape).reshape(-1) for v in (x, y))
    return in_double(np.power)(x, y).reshape(shape)
  result = np.ones(np.broadcast_shapes(x.shape, y.shape), x.dtype)
  base, exponent = x, _unsigned(y)
  while exponent.any():
    result = np.where(exponent & 1, result * base, result)
    base, exponent = base * base, exponent >> 1
  return np.where((y < 0) & (np.abs(x) != 1), x.dtype.type(0), result)


def shift_left(x: Array, y: Array) -> Array:
  """0 for counts of the width or more."""
  return _shifted(np.left_shift, x, y)


def shift_right(x: Array, y: Array) -> Array:
  """As unsigned integers; 0 for counts of the width or more."""
  return _shifted(np.right_shift, x, y)


def _shifted(shift: Callable[..., Array], x: Array, y: Array) -> Array:
  bits, count = _unsigned(x), _unsigned(y)
  zero = count.dtype.type(0)
  over = count >= _bits(x)
  moved = shift(bits, np.where(over, zero, count))
  return np.where(over, zero, moved).view(x.dtype)


def shift_right_signed(x: Array, y: Array) -> Array:
  """All sign bits for counts of the width or more."""
  count = _unsigned(y)
  signed = x.view(f"i{x.dtype.itemsize}")
  limited = np.minimum(count, count.dtype.type(_bits(x) - 1))
  return (signed >> limited.view(signed.dtype)).view(x.dtype)


def count_leading_zeros(x: Array) -> Array:
  """Zero bits above the highest one."""
  bits = _unsigned(x)
  result = np.full(x.shape, _bits(x), x.dtype)
  for i in range(_bits(x)):
    one = (bits >> bits.dtype.type(i)) & bits.dtype.type(1)
    result = np.where(one, x.dtype.type(_bits(x) - 1 - i), result)
  return result


def population_count(x: Array) -> Array:
  """Bits that are one."""
  return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _narrow(to: type) -> Callable[[Array], Array]:
  return lambda x: x.astype(to).astype(x.dtype)


narrow_i8, narrow_ui8 = _narrow(np.int8), _narrow(np.uint8)
narrow_i16, narrow_ui16 = _narrow(np.int16), _narrow(np.uint16)
narrow_f16, narrow_bf16 = _narrow(np.float16), _narrow(ml_dtypes.bfloat16)


def _to_bits(to: type) -> Callable[[Array], Array]:
  narrow = narrow_half(np.dtype(to))
  return lambda x: narrow(x).view(np.uint16).astype(np.uint32)


def _from_bits(of: type) -> Callable[[Array], Array]:
  return lambda x: widen_half(x.astype(np.uint16).view(of))


bits_f16, bits_bf16 = _to_bits(np.float16), _to_bits(ml_dtypes.bfloat16)
from_bits_f16 = _from_bits(np.float16)
from_bits_bf16 = _from_bits(ml_dtypes.bfloat16)


def select(condition: Array, x: Array, y: Array) -> Array:
  """x where the condition is not 0, else y."""
  return np.where(condition != 0, x, y)


def larger(x: Array, y: Array) -> Array:
  """NumPy's maximum, with +0 for zeros of both signs."""
  return _order_zeros(np.maximum(x, y), x, y, np.logical_and)


def smaller(x: Array, y: Array) -> Array:
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


def clamp(low: Array, x: Array, high: Array) -> Array:
  """x between two bounds; if these cross, `high`."""
  return smaller(larger(x, low), high)
