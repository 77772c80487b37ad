"""The engine gives what the interpreter defines.

Programs are drawn at random at the level of the tile program itself, so that
they reach what no lowering makes today: odd views, any partition, any element
type. `test_lowering_vs_interp.py` does the same from JAX's side.
"""

from __future__ import annotations

import math

import engine_kit
import hypothesis
import ipu_test_util as util
import numpy as np
import pytest
import sample_programs
from hypothesis import given
from hypothesis import strategies as st
from program_kit import BOOL, F32, I32, Kit, code, double, everywhere, load
from program_strategies import (
  ARITY,
  DTYPES,
  INDEX_DTYPES,
  TILES,
  near_and_far,
  partitions,
  register_programs,
  result_types,
  shapes,
  values,
  views,
  window_maps,
)

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._instructions import register_type
from jaxlib.ipu.codelets._windows import along_dynamic
from jaxlib.ipu.dtypes import FLOATS, NUMPY, DType
from jaxlib.ipu.plan import indexed_split
from jaxlib.ipu.plan.layout import Layout, grid
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import Opcode, ReduceKind, RegisterType

pytestmark = pytest.mark.ipu_only

# --- Map ---------------------------------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_map(data):
  shape = data.draw(shapes)
  split = data.draw(partitions(shape))
  dtypes = tuple(data.draw(st.lists(st.sampled_from(DTYPES), min_size=1,
                                    max_size=3)))  # fmt: skip
  program, types = data.draw(register_programs(dtypes, len(shape)))
  kit = Kit(TILES)
  arguments, operands = [], []
  every = tuple(range(len(shape)))
  for i, dtype in enumerate(dtypes):
    root, offset, strides = data.draw(views(shape))
    number = kit.argument(root, dtype)
    arguments.append(values(dtype, root, i))
    placed = kit.brought(number, shape, every, split, (shape, offset, strides))
    operands.append((placed, every))
  count = data.draw(st.integers(1, min(3, len(types))))
  outputs = list(range(len(types) - count, len(types)))
  results = []
  for o in outputs:
    dtype = data.draw(st.sampled_from(result_types(types[o])))
    results.append((kit.result(shape, dtype, split), every))
  kit.execute(schema.Map(code(*program), outputs), shape, operands, results,
              split)  # fmt: skip
  engine_kit.check(kit.bytes(), arguments)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16], ids=str)
@pytest.mark.parametrize(
  "op",
  [
    Opcode.EXP, Opcode.EXPM1, Opcode.LOG, Opcode.LOG1P, Opcode.RSQRT,
    Opcode.CBRT, Opcode.SIN, Opcode.COS, Opcode.TAN, Opcode.TANH,
    Opcode.LOGISTIC, Opcode.POW, Opcode.ATAN2,
  ],
  ids=lambda o: o.name,
)  # fmt: skip
def test_functions(op, dtype):
  kit = Kit(TILES)
  n, register = 500, register_type(dtype)
  arity = ARITY[op]
  arguments = [values(dtype, (n,), i) for i in range(2)][:arity]
  operands = [(kit.argument((n,), dtype), (0,)) for _ in arguments]
  body = [load(i, register) for i in range(arity)]
  body.append((op, register, *range(arity)))
  fields = schema.Map(code(*body), [arity])
  kit.execute(fields, (n,), operands, [(kit.result((n,), dtype), (0,))])
  engine_kit.check(kit.bytes(), arguments, ulps=8, atol=1e-37)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("op", [Opcode.MAX, Opcode.MIN], ids=lambda o: o.name)
def test_extremes_order_zeros(op, dtype):
  some = np.array([-0.0, 0.0, 1, -1, np.nan, np.inf, -np.inf], NUMPY[dtype])
  x, y = (m.reshape(-1) for m in np.meshgrid(some, some))
  kit, register, n = Kit(TILES), register_type(dtype), len(x)
  operands = [(kit.argument((n,), dtype), (0,)) for _ in range(2)]
  fields = schema.Map(
    code(load(0, register), load(1, register), (op, register, 0, 1)), [2]
  )
  kit.execute(fields, (n,), operands, [(kit.result((n,), dtype), (0,))])
  (found,) = engine_kit.check(kit.bytes(), [x, y])
  zeros = (x == 0) & (y == 0)
  either = np.signbit(x) | np.signbit(y), np.signbit(x) & np.signbit(y)
  expected = either[op == Opcode.MAX]
  np.testing.assert_array_equal(np.signbit(found)[zeros], expected[zeros])


