"""Modelled cycles of vertices against the tables they come from.

Comparisons with measurements are in test_fidelity.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from program_kit import word

from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets import (
  CODELETS,
  _dot_cycles,
  _inner_loops,
  gather,
  reduce,
)
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets.scatter import ScatterHints
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.dtypes import INTEGERS, DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.program import schema

IPU2 = machines.resolve("ipu2")
F32, F16, I32 = DType.F32, DType.F16, DType.I32
MULTI_VERTEX = IPU2.launch_cycles + 11


def concatenated(words: Iterable[Code]) -> Code:
  return sum(words, Code())


def elementwise(op: Opcode, loads: int, dtype: DType) -> schema.Map:
  register = {F32: RegisterType.F32, F16: RegisterType.F32}.get(
    dtype, RegisterType.I32
  )
  code = concatenated(word(Opcode.LOAD, register, imm=i) for i in range(loads))
  code += word(op, register, *range(loads))
  if dtype == F16:
    code += word(Opcode.ROUND_F16, register, loads)
  return schema.Map(code, [len(code) - 1])


def map_cycles(op: Opcode, loads: int, dtype: DType, n: int) -> float:
  fields = elementwise(op, loads, dtype)
  return (
    CODELETS[schema.Map]
    .cycles(IPU2, fields, [dtype] * loads, [dtype], [n])
    .total
  )


@pytest.mark.parametrize(
  "op, loads, dtype, unit, expected",
  [
    # Rows of PopLibs' tables: cycles for `unit` elements on one worker.
    (Opcode.ADD, 2, F32, 2, 3),
    (Opcode.ADD, 2, F16, 4, 3),
    (Opcode.MAX, 2, F32, 2, 3),
    (Opcode.MAX, 2, F16, 4, 4),
    (Opcode.DIV, 2, F32, 2, 10),
    (Opcode.POW, 2, F32, 1, 312),
    (Opcode.EXP, 1, F32, 2, 6),
    (Opcode.EXP, 1, F16, 4, 4),
    (Opcode.TANH, 1, F32, 2, 12),
    (Opcode.FLOOR, 1, F32, 2, 6),
    (Opcode.ABS, 1, F32, 1, 5),
    (Opcode.ADD, 2, I32, 1, 7),
    (Opcode.DIV, 2, I32, 1, 277),
    (Opcode.POPCNT, 1, I32, 1, 5),
  ],
  ids=str,
)
def test_one_operation_costs_what_the_table_says(
  op, loads, dtype, unit, expected
):
  workers = IPU2.num_workers
  n = 1200 * workers
  more = map_cycles(op, loads, dtype, 2 * n) - map_cycles(op, loads, dtype, n)
  assert more == pytest.approx(workers * (n / workers) / unit * expected)


@pytest.mark.parametrize(
  "op, dtype, unit, expected",
  [
    # The rows of BroadcastScalar and INVERSE: one operand is a single element.
    (Opcode.ADD, F32, 2, 2),
    (Opcode.MUL, F16, 4, 2),
    (Opcode.MAX, F32, 2, 3),
    (Opcode.DIV, F32, 2, 6),
    (Opcode.DIV, F16, 4, 15),
    (Opcode.ADD, I32, 1, 6),
    (Opcode.GT, F32, 4, 12),
  ],
  ids=str,
)
@pytest.mark.parametrize("constant", [False, True])
def test_scalars_stay_in_registers(op, dtype, unit, expected, constant):
  fields = elementwise(op, 2, dtype)
  inverse = op == Opcode.DIV
  if constant:
    register = RegisterType.I32 if dtype == I32 else RegisterType.F32
    code = list(fields.code)
    code[0 if inverse else 1] = word(Opcode.CONST, register, imm=1)[0]
    fields = schema.Map(Code(code), fields.outputs)
  result = DType.BOOL if op == Opcode.GT else dtype
  hints = Hints(scalars=() if constant else (0,) if inverse else (1,))

  def cycles(n: int) -> float:
    return (
      CODELETS[schema.Map]
      .cycles(IPU2, fields, [dtype, dtype], [result], [n], hints)
      .total
    )

  workers = IPU2.num_workers
  n = 1200 * workers
  more = cycles(2 * n) - cycles(n)
  assert more == pytest.approx(workers * (n / workers) / unit * expected)


def chain(*instructions: Code) -> float:
  codelet = CODELETS[schema.Map]
  code = concatenated(instructions)
  fields = schema.Map(code, [len(code) - 1])
  return codelet.cycles(IPU2, fields, [F32], [F32], [6000]).total


def test_a_chain_loads_and_stores_once():
  load = word(Opcode.LOAD, RegisterType.F32)
  adds = [word(Opcode.ADD, RegisterType.F32, n, 0) for n in range(3)]
  one, two, three = (chain(load, *adds[:n]) for n in (1, 2, 3))
  # Two additions issue alongside a load and a store; a third takes an extra
  # cycle for two elements.
  assert one == two
  assert three - two == pytest.approx(6000 / 2)


def test_scalar_operations_are_not_rounded_up_to_vectors():
  """A power takes 312 cycles per element, an addition 3 for two elements."""
  power = elementwise(Opcode.POW, 2, F32).code
  code = power + word(Opcode.ADD, RegisterType.F32, 2, 0)
  fields = schema.Map(code, [len(code) - 1])

  def cycles(each: int) -> float:
    n = each * IPU2.num_workers
    codelet = CODELETS[schema.Map]
    return codelet.cycles(IPU2, fields, [F32] * 2, [F32], [n]).total

  one, two, three, four = map(cycles, (1, 2, 3, 4))
  assert two - one == four - three
  assert 300 < (two - one) / IPU2.num_workers < 312
  assert three - two == pytest.approx(two - one, rel=0.05)


def test_multiplying_by_a_scalar_and_adding_is_one_instruction():
  register = RegisterType.F32
  load, other = (word(Opcode.LOAD, register, imm=i) for i in (0, 1))
  two = word(Opcode.CONST, register, imm=0x40000000)
  product = word(Opcode.MUL, register, 0, 2)

  def cycles(*last: bytes) -> float:
    code = concatenated((load, other, two, product, *last))
    fields = schema.Map(code, [len(code) - 1])
    codelet = CODELETS[schema.Map]
    return codelet.cycles(IPU2, fields, [F32] * 2, [F32], [6000]).total

  # The loop of ScaledAdd: 3 cycles of a worker for two elements.
  start = 37 + 57 + 6 * 21
  assert cycles(word(Opcode.ADD, register, 3, 1)) == start + 6000 / 2 * 3
  assert cycles(word(Opcode.SUB, register, 1, 3)) == start + 7 + 6000 / 2 * 3
  # Subtracting from the product is not such a loop.
  assert cycles(word(Opcode.SUB, register, 3, 1)) > start + 7 + 6000 / 2 * 3


@pytest.mark.parametrize("cell, worker", [
  # popopsCycleEstimators.cpp, BroadcastVectorOuter: each worker has whole rows,
  # at 7 cycles each if they begin at a vector and 25 otherwise, plus 3 cycles
  # for two elements.
  ((12, 100), 2 * (7 + 150)),
  ((12, 101), 2 * (25 + 153)),
  # Few rows: the workers share the elements of each row.
  ((2, 600), 2 * (7 + 150)),
  # A single row is not treated as rows.
  ((1, 600), 150),
  # With one element per row, the vector is an ordinary operand on this tile.
  ((600, 1), 150),
], ids=str)  # fmt: skip
def test_operands_broadcast_along_rows_are_charged_per_row(cell, worker):
  fields = elementwise(Opcode.ADD, 2, F32)
  hints = Hints().reading((1200, 600), [(0, 1), (0, -1)])
  assert hints.walks == ((True, False),)
  found = CODELETS[schema.Map].cycles(
    IPU2, fields, [F32, F32], [F32], cell, hints
  )
  assert found.total == MULTI_VERTEX + 6 * (29 + worker)


@pytest.mark.parametrize("dtype, width", [(F32, 2), (F16, 4)])
def test_selecting_zeros_is_charged_as_a_mask(dtype, width):
  """The gradient of relu: popnn's NonLinearityGrad1D takes three cycles for a
  vector of two floats or four halves.
  """
  register = RegisterType.F32
  x, other = (word(Opcode.LOAD, register, imm=i) for i in (0, 1))
  zero, one = (word(Opcode.CONST, register, imm=i) for i in (0, 0x3F800000))
  positive, nan = (
    word(Opcode.GT, register, 0, 2), word(Opcode.NE, register, 0, 0)
  )  # fmt: skip
  either = word(Opcode.OR, RegisterType.U32, 3, 4)

  def worker(*code: bytes, outputs: int = 1) -> float:
    """Cycles of a worker for one more vector."""
    last = len(code) - 1
    fields = schema.Map(concatenated(code), [last, last - 1][:outputs])
    few, many = (
      CODELETS[schema.Map].cycles(
        IPU2,
        fields,
        [dtype] * 2,
        [dtype, DType.BOOL][:outputs],
        [n * 6 * width],
      )
      for n in (1000, 2000)
    )
    return (many.total - few.total) / 6000

  def select(mask: int, otherwise: int = 2) -> bytes:
    return word(Opcode.SELECT, register, mask, 1, otherwise)

  begin = x, other, zero, positive
  assert worker(*begin, select(3)) == 3
  assert worker(*begin, nan, either, select(5)) == 5
  # A comparison whose result is stored is not a mask, nor is one that selects
  # other values.
  assert worker(*begin, select(3), outputs=2) > 6
  assert worker(x, other, one, positive, select(3)) > 6


def test_f16_rounded_late_is_computed_as_f32():
  load = word(Opcode.LOAD, RegisterType.F32)
  add = word(Opcode.ADD, RegisterType.F32, 0, 0)
  codelet = CODELETS[schema.Map]
  narrow = schema.Map(
    load + add + word(Opcode.ROUND_F16, RegisterType.F32, 1), [2]
  )
  wide = schema.Map(load + add, [1])
  one, other = (
    codelet.cycles(IPU2, fields, [F16], [to], [6000]).total
    for fields, to in ((narrow, F16), (wide, F32))
  )
  assert one < other


def test_a_missing_cost_is_an_error():
  with pytest.raises(CompileError, match="no cost is known for TANH on i32"):
    map_cycles(Opcode.TANH, 1, I32, 10)


@pytest.mark.parametrize("op", list(Opcode), ids=lambda o: o.name)
def test_every_instruction_has_a_cost_where_it_has_a_meaning(op):
  """As in test_isa: float functions on floats, bit functions on integers."""
  if op < Opcode.NEGATE:
    return
  bits = {
    Opcode.NOT, Opcode.POPCNT, Opcode.CLZ, Opcode.AND, Opcode.OR, Opcode.XOR,
    Opcode.SHL, Opcode.SHR_LOGICAL, Opcode.SHR_ARITHMETIC,
  }  # fmt: skip
  both = {
    Opcode.SIGN, Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.DIV, Opcode.REM,
    Opcode.MAX, Opcode.MIN, Opcode.POW, Opcode.EQ, Opcode.NE, Opcode.LT,
    Opcode.LE, Opcode.GT, Opcode.GE, Opcode.SELECT, Opcode.CLAMP,
    Opcode.NEGATE,
  }  # fmt: skip
  floats = {DType.F16, DType.F32, DType.F64}
  integers = set(INTEGERS)
  dtypes = set()
  if op in both or op not in bits:
    dtypes |= floats
  if op in both or op in bits:
    dtypes |= integers
  if op == Opcode.ABS:
    dtypes |= {DType.I8, DType.I16, DType.I32, DType.I64}
  for dtype in dtypes:
    work = _inner_loops.work(op, dtype)
    assert work.proper > 0 and work.loop >= 0


# --- Rows worked out by hand ------------------------------------------------


def vertices(dtype, block):
  return _dot_cycles.vertices(IPU2, dtype, F32, _dot_cycles.Block(*block))


@pytest.mark.parametrize("dtype, block, expected", [
  # poplin/PerformanceEstimation.hpp, getConvPartialHorizontalMac*: a dot
  # product of two f32 takes 3 + 3 + 1 + 2 / 2 = 8; a worker 16 + 19 + (7 + 8),
  # and 16 outside its loop, which is 396 for six workers; the supervisor
  # 58 + 6 * 9 + 23 + 15 + 10 + 396. Zeroing: 6 * (1 + 14 - 9).
  (F32, (1, 6, 1, 2), 556 + 36),
  # Two columns and three batches, two rows per worker, 8 terms: a dot product
  # takes 11, a worker 16 + 19 + 2 * (7 + 11) + 16 = 87, zeroing 6 * (1 + 5).
  (F32, (3, 12, 2, 8), 112 + 3 * (23 + 15 + 2 * (10 + 6 * 87 + 36))),
  # The vertex for 1x1 kernels: a dot product of eight f16 takes 7 + 2 - 1 = 8;
  # a worker 16 - 15 + 13 + 1 + 2 * (2 + 8) + 16 = 51; 55 + 6 * 9 + 6 * 15.
  (F16, (1, 12, 1, 8), 199 + 23 + 15 + 10 + 6 * 51),
], ids=str)  # fmt: skip
def test_dot_products_on_the_vector_unit(dtype, block, expected):
  assert vertices(dtype, block).hmac == expected


@pytest.mark.parametrize("given, sums", [
  (F32, DType.F64), (F16, DType.F64), (I32, DType.F64), (I32, DType.I64),
], ids=str)  # fmt: skip
def test_narrow_operands_with_8_byte_sums_cost_like_8_byte_operands(
  given, sums
):
  """As JAX's `preferred_element_type` may request."""
  codelet, block = CODELETS[schema.Dot], (1, 12, 6, 20)
  narrow, wide = (
    codelet.cycles(IPU2, schema.Dot(sums, 0), [d, d], [sums], block).total
    for d in (given, sums)
  )
  assert wide <= narrow <= 2 * wide


