"""Collectives of several devices: the interpreter and the engine, on one thread
and on several, against NumPy."""

from __future__ import annotations

import engine_kit
import gang_kit as kit
import ml_dtypes
import numpy as np
import pytest

from jaxlib.ipu.check import interp
from jaxlib.ipu.check.tile_memory import Trap
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.program import container

REDUCTIONS = {
  "add": np.add,
  "multiply": np.multiply,
  "maximum": np.maximum,
  "minimum": np.minimum,
  "and": np.bitwise_and,
  "or": np.bitwise_or,
  "xor": np.bitwise_xor,
}
MLIR = {
  "f32": np.float32, "f64": np.float64, "f16": np.float16,
  "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
  "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32,
  "ui64": np.uint64, "i1": np.bool_,
}  # fmt: skip


def arrays(count: int, shape: tuple[int, ...], dtype) -> list[np.ndarray]:
  rng = np.random.default_rng(count)
  if np.dtype(dtype) == np.bool_:
    return [rng.integers(0, 2, shape).astype(np.bool_) for _ in range(count)]
  return [rng.integers(1, 90, shape).astype(dtype) for _ in range(count)]


def all_reduce(name: str, dtype: str, type_: str, groups: str) -> str:
  return f"""
  func.func public @main(%x: {type_}) -> {type_} {{
    %y = "stablehlo.all_reduce"(%x) <{{{groups}, use_global_device_ids}}>
      {kit.reduction(name, dtype)} : ({type_}) -> {type_}
    return %y : {type_}
  }}"""


# StableHLO combines bits of integers and truth values alone.
REDUCED = [
  (name, dtype)
  for name in REDUCTIONS
  for dtype in MLIR
  if name not in ("and", "or", "xor") or dtype[0] not in "fb"
]


@pytest.mark.parametrize(("name", "dtype"), REDUCED)
def test_all_reduce(name, dtype):
  groups = [[2, 0], [1, 3]]
  xs = arrays(4, (3, 5), MLIR[dtype])
  type_ = f"tensor<3x5x{dtype}>"
  text = kit.module(4, all_reduce(name, dtype, type_, kit.groups(groups)))
  results = kit.run(text, [[x] for x in xs])
  reduce = REDUCTIONS[name]
  if dtype == "i1":
    named = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}
    reduce = REDUCTIONS[named.get(name, name)]
  for group in groups:
    with np.errstate(over="ignore"):
      expected = reduce(*(xs[d] for d in group)).astype(MLIR[dtype])
    for device in group:
      np.testing.assert_array_equal(results[device][0], expected)


def test_sums_of_narrow_floats_are_rounded_once():
  # In bf16, 256 + 1 is 256 again: only the whole sum shows.
  xs = [np.full(3, v, ml_dtypes.bfloat16) for v in (256, 1, 1, 0)]
  text = all_reduce("add", "bf16", "tensor<3xbf16>", kit.groups([[0, 1, 2, 3]]))
  results = kit.run(kit.module(4, text), [[x] for x in xs])
  assert results[3][0].tolist() == [258] * 3


