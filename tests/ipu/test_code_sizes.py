"""Small rows of the table of code sizes (benchmarks/code.py)."""

from __future__ import annotations

import pytest

import jax

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
    ("a small step of SGD", 4 / 5, 1.05),
  ],
)
def test_repeats_share_code(ipu, sizes, name, most_code, most_cycles):
  if ipu.num_tiles != 1472:
    pytest.skip("the table is about a whole GC200")
  row = sizes.figures(sizes.SMALL[name](), ipu)
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


def test_state_that_no_machine_has_room_for_is_refused(ipu, sizes):
  """With f32 moments it takes more than the SRAM of all tiles."""
  small = sizes.gpt2.Sizes(
    layers=1, width=256, heads=2, vocabulary=1_000, length=16
  )

  def compiled(adam: bool):
    program = sizes.training(small, adam)
    options = {"ipu_num_tiles": 12, "ipu_allow_out_of_memory": False}
    sharding = jax.sharding.SingleDeviceSharding(ipu)
    arguments = jax.tree.map(
      lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding),
      program.arguments,
    )
    step = jax.jit(
      program.function, donate_argnums=(0,), compiler_options=options
    )
    return step.lower(*arguments).compile()

  compiled(adam=False)
  with pytest.raises(jax.errors.JaxRuntimeError, match="Arguments alone take"):
    compiled(adam=True)