def test_workers_share_the_terms_of_a_matrix_vector_product():
  # Seven rows of 500 vectors: 584 for each worker, which are of two rows at
  # most; then a worker adds two sums for each of two rows.
  found = vertices(F32, (1, 7, 1, 1000)).shared
  worker = 16 + 19 + 16 + 2 * (7 + 7) + 584
  dots = 58 + 54 + 23 + 15 + 10 + 6 * worker + 6 * (1 + 5)
  assert found == dots + 11 + 6 * (17 + 2 * (12 + 1))
  # Three rows: half of one for each worker, and up to three in a row.
  three = vertices(F32, (1, 3, 1, 1000)).shared
  worker = 16 + 19 + 16 + (7 + 7) + 250
  dots = 58 + 54 + 23 + 15 + 10 + 6 * worker + 6 * (1 + 5)
  assert three == dots + 11 + 6 * (17 + 12 + 2)


@pytest.mark.parametrize("dtype, block, expected", [
  # poplin/PerformanceEstimation.hpp, getOuterProductCycleEstimate, the slow
  # path, groups of four and of two channels: 10 + 5 / 2 * 4 and 10 + 2 * 2.
  (F16, (1, 6, 8, 1), 6 * (25 + 2 * (10 + 20))),
  (F16, (1, 18, 5, 1), 6 * (25 + 2 * (10 + 3 * 20))),
  (F32, (1, 18, 4, 1), 6 * (25 + 2 * (11 + 3 * 14))),
  (F32, (1, 18, 4, 2), np.inf),
], ids=str)  # fmt: skip
def test_outer_products(dtype, block, expected):
  found, block = vertices(dtype, block), _dot_cycles.Block(*block)
  assert found.outer == expected
  assert (
    vertices(
      dtype, block._replace(rows=block.columns, columns=block.rows)
    ).outer_turned
    == expected
  )


