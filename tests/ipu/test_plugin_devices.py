"""How IPUs appear in JAX, and how to select them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.ipu_only

DEFAULT = "import jax; print(jax.default_backend())"


def test_attributes_of_a_device(ipu):
  assert ipu.platform == "ipu"
  assert ipu.num_tiles >= 1
  assert ipu.version in ("ipu1", "ipu2", "bow", "ipu21")
  assert ipu.tile_clock_frequency > 1e8
  assert ipu.is_ipu_model == 1
  assert ipu.id == 0
  assert ipu.process_index == 0
  assert f"num_tiles={ipu.num_tiles}" in repr(ipu)


def test_the_default_memory_is_sram(ipu):
  kinds = [m.kind for m in ipu.addressable_memories()]
  assert kinds == ["device", "pinned_host"]
  assert ipu.default_memory().kind == "device"
  assert "SRAM" in repr(ipu.default_memory())


def test_the_default_machine():
  assert (
    plugin_test_util.output(
      """
      import jax
      (d,) = jax.devices("ipu")
      print(d, d.version, d.num_tiles, d.tile_clock_frequency)
      """
    )
    == "IpuDevice(id=0, num_tiles=1472, version=ipu2) ipu2 1472 1330000000"
  )


@pytest.mark.parametrize(
  "environment, default",
  [
    ({}, "cpu"),
    ({"JAX_PLATFORMS": "ipu"}, "ipu"),
    ({"JAX_PLATFORMS": "ipu,cpu"}, "ipu"),
    ({"JAX_PLATFORMS": "cpu"}, "cpu"),
    ({"JAX_PLATFORM_NAME": "ipu"}, "ipu"),
  ],
  ids=str,
)
def test_the_default_backend(environment, default):
  assert plugin_test_util.output(DEFAULT, **environment) == default


def test_the_default_backend_by_config():
  code = """
  import jax
  jax.config.update("jax_platform_name", "ipu")
  (device,) = (jax.numpy.ones(2) + 1).devices()
  print(jax.default_backend(), device.platform)
  """
  assert plugin_test_util.output(code) == "ipu ipu"


def test_jit_with_a_backend(ipu):
  with pytest.warns(DeprecationWarning, match="backend"):
    f = jax.jit(lambda x: x + 1, backend="ipu")
  y = f(np.arange(4, dtype=np.float32))
  assert y.devices() <= set(jax.devices("ipu"))
  np.testing.assert_array_equal(y, [1, 2, 3, 4])


def test_default_device(ipu, cpu):
  with jax.default_device(ipu):
    assert (jnp.ones(3) + 1).devices() == {ipu}
  assert (jnp.ones(3) + 1).devices() == {cpu}


def test_an_array_knows_its_device(ipu):
  x = jax.device_put(np.ones(3, np.float32), ipu)
  assert x.device == ipu
  assert x.device() == ipu  # the style of programs for the predecessor


def test_only_ipus_can_be_called(cpu):
  with pytest.raises(TypeError, match="not callable"):
    cpu()


@pytest.mark.parametrize("platform", ["ipu", "cpu"])
def test_transformations_take_devices(platform):
  """JAX's caches keep the device that a traced device_put names."""
  device = jax.devices(platform)[0]

  def f(x):
    return jax.device_put(x, device) * 2

  x = np.ones(3, np.float32)
  np.testing.assert_array_equal(jax.jit(f)(x), [2, 2, 2])
  np.testing.assert_array_equal(jax.vmap(f)(x), [2, 2, 2])
  np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(x), [2, 2, 2])


def test_several_devices():
  code = """
  import jax
  print([d.id for d in jax.devices("ipu")],
        [d.local_hardware_id for d in jax.devices("ipu")])
  """
  run = plugin_test_util.output
  assert run(code) == "[0] [0]"
  assert run(code, JAX_IPU_DEVICE_COUNT="3") == "[0, 1, 2] [0, 1, 2]"
  assert run(code, JAX_IPU_VISIBLE_DEVICES="5,2") == "[0, 1] [5, 2]"
  assert (
    run(code, JAX_IPU_VISIBLE_DEVICES="5,2", JAX_IPU_DEVICE_COUNT="1")
    == "[0] [5]"
  )


