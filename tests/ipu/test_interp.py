"""The interpreter's results for hand-written programs."""

from __future__ import annotations

import numpy as np
import pytest
import sample_programs
from hypothesis import given
from hypothesis import strategies as st
from program_kit import (
  BOOL,
  F32,
  I32,
  Kit,
  add,
  code,
  cost,
  double,
  everywhere,
  load,
  moved_bytes,
  run,
)
from test_layout import mappings

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.check.tile_memory import Trap
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import grid, single
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.traffic import traffic
from jaxlib.ipu.plan import combine
from jaxlib.ipu.program import schema

X = np.arange(8, dtype=np.float32) + 1


# --- Exchange ----------------------------------------------------------------


@given(st.data())
def test_bytes_exchanged_are_bytes_planned(data):
  """Exact wherever the overlap of two mappings has a closed form."""
  extents = tuple(
    data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
  )
  a = data.draw(mappings(extents))
  n = a.num_elements
  b = data.draw(st.one_of(mappings(extents), mappings((n,))))
  kit = Kit(tiles=256)
  argument, result = kit.argument((n,), layout=a), kit.result((n,), layout=b)
  planned = traffic(MoveEnd(a, 0, (1,)), MoveEnd(b, 0, (1,)), (n,), 4)
  total = planned.received.sum()
  kit.copy(kit.whole(argument, result), exchange_bytes=total)
  (step,) = run(kit, np.arange(n, dtype=np.float32)).exchanges
  if layouts.overlap(a, b, 256) is None:
    assert step.actual <= total
  else:
    assert step.actual == total


# --- Element-wise ------------------------------------------------------------


def test_map_on_tiles():
  kit = Kit(tiles=3)
  a, b, r = kit.argument((8,)), kit.argument((8,)), kit.result((8,))
  kit.execute(add(), (8,), [(a, (0,)), (b, (0,))], [(r, (0,))])
  result = run(kit, X, X * 10)
  np.testing.assert_array_equal(result.outputs[0], X * 11)
  assert result.steps == 1 and moved_bytes(result) == [0]


def test_map_reads_exchanged_operands():
  kit = Kit(tiles=4)
  a = kit.argument((2, 4), layout=grid((2, 4), (2, 1)))
  r = kit.result((4, 2), layout=grid((4, 2), (4, 1)))
  # Two copies of the broadcast are not needed: each tile only gets its column.
  view = kit.placed(a, grid((4, 2), (4, 1)), (4, 2), 0, (1, 4))
  kit.copy(kit.move(view))
  kit.execute(double(), (4, 2), [(view, (0, 1))], [(r, (0, 1))],
              grid((4, 2), (4, 1)))  # fmt: skip
  x = X.reshape(2, 4)
  result = run(kit, x)
  np.testing.assert_array_equal(result.outputs[0], 2 * x.T)
  # Tile 0 has row 0, tile 1 row 1: each keeps one of its column's elements.
  assert moved_bytes(result) == [6 * 4, 0]


def test_operand_broadcast_along_a_dimension():
  kit = Kit(tiles=2)
  row = kit.argument((4,))
  x = kit.argument((2, 4), layout=grid((2, 4), (2, 1)))
  r = kit.result((2, 4), layout=grid((2, 4), (2, 1)))
  copies = kit.placed(row, everywhere(4, 2))
  kit.copy(kit.move(copies))
  kit.execute(add(), (2, 4), [(copies, (-1, 0)), (x, (0, 1))],
              [(r, (0, 1))], grid((2, 4), (2, 1)))  # fmt: skip
  result = run(kit, X[:4], X.reshape(2, 4))
  np.testing.assert_array_equal(result.outputs[0], X[:4] + X.reshape(2, 4))


def test_unindexed_dimensions_are_read_at_zero():
  kit = Kit(tiles=1)
  a, r = kit.argument((3, 3)), kit.result((3,))
  both = code(load(0))
  kit.execute(schema.Map(both, [0]), (3,), [(a, (0,))], [(r, (0,))])
  x = np.arange(9, dtype=np.float32).reshape(3, 3)
  np.testing.assert_array_equal(run(kit, x).outputs[0], x[:, 0])


