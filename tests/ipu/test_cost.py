"""Modelled cycles against the tables they come from, and the planner against
exhaustive search. Measurements are in test_fidelity.py."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import everywhere

from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets import CODELETS, _inner_loops, dot, gather, reduce
from jaxlib.ipu.codelets._codelet import broadcast
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.dtypes import INTEGERS, DType
from jaxlib.ipu.plan import combine, cost, layout, matmul, reduction
from jaxlib.ipu.plan.traffic import Traffic, traffic
from jaxlib.ipu.plan.walk import Side
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import Opcode, ReduceKind, RegisterType, encode

IPU1, IPU2 = machines.resolve("ipu1"), machines.resolve("ipu2")
F32, F16, I32 = DType.F32, DType.F16, DType.I32
MULTI_VERTEX = IPU2.launch_cycles + 11


def elementwise(op: Opcode, loads: int, dtype: DType) -> schema.Map:
  register = {F32: RegisterType.F32, F16: RegisterType.F32}.get(
    dtype, RegisterType.I32
  )
  code = b"".join(encode(Opcode.LOAD, register, imm=i) for i in range(loads))
  code += encode(op, register, *range(loads))
  if dtype == F16:
    code += encode(Opcode.ROUND_F16, register, loads)
  return schema.Map(code, [len(code) // 16 - 1])


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
    # Rows of PopLibs' tables: cycles for `unit` elements of one worker.
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
    # BroadcastScalar's and INVERSE's rows: one operand is one element.
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
    at = 0 if inverse else 16
    code = bytearray(fields.code)
    code[at : at + 16] = encode(Opcode.CONST, register, imm=1)
    fields = schema.Map(bytes(code), fields.outputs)
  result = DType.BOOL if op == Opcode.GT else dtype
  scalars = () if constant else (0,) if inverse else (1,)

  def cycles(n: int) -> float:
    return (
      CODELETS[schema.Map]
      .cycles(IPU2, fields, [dtype, dtype], [result], [n], scalars=scalars)
      .total
    )

  workers = IPU2.num_workers
  n = 1200 * workers
  more = cycles(2 * n) - cycles(n)
  assert more == pytest.approx(workers * (n / workers) / unit * expected)


def chain(*instructions: bytes) -> float:
  codelet = CODELETS[schema.Map]
  code = b"".join(instructions)
  fields = schema.Map(code, [len(code) // 16 - 1])
  return codelet.cycles(IPU2, fields, [F32], [F32], [6000]).total


def test_a_chain_loads_and_stores_once():
  load = encode(Opcode.LOAD, RegisterType.F32)
  adds = [encode(Opcode.ADD, RegisterType.F32, n, 0) for n in range(3)]
  one, two, three = (chain(load, *adds[:n]) for n in (1, 2, 3))
  # Two additions issue beside a load and a store; a third takes a cycle of its
  # own for two elements.
  assert one == two
  assert three - two == pytest.approx(6000 / 2)


def test_multiplying_by_a_scalar_and_adding_is_one_instruction():
  register = RegisterType.F32
  load, other = (encode(Opcode.LOAD, register, imm=i) for i in (0, 1))
  two = encode(Opcode.CONST, register, imm=0x40000000)
  product = encode(Opcode.MUL, register, 0, 2)

  def cycles(*last: bytes) -> float:
    code = b"".join((load, other, two, product, *last))
    fields = schema.Map(code, [len(code) // 16 - 1])
    codelet = CODELETS[schema.Map]
    return codelet.cycles(IPU2, fields, [F32] * 2, [F32], [6000]).total

  # ScaledAdd's loop: 3 cycles of a worker for two elements.
  start = 37 + 57 + 6 * 21
  assert cycles(encode(Opcode.ADD, register, 3, 1)) == start + 6000 / 2 * 3
  assert cycles(encode(Opcode.SUB, register, 1, 3)) == start + 7 + 6000 / 2 * 3
  # What is taken from the product is not such a loop.
  assert cycles(encode(Opcode.SUB, register, 3, 1)) > start + 7 + 6000 / 2 * 3


@pytest.mark.parametrize("cell, worker", [
  # popopsCycleEstimators.cpp, BroadcastVectorOuter: each worker has rows, 7
  # cycles each where they begin at a vector, or 25; 3 cycles for two elements.
  ((12, 100), 2 * (7 + 150)),
  ((12, 101), 2 * (25 + 153)),
  # Few rows: the workers share each row's elements.
  ((2, 600), 2 * (7 + 150)),
  # One row is no row.
  ((1, 600), 150),
  # One element of each row: on this tile the vector is an operand like others.
  ((600, 1), 150),
], ids=str)  # fmt: skip
def test_rows_have_their_price(cell, worker):
  fields = elementwise(Opcode.ADD, 2, F32)
  walks = broadcast((1200, 600), [(0, 1), (0, -1)])
  assert walks == ((True, False),)
  found = CODELETS[schema.Map].cycles(
    IPU2, fields, [F32, F32], [F32], cell, walks=walks
  )
  assert found.total == MULTI_VERTEX + 6 * (29 + worker)


@pytest.mark.parametrize("dtype, width", [(F32, 2), (F16, 4)])
def test_what_only_puts_zeros_is_a_mask(dtype, width):
  """The gradient of relu: popnn's NonLinearityGrad1D has three cycles for a
  vector of two floats or four halves."""
  register = RegisterType.F32
  x, other = (encode(Opcode.LOAD, register, imm=i) for i in (0, 1))
  zero, one = (encode(Opcode.CONST, register, imm=i) for i in (0, 0x3F800000))
  positive, nan = (
    encode(Opcode.GT, register, 0, 2), encode(Opcode.NE, register, 0, 0)
  )  # fmt: skip
  either = encode(Opcode.OR, RegisterType.U32, 3, 4)

  def worker(*code: bytes, outputs: int = 1) -> float:
    """Cycles of a worker for one more vector."""
    last = len(code) - 1
    fields = schema.Map(b"".join(code), [last, last - 1][:outputs])
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
    return encode(Opcode.SELECT, register, mask, 1, otherwise)

  begin = x, other, zero, positive
  assert worker(*begin, select(3)) == 3
  assert worker(*begin, nan, either, select(5)) == 5
  # A comparison that is stored is no mask, nor is what selects other values.
  assert worker(*begin, select(3), outputs=2) > 6
  assert worker(x, other, one, positive, select(3)) > 6


def test_f16_rounded_late_is_computed_as_f32():
  load = encode(Opcode.LOAD, RegisterType.F32)
  add = encode(Opcode.ADD, RegisterType.F32, 0, 0)
  codelet = CODELETS[schema.Map]
  narrow = schema.Map(
    load + add + encode(Opcode.ROUND_F16, RegisterType.F32, 1), [2]
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
  """As in test_isa: functions on floats, bits on integers."""
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


# --- Rows worked out by hand -------------------------------------------------


@pytest.mark.parametrize("dtype, block, expected", [
  # poplin/PerformanceEstimation.hpp, getConvPartialHorizontalMac*: a dot
  # product of two f32 is 3 + 3 + 1 + 2 / 2 = 8; a worker 16 + 19 + (7 + 8), and
  # 16 outside its loop, six of them 396; the supervisor 58 + 6 * 9 + 23 + 15 +
  # 10 + 396. Zeros: 6 * (1 + 14 - 9).
  (F32, (1, 6, 1, 2), 556 + 36),
  # Two columns and three batches, two rows a worker, 8 terms: a dot product 11,
  # a worker 16 + 19 + 2 * (7 + 11) + 16 = 87, zeros 6 * (1 + 5).
  (F32, (3, 12, 2, 8), 112 + 3 * (23 + 15 + 2 * (10 + 6 * 87 + 36))),
  # The vertex for 1x1 kernels: a dot product of eight f16 is 7 + 2 - 1 = 8; a
  # worker 16 - 15 + 13 + 1 + 2 * (2 + 8) + 16 = 51; 55 + 6 * 9 + 6 * 15.
  (F16, (1, 12, 1, 8), 199 + 23 + 15 + 10 + 6 * 51),
], ids=str)  # fmt: skip
def test_dot_products_on_the_vector_unit(dtype, block, expected):
  assert dot.hmac_cycles(IPU2, dtype, F32, dot.Block(*block)) == expected


def test_workers_share_the_rows_that_a_vector_is_multiplied_with():
  # Seven rows of 1000 in six parts each: 84 vectors and 7 + 7 cycles a part,
  # seven parts a worker; then a worker adds up six sums of each of two rows.
  found = dot.shared_cycles(IPU2, F32, F32, dot.Block(1, 7, 1, 1000))
  worker = 16 + 19 + 16 + 7 * (7 + 7 + 84)
  dots = 58 + 54 + 23 + 15 + 10 + 6 * worker + 6 * (4 + 5)
  assert found == dots + 11 + 6 * (17 + 2 * (12 + 3))
  # Nine rows: two parts each are enough.
  nine = dot.shared_cycles(IPU2, F32, F32, dot.Block(1, 9, 1, 1000))
  worker = 16 + 19 + 16 + 3 * (7 + 7 + 250)
  dots = 58 + 54 + 23 + 15 + 10 + 6 * worker + 6 * (2 + 5)
  assert nine == dots + 11 + 6 * (17 + 2 * (12 + 1))


@pytest.mark.parametrize("dtype, block, expected", [
  # poplin/PerformanceEstimation.hpp, getOuterProductCycleEstimate, the slow
  # path, groups of four and of two channels: 10 + 5 / 2 * 4 and 10 + 2 * 2.
  (F16, (1, 6, 8, 1), 6 * (25 + 2 * (10 + 20))),
  (F16, (1, 18, 5, 1), 6 * (25 + 2 * (10 + 3 * 20))),
  (F32, (1, 18, 4, 1), 6 * (25 + 2 * (11 + 3 * 14))),
  (F32, (1, 18, 4, 2), np.inf),
], ids=str)  # fmt: skip
def test_outer_products(dtype, block, expected):
  assert dot.outer_cycles(IPU2, dtype, F32, dot.Block(*block)) == expected


@pytest.mark.parametrize("dtype, lookups, window, parts, expected", [
  # popops/PerformanceEstimation.cpp, getMultiSliceCycleEstimate: 30; 19 and two
  # cycles per vector of an index served, 8 of one skipped.
  (F32, 6, 64, 1, 30 + 19 + 2 * 32),
  (F16, 12, 5, 1, 30 + 2 * (19 + 2 * 3)),
  (DType.I8, 12, 9, 1, 30 + 2 * (19 + 3 * 3)),
  # A single index: the workers share its 32 vectors.
  (F32, 1, 64, 1, 30 + 19 + 2 * 6),
  # One of four tiles that share the array serves a quarter of 24 / 6.
  (F32, 24, 64, 4, 30 + 19 + 2 * 32 + 3 * 8),
], ids=str)  # fmt: skip
def test_slices(dtype, lookups, window, parts, expected):
  found = gather.slice_cycles(IPU2, dtype, lookups, window, parts)
  assert found.total == MULTI_VERTEX + 6 * expected
  assert (found.derived, found.guessed) == (IPU2.launch_cycles, 0)


@pytest.mark.parametrize("kind, dtype, window, expected", [
  # popops/PerformanceEstimation.cpp: of twelve updates to six entries two are a
  # worker's. getMultiSliceCycleEstimate, an update: 29, 19 and two cycles per
  # vector, 8.
  (ReduceKind.SET, F32, 8, 29 + 2 * (19 + 2 * 4) + 10 * 8),
  # getMultiUpdateOpCycleEstimate: 3 + 29, 11 and 3 per further atom, 5.
  (ReduceKind.MAX, F32, 8, 32 + 2 * (11 + 7 * 3) + 10 * 5),
  (ReduceKind.MAX, F16, 8, 33 + 2 * (12 + 3 * 3) + 10 * 5),
  # Sums have a scale.
  (ReduceKind.SUM, F32, 8, 32 + 6 + 2 * (11 + 7 * 3) + 10 * 5),
  (ReduceKind.SUM, F16, 8, 33 + 4 + 2 * (13 + 3 * 3) + 10 * 5),
], ids=str)  # fmt: skip
def test_updates(kind, dtype, window, expected):
  fields = schema.Scatter(1, [], [], [], [], kind, 0, b"", [], 0)
  found = CODELETS[schema.Scatter].cycles(
    IPU2, fields, (), (dtype,), (12, window), entries=6
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
def test_what_updates_rest_on(kind, dtype, derived, guessed):
  fields = schema.Scatter(1, [], [], [], [], kind, 0, b"", [], 0)
  found = CODELETS[schema.Scatter].cycles(
    IPU2, fields, (), (dtype,), (600, 8), entries=6
  )
  assert (found.derived > IPU2.launch_cycles) == (derived or guessed)
  assert (found.guessed > 0) == guessed
  if derived or guessed:
    assert found.derived + found.guessed > 0.2 * found.total


@pytest.mark.parametrize("kept, reduced, order, expected", [
  # popops/reduction/CycleEstimationFunctions.cpp. ALL_REGIONS_CONTINUOUS: 17,
  # and 12 and a cycle per two f32 of each output; two outputs a worker.
  (12, 100, reduce.Order.ROWS, 17 + 2 * (50 + 12)),
  # STRIDED_REDUCE: 16, and per vector of two outputs 3 + 5 + 3 and a cycle for
  # each further row.
  (12, 100, reduce.Order.COLUMNS, 16 + (11 + 99)),
  (24, 100, reduce.Order.ANY, 16 + 2 * (11 + 99)),
], ids=str)  # fmt: skip
def test_reductions(kept, reduced, order, expected):
  found = reduce.cell_cycles(IPU2, kept, reduced, Cycles(0.5), 2, order)
  assert found.total == MULTI_VERTEX + 6 * expected
  assert (found.derived, found.guessed) == (IPU2.launch_cycles, 0)


def test_workers_that_share_an_output_are_derived():
  # Three workers a row of 900, then one adds up their partial sums.
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
    many = cycles(cell)
    assert many.shape == sizes.shape
    assert (np.diff(many) >= 0).all(), (d, other)
    one = cycles([int(c[3]) for c in cell])
    assert np.ndim(one) == 0 and one == many[3]


# --- Exchange ---------------------------------------------------------------


def moved(a: layout.Layout, b: layout.Layout) -> Traffic:
  shape = (a.num_elements,)
  return traffic(Side(a, 0, (1,)), Side(b, 0, (1,)), shape, 4)


def test_nothing_moves_onto_itself():
  a = layout.linear(1000, 16)
  step = cost.exchange(IPU2, [moved(a, a)])
  assert not any(dataclasses.astuple(step))


def test_broadcast_is_sent_once():
  step = cost.exchange(IPU1, [moved(layout.single(10), everywhere(10, 8))])
  assert step.exchange_bytes == 7 * 40
  assert step.exchange_cycles == 10 + IPU1.route_cycles


def test_pairs_of_tiles_receive_the_same_at_twice_the_rate():
  move = moved(layout.single(10), everywhere(10, 8))
  assert move.alike
  step = cost.exchange(IPU2, [move])
  assert step.exchange_bytes == 7 * 40
  assert step.exchange_cycles == 5 + IPU2.route_cycles
  # Eight parts, each on two tiles; then each part's tiles eight apart.
  adjoining, apart = (
    layout.Layout((layout.Factor(80, 10, step),), (layout.Replica(2, replica),))
    for step, replica in ((2, 1), (1, 8))
  )
  assert adjoining.pairs_alike and not apart.pairs_alike
  assert not dataclasses.replace(adjoining, base=1).pairs_alike
  source = layout.single(80, 20)
  # The sender has 80 elements to send, 8 bytes a cycle with its neighbour.
  step = cost.exchange(IPU2, [moved(source, adjoining)])
  assert step.exchange_cycles == 40 + IPU2.route_cycles
  step = cost.exchange(IPU2, [moved(source, apart)])
  assert step.exchange_cycles == 80 + IPU2.route_cycles


def test_transposition_is_all_to_all():
  rows = layout.grid((8, 8), (8, 1))
  columns = layout.grid((8, 8), (1, 8))
  # Each tile keeps one element of its eight.
  step = cost.exchange(IPU2, [moved(rows, columns)])
  assert step.exchange_bytes == 8 * 7 * 4
  assert step.exchange_cycles == 7 + IPU2.route_cycles
  assert step.sync_cycles == IPU2.sync_cycles


def test_what_stays_on_a_tile_is_known():
  here, there = layout.linear(100, 4), layout.grid((100,), (4,))
  assert moved(here, there).kept.tolist() == [100] * 4
  # Rows to columns: one element of eight stays.
  rows, columns = layout.grid((8, 8), (8, 1)), layout.grid((8, 8), (1, 8))
  assert moved(rows, columns).kept.tolist() == [4] * 8


def test_one_worker_makes_short_copies():
  assert cost.cycles(cost.local_copy(IPU2, 8)) == 72 + 6
  assert cost.cycles(cost.local_copy(IPU2, 8000)) == 288 + 1000


def test_the_busiest_tile_counts_over_all_moves():
  one, other = layout.single(10, 0), layout.single(10, 1)
  there, back = moved(one, other), moved(other, one)
  way = IPU2.route_cycles
  assert cost.exchange(IPU2, [there, back]).exchange_cycles == 10 + way
  assert cost.exchange(IPU2, [there, there]).exchange_cycles == 20 + way


def test_host_streams_take_the_link():
  small, large = (cost.host_stream(IPU2, [n]) for n in (4, 32_000_000))
  begin_and_end = IPU2.host_stream_seconds * IPU2.clock_hz
  # The measured begin and end hold a synchronisation.
  assert cost.cycles(small) == pytest.approx(
    begin_and_end + IPU2.host_copy_cycles, abs=2
  )
  assert small.sync_cycles == IPU2.host_sync_cycles
  seconds = (large.exchange_cycles - small.exchange_cycles) / IPU2.clock_hz
  packets = 32_000_000 / 1024
  link = (32_000_000 + packets * 24) / IPU2.host_bytes_per_second
  assert seconds == pytest.approx(link, rel=1e-3)
  # Packets to the host are smaller; a tile takes 16 KiB at once.
  back = cost.host_stream(IPU2, [32_000_000], to_host=True)
  assert back.exchange_cycles > 1.05 * large.exchange_cycles
  assert large.sync_cycles == 2 * small.sync_cycles == 2 * IPU2.host_sync_cycles


def test_arrays_of_one_stream_begin_and_end_together():
  one, three = (cost.host_stream(IPU2, [4] * n) for n in (1, 3))
  more = three.exchange_cycles - one.exchange_cycles
  assert more == pytest.approx(2 * IPU2.host_copy_cycles, abs=2)
  assert cost.cycles(cost.host_stream(IPU2, [])) == 0


# --- The plan of matrix products ---------------------------------------------


def products_cost(target, extents, parts, dtype):
  """The plan's cost of one split, by itself."""
  blocks = [-(-e // p) for e, p in zip(extents, parts, strict=True)]
  b, m, n, k = blocks
  lhs, rhs = 4 * b * k * m, 4 * b * k * n
  if parts[2] > 1 and parts[2] % 2 == 0:
    lhs /= 2  # pairs of tiles receive the same rows
  if parts[2] == parts[3] == 1 and parts[1] % 2 == 0:
    rhs /= 2
  total = cost.exchange_cycles(target, lhs + rhs, 0)
  vertices = CODELETS[schema.Dot].cycles(
    target,
    schema.Dot(dtype, 0),
    [dtype, dtype],
    [dtype],
    blocks,
    vector=min(extents[1:3]) == 1,
  )
  total += vertices.total
  total += target.sync_cycles
  if parts[3] > 1:
    outputs, gk = np.array([b * m * n]), np.array([parts[3]])
    adding = matmul.adding_cycles(target, 4)
    total += combine.combination_cycles(target, outputs, gk, 4, adding)[0]
  return float(total)


@pytest.mark.parametrize(
  ("tiles", "extents"),
  [
    (24, (1, 13, 7, 40)),
    (24, (3, 5, 5, 9)),
    (24, (1, 1, 1, 300)),
    (24, (2, 64, 1, 64)),
    # Blocks that fill the matrix unit, and as many of them as there are tiles.
    (92, (1, 80, 96, 256)),
    (92, (1, 64, 100, 320)),
    (92, (1, 256, 256, 100)),
  ],
)
def test_plans_are_near_the_best_of_all_splits(tiles, extents):
  target = machines.resolve("ipu2", tiles)
  plan = matmul.plan(target, *extents, F32, F32, F32)
  ways = (
    {-(-e // -(-e // p)) for p in range(1, min(e, tiles) + 1)} for e in extents
  )
  used = [p for p in itertools.product(*ways) if math.prod(p) <= tiles]
  best = min(products_cost(target, extents, p, F32) for p in used)
  assert np.prod(plan.parts) <= tiles
  assert plan.cycles == products_cost(target, extents, plan.parts, F32)
  assert plan.cycles <= 1.02 * best


@pytest.mark.parametrize("extents", [(1, 512, 512, 512), (64, 32, 32, 16)])
@pytest.mark.parametrize("dtype", [F32, F16, DType.BF16, I32, DType.F64])
def test_plans_of_every_type_fit_and_use_the_machine(extents, dtype):
  plan = matmul.plan(IPU2, *extents, dtype, dtype, dtype)
  assert plan.fits and np.prod(plan.parts) > IPU2.num_tiles / 4
  assert plan.tile_bytes <= 0.6 * IPU2.bytes_per_tile


SUMS = reduction.Work(
  item_bytes=4, each=Cycles(0.5), partial_bytes=4, combine=Cycles(0.5)
)


def combining(
  target: machines.Target,
  plan: reduction.ReductionPlan,
  work: reduction.Work = SUMS,
) -> schema.Cost:
  """Of the partial results of a reduction by such a plan."""
  shape = (
    plan.kept_block * plan.kept_parts,
    plan.reduced_block * plan.reduced_parts,
  )
  split = reduction.partition(shape, 1, plan)
  found = combine.epilogue(
    target,
    split,
    shape,
    1,
    reduction.result_layout(target, split, plan, shape, 1),
    work.partial_bytes,
    reduction.combining_cycles(target, work),
    combine.REDUCTIONS,
  )
  assert found is not None
  return found.cost


def test_the_workers_of_a_tile_share_what_a_reduction_combines():
  plan = reduction.ReductionPlan(1440, 512, 5, 2)
  three, six = (
    dataclasses.replace(
      machines.resolve("ipu2", 10), num_workers=n, launch_cycles=0
    )
    for n in (3, 6)
  )
  # 720 results a tile: 60 vectors for each of six workers, 120 for three.
  assert combining(six, plan).compute_cycles == 11 + 6 * (16 + 60 * (11 + 1))
  assert combining(three, plan).compute_cycles == 11 + 3 * (16 + 120 * (11 + 1))


def test_many_partials_are_combined_in_stages():
  few, many = (
    combining(IPU2, reduction.ReductionPlan(1, 512, 1, parts))
    for parts in (4, 1472)
  )
  assert few.sync_cycles == IPU2.sync_cycles
  assert many.sync_cycles == 2 * IPU2.sync_cycles
  # 38 groups of 39 tiles, then 38 results.
  assert many.exchange_cycles == 38 + 38 + 2 * IPU2.route_cycles
  assert many.exchange_bytes == 1472 * 4
  assert cost.cycles(many) < 4 * cost.cycles(few)


@given(st.integers(1, 2000), st.integers(2, 1471), st.sampled_from([0.5, 4.0]))
def test_combining_more_does_not_take_less(block, parts, each):
  cycles = reduction.combining_cycles(IPU2, SUMS._replace(combine=Cycles(each)))

  def combined(block: int) -> float:
    return combine.combination(IPU2, block, parts, 4, cycles)

  assert combined(2 * block) >= combined(block)


@pytest.mark.parametrize("dtype", [F32, F16, I32])
def test_what_does_not_fit_in_one_step_takes_several(dtype):
  plan = matmul.plan(IPU2, 1, 6144, 6144, 6144, dtype, dtype, dtype)
  assert plan.fits and plan.steps > 1
  assert plan.tile_bytes <= 0.6 * IPU2.bytes_per_tile
  whole = matmul.plan(IPU2, 1, 512, 512, 512, dtype, dtype, dtype)
  assert whole.steps == 1
  # The same rate as of products that fit at once, or a better one.
  assert plan.cycles / 6144**3 < whole.cycles / 512**3


def test_what_does_not_fit_says_so():
  tiny = machines.resolve("ipu2", 1)
  plan = matmul.plan(tiny, 1, 4096, 4096, 4096, F32, F32, F32)
  assert not plan.fits


def test_empty_products_need_no_plan():
  assert matmul.plan(IPU2, 1, 0, 4, 4, F32, F32, F32).parts == (1, 1, 1, 1)


@pytest.mark.parametrize("version", machines.TARGETS)
def test_peak_rates(version):
  """A large block keeps the matrix unit busy most of the time."""
  target = machines.resolve(version)
  block = dot.Block(1, 1200, 512, 512)
  f32 = dot.amp_cycles(target, F32, F32, block)
  f16 = dot.amp_cycles(target, F16, F32, block)
  macs = 1200 * 512 * 512
  assert 0.7 < macs / (f32 * target.fp32_macs) <= 1
  assert 0.7 < macs / (f16 * target.fp16_macs) <= 1
