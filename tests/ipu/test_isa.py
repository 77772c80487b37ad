"""The NumPy definition of each instruction against XLA:CPU's operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from program_kit import code as instructions
from program_kit import word

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.dtypes import NUMPY, STORED
from jaxlib.ipu.kernel import registers
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.registers import NUMPY_REGISTER

FLOATS = (RegisterType.F32, RegisterType.F64)
INTEGERS = (
  RegisterType.I32, RegisterType.U32, RegisterType.I64, RegisterType.U64,
)  # fmt: skip
SIGNED = (RegisterType.I32, RegisterType.I64)
ALL = FLOATS + INTEGERS

away = lax.RoundingMethod.AWAY_FROM_ZERO
even = lax.RoundingMethod.TO_NEAREST_EVEN
# opcode: (its operation in JAX, the register types it supports)
UNARY: dict[Opcode, tuple[Callable[..., Any], tuple[RegisterType, ...]]] = {
  Opcode.NEGATE: (lax.neg, FLOATS + INTEGERS),
  Opcode.ABS: (lax.abs, FLOATS + SIGNED),
  Opcode.SIGN: (lax.sign, ALL),
  Opcode.NOT: (lax.bitwise_not, INTEGERS),
  Opcode.FLOOR: (lax.floor, FLOATS),
  Opcode.CEIL: (lax.ceil, FLOATS),
  Opcode.ROUND_AFZ: (lambda x: lax.round(x, away), FLOATS),
  Opcode.ROUND_EVEN: (lambda x: lax.round(x, even), FLOATS),
  Opcode.EXP: (lax.exp, FLOATS),
  Opcode.EXPM1: (lax.expm1, FLOATS),
  Opcode.LOG: (lax.log, FLOATS),
  Opcode.LOG1P: (lax.log1p, FLOATS),
  Opcode.SQRT: (lax.sqrt, FLOATS),
  Opcode.RSQRT: (lax.rsqrt, FLOATS),
  Opcode.CBRT: (lax.cbrt, FLOATS),
  Opcode.SIN: (lax.sin, FLOATS),
  Opcode.COS: (lax.cos, FLOATS),
  Opcode.TAN: (lax.tan, FLOATS),
  Opcode.TANH: (lax.tanh, FLOATS),
  Opcode.LOGISTIC: (lax.logistic, FLOATS),
  Opcode.IS_FINITE: (lax.is_finite, FLOATS),
  Opcode.POPCNT: (lax.population_count, INTEGERS),
  Opcode.CLZ: (lax.clz, INTEGERS),
}
BINARY: dict[Opcode, tuple[Callable[..., Any], tuple[RegisterType, ...]]] = {
  Opcode.ADD: (lax.add, ALL),
  Opcode.SUB: (lax.sub, ALL),
  Opcode.MUL: (lax.mul, ALL),
  Opcode.DIV: (lax.div, ALL),
  Opcode.REM: (lax.rem, ALL),
  Opcode.MAX: (lax.max, ALL),
  Opcode.MIN: (lax.min, ALL),
  Opcode.POW: (lax.pow, FLOATS),
  Opcode.ATAN2: (lax.atan2, FLOATS),
  Opcode.AND: (lax.bitwise_and, INTEGERS),
  Opcode.OR: (lax.bitwise_or, INTEGERS),
  Opcode.XOR: (lax.bitwise_xor, INTEGERS),
  Opcode.SHL: (lax.shift_left, INTEGERS),
  Opcode.SHR_LOGICAL: (lax.shift_right_logical, INTEGERS),
  Opcode.SHR_ARITHMETIC: (lax.shift_right_arithmetic, INTEGERS),
  Opcode.EQ: (lax.eq, ALL),
  Opcode.NE: (lax.ne, ALL),
  Opcode.LT: (lax.lt, ALL),
  Opcode.LE: (lax.le, ALL),
  Opcode.GT: (lax.gt, ALL),
  Opcode.GE: (lax.ge, ALL),
}
# XLA:CPU approximates these; it may be off by this many units in the last
# place, and by more where its argument reduction fails.
ULPS = {RegisterType.F32: 16, RegisterType.F64: 16}
EXACT = (
  Opcode.NEGATE, Opcode.ABS, Opcode.SIGN, Opcode.FLOOR, Opcode.CEIL,
  Opcode.ROUND_AFZ, Opcode.ROUND_EVEN, Opcode.ADD, Opcode.SUB, Opcode.MUL,
  Opcode.DIV, Opcode.REM, Opcode.MAX, Opcode.MIN, Opcode.SQRT,
)  # fmt: skip


@pytest.fixture(autouse=True)
def reference(cpu):
  with jax.enable_x64(True), jax.default_device(cpu):
    yield


def loads(types: list[RegisterType]) -> Code:
  return instructions(
    *((Opcode.LOAD, t, 0, 0, 0, i) for i, t in enumerate(types))
  )


def run(op: Opcode, type_: RegisterType, *operands: np.ndarray) -> np.ndarray:
  """One instruction on arrays of its own type."""
  n = len(operands)
  code = loads([type_] * n) + word(op, type_, *range(n))
  (result,) = evaluate(code, [n], operands)
  return result


def values(type_: RegisterType) -> np.ndarray:
  """Edge cases and other values; floats in a range that suits functions."""
  dtype = NUMPY_REGISTER[type_]
  some = util.sample(dtype, (64,))
  small = util.sample(dtype, (16,), low=0, high=9, key="small")
  out = np.concatenate([util.special_values(dtype), some, small])
  if dtype.kind == "f":
    # XLA:CPU may flush subnormal values.
    out = out[~((np.abs(out) <= np.finfo(dtype).tiny) & (out != 0))]
  return out


def assert_same(
  op: Opcode, type_: RegisterType, actual: np.ndarray, expected: Any
) -> None:
  expected = np.asarray(expected)
  if expected.dtype == np.bool_:
    expected = expected.astype(np.uint32)
  assert actual.dtype == expected.dtype
  if actual.dtype.kind == "f":
    # XLA:CPU flushes subnormal results.
    tiny = np.abs(actual) < np.finfo(actual.dtype).tiny
    actual = np.where(tiny, np.copysign(0, actual), actual)
  if actual.dtype.kind != "f" or op in EXACT:
    np.testing.assert_array_equal(actual, expected)
    same = (actual == 0) & (np.signbit(actual) != np.signbit(expected))
    assert not same.any() or op == Opcode.REM
    return
  eps = np.finfo(actual.dtype).eps * ULPS[type_]
  np.testing.assert_allclose(actual, expected, rtol=eps, atol=eps * 1e-3)


def cases(
  table: dict[Opcode, tuple[Callable[..., Any], tuple[RegisterType, ...]]],
) -> list[Any]:
  return [
    pytest.param(op, t, f, id=f"{op.name}-{t.name}")
    for op, (f, types) in table.items()
    for t in types
  ]


@pytest.mark.parametrize("op, type_, f", cases(UNARY))
def test_unary(op, type_, f):
  x = values(type_)
  if op in (Opcode.SIN, Opcode.COS, Opcode.TAN):
    x = x[~(np.abs(x) > 1e6)]
  assert_same(op, type_, run(op, type_, x), f(x))


@pytest.mark.parametrize("op, type_, f", cases(BINARY))
def test_binary(op, type_, f):
  v = values(type_)
  x, y = np.repeat(v, len(v)), np.tile(v, len(v))
  if op == Opcode.REM and type_ in FLOATS:
    # XLA:CPU computes x - y * trunc(x / y) where the quotient is large.
    with np.errstate(all="ignore"):
      fine = ~(np.abs(x / y) > 1e6) & np.isfinite(y)
    x, y = x[fine], y[fine]
  if op == Opcode.POW:
    with np.errstate(all="ignore"):
      fine = ~(np.abs(y * np.log(np.abs(x))) > 80) & np.isfinite(x)
    x, y = x[fine], y[fine]
  assert_same(op, type_, run(op, type_, x, y), f(x, y))


@pytest.mark.parametrize("type_", INTEGERS, ids=lambda t: t.name)
def test_integer_power(type_):
  dtype = NUMPY_REGISTER[type_]
  bases = util.special_values(dtype)
  most = np.iinfo(dtype).max
  exponents = np.array([0, 1, 2, 3, 5, 31, 64, 7, 201, most, most - 1], dtype)
  if type_ in SIGNED:
    exponents = np.append(exponents, np.array([-1, -2, -3], dtype))
  x = np.repeat(bases, len(exponents))
  y = np.tile(exponents, len(bases))
  # JAX has no such operation, StableHLO has. Python's integers are exact.
  bits = dtype.itemsize * 8
  expected = []
  for base, exponent in zip(x.tolist(), y.tolist(), strict=True):
    if exponent >= 0:
      power = pow(base, exponent, 1 << bits)
    elif base in (1, -1):
      power = base**exponent
    else:
      power = 0
    expected.append(int(power) & ((1 << bits) - 1))
  unsigned = np.array(expected, np.dtype(f"u{dtype.itemsize}"))
  np.testing.assert_array_equal(
    run(Opcode.POW, type_, x, y), unsigned.view(dtype)
  )


@pytest.mark.parametrize("type_", ALL, ids=lambda t: t.name)
def test_select_and_clamp(type_):
  v = values(type_)
  x, y = v, v[::-1].copy()
  condition = (np.arange(len(v)) % 3 == 0).astype(np.uint32)
  code = word(Opcode.LOAD, RegisterType.U32, imm=0)
  code += word(Opcode.LOAD, type_, imm=1)
  code += word(Opcode.LOAD, type_, imm=2)
  code += word(Opcode.SELECT, type_, 0, 1, 2)
  (chosen,) = evaluate(code, [3], [condition, x, y])
  np.testing.assert_array_equal(chosen, np.where(condition, x, y))

  low, high = np.sort(np.array([v[1], v[2]], v.dtype))
  clamped = run(
    Opcode.CLAMP, type_, np.full_like(x, low), x, np.full_like(x, high)
  )
  np.testing.assert_array_equal(clamped, lax.clamp(low, x, high))


@pytest.mark.parametrize("to", ALL, ids=lambda t: t.name)
@pytest.mark.parametrize("source", ALL, ids=lambda t: t.name)
def test_convert(source, to):
  x = values(source)
  code = loads([source]) + word(Opcode.CONVERT, to, 0, source)
  (actual,) = evaluate(code, [1], [x])
  # For a NumPy array, newer versions of JAX use NumPy's conversion.
  expected = lax.convert_element_type(jnp.asarray(x), NUMPY_REGISTER[to])
  np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
  "source, to",
  [
    (RegisterType.F32, RegisterType.U32),
    (RegisterType.F32, RegisterType.I32),
    (RegisterType.U32, RegisterType.I32),
    (RegisterType.F64, RegisterType.I64),
    (RegisterType.I64, RegisterType.U64),
    (RegisterType.U64, RegisterType.F64),
  ],
)
def test_bitcast(source, to):
  x = values(source)
  code = loads([source]) + word(Opcode.BITCAST, to, 0, source)
  (actual,) = evaluate(code, [1], [x])
  assert actual.tobytes() == x.view(NUMPY_REGISTER[to]).tobytes()


@pytest.mark.parametrize(
  "op, type_, narrow",
  [
    (Opcode.WRAP_I8, RegisterType.I32, np.int8),
    (Opcode.WRAP_I16, RegisterType.I32, np.int16),
    (Opcode.WRAP_U8, RegisterType.U32, np.uint8),
    (Opcode.WRAP_U16, RegisterType.U32, np.uint16),
    (Opcode.ROUND_F16, RegisterType.F32, np.float16),
    (Opcode.ROUND_BF16, RegisterType.F32, ml_dtypes.bfloat16),
  ],
)
def test_narrowing(op, type_, narrow):
  x = values(type_)
  wide = x.dtype
  narrowed = lax.convert_element_type(jnp.asarray(x), narrow)
  expected = lax.convert_element_type(narrowed, wide)
  np.testing.assert_array_equal(run(op, type_, x), expected)


@pytest.mark.parametrize(
  "to_bits, from_bits, half",
  [
    (Opcode.BITS_F16, Opcode.FROM_BITS_F16, jnp.float16),
    (Opcode.BITS_BF16, Opcode.FROM_BITS_BF16, jnp.bfloat16),
  ],
)
def test_bits_of_narrow_floats(to_bits, from_bits, half):
  with np.errstate(over="ignore"):
    x = values(RegisterType.F32).astype(half)
  code = word(Opcode.LOAD, RegisterType.F32, imm=0)
  code += word(to_bits, RegisterType.U32, 0)
  code += word(from_bits, RegisterType.F32, 1)
  bits, back = evaluate(code, [1, 2], [x])
  np.testing.assert_array_equal(bits, x.view(np.uint16))
  np.testing.assert_array_equal(back, x.astype(np.float32))


@pytest.mark.parametrize("dtype", sorted(STORED), ids=lambda d: d.name)
def test_load_and_store_keep_every_element(dtype):
  x = util.special_values(NUMPY[dtype])
  register = REGISTER[dtype]
  loaded = registers.load(x, register)
  assert loaded.dtype == NUMPY_REGISTER[register]
  back = registers.store(loaded, dtype)
  assert back.dtype == x.dtype
  assert back.tobytes() == x.tobytes()


def test_iota_and_constants():
  code = word(Opcode.IOTA, RegisterType.I32, imm=1)
  code += word(Opcode.CONST, RegisterType.I32, imm=2**32 - 5)
  code += word(Opcode.MUL, RegisterType.I32, 0, 1)
  grid = np.ix_(np.arange(2), np.arange(3))
  index, product = evaluate(code, [0, 2], [], grid.__getitem__)
  np.testing.assert_array_equal(index, [[0, 1, 2]])
  np.testing.assert_array_equal(product, [[0, -5, -10]])


def test_every_instruction_is_tested():
  sources = {Opcode.LOAD, Opcode.CONST, Opcode.IOTA}
  others = {
    Opcode.CONVERT, Opcode.BITCAST, Opcode.SELECT, Opcode.CLAMP,
    Opcode.WRAP_I8, Opcode.WRAP_I16, Opcode.WRAP_U8, Opcode.WRAP_U16,
    Opcode.ROUND_F16, Opcode.ROUND_BF16, Opcode.BITS_F16, Opcode.BITS_BF16,
    Opcode.FROM_BITS_F16, Opcode.FROM_BITS_BF16,
  }  # fmt: skip
  assert sources | others | set(UNARY) | set(BINARY) == set(Opcode)


def test_malformed_programs_are_refused():
  with pytest.raises(ValueError, match="no multiple"):
    Code.of_wire(b"123")
  with pytest.raises(ValueError, match="250"):
    Code.of_wire(bytes([250, *bytes(15)]))
  code = word(Opcode.IOTA, RegisterType.I32)
  with pytest.raises(ValueError, match="without an iteration space"):
    evaluate(code, [0], [])


def test_evaluation_broadcasts():
  code = loads([RegisterType.F32] * 2) + word(Opcode.ADD, 0, 0, 1)
  add = functools.partial(evaluate, code, [2])
  column, row = np.ones((3, 1), np.float32), np.ones((1, 4), np.float32)
  assert add([column, row])[0].shape == (3, 4)
