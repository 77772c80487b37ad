"""triangular_solve: inverses of the diagonal blocks, and products."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops import _matrices
from jaxlib.mlir.dialects import stablehlo


@dataclasses.dataclass(frozen=True)
class TriangularSolve:
  """Which system is solved, and which part of `a` is read."""

  left_side: bool
  lower: bool
  unit_diagonal: bool
  transpose: str


def _read(operation: Any) -> TriangularSolve:
  a = operation.attributes
  return TriangularSolve(
    a["left_side"].value,
    a["lower"].value,
    a["unit_diagonal"].value,
    stablehlo.TransposeAttr(a["transpose_a"]).value,
  )


def _decompose(e: Emitter, node: Node) -> list[Value]:
  """Reduces all forms to A X = B: X A = B is transposed."""
  solve: TriangularSolve = node.attributes
  dtype = node.results[0].dtype
  wide = dtype if dtype in _matrices.COMPUTED else DType.F32
  a, b = (e.convert(v, wide) for v in node.inputs)
  if solve.transpose == "ADJOINT":
    a = _matrices.conjugate(e, a)
  transposed = (solve.transpose != "NO_TRANSPOSE") != (not solve.left_side)
  if transposed:
    a = _matrices.transpose(e, a)
  if not solve.left_side:
    b = _matrices.transpose(e, b)
  upper = solve.lower == transposed
  x = _matrices.solve_triangular(e, a, b, solve.unit_diagonal, upper)
  if not solve.left_side:
    x = _matrices.transpose(e, x)
  return [e.convert(x, dtype)]


define(
  Operation("stablehlo.triangular_solve", read=_read, decompose=_decompose)
)
