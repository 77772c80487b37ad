"""Indices and trip counts that are constant or not, of every integer type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from parse_kit import (
  UNSIGNED,
  Argument,
  Case,
  array,
  comparison,
  edges,
  tensor,
  width,
  wrap,
)

_LENGTH = 40_000  # of which an unsigned index of 16 bits can read all
_SHORT = 300
_TINY = 7  # of which one of 4 bits can read all


def _index_values(type_: str, length: int) -> list[int]:
  """Edge values, and those at both ends of an array."""
  near = (length - 1, length, 200, 150, -3)
  fits = [n for n in near if wrap(n, type_) == n]
  return list(dict.fromkeys([*edges(type_), *fits]))


def _clamp(index: int, most: int) -> int:
  return min(max(index, 0), most)


def _ways(values: Sequence[int], type_: str) -> Iterator[tuple[int, Any, str]]:
  """Each index as a scalar constant, as an argument, as one element of a
  constant and of an argument, and as one element of a broadcast of either:
  (index, operands, text that defines {p}i)."""
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
      yield (
        value,
        one_value,
        f"{{p}}b = stablehlo.broadcast_in_dim {{0}}, dims = [] : ({scalar}) -> "
        f"{tensor(type_, 3)}\n"
        f"{{p}}s = stablehlo.slice {{p}}b [1:2] : ({tensor(type_, 3)}) -> "
        f"{one}\n"
        f"{{p}}i = stablehlo.reshape {{p}}s : ({one}) -> {scalar}\n",
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
    if type_ == "i1":
      continue
    bits = width(type_)
    length = _TINY if bits < 8 else _SHORT if bits == 8 else _LENGTH
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
      yield from _repeated(value, index, text, scalar, x)
      if type_ == "i32":
        yield from _cases(value, index, text)


def _repeated(
  value: int, index: Argument, text: str, scalar: str, x: Argument
) -> Iterator[Case]:
  """A gather and a scatter of three equal indices."""
  three = tensor(index.type_, 3, 1)
  at = text + (
    f"{{p}}v = stablehlo.broadcast_in_dim {{p}}i, dims = [] : ({scalar}) -> "
    f"{three}\n"
  )
  read = x.values[_clamp(value, len(x.values) - 1)]
  body = at + (
    '{r} = "stablehlo.gather"({1}, {p}v) <{{dimension_numbers = '
    "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
    "index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : "
    f"({x.tensor}, {three}) -> tensor<3xi32>"
  )
  yield Case("gather of a broadcast", [index, x], body, "i32", read.repeat(3))
  small = Argument(np.arange(5, dtype=np.int32), "i32", False)
  updates = Argument(np.array([10, 200, 3000], np.int32), "i32", False)
  body = at + (
    '{r} = "stablehlo.scatter"({1}, {p}v, {2}) <{{'
    "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = "
    "[0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> "
    "({{\n^bb0(%old: tensor<i32>, %new: tensor<i32>):\n"
    "%s = stablehlo.add %old, %new : tensor<i32>\n"
    "stablehlo.return %s : tensor<i32>\n"
    f"}}}}) : ({small.tensor}, {three}, {updates.tensor}) -> {small.tensor}"
  )
  expected = small.values.copy()
  if 0 <= value < len(expected):
    expected[value] += updates.values.sum()
  operands = [index, small, updates]
  yield Case("scatter of a broadcast", operands, body, "i32", expected)


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
    if width(type_) < 4:
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
