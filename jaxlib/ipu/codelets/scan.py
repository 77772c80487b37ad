"""Scan: running totals along the last dimension of the iteration space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.codelets import _checks, _inner_loops
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  Cycles,
  all_derived,
  ceil_div,
  multi_vertex,
  up,
)
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
from jaxlib.ipu.codelets._kinds import LocalCodelet
from jaxlib.ipu.codelets._profile import operations, profile
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.layout import refine
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# PopLibs has no scan. A worker starts as in a reduction of contiguous regions
# (reduction/CycleEstimationFunctions.cpp) [D]; a total is stored with each
# element, where a reduction stores one at the end.
_START, _PER_SEQUENCE = 17, 12


def per_element(combine: Code, output: int, dtype: DType) -> Cycles:
  """Cycles of one step: load, combine, store, the loop's end [D]. A total
  depends on the one before it, at no extra cost: the next instruction of a
  worker starts six cycles later anyway."""
  function = profile(combine, (output,), (dtype, dtype), ())
  return function.arithmetic + 2 * _inner_loops.LOAD[dtype] + 1


class ScanCodelet(LocalCodelet):
  """Cycles: the workers share the sequences."""

  record = schema.Scan

  def cycles(
    self,
    target: Target,
    fields: schema.Scan,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    each = per_element(fields.combine, fields.combine_output, operand_dtypes[0])
    sequences = ceil_div(volume(cell[:-1]), target.num_workers)
    worker = _START + (_PER_SEQUENCE + up(each * cell[-1])) * sequences
    return all_derived(multi_vertex(target, worker))

  def flops(self, fields: schema.Scan, shape: Sequence[int]) -> float:
    return volume(shape) * max(operations(fields.combine), 1)

  def vertex(
    self, fields: schema.Scan, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    cell.require_box("a scan")
    elements, total = operands
    elements = np.broadcast_to(elements, cell.extents)
    total = np.broadcast_to(total[..., 0], cell.extents[:-1])
    steps = list(range(cell.extents[-1]))[:: -1 if fields.reverse else 1]
    totals = {}
    for i in steps:
      (total,) = evaluate(
        fields.combine, [fields.combine_output], [total, elements[..., i]]
      )
      totals[i] = np.broadcast_to(total, cell.extents[:-1])
    return [np.stack([totals[i] for i in sorted(totals)], -1)]

  def check(
    self, fields: schema.Scan, step: schema.Execute, v: _checks.Checker
  ) -> None:
    operands, results = len(step.operands), len(step.results)
    v.require(
      (operands, results) == (2, 1) and bool(step.shape),
      f"a scan of {operands} operands over {len(step.shape)} dimensions",
    )
    _checks.register_program(v, fields.combine, [fields.combine_output], 2, 0)
    if 0 in step.shape:
      return
    factors = v.layout(step.partition).factors
    cut = refine(factors, tuple(step.shape))
    v.require(
      cut is not None and all(f.parts <= 1 for f in cut[-1]),
      "a scan's partition cuts the dimension that is scanned",
    )

  def example(self) -> tuple[schema.Scan, int]:
    code = Writer()
    loads = [code.load(i, DType.F32) for i in (0, 1)]
    both = code.emit(Opcode.ADD, RegisterType.F32, *loads)
    return schema.Scan(code.finish(), both, 0), 2


CODELET = ScanCodelet()
