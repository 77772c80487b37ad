"""Hypothesis strategies for parts of tile programs: partitions, views, register
programs, windows, and matching values.
"""

from __future__ import annotations

from typing import Any

import ipu_test_util as util
import numpy as np
from hypothesis import strategies as st
from program_kit import BOOL

from jaxlib.ipu.dtypes import NUMPY, STORED, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Layout, grid

TILES = 4
DTYPES = sorted(STORED)


def values(dtype: DType, shape: tuple[int, ...], key: Any) -> np.ndarray:
  return util.sample(NUMPY[dtype], shape, special=True, key=key)


@st.composite
def partitions(draw: st.DrawFn, shape: tuple[int, ...]) -> Layout:
  """A grid over at most TILES tiles."""
  parts, left = [], TILES
  for extent in shape:
    count = draw(st.integers(1, max(1, min(extent, left))))
    parts.append(count)
    left //= count
  return grid(shape, parts)


@st.composite
def views(
  draw: st.DrawFn, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], int, list[int]]:
  """A root's shape, and the offset and strides of a view of it: permuted,
  reversed, strided, broadcast, with padding around it."""
  order = draw(st.permutations(range(len(shape))))
  root, offset = [], 0
  strides = [0] * len(shape)
  step = 1
  for d in order:
    how = draw(
      st.sampled_from(["plain", "step", "reverse", "broadcast", "pad"])
    )
    extent = shape[d]
    if how == "broadcast":
      continue
    width = extent
    if how == "step":
      width, strides[d] = 2 * extent, 2 * step
    elif how == "reverse":
      offset += max(extent - 1, 0) * step
      strides[d] = -step
    elif how == "pad":
      width, strides[d] = extent + 3, step
      offset += 2 * step
    else:
      strides[d] = step
    root.append(max(width, 1))
    step *= max(width, 1)
  return tuple(reversed(root)), offset, strides


shapes = st.lists(st.integers(1, 9), max_size=4).map(tuple)


# --- Register programs -------------------------------------------------------

# By kind of register; approximated functions, whose bits may differ, are
# separate.
_COMMON = [Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.MAX, Opcode.MIN,
           Opcode.DIV, Opcode.NEGATE, Opcode.SIGN, Opcode.CLAMP]  # fmt: skip
_FLOAT = [*_COMMON, Opcode.ABS, Opcode.FLOOR, Opcode.CEIL, Opcode.ROUND_AFZ,
          Opcode.ROUND_EVEN, Opcode.SQRT]  # fmt: skip
_INTEGER = [*_COMMON, Opcode.REM, Opcode.NOT, Opcode.POPCNT, Opcode.CLZ,
            Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.SHL, Opcode.SHR_LOGICAL,
            Opcode.SHR_ARITHMETIC, Opcode.POW]  # fmt: skip
_COMPARE = [Opcode.EQ, Opcode.NE, Opcode.LT, Opcode.LE, Opcode.GT, Opcode.GE]
_NARROW = {
  RegisterType.F32: [Opcode.ROUND_F16, Opcode.ROUND_BF16],
  RegisterType.I32: [Opcode.WRAP_I8, Opcode.WRAP_I16],
  RegisterType.U32: [Opcode.WRAP_U8, Opcode.WRAP_U16],
}
ARITY = {
  **{o: 1 for o in Opcode if Opcode.NEGATE <= o < Opcode.ADD},
  **{o: 2 for o in Opcode if Opcode.ADD <= o < Opcode.SELECT},
  Opcode.CLAMP: 3,
}


@st.composite
def register_programs(
  draw: st.DrawFn, operands: tuple[DType, ...], rank: int
) -> tuple[list[tuple[int, ...]], list[RegisterType]]:
  """Instructions on the operands, and the register type of each value."""
  program: list[tuple[int, ...]] = []
  types: list[RegisterType] = []

  def emit(op: Opcode, to: RegisterType, *rest: int) -> None:
    program.append((op, to, *rest))
    types.append(to)

  for i, dtype in enumerate(operands):
    emit(Opcode.LOAD, REGISTER[dtype], 0, 0, 0, i)
  if rank and draw(st.booleans()):
    to = draw(st.sampled_from(list(RegisterType)))
    emit(Opcode.IOTA, to, 0, 0, 0, draw(st.integers(0, rank - 1)))
  for _ in range(draw(st.integers(1, 6))):
    value = draw(st.integers(0, len(types) - 1))
    of = types[value]
    alike = [v for v, t in enumerate(types) if t == of]
    more = [draw(st.sampled_from(alike)) for _ in range(2)]
    flags = [v for v, t in enumerate(types) if t == RegisterType.U32]
    how = draw(st.sampled_from(["same", "same", "convert", "compare",
                                "narrow", "select"]))  # fmt: skip
    if how == "convert":
      to = draw(st.sampled_from(list(RegisterType)))
      if to != of:
        emit(Opcode.CONVERT, to, value, of)
    elif how == "compare":
      emit(draw(st.sampled_from(_COMPARE)), of, value, more[0])
      # The instruction's type is that of its operands; the value is a U32.
      types[-1] = RegisterType.U32
    elif how == "narrow" and of in _NARROW:
      emit(draw(st.sampled_from(_NARROW[of])), of, value)
    elif how == "select" and flags:
      emit(Opcode.SELECT, of, draw(st.sampled_from(flags)), value, more[0])
    else:
      ops = _FLOAT if of in (RegisterType.F32, RegisterType.F64) else _INTEGER
      op = draw(st.sampled_from(ops))
      if op == Opcode.DIV and len(types) < 2:
        continue
      emit(op, of, *[value, *more][: ARITY[op]])
  return program, types


def result_types(of: RegisterType) -> list[DType]:
  return [d for d in DTYPES if REGISTER[d] == of and d != BOOL]


# --- Windows -----------------------------------------------------------------


@st.composite
def window_maps(draw: st.DrawFn) -> dict[str, Any]:
  """A windowed tensor, and how indices and windows access it."""
  rank = draw(st.integers(1, 3))
  shape = [draw(st.integers(1, 6)) for _ in range(rank)]
  batch = [draw(st.integers(1, 5)) for _ in range(draw(st.integers(0, 2)))]
  sizes, window_dims, batch_dims, window = [], [], [], []
  for d in range(rank):
    batched = [
      i for i, n in enumerate(batch) if n <= shape[d] and i not in batch_dims
    ]
    if batched and draw(st.integers(0, 3)) == 0:
      batch_dims.append(draw(st.sampled_from(batched)))
      window_dims.append(-1)
      sizes.append(1)
      continue
    batch_dims.append(-1)
    if draw(st.booleans()):
      window_dims.append(len(window))
      sizes.append(draw(st.integers(1, shape[d])))
      window.append(sizes[-1])
    else:
      window_dims.append(-1)
      sizes.append(1)
  indexable = [d for d in range(rank) if batch_dims[d] < 0]
  order = draw(st.permutations(indexable))
  start_index_map = order[: draw(st.integers(0, len(order)))]
  return {
    "shape": tuple(shape), "batch": tuple(batch), "window": tuple(window),
    "sizes": sizes, "window_dims": window_dims, "batch_dims": batch_dims,
    "map": start_index_map,
  }  # fmt: skip


INDEX_DTYPES = [DType.I32, DType.I8, DType.U8, DType.U32, DType.I64, DType.U64]


def near_and_far(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
  """Indices: mostly near the operand, some far outside."""
  some = util.sample(NUMPY[dtype], shape, low=0, high=6)
  far = values(dtype, shape, "far")
  return np.where(util.sample(np.float32, shape) > 2.5, far, some)
