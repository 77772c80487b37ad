"""Bisect: eigenvalues of symmetric tridiagonal matrices, each independently."""

from __future__ import annotations

from collections.abc import Sequence

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

# Bisecting an interval and choosing a half, by integers [D].
_CUT = 12


def per_pivot(dtype: DType) -> Cycles:
  """Cycles of one pivot: two loads, a quotient, two differences, its sign, and
  the count [D]. Each quotient waits for the last one, at no extra cost: the
  next instruction of a worker starts six cycles later anyway."""
  found = Cycles(2 * _inner_loops.LOAD[dtype] + 1)
  for op in (Opcode.DIV, Opcode.SUB, Opcode.SUB, Opcode.LE):
    found += _inner_loops.work(op, dtype).inside
  return all_derived(found)


class BisectCodelet(LocalCodelet):
  """Cycles: workers share the eigenvalues; if there are fewer than workers,
  several cut the interval of one into more than two parts."""

  record = schema.Bisect
  reads_whole = True

  def cycles(
    self,
    target: Target,
    fields: schema.Bisect,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    n, dtype = fields.rows, operand_dtypes[0]
    values = most(volume(cell), 1.0)
    workers = target.num_workers
    helpers = most(np.floor(workers / values), 1.0)
    steps = np.ceil(8 * SIZE[dtype] / np.log2(helpers + 1))
    each = ceil_div(values * helpers, workers * 1.0)
    worker = derived(START) + up(per_pivot(dtype) * n + _CUT) * each
    launch = derived(float(target.launch_cycles)) + MULTI_VERTEX
    return launch + (STEP + worker * workers) * steps

  def flops(self, fields: schema.Bisect, shape: Sequence[int]) -> float:
    """As many steps as f32 has bits."""
    return 32 * 3 * fields.rows * volume(shape)

  def vertex(
    self, fields: schema.Bisect, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    cell.require_box("a bisection")
    d, beside = (o[:, 0] for o in operands)  # [matrices, n]
    with np.errstate(all="ignore"):
      return [_bisect(d, beside * beside, cell.coordinates[1] + fields.first)]

  def check(
    self, fields: schema.Bisect, step: schema.Execute, v: Checker
  ) -> None:
    v.require(
      len(step.shape) == 2 and len(step.operands) == 2 and fields.rows > 0,
      f"a bisection of {len(step.operands)} operands over {step.shape}",
    )
    (count, values), n = step.shape, fields.rows
    values_of_matrices(
      v, step, "a bisection",
      [[count, n], [count, n - 1], [count, values]],
      [[0, -1], [0, -1], [0, 1]],
    )  # fmt: skip
    v.require(
      0 <= fields.first <= n - values,
      f"{values} eigenvalues from {fields.first} on, of {n}",
    )

  def example(self) -> tuple[schema.Bisect, int]:
    return schema.Bisect(8, 0), 2


def _flip(keys: Array) -> Array:
  """Bits of floats as integers of the same order, and back."""
  return np.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys)


def _bisect(d: Array, squares: Array, wanted: Array) -> Array:
  """Eigenvalues `wanted` [1, values] of matrices [matrices, n]."""
  dtype = d.dtype
  integers = np.dtype(f"i{dtype.itemsize}")
  finite = np.isfinite(d).all(-1, keepdims=True)
  finite = finite & np.isfinite(squares).all(-1, keepdims=True)
  shape = (len(d), wanted.shape[1])
  high = np.full(shape, np.array(np.inf, dtype).view(integers))
  low = ~high
  tiny = -np.finfo(dtype).tiny
  for _ in range(8 * dtype.itemsize):
    middle = (low & high) + ((low ^ high) >> 1)
    x = _flip(middle).view(dtype)
    q, count = np.ones(shape, dtype), np.zeros(shape, np.int64)
    for i in range(d.shape[1]):
      square = squares[:, i - 1, None] if i else dtype.type(0)
      q = (d[:, i, None] - x) - square / q
      count += q <= 0
      q = np.where(q == 0, tiny, q)
    enough = count > wanted
    high = np.where(enough, middle, high)
    low = np.where(enough, low, middle)
  found = _flip(high).view(dtype) + dtype.type(0)
  return np.where(finite, found, dtype.type(np.nan))


CODELET = BisectCodelet()