def test_complex_numbers_and_narrow_types_travel():
  text = kit.module(
    2,
    f"""
  func.func public @main(%x: tensor<3xcomplex<f32>>, %y: tensor<4xi4>,
      %z: tensor<2xf8E4M3FN>) -> (tensor<3xcomplex<f32>>,
      tensor<6xcomplex<f32>>, tensor<4xi4>, tensor<4xf8E4M3FN>) {{
    %a = "stablehlo.all_reduce"(%x) <{{{kit.groups([[0, 1]])},
      use_global_device_ids}}> {kit.reduction("add", "complex<f32>")}
      : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
    %b = "stablehlo.all_gather"(%x) <{{{kit.groups([[1, 0]])},
      all_gather_dim = 0 : i64, use_global_device_ids}}>
      : (tensor<3xcomplex<f32>>) -> tensor<6xcomplex<f32>>
    %c = "stablehlo.all_reduce"(%y) <{{{kit.groups([[0, 1]])},
      use_global_device_ids}}> {kit.reduction("add", "i4")}
      : (tensor<4xi4>) -> tensor<4xi4>
    %d = "stablehlo.all_gather"(%z) <{{{kit.groups([[0, 1]])},
      all_gather_dim = 0 : i64, use_global_device_ids}}>
      : (tensor<2xf8E4M3FN>) -> tensor<4xf8E4M3FN>
    return %a, %b, %c, %d : tensor<3xcomplex<f32>>, tensor<6xcomplex<f32>>,
      tensor<4xi4>, tensor<4xf8E4M3FN>
  }}""",
  )
  rng = np.random.default_rng(1)
  xs = rng.normal(size=(2, 3, 2)).astype(np.float32)
  ys = np.array([[0, 1, 2, 7], [1, 2, 3, 7]], np.uint8)
  zs = np.array([[0, 0x38], [0x40, 0xC8]], np.uint8)
  results = kit.run(text, [list(own) for own in zip(xs, ys, zs)])
  for a, b, c, d in results:
    np.testing.assert_array_equal(a, xs[0] + xs[1])
    np.testing.assert_array_equal(b, np.concatenate([xs[1], xs[0]]))
    np.testing.assert_array_equal(c & 15, [1, 3, 5, 14])  # -2 is 14
    np.testing.assert_array_equal(d, [0, 0x38, 0x40, 0xC8])


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_gathers_and_scatters_along_any_dimension(dimension):
  shape = (2, 4, 6)
  longer, shorter = list(shape), list(shape)
  longer[dimension] *= 2
  shorter[dimension] //= 2
  full, more, less = (
    f"tensor<{'x'.join(map(str, s))}xf32>" for s in (shape, longer, shorter)
  )
  text = kit.module(
    4,
    f"""
  func.func public @main(%x: {full}) -> ({more}, {less}) {{
    %a = "stablehlo.all_gather"(%x) <{{{kit.groups([[2, 0], [1, 3]])},
      all_gather_dim = {dimension} : i64, use_global_device_ids}}>
      : ({full}) -> {more}
    %b = "stablehlo.reduce_scatter"(%x) <{{{kit.groups([[2, 0], [1, 3]])},
      scatter_dimension = {dimension} : i64, use_global_device_ids}}>
      {kit.reduction("add", "f32")} : ({full}) -> {less}
    return %a, %b : {more}, {less}
  }}""",
  )
  xs = arrays(4, shape, np.float32)
  results = kit.run(text, [[x] for x in xs], tiles=64)
  for group in ([2, 0], [1, 3]):
    own = [xs[d] for d in group]
    parts = np.split(sum(own), 2, dimension)
    for place, device in enumerate(group):
      a, b = results[device]
      np.testing.assert_array_equal(a, np.concatenate(own, dimension))
      np.testing.assert_array_equal(b, parts[place])