@pytest.mark.parametrize("dtype, lookups, window, parts, expected", [
  # popops/PerformanceEstimation.cpp, getMultiSliceCycleEstimate: 30, plus 19
  # and two cycles per vector for an index that is served, 8 for one that is
  # skipped.
  (F32, 6, 64, 1, 30 + 19 + 2 * 32),
  (F16, 12, 5, 1, 30 + 2 * (19 + 2 * 3)),
  (DType.I8, 12, 9, 1, 30 + 2 * (19 + 3 * 3)),
  # A single index: the workers share its 32 vectors.
  (F32, 1, 64, 1, 30 + 19 + 2 * 6),
  # One of four tiles that share the array serves a quarter of 24 / 6 indices.
  (F32, 24, 64, 4, 30 + 19 + 2 * 32 + 3 * 8),
], ids=str)  # fmt: skip
def test_slices(dtype, lookups, window, parts, expected):
  found = gather.slice_cycles(IPU2, dtype, lookups, window, parts)
  assert found.total == MULTI_VERTEX + 6 * expected
  assert (found.derived, found.guessed) == (IPU2.launch_cycles, 0)


@pytest.mark.parametrize("kind, dtype, window, expected", [
  # popops/PerformanceEstimation.cpp: of twelve updates to six entries, two fall
  # to a worker. getMultiSliceCycleEstimate, an update: 29, 19 and two cycles
  # per vector, 8.
  (ReduceKind.SET, F32, 8, 29 + 2 * (19 + 2 * 4) + 10 * 8),
  # getMultiUpdateOpCycleEstimate: 3 + 29, 11 and 3 per further atom, 5.
  (ReduceKind.MAX, F32, 8, 32 + 2 * (11 + 7 * 3) + 10 * 5),
  (ReduceKind.MAX, F16, 8, 33 + 2 * (12 + 3 * 3) + 10 * 5),
  # Sums are scaled.
  (ReduceKind.SUM, F32, 8, 32 + 6 + 2 * (11 + 7 * 3) + 10 * 5),
  (ReduceKind.SUM, F16, 8, 33 + 4 + 2 * (13 + 3 * 3) + 10 * 5),
], ids=str)  # fmt: skip
def test_updates(kind, dtype, window, expected):
  fields = schema.Scatter(1, [], [], [], [], kind, 0, Code(), [], 0)
  found = CODELETS[schema.Scatter].cycles(
    IPU2, fields, (), (dtype,), (12, window), ScatterHints(entries=6)
  )
  assert found.total == MULTI_VERTEX + 6 * expected
  assert (found.derived, found.guessed) == (IPU2.launch_cycles, 0)