def test_the_comparison_sees_the_sign_of_zero():
  plus, minus = np.zeros(3, np.float32), -np.zeros(3, np.float32)
  with pytest.raises(AssertionError):
    engine_kit.same(plus, minus)
  engine_kit.same(plus, minus, zero_signs=False)


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
  register = register_type(dtype)

  kit = Kit(TILES)
  root, offset, strides = data.draw(views(shape))
  a = kit.argument(root, dtype)
  every = tuple(range(len(shape)))
  placed = kit.brought(a, shape, every, split, (shape, offset, strides))
  dims = tuple(range(kept)) + (-1,) * num_reduced
  results = [(kit.result(shape[:kept], dtype), dims)]
  if arg:
    results.append((kit.result(shape[:kept], I32), dims))
  fields = schema.Reduce(
    num_reduced, kind, code(load(0, register)), [0], b"", [], b""
  )
  kit.execute(fields, shape, [(placed, every)], results, split)
  extreme = kind in (ReduceKind.MAX, ReduceKind.MIN)
  argument = util.sample(
    NUMPY[dtype], root, special=arg or extreme, low=0, high=4
  )
  # Another order of additions: as many roundings as there are elements. Of
  # zeros of both signs either may be the extreme.
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
  operands = [(kit.brought(t, shape, every, split), every) for t in (a, b)]
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
def test_reduction_of_nothing(dtype):
  kit = Kit(TILES)
  a, r = kit.argument((3, 0), dtype), kit.result((3,), dtype)
  register = register_type(dtype)
  kind = ReduceKind.OR if dtype == BOOL else ReduceKind.SUM
  fields = schema.Reduce(1, kind, code(load(0, register)), [0], b"", [], b"")
  kit.execute(fields, (3, 0), [(a, (0, 1))], [(r, (0, -1))])
  engine_kit.check(kit.bytes(), [np.zeros((3, 0), NUMPY[dtype])])


