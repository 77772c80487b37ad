"""Small rows of the table of code sizes (benchmarks/code.py)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def sizes(from_repository):
  return from_repository("benchmarks.code")


@pytest.mark.parametrize(
  ("name", "most_code", "most_cycles"),
  [
    ("200 operations", 1 / 2, 1.01),
    ("210 operations of 7 kinds", 1 / 3, 1.05),
    ("6 small layers", 1 / 2, 1.05),
  ],
)
def test_repeats_share_code(ipu, sizes, name, most_code, most_cycles):
  if ipu.num_tiles != 1472:
    pytest.skip("the table is about a whole GC200")
  row = sizes.figures(sizes.SMALL[name](), ipu, budget=0)
  before, after = row.code
  assert after <= most_code * before
  assert row.cycles[1] <= most_cycles * row.cycles[0]
  assert row.peak[1] <= row.peak[0]


def test_all_small_rows_are_tested(sizes):
  marks = test_repeats_share_code.pytestmark
  (names,) = (
    [values[0] for values in mark.args[1]]
    for mark in marks
    if mark.name == "parametrize"
  )
  assert names == [*sizes.SMALL]