def test_options_of_jax_config():
  code = """
  import jax, jax.ipu
  jax.config.update("jax_ipu_use_model", True)
  jax.config.update("jax_ipu_model_num_tiles", 8)
  jax.config.update("jax_ipu_device_count", 2)
  jax.config.update("jax_ipu_visible_devices", "3,4,5")
  print(jax.config.jax_ipu_model_num_tiles,
        [(d.num_tiles, d.local_hardware_id) for d in jax.devices("ipu")])
  """
  # Options take precedence over the environment.
  assert (
    plugin_test_util.output(code, JAX_IPU_MODEL_NUM_TILES="16")
    == "8 [(8, 3), (8, 4)]"
  )


def test_the_machine_by_jax_config():
  code = """
  import jax, jax.ipu
  jax.config.update("jax_ipu_model_version", "GC2")
  try:
    jax.config.update("jax_ipu_model_version", "gc3")
  except ValueError as error:
    assert "jax_ipu_model_version='gc3': expected ipu1 (mk1, gc2)" in str(error)
  assert jax.config.jax_ipu_model_version == "GC2"
  device, = jax.devices("ipu")
  print(device.version, device.num_tiles, device.device_kind)
  """
  assert (
    plugin_test_util.output(code, JAX_IPU_MODEL_VERSION="bow")
    == "ipu1 1216 IPU model ipu1"
  )


def test_dir_lists_what_a_device_has(ipu, cpu):
  listed = set(dir(ipu)) - set(dir(cpu))
  source = Path(__file__).parents[2] / "jaxlib/ipu/runtime/pjrt/device.cc"
  attributes = re.findall(r'attributes.Add\("(\w+)"', source.read_text())
  assert listed == {*attributes, "ipu_last_run"}
  assert all(getattr(ipu, name) is not None for name in dir(ipu))
  assert "platform" in dir(cpu) and not hasattr(cpu, "num_tiles")


def test_config_import_of_older_programs():
  code = """
  import jax, jax.ipu
  from jax.config import config
  assert config is jax.config
  config.update("jax_ipu_model_num_tiles", 4)
  print(jax.devices("ipu")[0].num_tiles)
  """
  assert plugin_test_util.output(code) == "4"


def test_use_of_the_model_is_logged_once():
  code = 'import jax; jax.devices("ipu")'
  lines = plugin_test_util.run(code, JAX_IPU_USE_MODEL="").stderr.splitlines()
  assert len([line for line in lines if "IPU model" in line]) == 1
  # With an explicit request for the model, there is no message.
  assert "IPU model" not in plugin_test_util.run(code).stderr


def test_importing_jax_loads_no_plugin():
  code = """
  import sys, jax, jax.ipu
  print({".".join(m.split(".")[:3]) for m in sys.modules
         if m.startswith("jaxlib.ipu.")})
  """
  assert plugin_test_util.output(code) == str({"jaxlib.ipu.internals"})


def test_creating_the_client_loads_no_compiler():
  code = """
  import sys, jax
  jax.devices("ipu")
  print("jaxlib.ipu.pipeline" in sys.modules)
  """
  assert plugin_test_util.output(code) == "False"


def test_memory_stats_follow_arrays(ipu):
  def in_use():
    return ipu.memory_stats()["bytes_in_use"]

  before = in_use()
  x = jax.device_put(np.ones(1000, np.float32), ipu)
  assert in_use() == before + 4000
  y = jax.block_until_ready(x + 1)
  # The array, and the constant 1 if JAX keeps it on the device.
  assert in_use() >= before + 8000
  x.delete()
  y.delete()
  assert in_use() < before + 4000
  stats = ipu.memory_stats()
  assert stats["peak_bytes_in_use"] >= before + 8000
  assert stats["bytes_limit"] == ipu.num_tiles * ipu.bytes_per_tile
  assert stats["num_allocs"] >= 2