def test_blocks_of_a_map_may_cross_rows():
  kit = Kit(tiles=3)
  flat = layouts.linear(12, 3, smallest=5)
  a = kit.argument((3, 4), layout=flat)
  r = kit.result((3, 4), I32, layout=flat)
  index = code(
    (Opcode.IOTA, RegisterType.I32, 0, 0, 0, 0),
    (Opcode.IOTA, RegisterType.I32, 0, 0, 0, 1),
    (Opcode.MUL, RegisterType.I32, 0, 1),
  )
  kit.execute(schema.Map(index, [2]), (3, 4), [(a, (0, 1))], [(r, (0, 1))],
              flat)  # fmt: skip
  result = run(kit, np.zeros((3, 4), np.float32))
  np.testing.assert_array_equal(
    result.outputs[0], np.outer(np.arange(3), np.arange(4))
  )


def test_scalars_empty_arrays_and_constants():
  kit = Kit(tiles=2)
  s, e = kit.argument(()), kit.argument((0, 3))
  c = kit.constant(np.array(5, np.float32))
  rs, re = kit.result(()), kit.result((0, 3))
  kit.execute(add(), (), [(s, ()), (c, ())], [(rs, ())])
  kit.execute(double(), (0, 3), [(e, (0, 1))], [(re, (0, 1))])
  scalar, empty = run(kit, np.float32(2), np.zeros((0, 3), np.float32)).outputs
  assert scalar == 7 and empty.shape == (0, 3)


def test_results_of_narrow_types():
  kit = Kit(tiles=1)
  a = kit.argument((3,), DType.U8)
  r, b = kit.result((3,), DType.BF16), kit.result((3,), BOOL)
  fields = schema.Map(
    code(
      load(0, RegisterType.U32),
      (Opcode.CONVERT, RegisterType.F32, 0, RegisterType.U32),
      (Opcode.CONST, RegisterType.U32, 0, 0, 0, 200),
      (Opcode.GT, RegisterType.U32, 0, 2),
    ),
    [1, 3],
  )
  kit.execute(fields, (3,), [(a, (0,))], [(r, (0,)), (b, (0,))])
  rounded, large = run(kit, np.array([1, 200, 255], np.uint8)).outputs
  assert rounded.astype(np.float32).tolist() == [1, 200, 255]
  assert large.tolist() == [False, False, True]


# --- Reductions and products -------------------------------------------------


def reduce_fields(
  kind: ReduceKind, num_reduced: int = 1, outputs: int = 1
) -> schema.Reduce:
  loads = [load(i) for i in range(outputs)]
  return schema.Reduce(
    num_reduced, kind, code(*loads), list(range(outputs)), Code(), [], b""
  )


@pytest.mark.parametrize("parts", [(1, 1), (4, 1), (1, 4), (2, 2), (2, 3)])
def test_partial_sums_are_combined(parts):
  kit = Kit(tiles=8)
  shape = (4, 6)
  split = grid(shape, parts)
  a = kit.argument(shape, layout=split)
  r = kit.result((4,), layout=single(4, 7))
  planned = 4 * 4 * split.factors[1].parts
  kit.execute(reduce_fields(ReduceKind.SUM), shape, [(a, (0, 1))],
              [(r, (0, -1))], split, planned)  # fmt: skip
  x = np.arange(24, dtype=np.float32).reshape(shape)
  result = run(kit, x)
  np.testing.assert_array_equal(result.outputs[0], x.sum(1))
  assert moved_bytes(result) == [planned]


