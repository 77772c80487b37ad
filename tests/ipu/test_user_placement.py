"""User-defined placement of arrays: dimension order in memory, and device or
host memory."""

from __future__ import annotations

import functools

import engine_kit
import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp

pytestmark = pytest.mark.ipu_only


def placed(device, *order):
  return Format(Layout(order), SingleDeviceSharding(device))


def drawn(dtype, shape):
  x = util.sample(np.float32, shape, low=0, high=4)
  return (x - 2j * x if dtype is np.complex64 else x).astype(dtype)


DTYPES = (np.float32, np.complex64, np.int8, jnp.float8_e4m3fn)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (0, 1, 2)])
def test_arguments_and_results(ipu, dtype, order):
  x = drawn(dtype, (5, 6, 7))
  f = jax.jit(
    lambda x: (x + x, x[::-1].T),
    in_shardings=placed(ipu, *order),
    out_shardings=(placed(ipu, *order), placed(ipu, 2, 0, 1)),
  )
  y, z = f(jax.device_put(x, placed(ipu, *order)))
  assert y.format.layout.major_to_minor == order
  assert z.format.layout.major_to_minor == (2, 0, 1)
  np.testing.assert_array_equal(y, x + x)
  np.testing.assert_array_equal(z, x[::-1].T)
  again, _ = f(y)
  np.testing.assert_array_equal(again, x + x + x + x)


def test_compiled_programs_report_their_formats(ipu):
  order = placed(ipu, 1, 0)
  f = jax.jit(lambda x, y: (x @ y, x), in_shardings=(order, None),
              out_shardings=(None, order))  # fmt: skip
  x = jax.ShapeDtypeStruct((4, 4), np.float32)
  compiled = f.lower(x, x).compile()
  (first, second), _ = compiled.input_formats
  assert first.layout.major_to_minor == (1, 0)
  assert second.layout.major_to_minor == (0, 1)
  first, second = compiled.output_formats
  assert first.layout.major_to_minor == (0, 1)
  assert second.layout.major_to_minor == (1, 0)


def test_layouts_that_the_compiler_chooses(ipu):
  """Transposes stay in the order of their operands; others are row-major."""
  auto = Format(Layout.AUTO)

  def f(x):
    return x.transpose(2, 0, 1), x.T.transpose(1, 0, 2), x + 1, x.T * 2, x

  x = drawn(np.float32, (2, 3, 4))
  like = jax.ShapeDtypeStruct(
    x.shape, x.dtype, sharding=SingleDeviceSharding(ipu)
  )
  for given, turned, same in (
    (auto, (1, 2, 0), (0, 1, 2)),
    (placed(ipu, 2, 0, 1), (0, 1, 2), (2, 0, 1)),
  ):
    jitted = jax.jit(f, in_shardings=given, out_shardings=auto)
    compiled = jitted.lower(like).compile()
    orders = [o.layout.major_to_minor for o in compiled.output_formats]
    assert orders[0] == turned and orders[4] == same
    assert orders[2:4] == [(0, 1, 2)] * 2
    ours = jax.device_put(x, compiled.input_formats[0][0])
    for found, expected in zip(compiled(ours), f(x), strict=True):
      np.testing.assert_array_equal(found, expected)


def test_arrays_of_other_layouts_can_be_transferred_and_sliced(ipu, cpu):
  x = drawn(np.float32, (5, 7))
  y = jax.device_put(x, placed(ipu, 1, 0))
  np.testing.assert_array_equal(jax.device_put(y, cpu), x)
  np.testing.assert_array_equal(y[1:, ::2], x[1:, ::2])
  np.testing.assert_array_equal(jax.jit(lambda y: y.T * 2)(y), x.T * 2)


@pytest.mark.parametrize("out", [(1, 0), (0, 1)])
def test_donation(ipu, out):
  """Memory is only reused if elements keep their positions."""
  x = drawn(np.float32, (5, 5))
  y = jax.device_put(x, placed(ipu, 1, 0))
  f = jax.jit(
    lambda x: x.at[0].add(1) + x.T,
    in_shardings=placed(ipu, 1, 0),
    out_shardings=placed(ipu, *out),
    donate_argnums=0,
  )
  expected = x.copy()
  expected[0] += 1
  np.testing.assert_array_equal(f(y), expected + x.T)
  assert y.is_deleted()


# --- Memory kinds ------------------------------------------------------------


def on_host(device):
  return SingleDeviceSharding(device, memory_kind="pinned_host")


def test_memories_of_a_device(ipu):
  kinds = [m.kind for m in ipu.addressable_memories()]
  assert kinds == ["device", "pinned_host"]
  assert ipu.default_memory().kind == "device"
  memory = ipu.memory("pinned_host")
  assert memory.addressable_by_devices() == [ipu]


