"""Map: an element-wise register program over the iteration space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _checks
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  Cycles,
  ceil_div,
  derived,
  least,
  multi_vertex,
)
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
from jaxlib.ipu.codelets._inner_loops import SUPERVISOR_LAUNCH
from jaxlib.ipu.codelets._kinds import LocalCodelet
from jaxlib.ipu.codelets._profile import Profile, operations, profile
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# popopsCycleEstimators.cpp [S]: cycles of a worker before its loop. UnaryOp1D
# 17 (EXP 33), BroadcastScalar1D 20, BinaryOp1D 29 for f32 and 26 otherwise;
# UnaryOp1D has 9 cycles more outside its workers.
_UNARY, _EXP, _BROADCAST, _BINARY_F32, _BINARY = 17, 33, 20, 29, 26
_UNARY_SUPERVISOR = 9
# Unpacking the pointer of a further operand (cyclesTables.hpp, ScaledPtr32)
# [S].
_POINTER = 2
# ScaledAdd, a supervisor vertex: 57 cycles of the supervisor, 7 more if it
# subtracts; 15 of a worker before its loop, 3 after it, and 3 more for the
# first vector than for the others (PerformanceEstimation.cpp) [S].
_SCALED_SUPERVISOR, _SCALED_SUBTRACTS, _SCALED_START = 57, 7, 21
# BroadcastVectorOuter: overhead of each row, if all rows begin at a vector and
# if they may not; workers share the rows, or each row's elements
# (popopsCycleEstimators.cpp) [S].
_PER_ROW, _PER_ROW_UNALIGNED = 7, 25


def _run(cell: Extents, walks: tuple[tuple[bool, ...], ...]) -> int:
  """Elements of a row, along which each operand either varies or is
  broadcast."""
  run = 1
  kinds = None
  for d in reversed(range(len(cell))):
    if cell[d] == 1:
      continue
    here = tuple(w[d] for w in walks)
    if kinds is None:
      kinds = here
    if here != kinds:
      break
    run = run * cell[d]
  return run


def worker_start(p: Profile) -> tuple[int, int]:
  """Cycles of a worker before its loop, and outside of all workers."""
  if p.loads <= 1 and p.unary:
    return (_EXP if p.has_exp else _UNARY), _UNARY_SUPERVISOR
  if p.loads <= 1:
    return _BROADCAST, 0
  binary = _BINARY_F32 if p.first_dtype == DType.F32 else _BINARY
  return binary + _POINTER * (p.loads + p.scalars - 2), 0


class MapCodelet(LocalCodelet):
  """Cycles: BinaryOp1D, BroadcastScalar1D and UnaryOp1D, all MultiVertices,
  and ScaledAdd.

  A single f32 addition reproduces the two measured points (10 and 1024
  elements on a tile) with the target's launch cost to the cycle. With operands
  that are broadcast, each row takes as long as in BroadcastVectorOuter.
  """

  record = schema.Map
  in_place = True
  writes_parts = True
  one_order = True

  def cycles(
    self,
    target: Target,
    fields: schema.Map,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    p = self.profile(fields, operand_dtypes, result_dtypes, hints.scalars)
    loop = p.hoisted + self._elements(target.num_workers, p, cell, hints.walks)
    if p.scaled_add is None:
      start, supervisor = worker_start(p)
      return multi_vertex(target, start + loop) + supervisor
    launch = derived(SUPERVISOR_LAUNCH) + _SCALED_SUPERVISOR
    launch += _SCALED_SUBTRACTS if p.scaled_add is Opcode.SUB else 0
    return launch + target.num_workers * (_SCALED_START + loop)

  def _elements(
    self,
    workers: int,
    p: Profile,
    cell: Extents,
    walks: tuple[tuple[bool, ...], ...],
  ) -> Cycles:
    """The cycles of the slowest worker's loops."""

    def loops(count: Any, elements: Any) -> Any:
      """`count` loops over so many elements each, rounded up to vectors except
      for scalar operations."""
      whole = ceil_div(elements, p.unit) * p.unit
      less = p.single * (count * (elements - whole))
      return p.per_element * (count * whole) + less

    size = volume(cell)
    run = size
    if walks and len(walks[0]) == len(cell):
      run = _run(cell, walks)
    if run is size or run == size:
      return loops(1, ceil_div(size, workers))
    rows = size / run
    each = _PER_ROW if run % p.unit == 0 else _PER_ROW_UNALIGNED
    mine = ceil_div(rows, workers)
    return least(
      loops(mine, run) + mine * each,
      loops(rows, ceil_div(run, workers)) + rows * each,
    )

  def flops(self, fields: schema.Map, shape: Sequence[int]) -> float:
    return volume(shape) * operations(fields.code)

  def profile(
    self,
    fields: schema.Map,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    scalars: tuple[int, ...] = (),
  ) -> Profile:
    """The program's cost per element (cached by program)."""
    return profile(
      fields.code,
      tuple(fields.outputs),
      tuple(operand_dtypes),
      tuple(result_dtypes),
      scalars,
    )

  def vertex(
    self, fields: schema.Map, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    values = evaluate(
      fields.code, fields.outputs, operands, cell.coordinates.__getitem__
    )
    return [np.broadcast_to(v, cell.extents) for v in values]

  def check(
    self, fields: schema.Map, step: schema.Execute, v: _checks.Checker
  ) -> None:
    _checks.register_program(
      v, fields.code, fields.outputs, len(step.operands), len(step.shape)
    )
    v.require(
      len(fields.outputs) == len(step.results), "a result without its value"
    )

  def example(self) -> tuple[schema.Map, int]:
    code = Writer()
    loads = [code.load(i, DType.F32) for i in (0, 1)]
    both = code.emit(Opcode.ADD, RegisterType.F32, *loads)
    return schema.Map(code.finish(), [both]), 2

  def code_bytes(self, fields: schema.Map) -> int:
    # Generated code: a program's instruction is about two machine instructions
    # of four bytes each [G].
    return 96 + 8 * len(fields.code)


CODELET = MapCodelet()
