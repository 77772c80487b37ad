"""Integer arithmetic on constants and arguments at edge values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from parse_kit import (
  COMPARE,
  SIGNED,
  Argument,
  Case,
  array,
  comparison,
  edges,
  tensor,
  width,
  wrap,
)


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
    return 0
  return pow(a, b, 1 << width(type_))


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
