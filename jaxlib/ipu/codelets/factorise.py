"""Factorise: factors of matrices, each on one tile or on a few."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Codelet,
  Extents,
)
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  derived,
  guessed,
)
from jaxlib.ipu.codelets._factor_cycles import INVERSES, factoring
from jaxlib.ipu.codelets._factor_teams import TEAMS, alone
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._inner_loops import ISSUE
from jaxlib.ipu.codelets._team import Team
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.target import Target

# Kinds of matrices of any shape, and of those with at least as many rows as
# columns; others but complex ones are of square matrices only.
_ANY = (FactorKind.LU, FactorKind.QR)
_TALL = (FactorKind.BIDIAGONAL, FactorKind.ORTHONORMAL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FactoriseHints(Hints):
  """How matrices are distributed.

  Attributes:
    parts: the number of tiles that share a matrix.
  """

  parts: int = 1


_NO_HINTS = FactoriseHints()


class FactoriseCodelet(Codelet):
  """Cycles: the workers share the columns or rows of a matrix, and so do its
  tiles; matrices are processed in sequence. PopLibs also factors a diagonal
  block within one vertex, with a single worker."""

  record = schema.Factorise
  hints = FactoriseHints
  executor = "factoring"
  reads_whole = True
  _CODE = 1024  # [G]

  def cycles(
    self,
    target: Target,
    fields: schema.Factorise,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: FactoriseHints = _NO_HINTS,
  ) -> Cycles:
    took = factoring(
      target,
      FactorKind(fields.kind),
      fields.rows,
      fields.columns,
      operand_dtypes[0],
      hints.parts,
    )
    soft = operand_dtypes[0] not in ISSUE
    taken = (guessed if soft else derived)(cell[0] * took.cycles)
    return derived(float(target.launch_cycles)) + MULTI_VERTEX + taken

  def flops(self, fields: schema.Factorise, shape: Sequence[int]) -> float:
    m, n = float(fields.rows), float(fields.columns)
    k = min(m, n)
    # Multiply-adds of the products of the last two of three indices.
    lu = k * m * n - k * k * (m + n) / 2 + k**3 / 3
    # Of a complex matrix A and further rows; four for each of its elements.
    c = n / 2
    turned = 4 * (m - c) * c * c
    times = {
      FactorKind.CHOLESKY: n**3 / 6,
      FactorKind.LU: lu,
      FactorKind.QR: 2 * lu,
      FactorKind.HESSENBERG: 5 / 3 * n**3,
      FactorKind.TRIDIAGONAL: 2 / 3 * n**3,
      FactorKind.BIDIAGONAL: 4 * lu,
      FactorKind.COMPLEX_TRIDIAGONAL: 8 / 3 * c**3 + turned,
      FactorKind.COMPLEX_BIDIAGONAL: 16 / 3 * c**3 + turned,
      FactorKind.ORTHONORMAL: 4 * lu,
    }
    return shape[0] * 2 * times.get(FactorKind(fields.kind), n**3 / 6)

  def together(self, fields: schema.Factorise, team: Team) -> list[Array]:
    """Factors one matrix whose rows are on several tiles."""
    with np.errstate(all="ignore"):
      return TEAMS[FactorKind(fields.kind)](team)

  def vertex(
    self, fields: schema.Factorise, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    kind, shape = FactorKind(fields.kind), (-1, fields.rows, fields.columns)
    with np.errstate(all="ignore"):
      found = [alone(kind, a.copy()) for a in operands[0].reshape(shape)]
    return [np.stack(values) for values in zip(*found, strict=True)]

  def check(
    self, fields: schema.Factorise, step: schema.Execute, v: Checker
  ) -> None:
    kinds = list(FactorKind)
    v.require(fields.kind in kinds, f"unknown kind of factors {fields.kind}")
    kind, m, n = FactorKind(fields.kind), fields.rows, fields.columns
    v.require(
      min(m, n) > 0 and _has_shape(kind, m, n),
      f"{kind.name} of matrices of {m} x {n}",
    )
    v.require(
      len(step.shape) == 2 and step.shape[1] == m and len(step.operands) == 1,
      f"factors of {len(step.operands)} operands over {step.shape}",
    )
    own = v.tensor(step.operands[0].tensor).dtype
    v.require(own in (DType.F32, DType.F64), f"factors of type {own}")
    count = step.shape[0]
    types = [([count, *s], d) for s, d in results(kind, m, n, DType(own))]
    found = [v.tensor(a.tensor) for a in (*step.operands, *step.results)]
    whole = kind in INVERSES and list(step.operands[0].dims) == [0, -1]
    v.require(
      [(list(t.shape), t.dtype) for t in found] == [types[0], *types]
      and [list(a.dims) for a in (*step.operands, *step.results)]
      == [[0, -1 if whole else 1], [0, 1], *([0, -1] for _ in types[1:])],
      f"{kind.name} of {found[0].shape} gives {types}, not "
      f"{[(t.shape, t.dtype) for t in found[1:]]}",
    )

  def example(self) -> tuple[schema.Factorise, int]:
    return schema.Factorise(FactorKind.QR, 8, 4), 2


def _has_shape(kind: FactorKind, m: int, n: int) -> bool:
  if kind is FactorKind.COMPLEX_TRIDIAGONAL:
    return n % 2 == 0 and m >= n // 2
  if kind is FactorKind.COMPLEX_BIDIAGONAL:
    return n % 2 == 0 and m >= n // 2 and (m - n // 2) % 2 == 0
  return kind in _ANY or m == n or (m > n and kind in _TALL)


def results(
  kind: FactorKind, m: int, n: int, dtype: DType
) -> list[tuple[tuple[int, ...], DType]]:
  """Shapes and element types of the results for one matrix."""
  found: list[tuple[tuple[int, ...], DType]] = [((m, n), dtype)]
  if kind is FactorKind.LU:
    found += [((min(m, n),), DType.I32), ((m,), DType.I32)]
  elif kind is FactorKind.QR:
    found.append(((min(m, n),), dtype))
  elif kind in (FactorKind.HESSENBERG, FactorKind.TRIDIAGONAL):
    found.append(((n - 1,), dtype))
  return found


CODELET = FactoriseCodelet()
