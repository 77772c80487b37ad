"""The interpreter on programs with run-time indices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sample_programs
from program_kit import I32, Kit, double, everywhere, moved_bytes, run

from jaxlib.ipu.check.tile_memory import Trap
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.layout import grid
from jaxlib.ipu.program import schema


def test_a_gather_exchanges_candidates():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[5], [0], [9], [-3]], np.int32)
  result = run(sample_programs.gather(), x, indices)
  np.testing.assert_array_equal(result.outputs[0], x[[5, 0, 5, 0]])
  # Tiles 0 and 1 own two rows each and receive the picks of two other tiles.
  assert moved_bytes(result) == [2 * 2 * 2 * 2 * 4]


def test_the_busiest_sender_limits_the_exchange():
  """Tile 2 owns nothing and sends all four rows of candidates, 32 bytes."""
  kit = sample_programs.gather()
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.zeros((4, 1), np.int32)
  kit.steps[0].cost.exchange_cycles = 8.0
  run(kit, x, indices)
  kit.steps[0].cost.exchange_cycles = 7.0
  with pytest.raises(Trap, match="sends or receives 32 bytes"):
    run(kit, x, indices)


def test_an_owner_without_the_indices_traps():
  kit = sample_programs.gather()
  kit.steps[0].partition = kit.mapping(sample_programs.on_all(4, 2, 2), 8)
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  run(kit, x, np.zeros((4, 1), np.int32))
  with pytest.raises(Trap, match="0 of the cell's tiles have"):
    run(kit, x, np.full((4, 1), 5, np.int32))
  kit.steps[0].partition = kit.mapping(sample_programs.on_all(4, 2, 1), 8)
  with pytest.raises(Trap, match="does not have the indices"):
    run(kit, x, np.zeros((4, 1), np.int32))


def test_candidates_of_two_tiles_trap():
  kit = sample_programs.gather()
  kit.tensors[0].mapping = kit.mapping(everywhere(12, 3), 12)
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  with pytest.raises(Trap, match="3 of the cell's tiles have"):
    run(kit, x, np.zeros((4, 1), np.int32))


def test_an_update_that_misses_its_owner_traps():
  kit = sample_programs.scatter(ReduceKind.SUM)
  kit.steps[-1].partition = kit.mapping(sample_programs.on_all(4, 2, 2), 8)
  x = np.zeros((6, 2), np.float32)
  updates = np.ones((4, 2), np.float32)
  run(kit, x, np.full((4, 1), 3, np.int32), updates)
  with pytest.raises(Trap, match="reaches 0 of them"):
    run(kit, x, np.full((4, 1), 5, np.int32), updates)


def test_a_team_combines_partial_results():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[5], [0], [5], [7]], np.int32)
  updates = np.arange(8, dtype=np.float32).reshape(4, 2) * 100
  kit = sample_programs.team(ReduceKind.SUM)
  result = run(kit, x, indices, updates)
  expected = x.copy()
  expected[5] += updates[0] + updates[2]
  expected[0] += updates[1]
  np.testing.assert_array_equal(result.outputs[0], expected)
  # Each tile sends its partial results of the other's three rows.
  assert moved_bytes(result)[-1] == 2 * 3 * 2 * 4
  kit.steps[-1].cost.exchange_cycles = 5.0
  with pytest.raises(Trap, match="sends or receives 24 bytes"):
    run(kit, x, indices, updates)
  with pytest.raises(Trap, match="have an order"):
    run(sample_programs.team(ReduceKind.GENERAL), x, indices, updates)


def test_the_last_update_of_a_team_wins():
  """Each value is sent with the number of its update, 4 bytes."""
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  updates = np.arange(8, dtype=np.float32).reshape(4, 2) * 100
  for order in itertools.permutations([5, 0, 5, 0]):
    indices = np.array(order, np.int32)[:, None]
    result = run(sample_programs.team(ReduceKind.SET), x, indices, updates)
    expected = x.copy()
    for i, row in zip(order, updates, strict=True):
      expected[i] = row
    np.testing.assert_array_equal(result.outputs[0], expected)
    assert moved_bytes(result)[-1] == 2 * 3 * 2 * 8


def test_overwriting_updates_of_a_team():
  """Each value is sent with a byte that says whether it was written."""
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[5], [0], [2], [7]], np.int32)
  updates = np.arange(8, dtype=np.float32).reshape(4, 2) * 100
  result = run(sample_programs.team(ReduceKind.SET, 1), x, indices, updates)
  expected = x.copy()
  expected[[5, 0, 2]] = updates[:3]
  np.testing.assert_array_equal(result.outputs[0], expected)
  assert moved_bytes(result)[-1] == 2 * 3 * 2 * 5


def test_large_unsigned_indices_are_clamped():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[2**64 - 1], [0], [2**63], [1]], np.uint64)
  result = run(sample_programs.gather(DType.U64), x, indices)
  np.testing.assert_array_equal(result.outputs[0], x[[5, 0, 5, 1]])


@pytest.mark.parametrize("kind", [ReduceKind.SET, ReduceKind.SUM])
def test_scatter_applies_updates_in_order(kind):
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[1], [6], [1], [-1]], np.int32)
  updates = np.arange(8, dtype=np.float32).reshape(4, 2) * 100
  result = run(sample_programs.scatter(kind), x, indices, updates)
  expected = x.copy()
  for row in (0, 2):  # 6 and -1 are out of bounds and dropped
    if kind == ReduceKind.SET:
      expected[1] = updates[row]
    else:
      expected[1] += updates[row]
  np.testing.assert_array_equal(result.outputs[0], expected)


def test_dynamic_slice_and_update():
  kit = Kit(tiles=3)
  a = kit.argument((6, 2), layout=sample_programs.rows(6, 2, 3))
  start = kit.argument((), I32)
  s, u = kit.result((2, 2)), kit.result((6, 2))
  starts = kit.placed(start, everywhere(1, 3))
  by_column = grid((6, 2), (1, 2))
  columns = kit.placed(a, by_column)
  kit.copy(kit.whole(a, u), kit.move(starts), kit.move(columns))
  split = grid((2, 2), (1, 2))
  part = kit.tensor((2, 2), layout=split)
  kit.execute(schema.DynamicSlice([0]), (2, 2),
              [(columns, (-1, -1)), (starts, (-1, -1))], [(part, (0, 1))],
              split, exchange_bytes=0)  # fmt: skip
  doubled = kit.tensor((2, 2), layout=split)
  kit.execute(double(), (2, 2), [(part, (0, 1))], [(doubled, (0, 1))], split)
  updated = kit.tensor((6, 2), layout=by_column)
  kit.copy(kit.whole(u, updated))
  kit.execute(schema.DynamicUpdate([0]), (2, 2),
              [(doubled, (0, 1)), (starts, (-1, -1))], [(updated, (-1, -1))],
              split, exchange_bytes=0)  # fmt: skip
  kit.copy(kit.whole(part, s), kit.whole(updated, u))
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  for at, clamped in ((1, 1), (-4, 0), (99, 4)):
    sliced, updated = run(kit, x, np.int32(at)).outputs
    np.testing.assert_array_equal(sliced, x[clamped : clamped + 2])
    expected = x.copy()
    expected[clamped : clamped + 2] *= 2
    np.testing.assert_array_equal(updated, expected)
