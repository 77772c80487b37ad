"""The interpreter on programs built by hand: what they give, and each way in
which a program can do what tiles cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import BOOL, F32, FREE, I32, Kit, add, code, cost, double, load
from test_layout import mappings

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.plan import cost as cost_model
from jaxlib.ipu.plan import layout as layouts
from jaxlib.ipu.plan.layout import Factor, Layout, everywhere, grid, single
from jaxlib.ipu.program import interp, schema
from jaxlib.ipu.program.interp import Trap
from jaxlib.ipu.program.isa import Opcode, ReduceKind, RegisterType

X = np.arange(8, dtype=np.float32) + 1


def run(kit: Kit, *arguments: np.ndarray, **options) -> interp.Result:
  return interp.run(kit.bytes(), arguments, **options)


def trap(kit: Kit, *arguments: np.ndarray, **options) -> Trap:
  with pytest.raises(Trap) as caught:
    run(kit, *arguments, **options)
  assert str(caught.value).startswith(caught.value.kind)
  return caught.value


def moved_bytes(result: interp.Result) -> list[float]:
  return [e.actual for e in result.exchanges]


# --- Exchange ----------------------------------------------------------------


@given(st.data())
def test_bytes_exchanged_are_bytes_planned(data):
  """Exactly, wherever the overlap of two mappings has a closed form."""
  extents = tuple(
    data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
  )
  a = data.draw(mappings(extents))
  n = a.num_elements
  b = data.draw(st.one_of(mappings(extents), mappings((n,))))
  kit = Kit(tiles=256)
  argument, result = kit.argument((n,), layout=a), kit.result((n,), layout=b)
  planned = cost_model.moved(a, b, 4, 256)
  kit.copy(kit.whole(argument, result), exchange_bytes=planned.bytes)
  (step,) = run(kit, np.arange(n, dtype=np.float32)).exchanges
  if layouts.overlap(a, b, 256) is None:
    assert step.actual <= planned.bytes
  else:
    assert step.actual == planned.bytes


# --- Element-wise ------------------------------------------------------------


def test_map_on_tiles():
  kit = Kit(tiles=3)
  a, b, r = kit.argument((8,)), kit.argument((8,)), kit.result((8,))
  kit.execute(add(), (8,), [(a, (0,)), (b, (0,))], [(r, (0,))])
  result = run(kit, X, X * 10)
  np.testing.assert_array_equal(result.outputs[0], X * 11)
  assert result.steps == 1 and moved_bytes(result) == [0]


def test_map_reads_what_an_exchange_brought():
  kit = Kit(tiles=4)
  a = kit.argument((2, 4), layout=grid((2, 4), (2, 1)))
  r = kit.result((4, 2), layout=grid((4, 2), (4, 1)))
  # Two broadcast copies are not needed: each tile gets its column only.
  view = kit.placed(a, grid((4, 2), (4, 1)), (4, 2), 0, (1, 4))
  kit.copy(kit.move(view))
  kit.execute(double(), (4, 2), [(view, (0, 1))], [(r, (0, 1))],
              grid((4, 2), (4, 1)))  # fmt: skip
  x = X.reshape(2, 4)
  result = run(kit, x)
  np.testing.assert_array_equal(result.outputs[0], 2 * x.T)
  # Tile 0 has row 0, tile 1 row 1: each keeps one of its column's elements.
  assert moved_bytes(result) == [6 * 4, 0]


def test_broadcast_operand_stands_still():
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


def test_dimensions_that_nothing_walks_stay_at_zero():
  kit = Kit(tiles=1)
  a, r = kit.argument((3, 3)), kit.result((3,))
  both = code(load(0))
  kit.execute(schema.Map(both, [0]), (3,), [(a, (0,))], [(r, (0,))])
  x = np.arange(9, dtype=np.float32).reshape(3, 3)
  np.testing.assert_array_equal(run(kit, x).outputs[0], x[:, 0])


def test_blocks_may_straddle_dimensions_of_a_map():
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


def test_scalars_empties_and_constants():
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
    num_reduced, kind, 0, code(*loads), list(range(outputs)), b"", [], b""
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


def test_parts_are_combined_in_order():
  # Subtraction: what comes first is not what comes last.
  kit = Kit(tiles=3)
  split = layouts.linear(6, 3)
  a, r = kit.argument((6,), layout=split), kit.result(())
  subtract = code(load(0), load(1), (Opcode.SUB, RegisterType.F32, 0, 1))
  init = np.float32(100).tobytes() + bytes(4)
  fields = schema.Reduce(
    1, ReduceKind.GENERAL, 0, code(load(0)), [0], subtract, [2], init
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


def test_reduction_of_nothing():
  kit = Kit(tiles=2)
  a, r = kit.argument((2, 0)), kit.result((2,))
  kit.execute(reduce_fields(ReduceKind.PRODUCT), (2, 0), [(a, (0, 1))],
              [(r, (0, -1))])  # fmt: skip
  result = run(kit, np.zeros((2, 0), np.float32))
  assert result.outputs[0].tolist() == [1, 1]


def test_reduction_over_runs_that_straddle_dimensions():
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
    schema.Dot(F32), (b, m, n, k),
    [(moved[0], (0, 1, -1, 2)), (moved[1], (0, -1, 2, 1))],
    [(r, (0, 1, 2, -1))], split,
  )  # fmt: skip
  x = np.arange(b * m * k, dtype=np.float32).reshape(b, m, k)
  y = np.arange(b * k * n, dtype=np.float32).reshape(b, k, n)
  np.testing.assert_array_equal(run(kit, x, y).outputs[0], x @ y)


def test_product_over_nothing_is_zero():
  kit = Kit(tiles=2)
  lhs, rhs = kit.argument((1, 2, 0)), kit.argument((1, 0, 2))
  r = kit.result((1, 2, 2))
  kit.execute(
    schema.Dot(F32), (1, 2, 2, 0), [(lhs, (0, 1, -1, 2)), (rhs, (0, -1, 2, 1))],
    [(r, (0, 1, 2, -1))],
  )  # fmt: skip
  empty = np.zeros((1, 2, 0), np.float32)
  result = run(kit, empty, empty.reshape(1, 0, 2))
  assert not result.outputs[0].any()


# --- Indices at run time -----------------------------------------------------


def rows_on_tiles(rows: int, columns: int, tiles: int) -> Layout:
  return grid((rows, columns), (tiles, 1))


def gather_kit(index_dtype: DType = I32) -> Kit:
  """Four of six rows, by index, on two tiles; the rows are on three."""
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=rows_on_tiles(6, 2, 3))
  i = kit.argument((4, 1), index_dtype, layout=rows_on_tiles(4, 1, 2))
  r = kit.result((4, 2), layout=rows_on_tiles(4, 2, 2))
  fields = schema.Gather(1, [0], [1, 2], [-1, -1], [-1, 0])
  kit.execute(fields, (4, 2), [(a, (-1, -1)), (i, (0, -1))],
              [(r, (0, 1))], rows_on_tiles(4, 2, 2))  # fmt: skip
  return kit


def test_gather_is_served_by_the_owners():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[5], [0], [9], [-3]], np.int32)
  result = run(gather_kit(), x, indices)
  np.testing.assert_array_equal(result.outputs[0], x[[5, 0, 5, 0]])
  # Tiles 0 and 1 want two rows each; row 0 is on tile 0 already.
  assert moved_bytes(result) == [3 * 2 * 4]


def test_large_unsigned_indices_are_clamped():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[2**64 - 1], [0], [2**63], [1]], np.uint64)
  result = run(gather_kit(DType.U64), x, indices)
  np.testing.assert_array_equal(result.outputs[0], x[[5, 0, 5, 1]])


def scatter_kit(kind: ReduceKind, unique: int = 0) -> Kit:
  """Rows of four updates go to six rows."""
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=rows_on_tiles(6, 2, 3))
  i = kit.argument((4, 1), I32, layout=rows_on_tiles(4, 1, 2))
  u = kit.argument((4, 2), layout=rows_on_tiles(4, 2, 2))
  r = kit.result((6, 2), layout=rows_on_tiles(6, 2, 3))
  kit.copy(kit.whole(a, r))
  fields = schema.Scatter(
    1, [0], [1, 2], [-1, -1], [-1, 0], kind, 0, b"", [], unique
  )
  kit.execute(fields, (4, 2), [(i, (0, -1)), (u, (0, 1))],
              [(r, (-1, -1))], rows_on_tiles(4, 2, 2))  # fmt: skip
  return kit


@pytest.mark.parametrize("kind", [ReduceKind.SET, ReduceKind.SUM])
def test_scatter_applies_updates_in_order(kind):
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[1], [6], [1], [-1]], np.int32)
  updates = np.arange(8, dtype=np.float32).reshape(4, 2) * 100
  result = run(scatter_kit(kind), x, indices, updates)
  expected = x.copy()
  for row in (0, 2):  # 6 and -1 are outside and dropped
    if kind == ReduceKind.SET:
      expected[1] = updates[row]
    else:
      expected[1] += updates[row]
  np.testing.assert_array_equal(result.outputs[0], expected)


def test_scatter_said_to_be_unique():
  arguments = (
    np.zeros((6, 2), np.float32),
    np.array([[1], [2], [1], [3]], np.int32),
    np.ones((4, 2), np.float32),
  )
  assert trap(scatter_kit(ReduceKind.SUM, 1), *arguments).kind == "race"
  arguments[1][2] = 4
  run(scatter_kit(ReduceKind.SUM, 1), *arguments)


def test_dynamic_slice_and_update():
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=rows_on_tiles(6, 2, 3))
  start = kit.argument((), I32)
  s, u = kit.result((2, 2)), kit.result((6, 2))
  starts = kit.placed(start, everywhere(1, 3))
  kit.copy(kit.whole(a, u), kit.move(starts))
  split = rows_on_tiles(2, 2, 2)
  part = kit.tensor((2, 2), layout=split)
  kit.execute(schema.DynamicSlice([0]), (2, 2),
              [(a, (-1, -1)), (starts, (-1, -1))], [(part, (0, 1))],
              split)  # fmt: skip
  doubled = kit.tensor((2, 2), layout=split)
  kit.execute(double(), (2, 2), [(part, (0, 1))], [(doubled, (0, 1))], split)
  kit.execute(schema.DynamicUpdate([0]), (2, 2),
              [(doubled, (0, 1)), (starts, (-1, -1))], [(u, (-1, -1))],
              split)  # fmt: skip
  kit.copy(kit.whole(part, s))
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  for at, clamped in ((1, 1), (-4, 0), (99, 4)):
    sliced, updated = run(kit, x, np.int32(at)).outputs
    np.testing.assert_array_equal(sliced, x[clamped : clamped + 2])
    expected = x.copy()
    expected[clamped : clamped + 2] *= 2
    np.testing.assert_array_equal(updated, expected)


# --- Control flow ------------------------------------------------------------


def test_repeat():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.copy(kit.whole(a, r))
  body: list = []
  kit.execute(double(), (8,), [(r, (0,))], [(r, (0,))], into=body)
  kit.steps.append(schema.Repeat(3, body, 0))
  result = run(kit, X)
  np.testing.assert_array_equal(result.outputs[0], 8 * X)
  assert result.steps == 5


def while_kit() -> Kit:
  """Doubles until the limit is reached."""
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


def test_while():
  assert run(while_kit(), np.float32(3), np.float32(20)).outputs[0] == 24
  assert run(while_kit(), np.float32(30), np.float32(20)).outputs[0] == 30


def test_endless_loop():
  problem = trap(while_kit(), np.float32(0), np.float32(1), max_steps=100)
  assert problem.kind == "runaway" and problem.step.startswith("1.")


@pytest.mark.parametrize(
  "dtype, selector, branch",
  [
    (I32, 0, 0), (I32, 1, 1), (I32, 2, 2), (I32, 3, 2), (I32, -1, 2),
    (BOOL, True, 0), (BOOL, False, 1),
  ],
)  # fmt: skip
def test_switch(dtype, selector, branch):
  kit = Kit(tiles=1)
  s, r = kit.argument((), dtype), kit.result(())
  branches = []
  for i in range(3):
    steps: list = []
    c = kit.constant(np.array(i, np.float32))
    kit.copy(kit.whole(c, r), into=steps)
    branches.append(schema.Branch(steps))
  kit.steps.append(schema.Switch(s, branches, FREE, 0))
  value = np.array(selector, np.bool_ if dtype == BOOL else np.int32)
  assert run(kit, value).outputs[0] == branch


# --- Traps -------------------------------------------------------------------


def test_operand_on_another_tile():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,), layout=single(8, 0)), kit.result((8,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  problem = trap(kit, X)
  assert (problem.kind, problem.step, problem.tile, problem.tensor) == (
    "absent", "0", 1, a,
  )  # fmt: skip


def test_result_of_a_map_on_another_tile():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,), layout=single(8, 0))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))])
  problem = trap(kit, X)
  assert (problem.kind, problem.tile, problem.tensor) == ("absent", 1, r)


def test_indices_on_another_tile():
  kit = gather_kit()
  kit.tensors[1].mapping = kit.mapping(single(4, 2), 4)
  problem = trap(kit, np.zeros((6, 2), np.float32), np.zeros((4, 1), np.int32))
  assert (problem.kind, problem.tile, problem.tensor) == ("absent", 0, 1)


def test_two_moves_to_one_element():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.copy(kit.whole(a, r), schema.Move(a, 3, [1], r, 3, [1], [1]))
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("race", r)


def test_one_move_with_two_sources_for_an_element():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.copy(schema.Move(a, 0, [1], r, 0, [0], [8]))
  assert trap(kit, X).kind == "race"


def test_two_points_write_one_element():
  kit = Kit(tiles=1)
  a, r = kit.argument((8,)), kit.result((1,))
  kit.execute(double(), (8,), [(a, (0,))], [(r, (-1,))])
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("race", r)


def test_replica_that_is_left_behind():
  kit = Kit(tiles=2)
  a = kit.argument((4,), layout=everywhere(4, 2))
  r = kit.result((4,), layout=everywhere(4, 2))
  kit.execute(double(), (4,), [(a, (0,))], [(r, (0,))], single(4, 0))
  problem = trap(kit, X[:4])
  assert (problem.kind, problem.tensor) == ("replica", r)


def test_replicas_computed_everywhere():
  kit = Kit(tiles=2)
  a = kit.argument((4,), layout=everywhere(4, 2))
  r = kit.result((4,), layout=everywhere(4, 2))
  kit.execute(double(), (4,), [(a, (0,))], [(r, (0,))], everywhere(4, 2))
  np.testing.assert_array_equal(run(kit, X[:4]).outputs[0], 2 * X[:4])


def test_reading_what_was_never_written():
  kit = Kit(tiles=2)
  t, r = kit.tensor((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))])
  problem = trap(kit)
  assert (problem.kind, problem.tensor) == ("undefined", t)


def test_moving_what_was_never_written():
  kit = Kit(tiles=2)
  t, r = kit.tensor((8,)), kit.result((8,))
  kit.copy(kit.whole(t, r))
  problem = trap(kit)
  assert (problem.kind, problem.tensor) == ("undefined", t)


def test_adding_to_what_was_never_written():
  kit = scatter_kit(ReduceKind.SUM)
  del kit.steps[0]
  problem = trap(
    kit,
    np.zeros((6, 2), np.float32),
    np.zeros((4, 1), np.int32),
    np.zeros((4, 2), np.float32),
  )
  assert (problem.kind, problem.tensor) == ("undefined", kit.results[0])


def test_result_with_a_hole():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,))
  kit.copy(schema.Move(a, 0, [1], r, 0, [1], [7]))
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("undefined", r)
  assert "element 7" in problem.message


def test_placed_tensor_without_its_exchange():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,), layout=single(8, 1))
  view = kit.placed(a, single(8, 1))
  kit.execute(double(), (8,), [(view, (0,))], [(r, (0,))], single(8, 1))
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("undefined", view)


def test_placed_tensor_whose_root_changed():
  kit = Kit(tiles=2)
  a, t = kit.argument((8,)), kit.tensor((8,))
  r = kit.result((8,), layout=single(8, 1))
  view = kit.placed(t, single(8, 1))
  kit.copy(kit.whole(a, t))
  kit.copy(kit.move(view))
  kit.execute(double(), (8,), [(t, (0,))], [(t, (0,))])
  kit.execute(double(), (8,), [(view, (0,))], [(r, (0,))], single(8, 1))
  problem = trap(kit, X)
  assert (problem.kind, problem.step, problem.tensor) == ("stale", "3", view)
  # Brought again, it is what it stands for.
  kit.steps.insert(3, kit.steps[1])
  np.testing.assert_array_equal(run(kit, X).outputs[0], 4 * X)


@pytest.mark.parametrize("what", ["argument", "constant"])
def test_writing_what_is_not_the_programs_own(what):
  kit = Kit(tiles=2)
  a = kit.argument((8,))
  c = kit.constant(X)
  target = a if what == "argument" else c
  kit.execute(double(), (8,), [(a, (0,))], [(target, (0,))])
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("read-only", target)


def test_computing_into_a_view():
  kit = Kit(tiles=1)
  a, t = kit.argument((8,)), kit.tensor((8,))
  view = kit.placed(t, single(8))
  kit.execute(double(), (8,), [(a, (0,))], [(view, (0,))])
  assert trap(kit, X).kind == "read-only"


def test_more_bytes_than_planned():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,), layout=single(8, 1))
  kit.copy(kit.whole(a, r), exchange_bytes=16)
  result = run(kit, X)
  assert moved_bytes(result) == [16]
  kit.steps[0].cost.exchange_bytes = 15.0
  assert trap(kit, X).kind == "exchange"


def test_partition_that_no_codelet_can_follow():
  kit = Kit(tiles=3)
  a, r = kit.argument((1, 3, 2)), kit.result((1, 3, 2))
  c = kit.constant(np.zeros((1, 2, 2), np.float32), everywhere(4, 3))
  crooked = Layout((Factor(12, 5, 1),))
  kit.execute(schema.Dot(F32), (1, 3, 2, 2),
              [(a, (0, 1, -1, 2)), (c, (0, -1, 1, 2))], [(r, (0, 1, 2, -1))],
              crooked)  # fmt: skip
  assert trap(kit, np.zeros((1, 3, 2), np.float32)).kind == "partition"


def test_tile_over_its_memory():
  kit = Kit(tiles=2, bytes_per_tile=63)
  a, r = (
    kit.argument((8,), layout=single(8)),
    kit.result((8,), layout=single(8)),
  )
  kit.execute(double(), (8,), [(a, (0,))], [(r, (0,))], single(8))
  problem = trap(kit, X)
  assert (problem.kind, problem.tile) == ("sram", 0)
  result = run(kit, X, check_sram=False)
  assert result.peak_bytes.tolist() == [64, 0]


def test_peak_counts_tensors_while_they_live():
  kit = Kit(tiles=1)
  a, r = kit.argument((8,)), kit.result((8,))
  chain = [a, *(kit.tensor((8,)) for _ in range(5)), r]
  for source, to in zip(chain, chain[1:], strict=False):
    kit.execute(double(), (8,), [(source, (0,))], [(to, (0,))])
  # The argument, the result, and two neighbours of the chain at a time.
  assert run(kit, X).peak_bytes.tolist() == [4 * 32]


def test_arguments_that_do_not_fit():
  kit = Kit(tiles=1)
  kit.argument((8,))
  with pytest.raises(ValueError, match="1 arguments|takes 1"):
    run(kit)
  with pytest.raises(ValueError, match=r"float64\(8,\)"):
    run(kit, X.astype(np.float64))


def test_host_streams_are_counted():
  kit = Kit(tiles=1)
  a = kit.argument((8,))
  kit.steps.append(schema.HostCopy(a, 1, cost(32), 0))
  assert run(kit, X).host_bytes == 32
