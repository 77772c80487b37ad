"""The engine matches the interpreter: reductions, products, scans, sorts.

The programs are generated as in `test_engine_vs_interp.py`.
"""

from __future__ import annotations

import math

import engine_kit
import hypothesis
import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import BOOL, F32, I32, Kit, code, load
from program_strategies import (
  DTYPES,
  TILES,
  partitions,
  views,
)

from jaxlib.ipu.codelets.sort import NUMBER_DTYPES
from jaxlib.ipu.dtypes import FLOATS, NUMPY, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import grid
from jaxlib.ipu.program import schema

pytestmark = pytest.mark.ipu_only

# --- Reduce ------------------------------------------------------------------

_MONOIDS = {
  ReduceKind.SUM: True, ReduceKind.PRODUCT: True, ReduceKind.MAX: True,
  ReduceKind.MIN: True, ReduceKind.AND: False, ReduceKind.OR: False,
  ReduceKind.XOR: False, ReduceKind.ARGMAX: True, ReduceKind.ARGMIN: True,
}  # fmt: skip


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_reduce(data):
  shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
  shape = tuple(shape)
  num_reduced = data.draw(st.integers(1, len(shape)))
  kept = len(shape) - num_reduced
  split = data.draw(partitions(shape))
  dtype = data.draw(st.sampled_from(DTYPES))
  kinds = [k for k, floats in _MONOIDS.items() if floats or dtype not in FLOATS]
  if dtype == BOOL:
    kinds = [ReduceKind.AND, ReduceKind.OR, ReduceKind.XOR]
  kind = data.draw(st.sampled_from(kinds))
  arg = kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
  register = REGISTER[dtype]

  kit = Kit(TILES)
  root, offset, strides = data.draw(views(shape))
  a = kit.argument(root, dtype)
  every = tuple(range(len(shape)))
  placed = kit.loaded(a, shape, every, split, (shape, offset, strides))
  dims = tuple(range(kept)) + (-1,) * num_reduced
  results = [(kit.result(shape[:kept], dtype), dims)]
  if arg:
    results.append((kit.result(shape[:kept], I32), dims))
  fields = schema.Reduce(
    num_reduced, kind, code(load(0, register)), [0], Code(), [], b""
  )
  kit.execute(fields, shape, [(placed, every)], results, split)
  extreme = kind in (ReduceKind.MAX, ReduceKind.MIN)
  argument = util.sample(
    NUMPY[dtype], root, special=arg or extreme, low=0, high=4
  )
  # Additions are in another order, with as many roundings as there are
  # elements. Of zeros with both signs, either may be the extreme.
  count = math.prod(shape[kept:])
  engine_kit.check(
    kit.bytes(), [argument], ulps=count, zero_signs=not (arg or extreme)
  )


@given(st.data())
def test_general_reduction_of_two_values(data):
  """(value, count) pairs: the sum of both, starting from (0, 0)."""
  shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40)))
  split = data.draw(partitions(shape))
  kit = Kit(TILES)
  a, b = kit.argument(shape), kit.argument(shape, I32)
  every = (0, 1)
  operands = [(kit.loaded(t, shape, every, split), every) for t in (a, b)]
  i32 = RegisterType.I32
  combine = code(
    load(0), load(1, i32), load(2), load(3, i32),
    (Opcode.MAX, RegisterType.F32, 0, 2), (Opcode.ADD, i32, 1, 3),
  )  # fmt: skip
  fields = schema.Reduce(
    1, ReduceKind.GENERAL, code(load(0), load(1, i32)),
    [0, 1], combine, [4, 5], np.float32(-3).tobytes() + bytes(12),
  )  # fmt: skip
  results = [
    (kit.result(shape[:1]), (0, -1)), (kit.result(shape[:1], I32), (0, -1)),
  ]  # fmt: skip
  kit.execute(fields, shape, operands, results, split)
  arguments = [
    util.sample(np.float32, shape),
    util.sample(np.int32, shape, low=-5, high=5),
  ]
  engine_kit.check(kit.bytes(), arguments)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_empty_reductions(dtype):
  kit = Kit(TILES)
  a, r = kit.argument((3, 0), dtype), kit.result((3,), dtype)
  register = REGISTER[dtype]
  kind = ReduceKind.OR if dtype == BOOL else ReduceKind.SUM
  fields = schema.Reduce(1, kind, code(load(0, register)), [0], Code(), [], b"")
  kit.execute(fields, (3, 0), [(a, (0, 1))], [(r, (0, -1))])
  engine_kit.check(kit.bytes(), [np.zeros((3, 0), NUMPY[dtype])])


