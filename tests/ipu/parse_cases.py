"""Small programs on constants and arguments, of all types, at edge values.

Folded or not, they compute what the specification says. test_parse.py runs a
sample of them; this runs those of some sweeps, or all 68,000 in a few minutes:

python tests/ipu/parse_cases.py
python tests/ipu/parse_cases.py converts indices
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from parse_kit import (
  INTEGERS,
  SIGNED,
  UNSIGNED,
  Argument,
  Case,
  array,
  check,
  edges,
  tensor,
  width,
  wrap,
)

import jax
from jaxlib.ipu.dtypes import MLIR_NAME, NUMPY


def converted(value: int, type_: str) -> int:
  """An integer as another type."""
  return int(value != 0) if type_ == "i1" else wrap(value, type_)


def converts(types: Sequence[str]) -> Iterator[Case]:
  """All chains of three integer types, of constants and of arguments."""
  for a, b, c in itertools.product(types, repeat=3):
    values = edges(a)
    expected = array([converted(converted(v, b), c) for v in values], c)
    for constant in (False, True):
      x = Argument(array(values, a), a, constant)
      middle, last = (tensor(t, len(values)) for t in (b, c))
      body = (
        f"{{p}} = stablehlo.convert {{0}} : ({x.tensor}) -> {middle}\n"
        f"{{r}} = stablehlo.convert {{p}} : ({middle}) -> {last}"
      )
      yield Case(f"{a}->{b}->{c}", [x], body, c, expected)


def _divide(a: int, b: int, type_: str) -> int | None:
  if not b:
    return None  # not specified
  quotient = abs(a) // abs(b)
  return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int, type_: str) -> int | None:
  return (abs(a) % abs(b)) * (-1 if a < 0 else 1) if b else None


def _power(a: int, b: int, type_: str) -> int | None:
  if b < 0:
    if abs(a) == 1:
      return a if b % 2 else 1
    return 0 if a else None
  # XLA, and so JAX, uses six bits of an exponent.
  return pow(a, b, 1 << width(type_)) if b < 64 else None


def _shifted(shift: Callable[[int, int], int]) -> Callable[..., int]:
  """Amounts are unsigned; those beyond the width shift everything out."""

  def apply(a: int, b: int, type_: str) -> int:
    bits = width(type_)
    return shift(a, min(b & ((1 << bits) - 1), bits))

  return apply


def _logical(a: int, b: int, type_: str) -> int:
  bits = width(type_)
  return (a & ((1 << bits) - 1)) >> min(b & ((1 << bits) - 1), bits)


def _arithmetic(a: int, b: int, type_: str) -> int:
  bits = width(type_)
  if a >> bits - 1 & 1:
    a |= -1 << bits
  return a >> min(b & ((1 << bits) - 1), bits)


BINARY: dict[str, Callable[[int, int, str], int | None]] = {
  "add": lambda a, b, t: a + b,
  "subtract": lambda a, b, t: a - b,
  "multiply": lambda a, b, t: a * b,
  "divide": _divide,
  "remainder": _remainder,
  "power": _power,
  "maximum": lambda a, b, t: max(a, b),
  "minimum": lambda a, b, t: min(a, b),
  "and": lambda a, b, t: a & b,
  "or": lambda a, b, t: a | b,
  "xor": lambda a, b, t: a ^ b,
  "shift_left": _shifted(lambda a, n: a << n),
  "shift_right_logical": _logical,
  "shift_right_arithmetic": _arithmetic,
}
# i1 has these only: addition is `or`, multiplication `and`.
_OF_BOOLEANS = {
  "add": lambda a, b, t: a | b,
  "multiply": lambda a, b, t: a & b,
} | {n: BINARY[n] for n in ("maximum", "minimum", "and", "or", "xor")}

UNARY: dict[str, Callable[[int, str], int]] = {
  "negate": lambda a, t: -a,
  "abs": lambda a, t: abs(a),
  "sign": lambda a, t: (a > 0) - (a < 0),
  "not": lambda a, t: ~a,
  "popcnt": lambda a, t: (a & ((1 << width(t)) - 1)).bit_count(),
  "count_leading_zeros": lambda a, t: (
    width(t) - (a & ((1 << width(t)) - 1)).bit_length()
  ),
}
_ONLY_SIGNED = ("abs", "sign")

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
  "EQ": lambda a, b: a == b,
  "NE": lambda a, b: a != b,
  "LT": lambda a, b: a < b,
  "LE": lambda a, b: a <= b,
  "GT": lambda a, b: a > b,
  "GE": lambda a, b: a >= b,
}


def comparison(type_: str) -> str:
  """StableHLO's type of comparison for an element type."""
  if type_ == "i1" or type_ in UNSIGNED:
    return "UNSIGNED"
  return "SIGNED" if type_ in SIGNED else "FLOAT"