def test_many_parts_are_combined_in_stages():
  """18 parts of 36 products: 4 groups of 4 or 5, then one group of these 4."""
  kit = Kit(tiles=18)
  split = grid((36, 1, 18), (1, 1, 18))
  a = kit.argument((36, 18), layout=split)
  ones = kit.argument((18, 1), layout=grid((18, 1), (18, 1)))
  r = kit.result((36, 1), layout=layouts.linear(36, 18))
  kit.execute(schema.Dot(F32, 0, 0), (36, 1, 18),
              [(a, (0, -1, 1)), (ones, (-1, 1, 0))], [(r, (0, 1, -1))],
              split)  # fmt: skip
  x = np.arange(36 * 18, dtype=np.float32).reshape(36, 18)
  # The busiest tile sends its 36 partials, then 9 sums of its share.
  kit.steps[0].cost.exchange_cycles = 36.0 + 9.0
  arguments = x, np.ones((18, 1), np.float32)
  result = run(kit, *arguments)
  np.testing.assert_array_equal(result.outputs[0], x.sum(1, keepdims=True))
  once = 36 * (18 - 4) * 4
  assert once + 36 * 3 * 4 <= moved_bytes(result)[0] <= once + 36 * 4 * 4
  kit.steps[0].cost.exchange_cycles = 43.0
  with pytest.raises(Trap, match="sends or receives"):
    run(kit, *arguments)


@given(
  st.integers(1, 60), st.integers(2, 200), st.integers(1, 60),
)  # fmt: skip
def test_stages_send_every_partial_to_its_owner(block, parts, owned):
  left, share = parts, block
  for s in combine.stages(block, parts, owned, combine.PRODUCTS):
    assert s.sent == share
    if s.shares:
      assert s.share * s.shares >= share and s.moved == left - s.groups
      left, share = s.groups, s.share
    else:
      assert s.moved == s.fan == left and s.received == left * owned
      left = 0
  assert left == 0


def test_parts_are_combined_in_order():
  # Subtraction: the order of operands matters.
  kit = Kit(tiles=3)
  split = layouts.linear(6, 3)
  a, r = kit.argument((6,), layout=split), kit.result(())
  subtract = code(load(0), load(1), (Opcode.SUB, RegisterType.F32, 0, 1))
  init = np.float32(100).tobytes() + bytes(4)
  fields = schema.Reduce(
    1, ReduceKind.GENERAL, code(load(0)), [0], subtract, [2], init
  )
  kit.execute(fields, (6,), [(a, (0,))], [(r, (-1,))], split)
  x = X[:6]
  parts = (100 - x[0] - x[1], x[2] - x[3], x[4] - x[5])
  assert run(kit, x).outputs[0] == parts[0] - parts[1] - parts[2]


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("kind", [ReduceKind.ARGMAX, ReduceKind.ARGMIN])
def test_arg_reductions(parts, kind):
  kit = Kit(tiles=5)
  x = np.array([3, 1, np.nan, 3, 1, np.nan, 7, -5, 3, 1], np.float32)
  split = layouts.linear(10, parts)
  a = kit.argument((10,), layout=split)
  v, i = kit.result(()), kit.result((), I32)
  kit.execute(reduce_fields(kind), (10,), [(a, (0,))],
              [(v, (-1,)), (i, (-1,))], split)  # fmt: skip
  value, index = run(kit, x).outputs
  assert np.isnan(value) and index == 2
  clean = np.nan_to_num(x, nan=2.0)
  value, index = run(kit, clean).outputs
  best = clean.argmax() if kind == ReduceKind.ARGMAX else clean.argmin()
  assert index == best and value == clean[best]


def test_empty_reduction():
  kit = Kit(tiles=2)
  a, r = kit.argument((2, 0)), kit.result((2,))
  kit.execute(reduce_fields(ReduceKind.PRODUCT), (2, 0), [(a, (0, 1))],
              [(r, (0, -1))])  # fmt: skip
  result = run(kit, np.zeros((2, 0), np.float32))
  assert result.outputs[0].tolist() == [1, 1]


def test_reduction_of_blocks_that_cross_rows():
  kit = Kit(tiles=4)
  split = layouts.linear(15, 4)
  a, r = kit.argument((3, 5), layout=split), kit.result(())
  kit.execute(reduce_fields(ReduceKind.SUM, 2), (3, 5), [(a, (0, 1))],
              [(r, (-1, -1))], split)  # fmt: skip
  x = np.arange(15, dtype=np.float32).reshape(3, 5)
  assert run(kit, x).outputs[0] == x.sum()