@pytest.mark.parametrize("kind, dtype, derived, guessed", [
  (ReduceKind.SUM, F32, False, False),
  (ReduceKind.MIN, F32, True, False),  # there is no such vertex
  (ReduceKind.SUM, I32, True, False),
  (ReduceKind.SUM, DType.F64, False, True),
  (ReduceKind.SUM, DType.BF16, True, True),
  (ReduceKind.SET, F32, False, False),
  (ReduceKind.SET, DType.I64, True, False),
], ids=str)  # fmt: skip
def test_sources_of_the_cost_of_updates(kind, dtype, derived, guessed):
  fields = schema.Scatter(1, [], [], [], [], kind, 0, Code(), [], 0)
  found = CODELETS[schema.Scatter].cycles(
    IPU2, fields, (), (dtype,), (600, 8), ScatterHints(entries=6)
  )
  assert (found.derived > IPU2.launch_cycles) == (derived or guessed)
  assert (found.guessed > 0) == guessed
  if derived or guessed:
    assert found.derived + found.guessed > 0.2 * found.total


@pytest.mark.parametrize("kept, reduced, order, expected", [
  # popops/reduction/CycleEstimationFunctions.cpp. ALL_REGIONS_CONTINUOUS: 17,
  # plus 12 and a cycle per two f32 for each output; two outputs per worker.
  (12, 100, reduce.Order.ROWS, 17 + 2 * (50 + 12)),
  # STRIDED_REDUCE: 16, and per vector of two outputs 3 + 5 + 3 plus a cycle for
  # each further row.
  (12, 100, reduce.Order.COLUMNS, 16 + (11 + 99)),
  (24, 100, reduce.Order.ANY, 16 + 2 * (11 + 99)),
], ids=str)  # fmt: skip
def test_reductions(kept, reduced, order, expected):
  found = reduce.cell_cycles(IPU2, kept, reduced, Cycles(0.5), 2, order)
  assert found.total == MULTI_VERTEX + 6 * expected
  assert (found.derived, found.guessed) == (IPU2.launch_cycles, 0)


