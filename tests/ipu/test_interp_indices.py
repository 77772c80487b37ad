"""The interpreter on programs whose slices are named at run time."""

from __future__ import annotations

import numpy as np
import pytest
import sample_programs
from program_kit import I32, Kit, double, everywhere, moved_bytes, run

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import ReduceKind


def test_gather_is_served_by_the_owners():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  indices = np.array([[5], [0], [9], [-3]], np.int32)
  result = run(sample_programs.gather(), x, indices)
  np.testing.assert_array_equal(result.outputs[0], x[[5, 0, 5, 0]])
  # Tiles 0 and 1 want two rows each; row 0 is on tile 0 already.
  assert moved_bytes(result) == [3 * 2 * 4]


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
  for row in (0, 2):  # 6 and -1 are outside and dropped
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
  kit.copy(kit.whole(a, u), kit.move(starts))
  split = sample_programs.rows(2, 2, 2)
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