@pytest.mark.parametrize(
  "parts", [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 3, 1), (1, 2, 2, 2)]
)
def test_matrix_product(parts):
  kit = Kit(tiles=12)
  b, m, n, k = 2, 3, 4, 5
  split = grid((b, m, n, k), parts)
  lhs, rhs = kit.argument((b, m, k)), kit.argument((b, k, n))
  r = kit.result((b, m, n))
  left = layouts.project(split, (b, m, n, k), (0, 1, 3))
  right = layouts.project(split, (b, m, n, k), (0, 3, 2))
  moved = kit.placed(lhs, left), kit.placed(rhs, right)
  kit.copy(*map(kit.move, moved))
  kit.execute(
    schema.Dot(F32, 0), (b, m, n, k),
    [(moved[0], (0, 1, -1, 2)), (moved[1], (0, -1, 2, 1))],
    [(r, (0, 1, 2, -1))], split,
  )  # fmt: skip
  x = np.arange(b * m * k, dtype=np.float32).reshape(b, m, k)
  y = np.arange(b * k * n, dtype=np.float32).reshape(b, k, n)
  np.testing.assert_array_equal(run(kit, x, y).outputs[0], x @ y)


def test_empty_product_is_zero():
  kit = Kit(tiles=2)
  lhs, rhs = kit.argument((1, 2, 0)), kit.argument((1, 0, 2))
  r = kit.result((1, 2, 2))
  kit.execute(
    schema.Dot(F32, 0), (1, 2, 2, 0),
    [(lhs, (0, 1, -1, 2)), (rhs, (0, -1, 2, 1))], [(r, (0, 1, 2, -1))],
  )  # fmt: skip
  empty = np.zeros((1, 2, 0), np.float32)
  result = run(kit, empty, empty.reshape(1, 0, 2))
  assert not result.outputs[0].any()


# --- Control flow ------------------------------------------------------------


def test_repeat():
  result = run(sample_programs.repeat(3), X)
  np.testing.assert_array_equal(result.outputs[0], 8 * X)
  assert result.steps == 5


def test_while():
  assert (
    run(sample_programs.doubling(), np.float32(3), np.float32(20)).outputs[0]
    == 24
  )
  assert (
    run(sample_programs.doubling(), np.float32(30), np.float32(20)).outputs[0]
    == 30
  )


@pytest.mark.parametrize(
  "dtype, selector, branch",
  [
    (I32, 0, 0), (I32, 1, 1), (I32, 2, 2), (I32, 3, 2), (I32, -1, 2),
    (BOOL, True, 0), (BOOL, False, 1),
  ],
)  # fmt: skip
def test_switch(dtype, selector, branch):
  value = np.array(selector, NUMPY[dtype])
  assert run(sample_programs.switch(dtype), value).outputs[0] == branch


# --- Tiles and counters ------------------------------------------------------


def test_replicated_computation():
  kit = Kit(tiles=2)
  a = kit.argument((4,), layout=everywhere(4, 2))
  r = kit.result((4,), layout=everywhere(4, 2))
  kit.execute(double(), (4,), [(a, (0,))], [(r, (0,))], everywhere(4, 2))
  np.testing.assert_array_equal(run(kit, X[:4]).outputs[0], 2 * X[:4])


def test_peak_counts_live_tensors():
  kit = Kit(tiles=1)
  a, r = kit.argument((8,)), kit.result((8,))
  chain = [a, *(kit.tensor((8,)) for _ in range(5)), r]
  for source, to in zip(chain, chain[1:], strict=False):
    kit.execute(double(), (8,), [(source, (0,))], [(to, (0,))])
  # The argument, the result, and two neighbours of the chain at a time.
  assert run(kit, X).peak_bytes.tolist() == [4 * 32]


def test_host_streams_are_counted():
  kit = Kit(tiles=1)
  a = kit.argument((8,))
  kit.steps.append(schema.HostCopy(a, 1, cost(32), 0))
  assert run(kit, X).host_bytes == 32