@pytest.mark.parametrize("split, concat", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(split, concat):
  shape = [4, 6]
  shape[split] //= 2
  shape[concat] *= 2
  result = f"tensor<{shape[0]}x{shape[1]}xi32>"
  text = kit.module(
    4,
    f"""
  func.func public @main(%x: tensor<4x6xi32>) -> {result} {{
    %a = "stablehlo.all_to_all"(%x) <{{{kit.groups([[2, 0], [1, 3]])},
      split_dimension = {split} : i64, concat_dimension = {concat} : i64,
      split_count = 2 : i64}}> : (tensor<4x6xi32>) -> {result}
    return %a : {result}
  }}""",
  )
  xs = arrays(4, (4, 6), np.int32)
  results = kit.run(text, [[x] for x in xs])
  for group in ([2, 0], [1, 3]):
    for place, device in enumerate(group):
      parts = [np.split(xs[d], 2, split)[place] for d in group]
      np.testing.assert_array_equal(
        results[device][0], np.concatenate(parts, concat)
      )


def test_permutes_broadcasts_and_partition_ids():
  text = kit.module(
    4,
    f"""
  func.func public @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>,
      tensor<ui32>) {{
    %a = "stablehlo.collective_permute"(%x) <{{source_target_pairs =
      dense<[[0, 1], [1, 2], [3, 0]]> : tensor<3x2xi64>, {kit.CHANNEL}}}>
      : (tensor<5xf32>) -> tensor<5xf32>
    %b = "stablehlo.collective_broadcast"(%x) <{{{kit.groups([[2, 0]])}}}>
      : (tensor<5xf32>) -> tensor<5xf32>
    %c = stablehlo.partition_id : tensor<ui32>
    return %a, %b, %c : tensor<5xf32>, tensor<5xf32>, tensor<ui32>
  }}""",
  )
  xs = arrays(4, (5,), np.float32)
  zeros = np.zeros_like(xs[0])
  results = kit.run(text, [[x] for x in xs])
  for device, (a, b, c) in enumerate(results):
    source = {1: 0, 2: 1, 0: 3}.get(device)
    np.testing.assert_array_equal(a, zeros if source is None else xs[source])
    np.testing.assert_array_equal(b, xs[2] if device in (0, 2) else zeros)
    assert c == device


RAGGED = kit.module(
  2,
  """
  func.func public @main(%x: tensor<6x2xf32>, %o: tensor<5x2xf32>,
      %i: tensor<2xi32>, %s: tensor<2xi32>, %t: tensor<2xi32>,
      %r: tensor<2xi32>) -> tensor<5x2xf32> {
    %a = stablehlo.custom_call @ragged_all_to_all(%x, %o, %i, %s, %t, %r)
      {api_version = 4 : i32, backend_config = {channel_id = 1 : i64,
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
      : (tensor<6x2xf32>, tensor<5x2xf32>, tensor<2xi32>, tensor<2xi32>,
      tensor<2xi32>, tensor<2xi32>) -> tensor<5x2xf32>
    return %a : tensor<5x2xf32>
  }""",
)


def ragged_arguments(sizes: list[list[int]]) -> list[list[np.ndarray]]:
  xs = arrays(2, (6, 2), np.float32)
  out = []
  for device, own in enumerate(sizes):
    starts = [0, own[0]]
    ends = [sum(s[to] for s in sizes[:device]) for to in (0, 1)]
    received = [s[device] for s in sizes]
    numbers = [np.array(v, np.int32) for v in (starts, own, ends, received)]
    out.append([xs[device], np.full((5, 2), -1, np.float32), *numbers])
  return out


def test_ragged_all_to_all():
  arguments = ragged_arguments([[2, 1], [3, 2]])
  (a,), (b,) = kit.run(RAGGED, arguments)
  x, y = (own[0] for own in arguments)
  rest = np.full((2, 2), -1, np.float32)
  np.testing.assert_array_equal(a, np.concatenate([x[:2], y[:3]]))
  np.testing.assert_array_equal(b, np.concatenate([x[2:3], y[3:5], rest]))


def test_slices_that_do_not_fit_are_errors():
  arguments = ragged_arguments([[4, 1], [3, 2]])
  data = kit.compiled(RAGGED)
  with pytest.raises(Trap, match="slice"):
    interp.run_together(data, arguments)
  with pytest.raises(engine_kit.EngineError, match="device 1 sends 3 rows"):
    engine_kit.run_together(data, arguments, True)


LOOP = f"""
  func.func public @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {{
    %z = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %z, %y = %x) : tensor<i32>, tensor<4xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>)
          -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %s = "stablehlo.all_reduce"(%y) <{{{kit.groups([[0, 1, 2]])},
          use_global_device_ids}}> {kit.reduction("add", "f32")}
          : (tensor<4xf32>) -> tensor<4xf32>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %s : tensor<i32>, tensor<4xf32>
      }}
    return %r#1 : tensor<4xf32>
  }}"""


def test_collectives_in_loops():
  xs = arrays(3, (4,), np.float32)
  results = kit.run(kit.module(3, LOOP), [[np.int32(3), x] for x in xs])
  for (y,) in results:
    np.testing.assert_array_equal(y, 9 * sum(xs))


def test_loops_of_different_lengths_are_an_error_that_names_the_devices():
  xs = arrays(3, (4,), np.float32)
  data = kit.compiled(kit.module(3, LOOP))
  arguments = [[np.int32(n), x] for n, x in zip((3, 1, 3), xs)]
  with pytest.raises(Trap, match="mismatch.*device 0 waits.*device 2 waits"):
    interp.run_together(data, arguments)
  for threads in (False, True):
    with pytest.raises(engine_kit.EngineError) as error:
      engine_kit.run_together(data, arguments, threads)
    message = str(error.value)
    assert "device 0 waits in all_reduce over {0,1,2}" in message
    assert "device 1 has ended" in message


def test_programs_of_several_devices_do_not_run_on_one():
  data = kit.compiled(kit.module(3, LOOP))
  with pytest.raises(engine_kit.EngineError, match="of 3 devices, got 1"):
    engine_kit.run(data, [np.int32(1), np.zeros(4, np.float32)])


@pytest.mark.parametrize(
  "groups, message",
  [
    ([[0, 1]], r"\{\{0,1\}\}: devices \[2, 3\] are in no group"),
    ([[0, 1], [2, 3], [4]], "expected each of the 4 devices once"),
  ],
)
def test_groups_that_do_not_hold_each_device_once_are_errors(groups, message):
  text = all_reduce("add", "f32", "tensor<2xf32>", kit.groups(groups))
  with pytest.raises(CompileError, match=message):
    kit.compiled(kit.module(4, text))


def test_a_reduction_that_is_no_monoid_is_an_error_that_names_its_line():
  region = """({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.subtract %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  })"""
  text = f"""
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
    %y = "stablehlo.all_reduce"(%x) <{{{kit.groups([[0, 1]])},
      use_global_device_ids}}> {region} : (tensor<2xf32>) -> tensor<2xf32>
      loc("psum"("train.py":31:0))
    return %y : tensor<2xf32>
  }}"""
  with pytest.raises(CompileError) as error:
    kit.compiled(kit.module(2, text))
  assert "by a function of subtract of 2xf32" in error.value.message
  assert "train.py:31" in error.value.message


def test_costs_of_collectives_are_those_of_links():
  text = all_reduce("add", "f32", "tensor<1024xf32>", kit.groups([[0, 1]]))
  program, _ = container.read(kit.compiled(kit.module(2, text)))
  figures = {v.name: v.value for v in program.cost_analysis}
  # All of its operand to the other device, both ways.
  assert figures["ipu link bytes"] == 2 * 4096
  assert figures["ipu link cycles"] > 0
  assert figures["ipu exchange bytes"] == 0
  assert program.num_partitions == 2