# --- Dot ---------------------------------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_dot(data):
  """Each group has several dimensions; those of an operand may overlap, as
  windows do."""
  groups = [
    data.draw(st.lists(st.integers(1, most), min_size=0, max_size=2))
    for most in (2, 5, 5, 6)
  ]
  dtype = data.draw(st.sampled_from([d for d in DTYPES if d != BOOL]))
  accumulate = F32 if dtype in (DType.F16, DType.BF16) else dtype
  shape = tuple(n for group in groups for n in group)
  b, m, n, _ = counts = [len(group) for group in groups]
  split = data.draw(st.sampled_from([grid(shape, parts) for parts in (
    [1] * len(shape), [2] + [1] * len(shape), [1] * (len(shape) - 1) + [3],
    [2] * len(shape),
  ) if math.prod(parts[: len(shape)]) <= TILES]))  # fmt: skip
  kit = Kit(TILES)
  operands, arguments = [], []
  at = np.cumsum([0, *counts])
  for key, still in (("lhs", 2), ("rhs", 1)):
    walked = [
      d for d in range(len(shape)) if not at[still] <= d < at[still + 1]
    ]
    extents = tuple(shape[d] for d in walked)
    dims = tuple(walked.index(d) if d in walked else -1
                 for d in range(len(shape)))  # fmt: skip
    if data.draw(st.booleans()):
      root, offset, strides = data.draw(views(extents))
    else:
      strides = [data.draw(st.integers(0, 7)) for _ in extents]
      reach = sum((e - 1) * s for e, s in zip(extents, strides, strict=True))
      root, offset = (reach + 3,), 2
    number = kit.argument(root, dtype)
    placed = kit.loaded(number, shape, dims, split,
                         (extents, offset, strides))  # fmt: skip
    operands.append((placed, dims))
    arguments.append(util.sample(NUMPY[dtype], root, key=key))
  kept = shape[: b + m + n]
  order = data.draw(st.permutations(range(len(kept))))
  r = kit.result(tuple(kept[d] for d in order), dtype)
  written = [order.index(d) if d < len(kept) else -1
             for d in range(len(shape))]  # fmt: skip
  kit.execute(schema.Dot(accumulate, 0, b, m, n), shape, operands,
              [(r, tuple(written))], split)  # fmt: skip
  # Terms are smaller than 16 in magnitude; they are added in another order.
  eps = float(np.finfo(np.float64 if dtype == DType.F64 else np.float32).eps)
  engine_kit.check(kit.bytes(), arguments, ulps=2, atol=16 * 36 * 36 * eps)


@pytest.mark.parametrize("shape", [(0, 2, 2, 2), (1, 0, 2, 2), (1, 2, 2, 0)])
def test_empty_products(shape):
  b, m, n, k = shape
  kit = Kit(TILES)
  lhs, rhs = kit.argument((b, m, k)), kit.argument((b, n, k))
  r = kit.result((b, m, n))
  kit.execute(schema.Dot(F32, 0), shape, [(lhs, (0, 1, -1, 2)),
              (rhs, (0, -1, 1, 2))], [(r, (0, 1, 2, -1))])  # fmt: skip
  zeros = [np.zeros(s, np.float32) for s in ((b, m, k), (b, n, k))]
  engine_kit.check(kit.bytes(), zeros)


# --- Scans -------------------------------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=100)
def test_scan(data):
  shape = tuple(data.draw(st.lists(st.integers(1, 9), max_size=2)))
  shape += (data.draw(st.sampled_from([1, 2, 17, 70, 140])),)
  if data.draw(st.booleans()):
    shape = (data.draw(st.sampled_from([20, 300])), *shape[-1:])
  dtype = data.draw(st.sampled_from(DTYPES))
  type_ = REGISTER[dtype]
  op = data.draw(st.sampled_from([Opcode.MAX, Opcode.MIN, Opcode.ADD]))
  combine = [load(0, type_), load(1, type_), (op, type_, 0, 1)]
  if data.draw(st.booleans()):
    combine.append((Opcode.MAX, type_, 2, 1))
  parts = [data.draw(st.integers(1, 2)) for _ in shape[:-1]]
  split = grid(shape, [*parts, 1])
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  operands, arguments = [], []
  for key, extents in (("x", shape), ("start", shape[:-1])):
    dims = (*range(len(shape) - 1), len(shape) - 1 if key == "x" else -1)
    root, offset, strides = data.draw(views(extents))
    number = kit.argument(root, dtype)
    placed = kit.loaded(number, shape, dims, split,
                         (extents, offset, strides))  # fmt: skip
    operands.append((placed, dims))
    sample = util.sample(NUMPY[dtype], root, low=0, high=1, key=key)
    arguments.append(sample)
  r = kit.result(shape, dtype, split)
  every = tuple(range(len(shape)))
  reverse = data.draw(st.integers(0, 1))
  fields = schema.Scan(code(*combine), len(combine) - 1, reverse)
  kit.execute(fields, shape, operands, [(r, every)], split)
  engine_kit.check(kit.bytes(), arguments)


# --- Sorts -------------------------------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_sort(data):
  shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
  split = data.draw(partitions(shape))
  dtypes = data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3))
  keep = data.draw(st.integers(1, shape[-1]))
  compares = data.draw(st.booleans())
  kit = Kit(TILES)
  every = tuple(range(len(shape)))
  operands, results, arguments = [], [], []
  for i, dtype in enumerate(dtypes):
    root, offset, strides = data.draw(views(shape))
    a = kit.argument(root, dtype)
    placed = kit.loaded(a, shape, every, split, (shape, offset, strides))
    operands.append((placed, every))
    kept = (*shape[:-1], keep)
    results.append((kit.result(kept, dtype), (*every[:-1], -1)))
    low, high = (0, 1) if dtype == BOOL else (0, 3)
    # A comparison that NaN makes inconsistent defines no order.
    arguments.append(
      util.sample(
        NUMPY[dtype], root, low=low, high=high, special=not compares, key=i
      )
    )
  flag = st.integers(0, 1)
  keys = [
    schema.SortKey(j, *(data.draw(flag) for _ in range(3)))
    for j in data.draw(st.permutations(range(len(dtypes))))
  ]
  less, output = Code(), 0
  if compares:
    keys = []
    register = REGISTER[dtypes[0]]
    less = code(
      load(0, register), load(1, register), (Opcode.GT, register, 0, 1)
    )
    output = 2
  elif data.draw(st.booleans()):
    dtype = data.draw(st.sampled_from(NUMBER_DTYPES))
    results.append((kit.result((*shape[:-1], keep), dtype), (*every[:-1], -1)))
  fields = schema.Sort(keys, less, output, keep, 0)
  kit.execute(fields, shape, operands, results, split)
  engine_kit.check(kit.bytes(), arguments)
