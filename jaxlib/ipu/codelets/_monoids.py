"""The operators of reductions: monoids and arg-reductions, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.kernel.evaluate import FUNCTIONS
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode

MONOIDS = {
  ReduceKind.SUM: Opcode.ADD,
  ReduceKind.PRODUCT: Opcode.MUL,
  ReduceKind.MAX: Opcode.MAX,
  ReduceKind.MIN: Opcode.MIN,
  ReduceKind.AND: Opcode.AND,
  ReduceKind.OR: Opcode.OR,
  ReduceKind.XOR: Opcode.XOR,
}
ARG = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)


def identity(kind: ReduceKind, dtype: np.dtype[Any]) -> Any:
  """The identity element: a scalar of an element or a register type.

  For ARGMAX and ARGMIN, the value that loses against every other.
  """
  if kind in (ReduceKind.MAX, ReduceKind.ARGMAX):
    return _limits(dtype)[0]
  if kind in (ReduceKind.MIN, ReduceKind.ARGMIN):
    return _limits(dtype)[1]
  if kind == ReduceKind.AND:
    return ~dtype.type(0)
  return dtype.type(1 if kind == ReduceKind.PRODUCT else 0)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
  if dtype.kind in "fV":
    return dtype.type(-np.inf), dtype.type(np.inf)
  if dtype.kind == "b":
    return np.False_, np.True_
  info = np.iinfo(dtype)
  return dtype.type(info.min), dtype.type(info.max)


def apply(kind: ReduceKind, x: Array, y: Array) -> Array:
  """Combines registers by a monoid."""
  return FUNCTIONS[MONOIDS[kind]](x, y)


def right_wins(
  kind: ReduceKind, left: list[Array], right: list[Array]
) -> Array:
  """Where the right element wins: NaN first, then value, then low index."""
  (a, i), (b, j) = left, right
  better = b > a if kind == ReduceKind.ARGMAX else b < a
  tie = (a == b) | ((a != a) & (b != b))
  return np.where(tie, j < i, ((b != b) & (a == a)) | (better & (a == a)))
