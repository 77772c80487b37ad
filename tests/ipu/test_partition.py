"""Modules for several devices become one device's: what XLA's partitioner and
the conversions around it would lose."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.ipu import (
  diagnostics,
  host_functions,
  internals,
  ops,
  target,
)
from jaxlib.ipu.ir import canonical, importer
from jaxlib.ipu.location import resolve
from jaxlib.ipu.partition import replica_groups, xla
from jaxlib.ipu.partition.options import Sharding
from jaxlib.ipu.partition.partition import partition
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

ops.load()

# Whose client registers the lowerings.
pytestmark = pytest.mark.usefixtures("ipu")

AUTO = (AxisType.Auto, AxisType.Auto)
MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=AUTO)
F32 = np.float32
IPU2 = target.resolve("ipu2")


def array(shape, *spec, dtype=F32):
  sharding = NamedSharding(MESH, P(*spec))
  return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def whole(f, *arrays, **options):
  """The artifact of a function, as the plugin gets it."""
  lowered = jax.jit(f, **options).trace(*arrays)
  module = lowered.lower(lowering_platforms=("ipu",)).compiler_ir()
  return stablehlo.serialize_portable_artifact(
    module, stablehlo.get_current_version(), allow_other_dialects=True
  )


EIGHT = Sharding(
  num_partitions=8,
  uses_shardy=True,
  free_arguments=(False,),
  free_results=(True,),
)


def split(f, *arrays, **options):
  return partition(whole(f, *arrays, **options), EIGHT, IPU2)


def imported(partitioned):
  stablehlo_module = importer.parse(partitioned.code)
  return stablehlo_module, importer.import_module(stablehlo_module)


def operations(module, name):
  return [op for op in module.graph.nodes if op.op == f"stablehlo.{name}"]


def groups(partitioned, name):
  """The groups of the collectives of a kind."""
  found = []

  def look(operation):
    if operation.name == f"stablehlo.{name}":
      found.append(np.array(operation.attributes["replica_groups"]).tolist())
    return ir.WalkResult.ADVANCE

  importer.parse(partitioned.code).operation.walk(look)
  return found


def test_arrays_are_one_devices_part():
  parts = split(
    lambda x, w: jnp.tanh(x @ w),
    array((8, 16), "data", "model"),
    array((16, 32), "model", None),
  )
  _, module = imported(parts)
  assert [shape for shape, _ in module.signature[0]] == [(2, 8), (8, 32)]
  assert [shape for shape, _ in module.signature[1]] == [(2, 32)]
  assert module.num_partitions == 8
  assert groups(parts, "all_reduce") == [[[0, 1], [2, 3], [4, 5], [6, 7]]]
  assert len(parts.shardings) == 3


def test_groups_follow_the_order_of_a_meshs_devices():
  """XLA writes these along the axes of a mesh whose devices are permuted."""
  order = np.arange(8).reshape(2, 4).T.reshape(-1)
  parts = split(
    lambda x: lax.with_sharding_constraint(
      x.sum(0), NamedSharding(MESH, P("model"))
    ),
    array((8, 8), "data", "model"),
  )
  assert groups(parts, "all_reduce") == [[[0, 2, 4, 6], [1, 3, 5, 7]]]
  text = (
    "  ROOT r = f32[4]{0} all-reduce(x), channel_id=7, replica_groups="
    "mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'x'}, "
    "use_global_device_ids=true, to_apply=add"
  )
  ((found,),) = (g.values() for g in replica_groups.read(text).values())
  assert found.tolist() == order.reshape(4, 2).T.tolist()


@pytest.mark.parametrize(
  "form, expected",
  [
    ("mesh['x'=2,'y'=2] {'y'}", [[0, 1], [2, 3]]),
    ("mesh['x'=2,'y'=2] {'x'}", [[0, 2], [1, 3]]),
    ("mesh['x'=2,'y'=2] {'y','x'}", [[0, 2, 1, 3]]),
    ("mesh['x'=2,'y'=2], device_ids=(3,1,2,0) {'y'}", [[3, 1], [2, 0]]),
    ("mesh['b'=8] {'b':(1)2}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ("mesh['b'=8] {'b':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
    ("mesh['b'=8] {'b':(4)2}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ("mesh['b'=8] {'b':(4)2, 'b':(1)2}", [[0, 4, 1, 5], [2, 6, 3, 7]]),
  ],
)
def test_groups_along_axes(form, expected):
  text = (
    f"  x = f32[] all-reduce(y), channel_id=3, replica_groups={form}, a=b\n"
  )
  ((channel, by_axes),) = replica_groups.read(text).items()
  (found,) = by_axes.values()
  assert channel == 3
  assert found.tolist() == expected


def test_donation_and_names_survive():
  def step(weights, count, x):
    return weights + x.sum(), count + 1, x.mean()

  parts = split(
    step,
    array((8, 8), "data", None),
    array((8,), "data"),
    array((8, 8), "model", None),
    donate_argnums=(0, 1),
  )
  _, module = imported(parts)
  donated = {i for i, _ in module.aliases} | set(module.donors)
  assert donated == {0, 1}
  arguments, results = module.names()
  assert arguments == ["weights", "count", "x"]
  assert results == ["result[0]", "result[1]", "result[2]"]
  assert module.name == "jit_step"


ALIASED = """
module @jit_move attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%arg0: tensor<8x8xf32> {
    sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>,
    tf.aliasing_output = 0 : i32
  }) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [RESULT]>}) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
