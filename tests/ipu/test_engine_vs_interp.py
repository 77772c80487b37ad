"""The engine matches the interpreter.

Random programs are generated at the level of the tile program itself, so that
they cover what no lowering emits today: odd views, any partition, any element
type. This file has maps, exchanges and control flow; other steps are in
`test_engine_reductions.py` and `test_engine_indices.py`.
`test_lowering_vs_interp.py` does the same starting from JAX.
"""

from __future__ import annotations

import math

import engine_kit
import hypothesis
import numpy as np
import pytest
import sample_programs
from hypothesis import given
from hypothesis import strategies as st
from program_kit import BOOL, I32, Kit, code, double, load
from program_strategies import (
  ARITY,
  DTYPES,
  TILES,
  partitions,
  register_programs,
  result_types,
  shapes,
  values,
  views,
)

from jaxlib.ipu.check.verify_memory import dense
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import linear
from jaxlib.ipu.program import schema

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
    placed = kit.loaded(number, shape, every, split, (shape, offset, strides))
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
  n, register = 500, REGISTER[dtype]
  arity = ARITY[op]
  arguments = [values(dtype, (n,), i) for i in range(2)][:arity]
  operands = [(kit.argument((n,), dtype), (0,)) for _ in arguments]
  body = [load(i, register) for i in range(arity)]
  body.append((op, register, *range(arity)))
  fields = schema.Map(code(*body), [arity])
  kit.execute(fields, (n,), operands, [(kit.result((n,), dtype), (0,))])
  engine_kit.check(kit.bytes(), arguments, ulps=8, atol=1e-37)


@pytest.mark.parametrize(
  "dtype", [DType.I32, DType.U32, DType.I64, DType.U64], ids=str
)
def test_powers_of_integers(dtype):
  info = np.iinfo(NUMPY[dtype])
  some = [0, 1, 2, 3, 62, info.max // 2 + 1, info.max - 1, info.max, info.min]
  x, y = (m.reshape(-1) for m in np.meshgrid(*2 * [np.array(some, info.dtype)]))
  kit, register, shape = Kit(TILES), REGISTER[dtype], x.shape
  operands = [(kit.argument(shape, dtype), (0,)) for _ in range(2)]
  fields = schema.Map(
    code(load(0, register), load(1, register), (Opcode.POW, register, 0, 1)),
    [2],
  )
  kit.execute(fields, shape, operands, [(kit.result(shape, dtype), (0,))])
  engine_kit.check(kit.bytes(), [x, y])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("op", [Opcode.MAX, Opcode.MIN], ids=lambda o: o.name)
def test_maximum_and_minimum_order_zeros(op, dtype):
  some = np.array([-0.0, 0.0, 1, -1, np.nan, np.inf, -np.inf], NUMPY[dtype])
  x, y = (m.reshape(-1) for m in np.meshgrid(some, some))
  kit, register, n = Kit(TILES), REGISTER[dtype], len(x)
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


def test_the_comparison_distinguishes_signed_zeros():
  plus, minus = np.zeros(3, np.float32), -np.zeros(3, np.float32)
  with pytest.raises(AssertionError):
    engine_kit.same(plus, minus)
  engine_kit.same(plus, minus, zero_signs=False)


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


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_maps_in_a_loop(data):
  """Maps of few elements, which the engine runs specially: they share operands,
  and a value may be several results."""
  shape = data.draw(
    st.sampled_from([(), (1,), (2,), (4,), (5,), (2, 2), (40,)])
  )
  every = tuple(range(len(shape)))
  few = st.sampled_from(data.draw(st.lists(st.sampled_from(DTYPES), min_size=1,
                                           max_size=3)))  # fmt: skip
  dtypes = data.draw(st.lists(few, min_size=2, max_size=5))
  kit = Kit(tiles=1)
  roots = [kit.result(shape, dtype) for dtype in dtypes]
  for root, dtype in zip(roots, dtypes, strict=True):
    kit.copy(kit.whole(kit.argument(shape, dtype), root))
  some = st.sampled_from(range(len(roots)))
  body: list = []
  for _ in range(data.draw(st.integers(1, 5))):
    read = data.draw(st.lists(some, min_size=1, max_size=3))
    source, to = read[0], data.draw(some)
    if dtypes[source] == dtypes[to] and source != to:
      kit.copy(kit.whole(roots[source], roots[to]), into=body)
    of = tuple(dtypes[i] for i in read)
    program, types = data.draw(register_programs(of, len(shape)))
    targets = data.draw(st.lists(some, min_size=1, unique=True))
    outputs, results, operands = [], [], []
    for i in targets:
      fit = [v for v, t in enumerate(types) if dtypes[i] in result_types(t)]
      if fit:
        outputs.append(data.draw(st.sampled_from(fit)))
        results.append((roots[i], every))
    if not results:
      continue
    for i in read:
      # As it is, reversed, or one element for all.
      step = data.draw(st.integers(-1, 1)) if i not in targets else 1
      number = roots[i]
      if step < 1:
        strides = [step * n for n in dense(shape)]
        view = (shape, math.prod(shape) - 1, strides)
        here = linear(math.prod(shape), 1)
        number = kit.loaded(number, shape, every, here, view, into=body)
      operands.append((number, every))
    fields = schema.Map(code(*program), outputs)
    kit.execute(fields, shape, operands, results, into=body)
  kit.steps.append(schema.Repeat(data.draw(st.integers(1, 3)), body, 0))
  arguments = [values(dtype, shape, i) for i, dtype in enumerate(dtypes)]
  engine_kit.check(kit.bytes(), arguments)


@pytest.mark.parametrize("shape", [(), (3,), (9,)])
def test_a_value_that_is_two_results(shape):
  """Single elements, a few and more, in a loop."""
  kit = Kit(tiles=1)
  a, r, s = kit.argument(shape), kit.result(shape), kit.result(shape)
  twice = schema.Map(double().code, [1, 1])
  dims = tuple(range(len(shape)))
  body: list = []
  kit.execute(twice, shape, [(a, dims)], [(r, dims), (s, dims)], into=body)
  kit.steps.append(schema.Repeat(2, body, 0))
  argument = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
  engine_kit.check(kit.bytes(), [argument + 1])


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_repeat(trips):
  kit = sample_programs.repeat(trips)
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


# --- Bytes that are not a program --------------------------------------------


@given(st.integers(0, 10_000), st.integers(1, 255))
@hypothesis.settings(max_examples=200)
def test_corrupted_programs_are_refused(position, flip):
  kit = Kit(TILES)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  data = bytearray(kit.bytes())
  data[position % len(data)] ^= flip
  x = np.arange(8, dtype=np.float32)
  with pytest.raises(engine_kit.EngineError):
    engine_kit.call(bytes(data), [x], [np.zeros_like(x)])
