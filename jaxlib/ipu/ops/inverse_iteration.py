"""`ipu.inverse_iteration`: eigenvectors of symmetric tridiagonal matrices, each
independently."""

from __future__ import annotations

import math

import numpy as np

from jaxlib.ipu.codelets.inverse_iteration import kept_bytes
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import grid, project
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.plan import cost, cuts
from jaxlib.ipu.program import schema

INVERSE_ITERATION = "ipu.inverse_iteration"


def tridiagonal_vectors(
  e: Emitter, main: Value, beside: Value, values: Value
) -> Value:
  """Rows [..., k, n] of length 1, eigenvectors of tridiagonal matrices with
  diagonals [..., n], off-diagonals [..., n - 1] and eigenvalues [..., k]. Those
  of close values are not orthogonal."""
  *batch, n = main.shape
  count, k = math.prod(batch), values.shape[-1]
  (found,) = e.node(
    INVERSE_ITERATION,
    [
      e.reshape(main, (count, n)),
      e.reshape(beside, (count, n - 1)),
      e.reshape(values, (count, k)),
    ],
    [((count, k, n), main.dtype)],
  )
  return e.reshape(found, (*batch, k, n))


def _lower(builder: Builder, node: Node) -> None:
  *diagonals, values = (builder.view(v) for v in node.inputs)
  n, shape, target = diagonals[0].shape[1], values.shape, builder.target
  parts = cuts.distribute(target.num_tiles, shape, target.num_tiles)
  partition = grid(shape, parts)
  operands = []
  for view in diagonals:
    # Whole rows of a tile's matrices.
    whole = (*shape, view.shape[1])
    layout = project(grid(whole, (*parts, 1)), whole, (0, 2))
    operands.append(Operand(view, (0, -1), layout))
  operands.append(Operand(values, (0, 1), partition))
  kept = np.zeros(target.num_tiles, np.int64)
  own = math.prod(-(-s // p) for s, p in zip(shape, parts, strict=True))
  kept[partition.tiles()] = kept_bytes(target, n, values.dtype, own)
  rows = grid((*shape, n), (*parts, 1))
  builder.execute(
    schema.InverseIteration(n),
    shape,
    partition,
    operands,
    [Written(builder.result(node, rows), (0, 1))],
    epilogue=cost.Epilogue(cost.superstep(target), kept),
  )


define(Operation(INVERSE_ITERATION, _lower))