"""


@pytest.mark.parametrize(
  "result, aliases, donors",
  [('{"x"}, {}', [(0, 0)], []), ('{}, {"x"}', [], [0])],
)
def test_an_alias_of_another_local_type_is_only_freed(result, aliases, donors):
  passes = canonical.Passes()
  with passes.context:
    internals.allow_functions(passes.context)
    module = ir.Module.parse(ALIASED.replace("RESULT", result))
    code = stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version(), allow_other_dialects=True
    )
  _, found = imported(partition(code, EIGHT, IPU2))
  assert (found.aliases, found.donors) == (aliases, donors)


def test_a_callback_is_called_with_the_whole_array():
  def f(x):
    jax.debug.print("{}", x.sum())
    return x + 1

  text = str(importer.parse(split(f, array((8, 8), "data")).code))
  assert f"@{host_functions.PYTHON_TARGET}" in text
  assert "xla_ffi" not in text
  assert "stablehlo.all_reduce" in text  # of the sum
  assert "partition_id" in text  # one device prints


def test_a_call_with_several_results():
  def f(x):
    shapes = jax.ShapeDtypeStruct((), F32), jax.ShapeDtypeStruct((8,), F32)
    total, values = jax.ffi.ffi_call("some_target", shapes)(x)
    return values * total

  text = str(importer.parse(split(f, array((8,), "data")).code))
  assert "(tensor<8xf32>) -> (tensor<f32>, tensor<8xf32>)" in text
  assert "tuple" not in text


def test_composites_are_expanded_before():
  """Shardy would gather their operands."""
  double = lax.composite(lambda x: x + x, name="test.double")
  parts = split(lambda x: double(x).sum(), array((8, 64), "data", None))
  text = str(importer.parse(parts.code))
  assert "stablehlo.add" in text and "tensor<2x64xf32>" in text
  assert "all_gather" not in text and "composite" not in text


def test_the_users_line_survives():
  _, module = imported(
    split(lambda x: jnp.sin(x) @ x, array((8, 8), "data", None))
  )
  (sine,) = operations(module, "sine")
  where = resolve(sine.location)
  assert where.file == __file__
  assert where.name.endswith("/sin")


def test_one_devices_module_is_left_as_it_is():
  code = whole(lambda x: x + 1, jax.ShapeDtypeStruct((4,), F32))
  parts = partition(code, EIGHT, IPU2)
  assert parts.code is code
  assert [s.proto for s in parts.shardings] == [b"", b""]  # replicated


def test_threads_split_at_the_same_time():
  def program(n):
    return lambda x: (x * n).sum(0) @ x

  def one(n):
    parts = split(program(n), array((8, 8), "data", None))
    # The names of other functions are not always the same.
    return str(importer.parse(parts.code)).partition("func @main")[2]

  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    codes = list(pool.map(one, range(1, 9)))
  assert codes == [one(n) for n in range(1, 9)]
  assert not xla._results


def test_the_number_of_the_last_pass_is_found(monkeypatch):
  """Of JAX 0.12; it grows with each compilation for the CPU."""
  for n in range(3):
    jax.jit(lambda x: x + n)(F32(1)).block_until_ready()
  monkeypatch.setattr(xla._count, "before", 1)
  monkeypatch.setattr(xla._count, "compilations", 0)
  parts = split(lambda x: x.sum(), array((8,), "data"))
  assert groups(parts, "all_reduce")


def test_the_partitioners_devices_are_not_the_users():
  devices = jax.devices("cpu")
  split(lambda x: x.sum(), array((8,), "data"))
  assert jax.devices("cpu") == devices


def test_what_xla_cannot_split_is_an_error_with_its_reason():
  def f(x):
    call = jax.ffi.ffi_call(
      "nobody", jax.ShapeDtypeStruct((8,), F32), has_side_effect=True
    )
    return call(x)

  with pytest.raises(diagnostics.CompileError) as info:
    split(f, array((8,), "data"))
  assert "over 8 IPUs" in info.value.message
  assert "sharding" in info.value.message
  assert f"in jit(f)/ffi_call at {__file__}:" in info.value.message
  assert "What to do" in info.value.message
