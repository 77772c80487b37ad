"""Small programs that the tests of both executors run."""

from __future__ import annotations

import numpy as np
from program_kit import (
  BOOL,
  FREE,
  I32,
  Kit,
  code,
  double,
  everywhere,
  load,
)

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Factor, Layout, Replica, grid
from jaxlib.ipu.program import schema

# --- Control flow ------------------------------------------------------------


def repeat(trips: int) -> Kit:
  """f32[8], doubled in each iteration."""
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.copy(kit.whole(a, r))
  body: list = []
  kit.execute(double(), (8,), [(r, (0,))], [(r, (0,))], into=body)
  kit.steps.append(schema.Repeat(trips, body, 0))
  return kit


def doubling() -> Kit:
  """Doubles its first f32 until it is no smaller than the second."""
  kit = Kit(tiles=1)
  a, limit, r = kit.argument(()), kit.argument(()), kit.result(())
  go = kit.tensor((), BOOL)
  kit.copy(kit.whole(a, r))
  less = schema.Map(
    code(load(0), load(1), (Opcode.LT, RegisterType.F32, 0, 1)), [2]
  )
  condition: list = []
  kit.execute(less, (), [(r, ()), (limit, ())], [(go, ())], into=condition)
  body: list = []
  kit.execute(double(), (), [(r, ())], [(r, ())], into=body)
  kit.steps.append(schema.While(condition, go, body, FREE, 0))
  return kit


def switch(dtype: DType) -> Kit:
  """The number of the branch that ran, of three; the selector is a `dtype`."""
  kit = Kit(tiles=1)
  s, r = kit.argument((), dtype), kit.result(())
  branches = []
  for i in range(3):
    steps: list = []
    c = kit.constant(np.array(i, np.float32))
    kit.copy(kit.whole(c, r), into=steps)
    branches.append(schema.Branch(steps))
  kit.steps.append(schema.Switch(s, branches, FREE, 0))
  return kit


# --- Run-time indices ---------------------------------------------------------


def rows(count: int, columns: int, tiles: int) -> Layout:
  """Rows over tiles."""
  return grid((count, columns), (tiles, 1))


def on_all(rows: int, columns: int, tiles: int) -> Layout:
  """A partition with one cell that several tiles share."""
  whole = Factor(rows, rows, 0), Factor(columns, columns, 0)
  return Layout(whole, (Replica(tiles, 1),))


def gather(index_dtype: DType = I32) -> Kit:
  """Four of six rows, by index.

  Each of three tiles has two of the rows and all indices; two of them own the
  result.
  """
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=rows(6, 2, 3))
  i = kit.argument((4, 1), index_dtype, layout=everywhere(4, 3))
  r = kit.result((4, 2), layout=rows(4, 2, 2))
  fields = schema.Gather(1, [0], [1, 2], [-1, -1], [-1, 0])
  kit.execute(fields, (4, 2), [(a, (-1, -1)), (i, (0, -1))],
              [(r, (0, 1))], on_all(4, 2, 3))  # fmt: skip
  return kit


def scatter(kind: ReduceKind, unique: int = 0) -> Kit:
  """Rows of four updates go to six rows, of which each tile has two."""
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=rows(6, 2, 3))
  i = kit.argument((4, 1), I32, layout=everywhere(4, 3))
  u = kit.argument((4, 2), layout=everywhere(8, 3))
  r = kit.result((6, 2), layout=rows(6, 2, 3))
  kit.copy(kit.whole(a, r))
  fields = schema.Scatter(
    1, [0], [1, 2], [-1, -1], [-1, 0], kind, 0, Code(), [], unique
  )
  kit.execute(fields, (4, 2), [(i, (0, -1)), (u, (0, 1))],
              [(r, (-1, -1))], on_all(4, 2, 3))  # fmt: skip
  return kit


def team(kind: ReduceKind, unique: int = 0) -> Kit:
  """Like `scatter`, with two updates on each of two tiles, which share six rows
  and own three of them each.
  """
  kit = Kit(tiles=2)
  a = kit.argument((6, 2), layout=rows(6, 2, 2))
  i = kit.argument((4, 1), I32, layout=rows(4, 1, 2))
  u = kit.argument((4, 2), layout=rows(4, 2, 2))
  r = kit.result((6, 2), layout=rows(6, 2, 2))
  kit.copy(kit.whole(a, r))
  fields = schema.Scatter(
    1, [0], [1, 2], [-1, -1], [-1, 0], kind, 0, Code(), [], unique
  )
  kit.execute(fields, (4, 2), [(i, (0, -1)), (u, (0, 1))],
              [(r, (-1, -1))], rows(4, 2, 2))  # fmt: skip
  return kit