@pytest.mark.parametrize("order", list(reduce.Order), ids=str)
@pytest.mark.parametrize("kept, reduced", [(1, 1), (12, 1), (12, 50), (1, 60)])
def test_reductions_of_computed_elements(kept, reduced, order):
  """All elements are produced once, whatever the number of partials
  combined."""

  def total(made: float) -> float:
    each = Cycles(0.5)
    return reduce.cell_cycles(
      IPU2, kept, reduced, each, 2, order, Cycles(made)
    ).total

  least = IPU2.num_workers * -(-kept * reduced // IPU2.num_workers)
  assert 100 * least <= total(100) - total(0) <= 2 * 100 * least


def test_the_cost_of_a_shared_output_is_derived():
  # Three workers share a row of 900, then one adds their partial sums.
  found = reduce.cell_cycles(IPU2, 2, 900, Cycles(0.5), 2, reduce.Order.ROWS)
  assert found.total == MULTI_VERTEX + 6 * (2 * (17 + 12) + 150 + 2)
  assert found.derived == found.total - 11


# --- Growth ------------------------------------------------------------------


@pytest.mark.parametrize("record", list(CODELETS), ids=lambda r: r.__name__)
def test_cycles_never_fall_when_work_grows(record):
  codelet = CODELETS[record]
  fields, rank = codelet.example()
  sizes = np.array([1, 2, 3, 5, 6, 7, 12, 16, 17, 31, 64, 100])

  def cycles(cell):
    found = codelet.cycles(IPU2, fields, [F32, F32], [F32], cell)
    assert np.all(found.derived + found.guessed <= found.total)
    return found.total

  for d, other in itertools.product(range(rank), (1, 7, 40)):
    cell = [np.full(len(sizes), other) for _ in range(rank)]
    cell[d] = sizes
    each = [cycles(one) for one in np.transpose(cell).tolist()]
    assert np.ndim(each) == 1 and (np.diff(each) >= 0).all(), (d, other)
    if record is not schema.Dot:  # the library costs its candidates
      assert cycles(cell).tolist() == each
