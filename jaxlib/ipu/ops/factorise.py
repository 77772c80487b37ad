"""`ipu.factorise`: factors matrices on one tile, or on a few that share their
rows, where that pays.

As a loop over the columns, a factorisation takes many supersteps for each. A
single tile needs none of these, but has only its own workers; a few tiles that
share a matrix need one or two (codelets/_factor_cycles.py).
"""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._factor_cycles import COMPLEX_KINDS, INVERSES
from jaxlib.ipu.codelets.factorise import FactoriseHints, results
from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import Factor, Layout, grid, project
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.plan import factoring
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import FactorKind

FACTORISE = "ipu.factorise"

# Cycles that the model charges for an iteration of the loop over the columns of
# f32 matrices: for few matrices, for each of their rows, and for each element
# of a tile. For f64, whose arithmetic is emulated, times _SOFT. Fitted to
# programs in which nothing fits a tile; tests/ipu/test_fitted_prices.py
# recomputes them [D]. Nothing loops over BIDIAGONAL, which rotations replace:
# it counts as two reflectors for each column [G]. Loops over complex matrices
# reflect twice for each column of a COMPLEX_BIDIAGONAL.
_ITERATION = {
  FactorKind.CHOLESKY: (3400, 0, 16),
  FactorKind.LU: (8500, 12, 33),
  FactorKind.QR: (7700, 2, 16),
  FactorKind.HESSENBERG: (8500, 12, 16),
  FactorKind.TRIDIAGONAL: (7500, 12, 7),
  FactorKind.BIDIAGONAL: (17000, 12, 16),
  FactorKind.COMPLEX_TRIDIAGONAL: (9000, 12, 9),
  FactorKind.COMPLEX_BIDIAGONAL: (15000, 20, 18),
}
# Of triangular inverses, which take no loop: for each doubling of the size of
# what is inverted, and for each element of a tile [D].
_DOUBLING = 3500, 50
# Triangles up to this size are inverted in one, larger ones by blocks. [G]
DOUBLED = 16
_SOFT = 3
# A panel's products with the rest of the matrix, and their exchange [D].
_UPDATE = 13000
# The product of 8 reflectors, and less than that of more [D].
_PRODUCT = 6000
# Widths of panels to try; the maximum number of unrolled panels; and how much
# longer than the best fewer panels may take, since each adds steps [G].
_WIDTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
_MOST_PANELS = 16
# Loops over f64 panels are charged by their steps, regardless of width, but run
# faster if an iteration works on no more columns than this [G].
_WIDEST_SOFT = 64
_NEARLY = 1.2
# The same of an inverse that would be made by blocks [G].
_NEARLY_BLOCKS = 1.12


def factors(e: Emitter, kind: FactorKind, matrix: Value) -> list[Value] | None:
  """The results of `kind` for matrices [..., m, n]; None if they do not fit or
  a loop is charged less."""
  *batch, m, n = matrix.shape
  if _planned(e, kind, matrix.shape, matrix.dtype) is None:
    return None
  count = math.prod(batch)
  types = results(kind, m, n, matrix.dtype)
  found = e.node(
    FACTORISE,
    [e.reshape(matrix, (count, m, n))],
    [((count, *s), d) for s, d in types],
    kind,
  )
  return [
    e.reshape(v, (*batch, *s)) for v, (s, _) in zip(found, types, strict=True)
  ]


def _planned(
  e: Emitter, kind: FactorKind, shape: Shape, dtype: DType
) -> factoring.Teams | None:
  *batch, m, n = shape
  if dtype not in (DType.F32, DType.F64) or 0 in shape:
    return None
  count = math.prod(batch)
  found = factoring.plan(e.machine, kind, count, m, n, dtype)
  if found is None:
    return None
  nearly = _NEARLY_BLOCKS if kind in INVERSES and n > DOUBLED else 1.0
  most = nearly * _loop_cycles(e, kind, shape, dtype)
  return found if found.cycles < most else None