@pytest.mark.parametrize("target", ["sharding", "space"])
def test_transfers_to_host_memory_and_back(ipu, target):
  x = drawn(np.float32, (4, 6))
  y = jax.device_put(x, ipu)
  used = ipu.memory_stats()["bytes_in_use"]
  z = jax.device_put(
    y, jax.memory.Space.Host if target == "space" else on_host(ipu)
  )
  assert z.sharding.memory_kind == "pinned_host"
  assert z.devices() == {ipu}
  assert ipu.memory_stats()["bytes_in_use"] == used  # of its SRAM
  np.testing.assert_array_equal(z, x)
  back = jax.device_put(z, z.sharding.with_memory_kind("device"))
  assert back.sharding.memory_kind == "device"
  np.testing.assert_array_equal(back, x)


def test_programs_stream_arrays_in_host_memory(ipu):
  x = drawn(np.float32, (64, 64))
  device = SingleDeviceSharding(ipu)
  jit = functools.partial(jax.jit, lambda x: x * 2)
  f = jit(in_shardings=on_host(ipu), out_shardings=on_host(ipu))
  g = jit(in_shardings=device, out_shardings=device)
  y = f(jax.device_put(x, on_host(ipu)))
  assert y.sharding.memory_kind == "pinned_host"
  np.testing.assert_array_equal(y, x * 2)
  there = f.lower(x).compile().cost_analysis()["ipu host bytes"]
  here = g.lower(x).compile().cost_analysis()["ipu host bytes"]
  assert there - here == 2 * x.nbytes


@pytest.mark.parametrize("tiles", (1, 16))
def test_interpreter_and_engine_agree(ipu, tiles):
  x = drawn(np.float32, (5, 7))
  f = jax.jit(
    lambda x, y: (x @ y.T, x + y, y),
    in_shardings=(placed(ipu, 1, 0), on_host(ipu)),
    out_shardings=(on_host(ipu), placed(ipu, 1, 0), on_host(ipu)),
  )
  code = lowering_kit.lowered_code(f.trace(x, x).lower())
  target = machines.resolve("ipu2", tiles)
  options = pipeline.Options(target=target, verify=True)
  data = pipeline.compile_module(code, options).data
  given = [np.ascontiguousarray(x.T), x]
  engine_kit.check(data, given, ulps=64)
  product, total, same = interp.run(data, given).outputs
  np.testing.assert_allclose(product, x @ x.T, rtol=1e-5)
  np.testing.assert_array_equal(total, (x + x).T)
  np.testing.assert_array_equal(same, x)


def test_placement_inside_a_program(ipu):
  """Results go where they are put; inside a program values stay on the
  tiles."""
  x = drawn(np.float32, (4, 6))

  @jax.jit
  def f(x):
    y = jax.device_put(x * 2, jax.memory.Space.Host)
    z = jax.device_put(y, jax.memory.Space.Device)
    return y, z + 1

  y, z = f(jax.device_put(x, ipu))
  assert y.sharding.memory_kind == "pinned_host"
  assert z.sharding.memory_kind == "device"
  np.testing.assert_array_equal(y, x * 2)
  np.testing.assert_array_equal(z, x * 2 + 1)


def test_residuals_are_offloaded(check):
  from jax.ad_checkpoint import checkpoint_name

  policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["y"],
    offload_src="device",
    offload_dst="pinned_host",
  )

  @functools.partial(jax.remat, policy=policy)
  def f(x):
    y = checkpoint_name(jnp.sin(x), "y")
    return jnp.sin(y).sum()

  check(jax.grad(f), drawn(np.float32, (5,)))


# --- Transfer guards ---------------------------------------------------------


def test_transfer_guards_notice_reads():
  util.run_python("""
import jax, numpy as np
ipu, = jax.devices("ipu")
x, y = jax.device_put([np.ones(3), np.ones(3)], ipu)
with jax.transfer_guard("disallow"):
  try:
    np.asarray(x)
  except jax.errors.JaxRuntimeError as e:
    assert "Disallowed device-to-host" in str(e), e
  else:
    raise AssertionError("a transfer was not seen")
  assert (jax.device_get(y) == 1).all()  # an explicit one
assert (np.asarray(x) == 1).all()
""")


def test_transfer_guards_from_the_environment():
  code = """
import jax, numpy as np
x = jax.device_put(np.ones(3), jax.devices("ipu")[0])
try:
  np.asarray(x)
except jax.errors.JaxRuntimeError:
  print("disallowed")
"""
  said = util.run_python(code, JAX_TRANSFER_GUARD="disallow")
  assert said.strip() == "disallowed"
