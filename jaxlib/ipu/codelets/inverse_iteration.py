"""InverseIteration: eigenvectors of symmetric tridiagonal matrices, each
independently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._checks import Checker, values_of_matrices
from jaxlib.ipu.codelets._codelet import Array, Cell, Extents, volume
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  all_derived,
  ceil_div,
  derived,
  most,
  up,
)
from jaxlib.ipu.codelets._factor_cycles import START, STEP
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
from jaxlib.ipu.codelets._kinds import LocalCodelet
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# A worker's state for each row: four numbers of the factors, an element of the
# vector, and whether rows were exchanged.
_KEPT = 6
# A test and what follows it; an address [D].
_BRANCH = 2

_FACTOR = (
  *(Opcode.SUB, Opcode.SUB, Opcode.ABS, Opcode.GT, Opcode.ABS, Opcode.LT),
  *(Opcode.DIV, Opcode.MUL, Opcode.MUL, Opcode.SUB),
)
_FORWARD = (Opcode.MUL, Opcode.SUB)
# Including overflow protection and the search of the largest.
_BACKWARD = (
  *(Opcode.MUL, Opcode.SUB, Opcode.MUL, Opcode.SUB, Opcode.MUL),
  *(Opcode.ABS, Opcode.GT, Opcode.MAX),
)
# Integers: a start. Then, for two vectors, divisions and a sum of squares.
_HASH = (
  *(Opcode.MUL, Opcode.XOR, Opcode.SHR_LOGICAL, Opcode.XOR, Opcode.MUL),
  *(Opcode.SHR_LOGICAL, Opcode.XOR, Opcode.MUL, Opcode.SHR_LOGICAL),
  *(Opcode.XOR, Opcode.AND, Opcode.OR),
)
_SCALE = (
  *(Opcode.DIV, Opcode.MUL, Opcode.DIV, Opcode.MUL, Opcode.ADD, Opcode.DIV),
)


def _work(ops: Sequence[Opcode], dtype: DType, memory: int) -> Cycles:
  """Cycles of operations on single elements, of which a worker issues one at a
  time, and of loads and stores [D]."""
  found = Cycles(1.0 * memory)
  for op in ops:
    found += most(_inner_loops.work(op, dtype).inside, 1.0)
  return all_derived(found)


def per_row(dtype: DType) -> Cycles:
  """Total cycles for a row of a matrix and one of its eigenvalues."""
  words = max(SIZE[dtype] // 4, 1)
  found = _work(_HASH, DType.U32, 1)
  found += _work(_FACTOR, dtype, 7 * words) + _BRANCH
  found += 2 * _work(_BACKWARD, dtype, 5 * words)
  found += _work(_FORWARD, dtype, 4 * words) + _BRANCH
  return found + _work(_SCALE, dtype, 6 * words)


class InverseIterationCodelet(LocalCodelet):
  """Cycles: each worker has whole eigenvalues."""

  record = schema.InverseIteration
  reads_whole = True
  _CODE = 1024  # [G]

  def cycles(
    self,
    target: Target,
    fields: schema.InverseIteration,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    workers = target.num_workers
    each = ceil_div(volume(cell), workers * 1.0)
    worker = derived(START) + up(per_row(operand_dtypes[0]) * fields.rows)
    launch = derived(float(target.launch_cycles)) + MULTI_VERTEX
    return launch + STEP + worker * each * workers

  def flops(
    self, fields: schema.InverseIteration, shape: Sequence[int]
  ) -> float:
    """The factors, three triangular solves and the length."""
    return (6 + 5 + 2 + 5 + 4) * fields.rows * volume(shape)

  def vertex(
    self,
    fields: schema.InverseIteration,
    cell: Cell,
    operands: Sequence[Array],
  ) -> list[Array]:
    cell.require_box("inverse iteration")
    d, beside = (o[:, 0] for o in operands[:2])  # [matrices, n]
    with np.errstate(all="ignore"):
      return [_vectors(d, beside, operands[2], cell.coordinates[1][0])]

  def check(
    self, fields: schema.InverseIteration, step: schema.Execute, v: Checker
  ) -> None:
    v.require(
      len(step.shape) == 2 and len(step.operands) == 3 and fields.rows > 0,
      f"inverse iteration of {len(step.operands)} operands over {step.shape}",
    )
    (count, values), n = step.shape, fields.rows
    values_of_matrices(
      v, step, "inverse iteration",
      [[count, n], [count, n - 1], [count, values], [count, values, n]],
      [[0, -1], [0, -1], [0, 1], [0, 1]],
    )  # fmt: skip

  def example(self) -> tuple[schema.InverseIteration, int]:
    return schema.InverseIteration(8), 2


def kept_bytes(target: Target, rows: int, dtype: DType, values: int) -> int:
  """Bytes that the workers of a tile with so many eigenvalues need besides
  tensors."""
  return min(target.num_workers, values) * _KEPT * rows * SIZE[dtype]


def start(rows: int, values: Array, dtype: Any) -> Array:
  """Pseudo-random elements [rows, values] between 1 and 2 or -2 and -1: a
  function of the row and the value's number."""
  row = np.arange(rows, dtype=np.uint32)[:, None]
  value = values.astype(np.uint32)
  h = (row * np.uint32(0x9E3779B1)) ^ (value * np.uint32(0x85EBCA77))
  h = (h ^ (h >> 15)) * np.uint32(0x2C1B3C6D)
  h = (h ^ (h >> 12)) * np.uint32(0x297A2D39)
  bits = ((h ^ (h >> 15)) & np.uint32(0x807FFFFF)) | np.uint32(0x3F800000)
  return bits.view(np.float32).astype(dtype)