def _operands(type_: str, values: Sequence[int]) -> Iterator[Any]:
  """Pairs of operands: all pairs of values as vectors, each value as a splat
  with all others; constant or not, but for two arguments."""
  pairs = list(itertools.product(values, repeat=2))
  yield from _constancy(type_, pairs)
  for value in values:
    for pairs in ([(value, v) for v in values], [(v, value) for v in values]):
      yield from _constancy(type_, pairs)
  for a, b in itertools.product(values, repeat=2):
    yield [(a, b)], [Argument(array(v, type_), type_, True) for v in (a, b)]


def _constancy(type_: str, pairs: list[tuple[int, int]]) -> Iterator[Any]:
  a, b = (array([p[i] for p in pairs], type_) for i in (0, 1))
  for first, second in ((True, True), (True, False), (False, True)):
    yield pairs, [Argument(a, type_, first), Argument(b, type_, second)]


def _result(
  numbers: list[int | None], type_: str, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
  """Expected values, and where they are specified."""
  wrapped = [0 if n is None else wrap(n, type_) for n in numbers]
  matters = np.array([n is not None for n in numbers]).reshape(shape)
  return array(wrapped, type_).reshape(shape), matters


def binary_integers(types: Sequence[str]) -> Iterator[Case]:
  """Operations of two integers, comparisons and selections."""
  for type_ in types:
    values = edges(type_)
    functions = _OF_BOOLEANS if type_ == "i1" else BINARY
    for pairs, operands in _operands(type_, values):
      shape = operands[0].values.shape
      of = operands[0].tensor
      for name, function in functions.items():
        numbers = [function(a, b, type_) for a, b in pairs]
        expected, matters = _result(numbers, type_, shape)
        body = f"{{r}} = stablehlo.{name} {{0}}, {{1}} : {of}"
        yield Case(name, operands, body, type_, expected, matters)
      for direction, compare in COMPARE.items():
        expected = np.array([compare(a, b) for a, b in pairs]).reshape(shape)
        body = (
          f"{{r}} = stablehlo.compare {direction}, {{0}}, {{1}}, "
          f"{comparison(type_)} : ({of}, {of}) -> {tensor('i1', *shape)}"
        )
        yield Case(f"compare {direction}", operands, body, "i1", expected)


def unary_integers(types: Sequence[str]) -> Iterator[Case]:
  """Operations of one constant integer, and of one with itself."""
  for type_ in types:
    values = edges(type_)
    for some in (values, *([v] for v in values)):
      for constant in (True, False):
        x = Argument(array(some, type_), type_, constant)
        for name, function in UNARY.items():
          if type_ == "i1" and name != "not":
            continue
          if name in _ONLY_SIGNED and type_ not in SIGNED:
            continue
          expected = [wrap(function(v, type_), type_) for v in some]
          body = f"{{r}} = stablehlo.{name} {{0}} : {x.tensor}"
          yield Case(name, [x], body, type_, array(expected, type_))
        functions = _OF_BOOLEANS if type_ == "i1" else BINARY
        for name, function in functions.items():
          numbers = [function(v, v, type_) for v in some]
          expected, matters = _result(numbers, type_, (len(some),))
          body = f"{{r}} = stablehlo.{name} {{0}}, {{0}} : {x.tensor}"
          yield Case(f"{name} of itself", [x], body, type_, expected, matters)
        for direction, compare in COMPARE.items():
          expected = np.array([compare(v, v) for v in some])
          body = (
            f"{{r}} = stablehlo.compare {direction}, {{0}}, {{0}}, "
            f"{comparison(type_)} : ({x.tensor}, {x.tensor}) -> "
            f"{tensor('i1', len(some))}"
          )
          yield Case(f"{direction} of itself", [x], body, "i1", expected)


def clamps(types: Sequence[str]) -> Iterator[Case]:
  """Each of clamp's operands constant or not."""
  for type_ in types:
    numbers = list(itertools.product(edges(type_)[:8], repeat=3))
    columns = [array([n[i] for n in numbers], type_) for i in range(3)]
    expected = array([min(max(x, a), b) for a, x, b in numbers], type_)
    for constant in itertools.product((True, False), repeat=3):
      operands = [Argument(v, type_, c) for v, c in zip(columns, constant)]
      of = operands[0].tensor
      body = f"{{r}} = stablehlo.clamp {{0}}, {{1}}, {{2}} : {of}"
      yield Case("clamp", operands, body, type_, expected)
    for low, high in itertools.product(edges(type_), repeat=2):
      values = edges(type_)
      expected = array([min(max(x, low), high) for x in values], type_)
      operands = [
        Argument(array(low, type_), type_, True),
        Argument(array(values, type_), type_, False),
        Argument(array(high, type_), type_, True),
      ]
      a, of, _ = (o.tensor for o in operands)
      body = (
        f"{{r}} = stablehlo.clamp {{0}}, {{1}}, {{2}} : ({a}, {of}, {a}) -> "
        f"{of}"
      )
      yield Case("clamp", operands, body, type_, expected)


def selects(types: Sequence[str]) -> Iterator[Case]:
  """A predicate, constant or not, a splat or not, of values likewise."""
  predicates = [np.array(p, bool) for p in ([1, 0, 1], [1] * 3, [0] * 3)]
  for type_ in types:
    a, b = (array(edges(type_)[-1:] * 3, type_), array([0, 1, 0], type_))
    for p in (*predicates, np.array(True), np.array(False)):
      for constant in itertools.product((True, False), repeat=3):
        operands = [
          Argument(v, t, c)
          for v, t, c in zip((p, a, b), ("i1", type_, type_), constant)
        ]
        of = operands[1].tensor
        body = (
          f"{{r}} = stablehlo.select {{0}}, {{1}}, {{2}} : "
          f"{operands[0].tensor}, {of}"
        )
        yield Case("select", operands, body, type_, np.where(p, a, b))


INDEX_TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
_LENGTH = 40_000  # of which an unsigned index of 16 bits can read all
_SHORT = 300


def _index_values(type_: str, length: int) -> list[int]:
  """Edge values, and those at both ends of an array."""
  near = (length - 1, length, 200, 150, -3)
  fits = [n for n in near if wrap(n, type_) == n]
  return list(dict.fromkeys([*edges(type_), *fits]))


def _clamp(index: int, most: int) -> int:
  return min(max(index, 0), most)


def _ways(values: Sequence[int], type_: str) -> Iterator[tuple[int, Any, str]]:
  """Each index as a scalar constant, as an argument, and as one element of a
  constant and of an argument: (index, operands, text that defines {p}i)."""
  scalar = tensor(type_)
  vector = tensor(type_, len(values))
  one = tensor(type_, 1)
  for place, value in enumerate(values):
    for constant in (True, False):
      one_value = Argument(array(value, type_), type_, constant)
      yield (
        value,
        one_value,
        f"{{p}}i = stablehlo.reshape {{0}} : ({scalar}) -> {scalar}\n",
      )
      every = Argument(array(values, type_), type_, constant)
      yield (
        value,
        every,
        f"{{p}}s = stablehlo.slice {{0}} [{place}:{place + 1}] : ({vector})"
        f" -> {one}\n"
        f"{{p}}i = stablehlo.reshape {{p}}s : ({one}) -> {scalar}\n",
      )


def indices(types: Sequence[str]) -> Iterator[Case]:
  """Operations with index operands, at and beyond both ends."""
  for type_ in types:
    if type_ not in INDEX_TYPES:
      continue
    length = _SHORT if width(type_) == 8 else _LENGTH
    x = Argument(np.arange(length, dtype=np.int32), "i32", False)
    small = Argument(np.arange(5, dtype=np.int32), "i32", False)
    update = Argument(np.array([-7, -8], np.int32), "i32", False)
    for value, index, text in _ways(_index_values(type_, length), type_):
      scalar, vector = tensor(type_), tensor(type_, 1)
      start = _clamp(value, length - 2)
      pair = x.values[start : start + 2]
      body = text + (
        f"{{r}} = stablehlo.dynamic_slice {{1}}, {{p}}i, sizes = [2] : "
        f"({x.tensor}, {scalar}) -> tensor<2xi32>"
      )
      yield Case("dynamic_slice", [index, x], body, "i32", pair)
      at = text + (
        f"{{p}}v = stablehlo.reshape {{p}}i : ({scalar}) -> {vector}\n"
      )
      body = at + (
        '{r} = "stablehlo.gather"({1}, {p}v) <{{dimension_numbers = '
        "#stablehlo.gather<offset_dims = [0], start_index_map = [0]>, "
        "slice_sizes = array<i64: 2>}}> : "
        f"({x.tensor}, {vector}) -> tensor<2xi32>"
      )
      yield Case("gather", [index, x], body, "i32", pair)
      # The array of 5: few indices are inside.
      start = _clamp(value, 3)
      expected = small.values.copy()
      expected[start : start + 2] = update.values
      body = text + (
        f"{{r}} = stablehlo.dynamic_update_slice {{1}}, {{2}}, {{p}}i : "
        f"({small.tensor}, {update.tensor}, {scalar}) -> {small.tensor}"
      )
      operands = [index, small, update]
      yield Case("dynamic_update_slice", operands, body, "i32", expected)
      for operation in ("set", "add"):
        expected = small.values.copy()
        if 0 <= value <= 3:  # others are left out as a whole
          part = expected[value : value + 2]
          part[:] = update.values + (part if operation == "add" else 0)
        combine = (
          ""
          if operation == "set"
          else ("%s = stablehlo.add %old, %new : tensor<i32>\n")
        )
        returned = "%new" if operation == "set" else "%s"
        body = at + (
          '{r} = "stablehlo.scatter"({1}, {p}v, {2}) <{{'
          "scatter_dimension_numbers = #stablehlo.scatter<"
          "update_window_dims = [0], scatter_dims_to_operand_dims = [0]>}}> "
          "({{\n^bb0(%old: tensor<i32>, %new: tensor<i32>):\n"
          f"{combine}stablehlo.return {returned} : tensor<i32>\n"
          f"}}}}) : ({small.tensor}, {vector}, {update.tensor}) -> "
          f"{small.tensor}"
        )
        yield Case(f"scatter {operation}", operands, body, "i32", expected)
      if type_ == "i32":
        yield from _cases(value, index, text)


def _cases(value: int, index: Argument, text: str) -> Iterator[Case]:
  """A case: an index out of range selects the last branch."""
  branches = ", ".join(
    "{{\n%b = stablehlo.constant dense<" + str(n) + "> : tensor<i32>\n"
    "stablehlo.return %b : tensor<i32>\n}}"
    for n in (10, 20, 30)
  )
  body = text + (
    f'{{r}} = "stablehlo.case"({{p}}i) ({branches}) : '
    "(tensor<i32>) -> tensor<i32>"
  )
  expected = 10 * (value + 1) if 0 <= value <= 2 else 30
  yield Case("case", [index], body, "i32", np.array(expected, np.int32))


def loops(types: Sequence[str]) -> Iterator[Case]:
  """Loops that count up to a bound that is constant or not."""
  for type_ in types:
    if type_ not in INDEX_TYPES:
      continue
    top = 1 << width(type_) - 1
    largest = wrap(-1, type_) if type_ in UNSIGNED else top - 1
    for start, stop in (
      (0, 3), (largest - 3, largest), (top - 2 if type_ in UNSIGNED else -2, 1),
      (wrap(top - 2, type_), wrap(top + 1, type_)),
    ):  # fmt: skip
      for constant in itertools.product((True, False), repeat=2):
        a, b = (
          Argument(array(v, type_), type_, c)
          for v, c in zip((start, stop), constant)
        )
        of = a.tensor
        body = (
          f"{{p}}n = stablehlo.constant dense<0> : tensor<i32>\n"
          f"{{p}}one = stablehlo.constant dense<1> : {of}\n"
          f"{{p}}o = stablehlo.constant dense<1> : tensor<i32>\n"
          f"{{p}}w:3 = stablehlo.while(%i = {{0}}, %k = {{p}}n, %z = {{1}}) : "
          f"{of}, tensor<i32>, {of} cond {{{{\n"
          f"%c = stablehlo.compare LT, %i, %z, {comparison(type_)} : "
          f"({of}, {of}) -> tensor<i1>\n"
          "stablehlo.return %c : tensor<i1>\n}} do {{\n"
          f"%j = stablehlo.add %i, {{p}}one : {of}\n"
          "%m = stablehlo.add %k, {p}o : tensor<i32>\n"
          f"stablehlo.return %j, %m, %z : {of}, tensor<i32>, {of}\n}}}}\n"
          "{r} = stablehlo.reshape {p}w#1 : (tensor<i32>) -> tensor<i32>"
        )
        expected = np.array(max(0, stop - start), np.int32)
        yield Case("while", [a, b], body, "i32", expected)


FLOATS = ("f16", "bf16", "f32", "f64")
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 0.1, 300.0, 1e4,
            float("inf"), -float("inf"), float("nan"))  # fmt: skip


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
  pairs = list(itertools.product(_SPECIAL, repeat=2))
  for type_ in types:
    for a, b, both in _float_operands(pairs, type_):
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
  pairs: list[tuple[float, float]], type_: str
) -> Iterator[tuple[Argument, Argument, bool]]:
  """As vectors, each value as a splat with the others, and with itself."""
  values = _rounded(_SPECIAL, type_)
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


SWEEPS: dict[str, Callable[[], Iterator[Case]]] = {
  **{
    sweep.__name__: functools.partial(sweep, INTEGERS)
    for sweep in (
      converts,
      binary_integers,
      unary_integers,
      clamps,
      selects,
      indices,
      loops,
    )
  },
  "floats": floats,
  "float_converts": float_converts,
}


def main(argv: Sequence[str]) -> int:
  """Runs the sweeps that are named, or all; returns 1 if a program failed."""
  failed = False
  for name in argv or SWEEPS:
    wrong = check(jax.devices("ipu")[0], SWEEPS[name]())
    print(f"{name}: {len(wrong)} wrong", *wrong[:20], sep="\n  ", flush=True)
    failed |= bool(wrong)
  return int(failed)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
