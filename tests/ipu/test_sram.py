"""The SRAM of the device: what is resident between calls, and consistency of
all figures about it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import hypothesis.strategies as st
import lowering_kit
import numpy as np
import pytest
from hypothesis import example, given

import jax
import jax.numpy as jnp
import jaxlib.ipu
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu import target
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.plan.default_layout import default_layout

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def array_tile_bytes():
  library = ctypes.CDLL(str(Path(jaxlib.ipu.__file__).parent / "libjaxipu.so"))
  function = library.ipu_array_tile_bytes
  function.restype = ctypes.c_int64

  def call(dtype, shape, num_tiles):
    held = np.empty(num_tiles, np.int64)
    fullest = function(
      ctypes.c_int(dtype),
      (ctypes.c_int64 * len(shape))(*shape),
      ctypes.c_size_t(len(shape)),
      ctypes.c_int64(num_tiles),
      ctypes.c_int64(8),
      held.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)),
    )
    assert fullest == held[0] == held.max()
    return held

  return call


@example(DType.F32, (1, 1, 1), 1472)
@example(DType.F32, (1473, 9), 1472)
@example(DType.F16, (9, 5, 7, 3), 64)
@given(
  st.sampled_from([DType.BOOL, DType.F16, DType.F32, DType.F64, DType.I4]),
  st.lists(st.integers(0, 3000), max_size=2).flatmap(
    lambda dims: st.permutations([*dims, *[1, 7, 40][len(dims) :]])
  ),
  st.sampled_from([1, 2, 7, 64, 1472]),
)
def test_arrays_take_the_bytes_of_the_default_layout(
  array_tile_bytes, dtype, shape, num_tiles
):
  """Both halves know the same layout, whose first tile is the fullest."""
  machine = target.resolve("ipu2", num_tiles)
  layout = default_layout(machine, tuple(shape), SIZE[dtype])
  held = layout.elements(np.arange(num_tiles)) * SIZE[dtype]
  np.testing.assert_array_equal(array_tile_bytes(dtype, shape, num_tiles), held)


def test_complex_arrays_have_the_layout_of_pairs(array_tile_bytes):
  layout = default_layout(target.resolve("ipu2", None), (1000, 3, 2), 4)
  np.testing.assert_array_equal(
    array_tile_bytes(DType.C64, (1000, 3), 1472),
    layout.elements(np.arange(1472)) * 4,
  )


def test_default_blocks_are_whole_words():
  machine = target.resolve("ipu2", None)
  for item_bytes in (1, 2, 4):
    for columns in (100, 1000, 1024):
      rows = default_layout(machine, (columns, columns), item_bytes).factors[-1]
      assert rows.block * item_bytes % 4 == 0 or rows.parts == 1


@pytest.mark.parametrize(
  "shape, parts", [((16, 6), (3, 1)), ((3, 100), (3, 3)), ((5, 40), (1, 7))]
)
def test_small_arrays_stay_in_rows(shape, parts):
  """Unless blocks of columns make cells smaller by a factor of 1.25."""
  layout = default_layout(target.resolve("ipu2", None), shape, 4)
  assert tuple(f.parts for f in layout.factors) == parts


# --- memory_stats -----------------------------------------------------------


def in_use(device) -> int:
  return device.memory_stats()["bytes_in_use"]


def test_arrays_count_until_they_are_freed(ipu):
  gc.collect()
  before = in_use(ipu)
  x = jax.device_put(np.ones((100, 7), np.float32), ipu)
  y = x  # the same array
  assert in_use(ipu) == before + x.nbytes
  del x
  assert in_use(ipu) == before + y.nbytes
  del y
  assert in_use(ipu) == before


def test_deleted_arrays_that_numpy_views_do_not_count(ipu):
  before = in_use(ipu)
  x = jax.device_put(np.arange(1000.0, dtype=np.float32), ipu)
  view = np.asarray(x)
  assert in_use(ipu) == before + x.nbytes
  x.delete()
  assert in_use(ipu) == before
  assert view[999] == 999
  del view, x
  assert in_use(ipu) == before


def test_donated_memory_counts_once(ipu):
  f = jax.jit(lambda x: x + 1, donate_argnums=0)
  x = jax.device_put(np.ones(1000, np.float32), ipu)
  f(x).delete()
  x = jax.device_put(np.ones(1000, np.float32), ipu)
  before = in_use(ipu)
  view = np.asarray(x)  # keeps the result from taking its place on the host
  for _ in range(3):
    x = f(x)
    assert in_use(ipu) == before
  assert view[0] == 1 and x[0] == 4


def test_results_count_from_their_dispatch_on(ipu):
  """Not from their completion, which could not be known beforehand."""
  f = jax.jit(lambda x: (x @ x, x + 1))
  x = jax.device_put(np.ones((64, 64), np.float32), ipu)
  jax.block_until_ready(f(x))
  before = in_use(ipu)
  y, z = f(x)
  assert in_use(ipu) == before + y.nbytes + z.nbytes


def test_memory_of_the_host_does_not_count(ipu):
  before = ipu.memory_stats()
  host = SingleDeviceSharding(ipu, memory_kind="pinned_host")
  x = jax.device_put(np.ones(1000, np.float32), host)
  after = ipu.memory_stats()
  assert after["bytes_in_use"] == before["bytes_in_use"]
  assert after["num_allocs"] == before["num_allocs"]
  del x


def test_limits_are_those_of_the_machine(ipu):
  stats = ipu.memory_stats()
  assert stats["bytes_limit"] == ipu.num_tiles * ipu.bytes_per_tile
  free = stats["largest_free_block_bytes"]
  assert 0 < free <= stats["bytes_limit"] - stats["bytes_in_use"]
  x = jax.device_put(np.ones((ipu.num_tiles, 1000), np.float32), ipu)
  after = ipu.memory_stats()
  assert free - after["largest_free_block_bytes"] == x.nbytes
  assert after["largest_alloc_size"] >= x.nbytes


def test_the_peak_includes_programs(ipu):
  x = jax.device_put(np.ones((ipu.num_tiles, 2000), np.float32), ipu)
  f = jax.jit(lambda x: jnp.sort(x, axis=0).sum())
  compiled = f.lower(x).compile()
  others = in_use(ipu) - x.nbytes
  compiled(x)
  peak = compiled.memory_analysis().peak_memory_in_bytes
  assert ipu.memory_stats()["peak_bytes_in_use"] >= others + peak


# --- What programs need of each tile ----------------------------------------


@pytest.mark.parametrize("tiles", [4, 1472])
def test_programs_say_what_each_tile_needs(tiles):
  """Of 1,472 tiles, the last hold none of the rows."""
  memory = lowering_kit.phases(
    padded, [np.ones((47, 500), np.float32)], tiles
  ).program.memory
  needs = np.repeat(memory.range_bytes, memory.range_tiles)
  assert needs.shape == (tiles,)
  assert needs.max() <= memory.peak_tile_bytes < needs.max() + 16
  assert (10 * needs[-1] < needs[0]) == (tiles == 1472)
  held = memory.argument_bytes + memory.result_bytes + memory.code_bytes
  assert held <= needs.sum() <= 1.1 * held


def padded(x):
  return jnp.pad(x, ((0, 10), (0, 0)))


# --- memory_analysis --------------------------------------------------------


@pytest.mark.parametrize("donate", [(), (0,)])
@pytest.mark.parametrize("tiles", [1, 5])
def test_memory_analysis_adds_up_to_the_plan(ipu, donate, tiles):
  def f(x, w):
    return jax.nn.softmax(x @ w) + x

  x = jax.device_put(np.ones((40, 40), np.float32), ipu)
  options = {"ipu_num_tiles": tiles}
  jitted = jax.jit(f, donate_argnums=donate, compiler_options=options)
  compiled = jitted.lower(x, x + 0).compile()
  stats = compiled.memory_analysis()
  total = (
    stats.argument_size_in_bytes
    + stats.output_size_in_bytes
    - stats.alias_size_in_bytes
    + stats.temp_size_in_bytes
    + stats.generated_code_size_in_bytes
  )
  assert stats.peak_memory_in_bytes == total
  tile = compiled.cost_analysis()["ipu peak tile bytes"]
  # All tiles are at most as full as the fullest.
  assert total == tile if tiles == 1 else tile < total <= tiles * tile
  assert stats.alias_size_in_bytes == (x.nbytes if donate else 0)
