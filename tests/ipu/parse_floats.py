"""Floats: signed zeros, infinities, NaN and denormals, constant or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from parse_kit import COMPARE, INTEGERS, Argument, Case, array, tensor

from jaxlib.ipu.dtypes import MLIR_NAME, NUMPY

FLOATS = ("f16", "bf16", "f32", "f64")
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 0.1, 300.0, 1e4,
            float("inf"), -float("inf"), float("nan"))  # fmt: skip


def special_values(type_: str) -> np.ndarray:
  """Those above, the smallest and largest denormals, the smallest normal
  number and the largest number."""
  info = ml_dtypes.finfo(NUMPY[MLIR_NAME[type_]])
  denormal, normal = info.smallest_subnormal, info.smallest_normal
  extremes = [denormal, -denormal, normal - denormal, normal, info.max]
  return np.concatenate([_rounded(_SPECIAL, type_), np.array(extremes)])


def _rounded(values: Any, type_: str) -> np.ndarray:
  with np.errstate(all="ignore"):
    return np.asarray(values).astype(NUMPY[MLIR_NAME[type_]])


def _wide(values: np.ndarray) -> np.ndarray:
  """A type in which one operation, then rounded, is rounded rightly."""
  return values if values.dtype == np.float64 else values.astype(np.float32)


def _max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """The maximum, which is NaN if either is; +0 is the larger zero."""
  zero = (a == 0) & (b == 0)
  return np.where(zero, np.where(np.signbit(a), b, a), np.maximum(a, b))


FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
  "add": np.add,
  "subtract": np.subtract,
  "multiply": np.multiply,
  "divide": np.divide,
  "remainder": np.fmod,
  "maximum": _max,
  "minimum": lambda a, b: -_max(-a, -b),
}
FLOAT_UNARY: dict[str, Callable[[Any], Any]] = {
  "negate": np.negative,
  "abs": np.abs,
  "sign": lambda x: np.where(x == 0, x, np.sign(x)),
  "floor": np.floor,
  "ceil": np.ceil,
  "round_nearest_even": np.rint,
  "round_nearest_afz": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
  "sqrt": np.sqrt,
}


def floats(types: Sequence[str] = FLOATS) -> Iterator[Case]:
  """Operations on signed zeros, infinities and NaN."""
  for type_ in types:
    values = special_values(type_)
    pairs = list(itertools.product(values, repeat=2))
    for a, b, both in _float_operands(values, pairs, type_):
      x, y = (_wide(v.values) for v in (a, b))
      of, shape = a.tensor, a.values.shape
      second = "{0}" if both else "{1}"
      for name, function in FLOAT_BINARY.items():
        with np.errstate(all="ignore"):
          expected = _rounded(function(x, y), type_)
        body = f"{{r}} = stablehlo.{name} {{0}}, {second} : {of}"
        yield Case(name, [a, b], body, type_, expected)
      for direction, compare in COMPARE.items():
        body = (
          f"{{r}} = stablehlo.compare {direction}, {{0}}, {second}, FLOAT : "
          f"({of}, {of}) -> {tensor('i1', *shape)}"
        )
        yield Case(direction, [a, b], body, "i1", np.array(compare(x, y)))
      if not both:
        continue
      for name, unary in FLOAT_UNARY.items():
        with np.errstate(all="ignore"):
          expected = _rounded(unary(x), type_)
        body = f"{{r}} = stablehlo.{name} {{0}} : {of}"
        yield Case(name, [a], body, type_, expected)
      body = f"{{r}} = stablehlo.is_finite {{0}} : ({of}) -> " + tensor(
        "i1", *shape
      )
      yield Case("is_finite", [a], body, "i1", np.isfinite(x))


def _float_operands(
  values: np.ndarray, pairs: list[tuple[Any, Any]], type_: str
) -> Iterator[tuple[Argument, Argument, bool]]:
  """As vectors, each value as a splat with the others, and with itself."""
  a, b = (_rounded([p[i] for p in pairs], type_) for i in (0, 1))
  some = [(a, b)]
  for value in values:
    splat = np.full_like(values, value)
    some += [(splat, values), (values, splat)]
  some += [(v, w) for v in values[:, None] for w in values[:, None]]
  for x, y in some:
    for constant in ((True, True), (True, False), (False, True)):
      if x.size > 1 or all(constant):
        first, second = (
          Argument(v, type_, c) for v, c in zip((x, y), constant)
        )
        yield first, second, False
  for x in (values, *values[:, None]):
    for constant in (True, False):
      only = Argument(x, type_, constant)
      yield only, only, True


def float_clamps(types: Sequence[str] = FLOATS) -> Iterator[Case]:
  """A clamp: all constants, constant bounds, or no constants."""
  for type_ in types:
    values = special_values(type_)
    for low, high in itertools.product(values, repeat=2):
      with np.errstate(all="ignore"):
        expected = -_max(-_max(values, low), -high)
      for constants in ((True, True), (True, False), (False, False)):
        bound, of = tensor(type_), tensor(type_, len(values))
        operands = [
          Argument(low, type_, constants[0]),
          Argument(values, type_, constants[1]),
          Argument(high, type_, constants[0]),
        ]
        body = (
          f"{{r}} = stablehlo.clamp {{0}}, {{1}}, {{2}} : ({bound}, {of}, "
          f"{bound}) -> {of}"
        )
        yield Case("clamp", operands, body, type_, expected)


# Of these there is no exact value to compare with; see `parse_kit.check_folds`.
FUNCTIONS = (
  "exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt",
  "rsqrt", "cbrt", "sine", "cosine", "tan", "tanh", "logistic",
)  # fmt: skip
FUNCTIONS_OF_TWO = ("power", "atan2")
_ARGUMENTS = (0.5, 0.7, 2.0, -3.0, 7.3, 11.0, 88.5, -87.0, -104.0, 1e5, 2.4e-4)


def _is_multiplied(exponent: Any) -> bool:
  """Whether a power is computed by multiplications if this exponent is known,
  with other roundings."""
  known = float(exponent)
  return 0 < abs(known) <= 4 and not known % 0.5


def functions(types: Sequence[str] = FLOATS) -> Iterator[Case]:
  """Functions of constants that may be folded, and of one constant."""
  for type_ in types:
    values = np.append(special_values(type_), _rounded(_ARGUMENTS, type_))
    one, all_ = tensor(type_), tensor(type_, len(values))
    for some, of in ((values, all_), *((v, one) for v in values)):
      x = Argument(np.asarray(some), type_, True)
      for name in FUNCTIONS:
        body = f"{{r}} = stablehlo.{name} {{0}} : {of}"
        yield Case(name, [x], body, type_, x.values)
    for name in FUNCTIONS_OF_TWO:
      for a, b in itertools.product(values, repeat=2):
        if name == "power" and _is_multiplied(b):
          continue
        operands = [Argument(v, type_, True) for v in (a, b)]
        body = f"{{r}} = stablehlo.{name} {{0}}, {{1}} : {one}"
        yield Case(name, operands, body, type_, a)
      for value, first in itertools.product(values, (True, False)):
        operands = [
          Argument(np.full_like(values, value), type_, True),
          Argument(values, type_, False),
        ]
        body = f"{{r}} = stablehlo.{name} {{0}}, {{1}} : {all_}"
        if not first:
          operands.reverse()
        if not first and name == "power" and _is_multiplied(value):
          continue
        yield Case(name, operands, body, type_, values)


def float_converts() -> Iterator[Case]:
  """Chains of three types, floats among them."""
  types = (*FLOATS, "i8", "ui8", "i32", "ui32", "i64", "i1")
  for a, b, c in itertools.product(types, repeat=3):
    if not {a, b, c} & set(FLOATS):
      continue
    values = [0, 1, 2, 3, 100] if a in INTEGERS else [0.0, -0.0, 0.1, 1.7, 3.0,
              100.3, 1.00390625, 1.0000001, 2049.0, 70001.0]  # fmt: skip
    x = array(values, a) if a != "i1" else np.array([0, 1], bool)
    y = _number(x, b)
    z = _number(y, c)
    matters = np.ones(x.shape, bool)
    if b in INTEGERS and b != "i1":
      matters &= _inside(x, b)
    if c in INTEGERS and c != "i1":
      matters &= _inside(y, c)
    for constant in (True, False):
      of, middle = (tensor(t, x.size) for t in (a, b))
      body = (
        f"{{p}} = stablehlo.convert {{0}} : ({of}) -> {middle}\n"
        f"{{r}} = stablehlo.convert {{p}} : ({middle}) -> {tensor(c, x.size)}"
      )
      operand = Argument(x, a, constant)
      yield Case(f"{a}->{b}->{c}", [operand], body, c, z, matters)


def _number(x: np.ndarray, type_: str) -> np.ndarray:
  if type_ == "i1":
    return x.astype(np.float64) != 0
  with np.errstate(all="ignore"):
    if type_ == "bf16" and x.dtype.kind in "iuf" and x.dtype.itemsize > 4:
      return x.astype(np.float64).astype(NUMPY[MLIR_NAME[type_]])
    return x.astype(NUMPY[MLIR_NAME[type_]])


def _inside(x: np.ndarray, type_: str) -> np.ndarray:
  info = np.iinfo(NUMPY[MLIR_NAME[type_]])
  wide = x.astype(np.float64)
  return (wide >= info.min) & (wide <= info.max)
