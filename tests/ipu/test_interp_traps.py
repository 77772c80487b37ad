"""The interpreter traps everything that tiles cannot do, and says where."""

from __future__ import annotations

import numpy as np
import pytest
import sample_programs
from program_kit import F32, Kit, double, everywhere, moved_bytes, run

from jaxlib.ipu.check.interp import Trap
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.layout import Factor, Layout, single
from jaxlib.ipu.program import schema

X = np.arange(8, dtype=np.float32) + 1


def trap(kit: Kit, *arguments: np.ndarray, **options) -> Trap:
  with pytest.raises(Trap) as caught:
    run(kit, *arguments, **options)
  assert str(caught.value).startswith(caught.value.kind)
  return caught.value


def test_endless_loop():
  problem = trap(
    sample_programs.doubling(), np.float32(0), np.float32(1), max_steps=100
  )
  assert problem.kind == "runaway" and problem.step.startswith("1.")


def test_scatter_with_equal_indices_declared_unique():
  arguments = (
    np.zeros((6, 2), np.float32),
    np.array([[1], [2], [1], [3]], np.int32),
    np.ones((4, 2), np.float32),
  )
  assert (
    trap(sample_programs.scatter(ReduceKind.SUM, 1), *arguments).kind == "race"
  )
  arguments[1][2] = 4
  run(sample_programs.scatter(ReduceKind.SUM, 1), *arguments)


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
  kit = sample_programs.gather()
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


def test_replica_that_is_not_written():
  kit = Kit(tiles=2)
  a = kit.argument((4,), layout=everywhere(4, 2))
  r = kit.result((4,), layout=everywhere(4, 2))
  kit.execute(double(), (4,), [(a, (0,))], [(r, (0,))], single(4, 0))
  problem = trap(kit, X[:4])
  assert (problem.kind, problem.tensor) == ("replica", r)


def test_reading_unwritten_elements():
  kit = Kit(tiles=2)
  t, r = kit.tensor((8,)), kit.result((8,))
  kit.execute(double(), (8,), [(t, (0,))], [(r, (0,))])
  problem = trap(kit)
  assert (problem.kind, problem.tensor) == ("undefined", t)


def test_moving_unwritten_elements():
  kit = Kit(tiles=2)
  t, r = kit.tensor((8,)), kit.result((8,))
  kit.copy(kit.whole(t, r))
  problem = trap(kit)
  assert (problem.kind, problem.tensor) == ("undefined", t)


def test_accumulating_into_unwritten_elements():
  kit = sample_programs.scatter(ReduceKind.SUM)
  del kit.steps[0]
  problem = trap(
    kit,
    np.zeros((6, 2), np.float32),
    np.zeros((4, 1), np.int32),
    np.zeros((4, 2), np.float32),
  )
  assert (problem.kind, problem.tensor) == ("undefined", kit.results[0])


def test_incomplete_result():
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
  # After another exchange it is valid again.
  kit.steps.insert(3, kit.steps[1])
  np.testing.assert_array_equal(run(kit, X).outputs[0], 4 * X)


@pytest.mark.parametrize("what", ["argument", "constant"])
def test_writing_to_arguments_and_constants(what):
  kit = Kit(tiles=2)
  a = kit.argument((8,))
  c = kit.constant(X)
  target = a if what == "argument" else c
  kit.execute(double(), (8,), [(a, (0,))], [(target, (0,))])
  problem = trap(kit, X)
  assert (problem.kind, problem.tensor) == ("read-only", target)


def test_computing_into_a_view():
  kit = sample_programs.scatter(ReduceKind.SUM)
  step = kit.steps[-1]
  (access,) = step.results
  root = kit.tensors[access.tensor]
  step.results[0].tensor = kit.placed(
    access.tensor, Layout.from_record(kit.program().mappings[root.mapping])
  )
  arguments = (
    np.zeros((6, 2), np.float32),
    np.zeros((4, 1), np.int32),
    np.zeros((4, 2), np.float32),
  )
  assert trap(kit, *arguments).kind == "read-only"


def test_a_map_into_parts_of_a_root():
  kit = Kit(tiles=1)
  a, r = kit.argument((8,)), kit.result((16,), layout=single(16))
  for offset in 0, 1:
    view = kit.placed(r, single(8), (8,), offset, (2,))
    kit.execute(double(), (8,), [(a, (0,))], [(view, (0,))])
  np.testing.assert_array_equal(run(kit, X).outputs[0], np.repeat(2 * X, 2))
  kit.tensors[view].strides = [0]
  assert trap(kit, X).kind == "race"


def test_more_bytes_than_planned():
  kit = Kit(tiles=2)
  a, r = kit.argument((8,)), kit.result((8,), layout=single(8, 1))
  kit.copy(kit.whole(a, r), exchange_bytes=16)
  result = run(kit, X)
  assert moved_bytes(result) == [16]
  kit.steps[0].cost.exchange_bytes = 15.0
  assert trap(kit, X).kind == "exchange"


def test_partition_that_is_no_box_of_dimensions():
  kit = Kit(tiles=3)
  a, r = kit.argument((1, 3, 2)), kit.result((1, 3, 2))
  c = kit.constant(np.zeros((1, 2, 2), np.float32), everywhere(4, 3))
  crooked = Layout((Factor(12, 5, 1),))
  kit.execute(schema.Dot(F32, 0), (1, 3, 2, 2),
              [(a, (0, 1, -1, 2)), (c, (0, -1, 1, 2))], [(r, (0, 1, 2, -1))],
              crooked)  # fmt: skip
  assert trap(kit, np.zeros((1, 3, 2), np.float32)).kind == "partition"


def test_tile_out_of_memory():
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


def test_arguments_of_wrong_number_or_type():
  kit = Kit(tiles=1)
  kit.argument((8,))
  with pytest.raises(ValueError, match="1 arguments|takes 1"):
    run(kit)
  with pytest.raises(ValueError, match=r"float64\(8,\)"):
    run(kit, X.astype(np.float64))
