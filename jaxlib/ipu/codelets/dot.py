"""Dot: a batched matrix product over the iteration space (b, m, n, k).

Each tile multiplies one block. It is charged the fastest vertex of PopLibs'
planner for the block, with the rows of either operand as its field: the matrix
unit (ConvPartial1x1Out), dot products on the vector unit
(ConvPartialHorizontalMac), for a single term OuterProduct; or dot products that
the workers share. Types without such vertices run a multiply-add loop.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  derived,
  guessed,
  least,
  plain,
)
from jaxlib.ipu.codelets._dot_cycles import (
  LOOP_OUTPUT,
  LOOP_START,
  Block,
  Way,
  loop_cycles,
  loop_step,
  rounding_once,
  unit,
  ways_of,
)
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._kinds import ReducingCodelet
from jaxlib.ipu.codelets.map import CODELET as MAP
from jaxlib.ipu.dtypes import FLOATS, SIZE, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.registers import NUMPY_REGISTER, load
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# Stores what it loads: the operand's and the result's types differ.
_STORE = schema.Map(Code([Instruction(Opcode.LOAD, RegisterType.F32)]), [0])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DotHints(Hints):
  """What a product's vertices depend on.

  Attributes:
    f16_sums: whether f16 operands have f16 partial sums, as users may ask.
    vector: whether it is a matrix times a vector: all of it, not only a tile's
      block, since a product has one kind of vertex.
    stored: the type of the result; by default that of the sums.
    whole: whether sums are complete on their tile, and thus may be stored in
      another type.
  """

  f16_sums: bool = False
  vector: bool = False
  stored: DType | None = None
  whole: bool = False


_NO_HINTS = DotHints()


class DotCodelet(ReducingCodelet):
  """Cycles: the cheapest of `vertices` (_dot_cycles.py), each for either
  operand.

  bf16 is cast to f32 on the tile first and computed as f32; operands of sums in
  8-byte types are cast to these. Integers and f64 run `loop_cycles`. If a sum's
  type is not the result's, vertices that store partials need a cast, those that
  round a sum once store f16.
  """

  record = schema.Dot
  hints = DotHints
  has_weights = True
  # poplin's stages (ConvReducePlan.cpp) [S].
  many_partials = (16, 125)
  needs_boxes = True

  def cycles(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: DotHints = _NO_HINTS,
  ) -> Cycles:
    block = Block(*matrix_extents(fields, cell))
    launch = derived(_inner_loops.SUPERVISOR_LAUNCH)
    dtype, casts = _computed_in(fields, operand_dtypes)
    if casts is not _NO_CASTS:
      left, right = casts
      deep = block.batch * block.depth
      launch += left * (deep * block.rows) + right * (deep * block.columns)
    if dtype not in (DType.F16, DType.F32):
      return launch + loop_cycles(target, dtype, block)
    ways = _ways(target, fields, dtype, block, hints)
    return launch + functools.reduce(least, [way.cycles for way in ways])

  def least_cycles(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    macs: int,
  ) -> float:
    """A lower bound of `cycles` for any block of so many multiplications."""
    dtype, _ = _computed_in(fields, operand_dtypes)
    if dtype is DType.F16:
      return macs / (2 * target.fp16_macs)
    if dtype is DType.F32:
      return macs / target.fp32_macs
    return macs * float(loop_step(dtype).total)

  def bound(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    hints: DotHints,
  ) -> tuple[float, ...]:
    """What lower bounds of `cycles` for many blocks are computed from: the
    fields of `Product` (runtime/plan/product_splits.h) from `launch` to
    `cast_output`."""
    dtype, casts = _computed_in(fields, operand_dtypes)
    left, right = (cast.total for cast in casts)
    launch = float(_inner_loops.SUPERVISOR_LAUNCH)
    accumulate = _accumulated_in(fields, dtype, hints)
    kind = unit(target, dtype, accumulate)
    if dtype not in (DType.F16, DType.F32):
      start = target.num_workers * LOOP_START + MULTI_VERTEX
      loop = loop_step(dtype).total, LOOP_OUTPUT, start
      return launch, left, right, *loop, *kind, False, False, 0, 0
    stored, cast, each = _cast_to(accumulate, hints), 0.0, 0.0
    if stored is not None:
      types = [accumulate], [stored]
      cast = MAP.cycles(target, _STORE, *types, (0,)).total
      each = MAP.profile(_STORE, *types).per_element.total
    rounds = dtype is stored
    return (
      launch, left, right, 0, 0, 0, *kind, hints.vector, rounds, cast, each,
    )  # fmt: skip

  def weights(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    hints: DotHints = _NO_HINTS,
  ) -> int | None:
    found = self._way(target, fields, operand_dtypes, cell, hints)
    return found.weights if found else None

  def casts(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    hints: DotHints = _NO_HINTS,
  ) -> bool:
    """Whether vertices leave sums in a buffer, to be cast by others, as
    charged by `cycles` with the same hints."""
    found = self._way(target, fields, operand_dtypes, cell, hints)
    return found is not None and found.casts

  def _way(
    self,
    target: Target,
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    hints: DotHints,
  ) -> Way | None:
    """The cheapest vertex; None for types that run a loop."""
    block = Block(*matrix_extents(fields, cell))
    dtype, _ = _computed_in(fields, operand_dtypes)
    if dtype not in (DType.F16, DType.F32):
      return None
    ways = _ways(target, fields, dtype, block, hints)
    return min(ways, key=lambda way: plain(way.cycles))

  def described(
    self, fields: schema.Dot, shape: Sequence[int]
  ) -> dict[int, Array]:
    """A Fourier matrix, unless the product takes only a part of it."""
    *outer, columns, terms = (shape[g] for g in groups(fields, len(shape)))
    for f in fields.fourier:
      matrix = _fourier_matrix(f)
      if matrix.shape == (math.prod(terms), math.prod(columns)):
        ones = [1] * sum(map(len, outer))
        return {1: matrix.T.reshape(*ones, *columns, *terms)}
    return {}

  def flops(self, fields: schema.Dot, shape: Sequence[int]) -> float:
    return 2 * volume(shape)

  def vertex(
    self, fields: schema.Dot, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    cell.require_box("a matrix product")
    register = REGISTER[DType(fields.accumulate_dtype)]
    b, m, n, k = matrix_extents(fields, cell.extents)
    left = _matrix(fields, cell, operands[0], 2).reshape(b, m, k)
    right = _matrix(fields, cell, operands[1], 1).reshape(b, n, k)
    left, right = (
      load(o, register).astype(NUMPY_REGISTER[register]) for o in (left, right)
    )
    with np.errstate(all="ignore"):
      return [np.einsum("bmk,bnk->bmn", left, right)]

  def combine(
    self, fields: schema.Dot, left: list[Array], right: list[Array]
  ) -> list[Array]:
    return [left[0] + right[0]]

  def initial(
    self,
    fields: schema.Dot,
    registers: Sequence[np.dtype[Any]],
    shape: tuple[int, ...],
  ) -> list[Array]:
    register = REGISTER[DType(fields.accumulate_dtype)]
    return [np.zeros(shape, NUMPY_REGISTER[register])]

  def partial_bytes(self, fields: schema.Dot, dtype: DType) -> int:
    return SIZE[DType(fields.accumulate_dtype)]

  def updates(self, fields: schema.Dot) -> bool:
    return bool(fields.adds)

  def check(self, fields: schema.Dot, step: schema.Execute, v: Checker) -> None:
    rank, operands, results = (
      len(x) for x in (step.shape, step.operands, step.results)
    )
    v.require(
      (operands, results) == (2, 1) and self.num_kept(fields, rank) <= rank,
      f"a product of {operands} operands over {rank} dimensions",
    )
    dtype = v.tensor(step.results[0].tensor).dtype
    v.require(
      not fields.adds or dtype == fields.accumulate_dtype,
      f"adds to element type {dtype} in {fields.accumulate_dtype}",
    )
    v.require(
      len(fields.fourier) <= 1, f"{len(fields.fourier)} Fourier matrices"
    )
    for f in fields.fourier:
      v.require(
        f.planes in (1, 2)
        and f.out_planes in (1, 2)
        and 0 < f.terms <= f.length
        and 0 < f.kept <= f.length
        and f.sign in (-1, 1)
        and math.isfinite(f.scale),
        f"no Fourier matrix has {f}",
      )

  def example(self) -> tuple[schema.Dot, int]:
    return schema.Dot(DType.F32, 0), 4

  _CODE = 1024


def _fourier_matrix(f: schema.Fourier) -> Array:
  """Its definition, in double precision: rows are terms."""
  exponent = np.outer(np.arange(f.terms), np.arange(f.kept)) % f.length
  w = f.scale * np.exp(f.sign * 2j * np.pi * exponent / f.length)
  blocks = np.array([[w.real, w.imag], [-w.imag, w.real]])
  blocks = blocks[: f.planes, : f.out_planes].transpose(0, 2, 1, 3)
  return blocks.reshape(f.planes * f.terms, f.out_planes * f.kept)


def _accumulated_in(fields: schema.Dot, dtype: DType, hints: DotHints) -> DType:
  """The type of partial sums: f32 (poplin's `partialsType`, ConvOptions.hpp)
  [S], unless the user asks for f16."""
  f16 = hints.f16_sums and dtype is DType.F16
  return DType.F16 if f16 else DType(fields.accumulate_dtype)


def _cast_to(accumulate: DType, hints: DotHints) -> DType | None:
  """The type to which a separate compute set casts sums; None if none does."""
  stored = accumulate if hints.stored is None else hints.stored
  narrow = stored in FLOATS and SIZE[stored] < SIZE[accumulate]
  return stored if narrow and hints.whole else None


def _ways(
  target: Target,
  fields: schema.Dot,
  dtype: DType,
  block: Block,
  hints: DotHints,
) -> list[Way]:
  """The vertices for a block that is multiplied in a type, with the cast after
  it (ConvModel.cpp, a reduction depth of 1) [S]."""
  accumulate = _accumulated_in(fields, dtype, hints)
  ways = ways_of(target, dtype, accumulate, block, hints.vector)
  stored = _cast_to(accumulate, hints)
  if stored is None:
    return ways
  outputs = block.batch * block.rows * block.columns
  cast = MAP.cycles(target, _STORE, [accumulate], [stored], (outputs,))
  found = [
    way._replace(cycles=cast + way.cycles, casts=True) if way.partials else way
    for way in ways
  ]
  return found + rounding_once(target, block) if dtype is stored else found


def groups(fields: schema.Dot, rank: int) -> list[slice]:
  """The iteration dimensions of b, m, n and k."""
  rows = fields.num_batch
  columns = rows + fields.num_rows
  terms = columns + fields.num_columns
  return [
    slice(0, rows),
    slice(rows, columns),
    slice(columns, terms),
    slice(terms, rank),
  ]


def matrix_extents(fields: schema.Dot, cell: Extents) -> list[Any]:
  """A cell's extents along (b, m, n, k)."""
  return [math.prod(cell[g]) for g in groups(fields, len(cell))]


def _matrix(
  fields: schema.Dot, cell: Cell, operand: Array, still: int
) -> Array:
  """An operand at all points of a cell, except along group `still`."""
  extents = list(cell.extents)
  group = groups(fields, len(extents))[still]
  extents[group] = [1] * len(extents[group])
  return np.broadcast_to(operand, extents)


_NO_CASTS = [Cycles(0.0)] * 2


def _computed_in(
  fields: schema.Dot, dtypes: Sequence[DType]
) -> tuple[DType, list[Cycles]]:
  """The type in which blocks are multiplied, and the cycles of casting an
  element of each operand to it. Sums of 8 bytes are of products of 8 bytes."""
  accumulate = DType(fields.accumulate_dtype)
  floats = (DType.F16, DType.BF16, DType.F32)
  if SIZE[accumulate] == 8:
    dtype = accumulate
  elif dtypes[0] == dtypes[1] and dtypes[0] is not DType.BF16:
    return dtypes[0], _NO_CASTS
  elif dtypes[0] in floats and dtypes[1] in floats:
    dtype = DType.F32
  else:
    return max(dtypes, key=lambda d: (d == DType.F64, SIZE[d])), _NO_CASTS
  casts = []
  for given in dtypes:
    work = _inner_loops.conversion(given, dtype)
    each = work.proper + _inner_loops.LOAD[given] if work.proper else 0.0
    casts.append(guessed(each) if work.guessed else Cycles(each))
  return dtype, casts


CODELET = DotCodelet()