def _vectors(d: Array, beside: Array, values: Array, numbers: Array) -> Array:
  """Vectors [matrices, values, n] for eigenvalues [matrices, values], whose
  numbers are [values], of matrices [matrices, n]."""
  dtype = d.dtype.type
  limits = np.finfo(dtype)
  small, one = np.sqrt(limits.tiny), dtype(1)
  matrices, n = d.shape
  d = d.T[:, :, None]  # [n, matrices, 1]
  e = np.concatenate([beside.T, np.zeros((1, matrices), dtype)])[:, :, None]
  largest = np.maximum(np.abs(d).max(0), np.abs(e).max(0))
  floor = np.maximum(largest * limits.eps, small)

  def kept_off_zero(p: Array) -> Array:
    return np.where(np.abs(p) < floor, np.where(p < 0, -floor, floor), p)

  # T - x - floor = P L U; of U the inverse of its diagonal, and two diagonals
  # above. At this distance from a multiple eigenvalue all its vectors grow
  # alike; at the eigenvalue itself rounding decides how much each does, and all
  # might become one of them.
  shape = (n, *values.shape)
  inverse, multiple, exchanged = np.empty((3, *shape), dtype)
  above, after = np.zeros((2, *shape), dtype)
  exchanged = exchanged.astype(bool)
  pivot, beyond = (d[0] - values) - floor, e[0] + 0 * values
  for i in range(n - 1):
    s = exchanged[i] = np.abs(e[i]) > np.abs(pivot)
    below = (d[i + 1] - values) - floor
    inverse[i] = one / kept_off_zero(np.where(s, e[i], pivot))
    multiple[i] = np.where(s, pivot, e[i]) * inverse[i]
    above[i] = np.where(s, below, beyond)
    after[i] = np.where(s, e[i + 1], 0)
    pivot = np.where(s, beyond, below) - multiple[i] * above[i]
    beyond = np.where(s, -(multiple[i] * e[i + 1]), e[i + 1])
  inverse[-1] = one / kept_off_zero(pivot)

  def backward(x: Array) -> Array:
    """U^-1 x, scaled to a largest element of 1."""
    x = x.copy()
    none = np.zeros(values.shape, dtype)
    for i in reversed(range(n)):
      first = x[i + 1] if i + 1 < n else none
      second = x[i + 2] if i + 2 < n else none
      x[i] = (x[i] - above[i] * first) - after[i] * second
      x[i] = np.clip(x[i] * inverse[i], -1 / small, 1 / small)
    unit = np.abs(x).max(0)
    return x / np.where(unit == 0, one, unit)

  def forward(x: Array) -> Array:
    """(P L)^-1 x."""
    for i in range(n - 1):
      first = np.where(exchanged[i], x[i + 1], x[i])
      second = np.where(exchanged[i], x[i], x[i + 1])
      x[i], x[i + 1] = first, second - multiple[i] * first
    return x

  x = start(n, numbers, dtype)[:, None] * small
  x = backward(np.broadcast_to(x, shape))
  x = backward(forward(x * small))
  squares = np.zeros(values.shape, dtype)
  for row in x:
    squares += row * row
  return np.moveaxis(x / np.sqrt(squares), 0, -1)


CODELET = InverseIterationCodelet()
