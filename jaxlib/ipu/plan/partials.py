"""The addition or cast of a product's partials, after its vertices.

Where several tiles have partials of the same sums, some of them add these up
and store the results (plan/combine.py). Where one tile has all terms of a sum,
and its vertex leaves the sum in the wider type of partials, another vertex
casts it. The cycles of that cast are among the codelet's (codelets/dot.py); its
buffer is accounted for here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.codelets._cycles import Cycles, derived, up
from jaxlib.ipu.codelets.reduce import cell_bound, cell_cycles, per_element
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.plan import combine, cost
from jaxlib.ipu.plan.combine import ReduceCycles
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# Of poplin's ReduceAdd: cycles of the supervisor; of a worker before its loop;
# of a vector of as many bytes, and of each further partial of it
# (getReduceCycleEstimate in poplin/PerformanceEstimation.hpp) [S].
_SUPERVISOR, _START, _STEP, _PARTIAL, _VECTOR_BYTES = 33, 20, 8, 2, 16
_VECTOR_ADDS = (DType.F16, DType.F32)


def adding_cycles(
  target: Target, dtype: DType, sourced: bool = True
) -> ReduceCycles:
  """Adding partials: poplin's ReduceAdd; the tile's own partials stay in place.
  Integers and f64, which no vector unit adds, take as long as in reductions;
  without their sources, if not `sourced`, as planners need only totals."""

  def cycles(share: Any, fan: Any) -> Cycles:
    vectors = up(share / (_VECTOR_BYTES / SIZE[dtype]))
    steps = up(vectors / target.num_workers)
    worker = _START + steps * (_PARTIAL * (fan - 1) + _STEP)
    return (
      _SUPERVISOR + target.num_workers * worker + derived(target.launch_cycles)
    )

  if dtype in _VECTOR_ADDS:
    return cycles
  each, width = _reducing(target, dtype)
  return lambda share, fan: cell_cycles(
    target, share, fan, each, width, sourced=sourced
  )


def adding_bound(target: Target, dtype: DType) -> tuple[float, ...]:
  """What lower bounds of `adding_cycles` are computed from: the fields of
  `Product` (runtime/plan/product_splits.h) that begin with `adding`."""
  if dtype not in _VECTOR_ADDS:
    return cell_bound(target, *_reducing(target, dtype))
  fixed = float(_SUPERVISOR + target.launch_cycles)
  return fixed, _START, _VECTOR_BYTES / SIZE[dtype], _STEP, _PARTIAL, 0.0


def _reducing(target: Target, dtype: DType) -> tuple[Cycles, int]:
  """The cycles of adding one more element in a reduction, and the elements of a
  vector."""
  kind = ReduceKind.OR if dtype is DType.BOOL else ReduceKind.SUM
  each = per_element(kind, [dtype], Code(), ())
  return each, max(target.data_path_bytes // SIZE[dtype], 1)


def epilogue(
  target: Target,
  fields: schema.Dot,
  partition: Layout,
  shape: tuple[int, ...],
  num_kept: int,
  owner: Layout,
  casts: bool,
) -> cost.Epilogue | None:
  """The supersteps after the vertices of a product; None if there are none.

  Args:
    target: the machine.
    fields: the codelet's record.
    partition: of the iteration space `shape`, of which the first `num_kept`
      dimensions are not summed.
    shape, num_kept: see `partition`.
    owner: the results' mapping.
    casts: whether the vertices leave whole sums in a buffer, to be cast.
  """
  dtype = DType(fields.accumulate_dtype)
  item = SIZE[dtype]
  if not casts:
    return combine.epilogue(
      target, partition, shape, num_kept, owner, item,
      adding_cycles(target, dtype), combine.PRODUCTS,
    )  # fmt: skip
  outputs, _ = combine.cell(partition, shape, num_kept)
  room = np.zeros(partition.last_tile + 1, np.int64)
  room[partition.tiles()] = outputs * item
  return cost.Epilogue(cost.superstep(target), room)