# --- Dot ---------------------------------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_dot(data):
  """Each group of dimensions is of several; those of an operand may overlap,
  as windows do."""
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
    placed = kit.brought(number, shape, dims, split,
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
  # Terms are below 16 in size; they are added in another order.
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
  type_ = register_type(dtype)
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
    placed = kit.brought(number, shape, dims, split,
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


# --- Indices at run time -----------------------------------------------------


def _windows(
  codelet, fields, shape, windowed, num_batch
) -> indexed_split.Windows:
  along = codelet.along(fields, shape, windowed)
  return indexed_split.Windows(shape, windowed, along, num_batch, 4, 4)


@st.composite
def _splits(draw, w: indexed_split.Windows, lookups: bool = True):
  """At most TILES parts of what indices name, of the rest, of the lookups."""
  parts = [1, 1, 1]
  left = TILES
  for i in draw(st.permutations(range(3))):
    parts[i] = draw(st.integers(1, left)) if lookups or i != 1 else 1
    left //= parts[i]
  sliced = w.windowed[w.sliced] if w.sliced is not None else 1
  return -(-sliced // -(-sliced // parts[0])), parts[1], parts[2]


def _drawn(
  data, w: indexed_split.Windows, own: Layout, slices: bool, teams: bool
):
  """A plan: of a tensor where it is, or brought."""
  stay = (
    indexed_split.slices_in_place if slices else indexed_split.updates_in_place
  )
  split = indexed_split.split_slices if slices else indexed_split.split_updates
  found = stay(w, own) if data.draw(st.booleans()) else None
  return found or split(w, *data.draw(_splits(w, teams)))


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_gather(data):
  w = data.draw(window_maps())
  shape = w["batch"] + w["window"]
  fields = schema.Gather(
    len(w["batch"]), w["map"], w["sizes"], w["batch_dims"], w["window_dims"]
  )
  own = data.draw(partitions(w["shape"]))
  windows = _windows(
    CODELETS[schema.Gather], fields, shape, w["shape"], len(w["batch"])
  )
  plan = _drawn(data, windows, own, True, True)
  dtype = data.draw(st.sampled_from(DTYPES))
  kit = Kit(TILES)
  a = kit.argument(w["shape"], dtype, own)
  index = data.draw(st.sampled_from(INDEX_DTYPES))
  named = (*w["batch"], len(w["map"]))
  i = kit.argument(named, index)
  everyone = kit.placed(i, everywhere(math.prod(named), TILES))
  there = kit.placed(a, plan.windowed)
  kit.copy(kit.move(everyone), kit.move(there))
  r = kit.result(shape, dtype, plan.result)
  dims = tuple(range(len(w["batch"]))) + (-1,) * len(w["window"])
  kit.execute(fields, shape, [(there, (-1,) * len(shape)), (everyone, dims)],
              [(r, tuple(range(len(shape))))], plan.partition)  # fmt: skip
  arguments = [values(dtype, w["shape"], 0), near_and_far(index, named)]
  engine_kit.check(kit.bytes(), arguments)


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
    placed = kit.brought(a, shape, every, split, (shape, offset, strides))
    operands.append((placed, every))
    kept = (*shape[:-1], keep)
    results.append((kit.result(kept, dtype), (*every[:-1], -1)))
    low, high = (0, 1) if dtype == BOOL else (0, 3)
    # A comparison that NaN makes inconsistent orders nothing.
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
  less, output = b"", 0
  if compares:
    keys = []
    register = register_type(dtypes[0])
    less = code(
      load(0, register), load(1, register), (Opcode.GT, register, 0, 1)
    )
    output = 2
  fields = schema.Sort(keys, less, output, keep)
  kit.execute(fields, shape, operands, results, split)
  engine_kit.check(kit.bytes(), arguments)


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_scatter(data):
  w = data.draw(window_maps())
  shape = w["batch"] + w["window"]
  dtype = data.draw(st.sampled_from(DTYPES))
  kinds = [ReduceKind.SET, ReduceKind.MAX, ReduceKind.MIN]
  if dtype == BOOL:
    kinds = [ReduceKind.SET, ReduceKind.AND, ReduceKind.OR]
  else:
    kinds += [ReduceKind.SUM, ReduceKind.PRODUCT]
  kind = data.draw(st.sampled_from(kinds))
  general = kind != ReduceKind.SET and data.draw(st.booleans())
  register = register_type(dtype)
  combine = b""
  if general:
    op = Opcode.OR if dtype == BOOL else Opcode.SUB
    combine = code(load(0, register), load(1, register), (op, register, 0, 1))
    kind = ReduceKind.GENERAL
  fields = schema.Scatter(
    len(w["batch"]), w["map"], w["sizes"], w["batch_dims"], w["window_dims"],
    kind, register, combine, [2] if general else [], 0,
  )  # fmt: skip
  own = data.draw(partitions(w["shape"]))
  codelet = CODELETS[schema.Scatter]
  windows = _windows(codelet, fields, shape, w["shape"], len(w["batch"]))
  teams = codelet.partial_bytes(fields, dtype) > 0
  plan = _drawn(data, windows, own, False, teams)
  split = plan.partition
  kit = Kit(TILES)
  a = kit.argument(w["shape"], dtype, own)
  index = data.draw(st.sampled_from(INDEX_DTYPES))
  named = (*w["batch"], len(w["map"]))
  i, u = kit.argument(named, index), kit.argument(shape, dtype)
  r = kit.result(w["shape"], dtype, plan.windowed)
  everyone = kit.placed(i, everywhere(math.prod(named), TILES))
  kit.copy(kit.move(everyone), kit.whole(a, r))
  every = tuple(range(len(shape)))
  updates = kit.brought(u, shape, every, split)
  dims = tuple(range(len(w["batch"]))) + (-1,) * len(w["window"])
  kit.execute(fields, shape, [(everyone, dims), (updates, every)],
              [(r, (-1,) * len(shape))], split)  # fmt: skip
  arguments = [
    util.sample(NUMPY[dtype], w["shape"], low=0, high=3),
    near_and_far(index, named),
    util.sample(NUMPY[dtype], shape, low=0, high=3, key="updates"),
  ]
  engine_kit.check(kit.bytes(), arguments)


@given(st.data())
@hypothesis.settings(max_examples=100)
def test_dynamic_slice_and_update(data):
  shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
  sizes = tuple(data.draw(st.integers(1, n)) for n in shape)
  moving = [d for d in range(len(shape)) if data.draw(st.booleans())]
  dtype = data.draw(st.sampled_from(DTYPES))
  own = data.draw(partitions(shape))
  windows = indexed_split.Windows(
    sizes, shape, along_dynamic(sizes, shape), len(shape), 4, 0
  )
  plan = _drawn(data, windows, own, True, True)
  update_plan = _drawn(data, windows, own, False, True)
  kit = Kit(TILES)
  a, u = kit.argument(shape, dtype, own), kit.argument(sizes, dtype)
  there = kit.placed(a, plan.windowed)
  kit.copy(kit.move(there))
  starts, arguments = [], [
    values(dtype, shape, 0), values(dtype, sizes, 1)
  ]  # fmt: skip
  still = (-1,) * len(shape)
  for _ in moving:
    index = data.draw(st.sampled_from(INDEX_DTYPES))
    number = kit.argument((), index)
    arguments.append(near_and_far(index, ()).astype(NUMPY[index])[()])
    placed = kit.placed(number, everywhere(1, TILES))
    kit.copy(kit.move(placed))
    starts.append((placed, still))
  s = kit.result(sizes, dtype, plan.result)
  r = kit.result(shape, dtype, update_plan.windowed)
  every = tuple(range(len(shape)))
  kit.execute(schema.DynamicSlice(moving), sizes, [(there, still), *starts],
              [(s, every)], plan.partition)  # fmt: skip
  kit.copy(kit.whole(a, r))
  update = kit.brought(u, sizes, every, update_plan.partition)
  kit.execute(schema.DynamicUpdate(moving), sizes,
              [(update, every), *starts], [(r, still)],
              update_plan.partition)  # fmt: skip
  engine_kit.check(kit.bytes(), arguments)


# --- Exchange and control flow -----------------------------------------------


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_copy(data):
  """Views of two roots become views of a third, which is filled first."""
  dtype = data.draw(st.sampled_from(DTYPES))
  kit = Kit(TILES)
  moves, arguments = [], []
  blank = kit.argument((200,), dtype)
  arguments.append(values(dtype, (200,), "blank"))
  r = kit.result((200,), dtype)
  at = 0
  for i in range(2):
    shape = data.draw(shapes.filter(lambda s: 0 < math.prod(s) <= 90))
    root, offset, strides = data.draw(views(shape))
    source = kit.argument(root, dtype)
    arguments.append(values(dtype, root, i))
    order = data.draw(st.permutations(range(len(shape))))
    to, step = [0] * len(shape), 1
    for d in order:
      to[d] = step
      step *= shape[d]
    moves.append(schema.Move(source, offset, strides, r, at, to, list(shape)))
    at += step
  kit.copy(kit.whole(blank, r))
  kit.copy(*moves)
  engine_kit.check(kit.bytes(), arguments)


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_repeat(turns):
  kit = sample_programs.repeat(turns)
  engine_kit.check(kit.bytes(), [np.arange(8, dtype=np.float32)])


@pytest.mark.parametrize("start, limit", [(1, 100), (5, 1), (3, 3)])
def test_while(start, limit):
  arguments = [np.float32(start), np.float32(limit)]
  kit = sample_programs.doubling()
  (doubled,) = engine_kit.check(kit.bytes(), arguments)
  assert doubled >= limit


@pytest.mark.parametrize(
  "dtype, selector",
  [(I32, s) for s in (0, 1, 2, 3, -1)] + [(BOOL, s) for s in (False, True)],
)
def test_switch(dtype, selector):
  kit = sample_programs.switch(dtype)
  engine_kit.check(kit.bytes(), [np.array(selector, NUMPY[dtype])])


# --- Bytes that are no program -----------------------------------------------


@given(st.integers(0, 10_000), st.integers(1, 255))
@hypothesis.settings(max_examples=200)
def test_bent_programs_are_refused(position, flip):
  kit = Kit(TILES)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  data = bytearray(kit.bytes())
  data[position % len(data)] ^= flip
  x = np.arange(8, dtype=np.float32)
  with pytest.raises(engine_kit.EngineError):
    engine_kit.call(bytes(data), [x], [np.zeros_like(x)])
