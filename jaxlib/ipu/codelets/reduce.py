"""Reduce: reduces the last dimensions of the iteration space."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _checks, _inner_loops
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  all_derived,
  ceil_div,
  choose,
  derived,
  guessed,
  least,
  most,
  multi_vertex,
  up,
)
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._kinds import ReducingCodelet
from jaxlib.ipu.codelets._monoids import (
  ARG,
  MONOIDS,
  apply,
  identity,
  right_wins,
)
from jaxlib.ipu.codelets._profile import operations, profile
from jaxlib.ipu.dtypes import FLOATS, SIZE, DType
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# Cycles of a worker: a region of contiguous elements for each output,
# ALL_REGIONS_CONTINUOUS of reduction/CycleEstimationFunctions.cpp [S].
_START, _PER_OUTPUT = 17, 12
# STRIDED_REDUCE of the same file: a worker's start; a vector's loop, storing
# it, and the start of its inner loop [S].
_STRIDED_START, _PER_VECTOR = 16, 3 + 5 + 3
# ReduceMaxClassGather (popnnCycleEstimators.cpp) [S]: 27 and 3 per element
# of floats; integers 22 and 6.
_ARG_FLOAT, _ARG_INTEGER = 3.0, 6.0
_ARG_FLOATS = (DType.F32, DType.F16, DType.BF16)
_ARG_SOURCED = (DType.F32, DType.F16, DType.I32, DType.U32)

_NOTHING = Cycles(0.0)


def per_element(
  kind: ReduceKind,
  dtypes: Sequence[DType],
  combine: Code,
  combine_outputs: Sequence[int],
) -> Cycles:
  """Cycles of a worker to combine one more element.

  f32 and f16 take one vector per cycle (the accumulators are as wide as the
  load) [S]; other types take as long as the element-wise loop with one load
  [D].
  """
  dtype = dtypes[0]
  if kind in ARG:
    each = _ARG_FLOAT if dtype in _ARG_FLOATS else _ARG_INTEGER
    return Cycles(each) if dtype in _ARG_SOURCED else derived(each)
  if kind == ReduceKind.GENERAL:
    inputs = tuple(dtypes) * 2
    p = profile(combine, tuple(combine_outputs), inputs, ())
    loads = sum(_inner_loops.LOAD[d] for d in dtypes)
    return all_derived(p.arithmetic + loads)
  if dtype in (DType.F32, DType.F16):
    return Cycles(1 / _inner_loops.VECTOR[dtype])
  if dtype == DType.BF16:
    # Widened in integers, then added as f32.
    widened = _inner_loops.conversion(dtype, DType.F32).inside
    return all_derived(widened + 1 / 2)
  load = _inner_loops.LOAD[dtype]
  if kind == ReduceKind.SET:
    return derived(load)
  own = _inner_loops.work(MONOIDS[kind], dtype)
  # Soft-float's loads are as uncertain as its additions.
  found = own.inside + load
  return guessed(found.total) if own.guessed else all_derived(found)


def partial_bytes(dtype: DType) -> int:
  """Bytes of a partial result: narrow floats are summed as f32."""
  return max(SIZE[dtype], 4) if dtype in FLOATS else SIZE[dtype]


class Order(enum.Enum):
  """The contiguous elements on a tile: of one result, of several results, or
  as arranged by the exchange before."""

  ROWS = enum.auto()
  COLUMNS = enum.auto()
  ANY = enum.auto()


def cell_cycles(
  target: Target,
  kept: Any,
  reduced: Any,
  each: Cycles,
  width: int = 0,
  order: Order = Order.ANY,
  made: Cycles = _NOTHING,
  sourced: bool = True,
) -> Cycles:
  """Cycles of a tile that makes `reduced` elements for each of `kept` results,
  `made` cycles an element, and combines them, `each` cycles an element.

  Rows take popops' vertex for continuous regions, columns STRIDED_REDUCE, a
  vector of `width` results at a time (0: there is none for this reduction).
  The workers share the outputs; if there are fewer outputs than workers,
  several workers may share one and a second pass adds up their results [D].
  For arrays of candidates, and if not `sourced`, only totals are computed, not
  their sources.
  """
  workers = target.num_workers
  costs = (each, made)
  if not sourced or isinstance(kept, np.ndarray):
    costs = (each.total, made.total)
  if width == 0 or order is Order.ROWS:
    worker = _rows(workers, kept, reduced, *costs)
  elif order is Order.COLUMNS:
    worker = _columns(workers, kept, reduced, *costs, width)
  else:
    worker = least(
      _rows(workers, kept, reduced, *costs),
      _columns(workers, kept, reduced, *costs, width),
    )
  return multi_vertex(target, worker)


def cell_bound(target: Target, each: Cycles, width: int) -> tuple[float, ...]:
  """What lower bounds of `cell_cycles` are computed from, for partial results
  in any order: the fields of `Product` (runtime/plan/product_splits.h) that
  begin with `adding`. Columns take no longer than rows, but for rounding."""
  workers = target.num_workers
  return (
    float(MULTI_VERTEX + target.launch_cycles), float(_STRIDED_START), 1.0,
    _PER_VECTOR / width, each.total, float(workers * width),
  )  # fmt: skip


def region_cycles(outputs: Any, combined: Any) -> Any:
  """A worker's cycles on `outputs` regions, `combined` for each [S]."""
  return (combined + _PER_OUTPUT) * outputs + _START