def _loop_cycles(
  e: Emitter, kind: FactorKind, shape: Shape, dtype: DType
) -> float:
  *_, m, n = shape
  soft = _SOFT if dtype is DType.F64 else 1
  share = math.prod(shape) / e.machine.num_tiles
  if kind is FactorKind.ORTHONORMAL:
    found = _planned(e, FactorKind.QR, shape, dtype)
    reflectors = _loop_cycles(e, FactorKind.QR, shape, dtype)
    return (reflectors if found is None else found.cycles) + soft * _PRODUCT
  if kind in INVERSES:
    doubling, element = _DOUBLING
    doublings, blocks = math.ceil(math.log2(n)), 0.0
    if n > DOUBLED:
      doublings = math.ceil(math.log2(n / DOUBLED))
      size = -(-n >> doublings)
      inner = (*shape[:-2], 1 << doublings, size, size)
      found = _planned(e, kind, inner, dtype)
      if found is None:
        blocks = _loop_cycles(e, kind, inner, dtype)
      else:
        blocks = found.cycles
    return blocks + soft * (doubling * doublings + element * share)
  least, row, element = _ITERATION[kind]
  columns = n // 2 if kind in COMPLEX_KINDS else min(m, n)
  return soft * columns * (least + row * m + element * share)


def panel_width(
  e: Emitter, kind: FactorKind, shape: Shape, dtype: DType, otherwise: int
) -> int:
  """The panel width for which a factorisation of matrices [..., m, n] is
  charged least, or nearly; `otherwise` for types that only have the loop, and
  for sizes for which no width fits."""
  *batch, m, n = shape
  k = min(m, n)
  if dtype not in (DType.F32, DType.F64) or k < 2:
    return otherwise
  tall = kind is not FactorKind.CHOLESKY

  def cycles(width: int) -> float:
    """Cycles of all panels, each counted as the middle one."""
    rows = m - (k - width) // 2 if tall else width
    panel = (*batch, rows, width)
    found = _planned(e, kind, panel, dtype)
    took = (
      _loop_cycles(e, kind, panel, dtype) if found is None else found.cycles
    )
    # Nothing follows the last panel of a matrix that is not wide.
    return -(-k // width) * (took + _UPDATE) - _UPDATE * (k == n)

  widest = _WIDEST_SOFT if dtype is DType.F64 else _WIDTHS[-1]
  tried = [w for w in _WIDTHS if w <= widest]
  widths = [w for w in tried if w < k <= w * _MOST_PANELS]
  if k <= widest:
    widths.append(k)
  if not widths:
    return otherwise
  took = {width: cycles(width) for width in widths}
  enough = _NEARLY * min(took.values())
  return max(width for width in widths if took[width] <= enough)


def _lower(builder: Builder, node: Node) -> None:
  kind: FactorKind = node.attributes
  view = builder.view(node.inputs[0])
  count, m, n = view.shape
  target, dtype = builder.target, view.dtype
  found = factoring.plan(target, kind, count, m, n, dtype)
  if found is None:
    raise internal(f"{kind.name} of {view.shape} fits no tile", node.location)
  teams, parts = found.teams, found.parts
  each = -(-count // teams)
  layout = grid(view.shape, (teams, parts, 1))
  operand = Operand(view, (0, 1), layout)
  if parts > 1 and kind in INVERSES:  # each tile has all of the matrix
    whole = (count, m, m, n)
    split = project(grid(whole, (teams, parts, 1, 1)), whole, (0, 2, 3))
    operand = Operand(view, (0, -1), split)
  else:
    builder.used.shares_rows |= parts > 1
  # Results that are not matrices are on the first tile of each team.
  spread = Factor(count, each, parts if count > each else 0)
  written = [Written(builder.result(node, layout), (0, 1))]
  for i, value in enumerate(node.results[1:], 1):
    length = value.shape[1]
    beside = Layout((spread, Factor(length, max(length, 1), 0)))
    written.append(Written(builder.result(node, beside, i), (0, -1)))
  builder.execute(
    schema.Factorise(kind, m, n),
    (count, m),
    grid((count, m), (teams, parts)),
    [operand],
    written,
    epilogue=factoring.epilogue(
      target,
      kind,
      m,
      n,
      dtype,
      parts,
      each,
      layout,
      count,
      builder.choices.repeats,
    ),
    hints=FactoriseHints(parts=parts),
  )


define(Operation(FACTORISE, _lower))