def _rows(workers: int, kept: Any, reduced: Any, each: Any, made: Any) -> Any:
  """The slowest worker's cycles, region by region."""
  both = each + made
  worker = region_cycles(ceil_div(kept, workers), up(both * reduced))
  sharing = most(workers // most(kept, 1), 1)
  if not isinstance(sharing, np.ndarray) and sharing <= 1:
    return worker
  shared = region_cycles(1, up(both * ceil_div(reduced, sharing)))
  shared = all_derived(shared + region_cycles(1, up(each * sharing)))
  return least(worker, choose(sharing > 1, shared, worker))


def _columns(
  workers: int, kept: Any, reduced: Any, each: Any, made: Any, width: int
) -> Any:
  """The slowest worker's cycles, vector by vector; the first of each result is
  made but not combined."""

  def combined(count: Any) -> Any:
    return up(step * (count - 1) + make * count)

  step, make = each * width, made * width
  vectors = ceil_div(ceil_div(kept, workers), width)
  vector_cycles = combined(reduced) + _PER_VECTOR
  worker = _STRIDED_START + vector_cycles * vectors
  sharing = most(workers // most(ceil_div(kept, width), 1), 1)
  if not isinstance(sharing, np.ndarray) and sharing <= 1:
    return worker
  shared = combined(ceil_div(reduced, sharing))
  shared = shared + up(step * (sharing - 1))
  shared = all_derived(shared + 2 * (_STRIDED_START + _PER_VECTOR))
  return least(worker, choose(sharing > 1, shared, worker))


def vector(
  target: Target, fields: schema.Reduce, dtypes: Sequence[DType]
) -> int:
  """Elements that the vertex for columns takes at a time; 0 if there is no such
  vertex, for arg-reductions and general functions. The source has it for f32
  and f16 [S]; other types' data path is as wide [D]."""
  if fields.kind not in MONOIDS or not dtypes:
    return 0
  return max(target.data_path_bytes // max(SIZE[d] for d in dtypes), 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReduceHints(Hints):
  """What is known of the cells, which may be no boxes.

  Attributes:
    kept: the number of a cell's results; by default from its extents.
    reduced: the number of elements of each; by default from its extents.
    order: the elements' order in memory.
  """

  kept: int | None = None
  reduced: int | None = None
  order: Order = Order.ANY


_NO_HINTS = ReduceHints()


class ReduceCodelet(ReducingCodelet):
  """Cycles: popops' reductions of rows or columns (`cell_cycles`)."""

  record = schema.Reduce
  hints = ReduceHints
  # popops never gives a piece less than 64 partials (ReductionSplit.hpp) [S].
  many_partials = (65, 64 * 64 + 1)
  reads_apart = True  # a column of one element takes as long as of a vector

  def cycles(
    self,
    target: Target,
    fields: schema.Reduce,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: ReduceHints = _NO_HINTS,
  ) -> Cycles:
    rank = len(cell) - fields.num_reduced
    kept = volume(cell[:rank]) if hints.kept is None else hints.kept
    reduced = volume(cell[rank:]) if hints.reduced is None else hints.reduced
    each, made = self.per_element(
      fields,
      tuple(operand_dtypes),
      tuple(result_dtypes),
      hints.scalars,
    )
    return cell_cycles(
      target,
      kept,
      reduced,
      each,
      vector(target, fields, operand_dtypes),
      hints.order,
      made,
    )

  def per_element(
    self,
    fields: schema.Reduce,
    operand_dtypes: tuple[DType, ...],
    result_dtypes: tuple[DType, ...],
    scalars: tuple[int, ...] = (),
  ) -> tuple[Cycles, Cycles]:
    """Cycles of a worker to combine one more element, and additionally to make
    it; derived if anything is computed before."""
    # Floats are widened by the instructions that add them. All others are
    # combined in the results' types: the fused producer's values may have a
    # type other than its operands'.
    floats = fields.kind in MONOIDS and all(
      d in (DType.F16, DType.BF16, DType.F32)
      for d in (*operand_dtypes, *result_dtypes)
    )
    combined = operand_dtypes if floats and operand_dtypes else result_dtypes
    combined = combined[: max(len(fields.outputs), 1)]
    before = profile(
      fields.code, tuple(fields.outputs), operand_dtypes, (), scalars
    )
    each = per_element(
      ReduceKind(fields.kind),
      combined,
      fields.combine,
      fields.combine_outputs,
    )
    loads = sum(
      _inner_loops.LOAD[d]
      for i, d in enumerate(operand_dtypes)
      if i not in scalars
    )
    if fields.kind in MONOIDS and combined[0] in _inner_loops.ISSUE:
      # The loads are in parallel with the float pipeline.
      hidden = most(each + before.issued, loads) + each * -1
      made = before.arithmetic + -before.issued + hidden
    else:
      further = max(loads - sum(_inner_loops.LOAD[d] for d in combined), 0.0)
      made = before.arithmetic + further
    if before.arithmetic.total:
      return all_derived(each), all_derived(made)
    return each, made

  def flops(self, fields: schema.Reduce, shape: Sequence[int]) -> float:
    return volume(shape) * (1 + operations(fields.code))

  def vertex(
    self, fields: schema.Reduce, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """A cell has two axes: its parallel points and its reduced points."""
    values = evaluate(
      fields.code, fields.outputs, operands, cell.coordinates.__getitem__
    )
    values = [np.broadcast_to(v, cell.extents) for v in values]
    kept = len(cell.shape) - fields.num_reduced
    kind = ReduceKind(fields.kind)
    if kind in ARG and len(values) == 1:
      index = np.zeros((), np.int64)
      for extent, along in zip(
        cell.shape[kept:], cell.coordinates[kept:], strict=True
      ):
        index = index * extent + along
      values.append(np.broadcast_to(index, cell.extents))
    first = 0
    if kind == ReduceKind.GENERAL and any(
      c.reshape(-1)[0] for c in cell.coordinates[kept:]
    ):
      # Only the first part starts with `init`.
      accumulators, first = [v[..., 0] for v in values], 1
    else:
      registers = [v.dtype for v in values]
      accumulators = self.initial(fields, registers, values[0].shape[:-1])
    for i in range(first, values[0].shape[-1]):
      accumulators = self.combine(
        fields, accumulators, [v[..., i] for v in values]
      )
    return accumulators

  def initial(
    self,
    fields: schema.Reduce,
    registers: Sequence[np.dtype[Any]],
    shape: tuple[int, ...],
  ) -> list[Array]:
    """The monoid's identity, or `init`."""
    if fields.kind == ReduceKind.GENERAL:
      words = np.frombuffer(fields.init, "V8")
      return [
        np.full(shape, np.frombuffer(word.tobytes()[: r.itemsize], r)[0])
        for word, r in zip(words, registers, strict=True)
      ]
    kind = ReduceKind(fields.kind)
    value = np.full(shape, identity(kind, registers[0]))
    if kind not in ARG:
      return [value]
    # An index that loses every tie.
    worst = np.iinfo(registers[1]).max
    return [value, np.full(shape, worst, registers[1])]

  def partial_bytes(self, fields: schema.Reduce, dtype: DType) -> int:
    return partial_bytes(dtype)

  def check(
    self, fields: schema.Reduce, step: schema.Execute, v: _checks.Checker
  ) -> None:
    rank, results = len(step.shape), len(step.results)
    v.require(
      fields.num_reduced <= rank, f"reduces {fields.num_reduced} of {rank}"
    )
    _checks.register_program(
      v, fields.code, fields.outputs, len(step.operands), rank
    )
    kind = fields.kind
    v.require(
      kind in set(ReduceKind) and kind != ReduceKind.SET,
      f"unknown reduction {kind}",
    )
    n = len(fields.outputs)
    _checks.combiner(v, kind, fields.combine, fields.combine_outputs, n)
    if kind == ReduceKind.GENERAL:
      v.require(
        len(fields.init) == 8 * n and n == results,
        f"{n} values with {len(fields.init)} bytes of start and {results} "
        "results",
      )
    elif kind in ARG:
      v.require(
        n in (1, 2) and results in (1, 2),
        f"an arg-reduction of {n} values with {results} results",
      )
    else:
      v.require(n == results == 1, f"{n} values, {results} results")

  def example(self) -> tuple[schema.Reduce, int]:
    code = Writer()
    outputs = [code.load(0, DType.F32)]
    fields = schema.Reduce(
      1, ReduceKind.SUM, code.finish(), outputs, Code(), [], b""
    )
    return fields, 2

  def combine(
    self, fields: schema.Reduce, left: list[Array], right: list[Array]
  ) -> list[Array]:
    kind = ReduceKind(fields.kind)
    with np.errstate(all="ignore"):
      if kind == ReduceKind.GENERAL:
        return evaluate(fields.combine, fields.combine_outputs, [*left, *right])
      if kind in ARG:
        take = right_wins(kind, left, right)
        return [np.where(take, r, l) for l, r in zip(left, right, strict=True)]
      return [apply(kind, left[0], right[0])]


CODELET = ReduceCodelet()
