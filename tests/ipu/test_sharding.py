"""Runs the tests of `sharded/` in a process with eight IPUs and eight CPUs."""

from __future__ import annotations

from pathlib import Path

import plugin_test_util
import pytest

FOLDER = Path(__file__).parent / "sharded"


@pytest.mark.ipu_only
@pytest.mark.slow
def test_on_eight_devices():
  code = f"""
  import sys
  import pytest
  sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", {str(FOLDER)!r}]))
  """
  result = plugin_test_util.run(
    code, JAX_IPU_DEVICE_COUNT="8", JAX_NUM_CPU_DEVICES="8"
  )
  assert " passed" in result.stdout and "skipped" not in result.stdout


@pytest.mark.ipu_only
def test_any_number_of_devices_up_to_64():
  code = """
  import jax, numpy as np
  from jax import lax
  from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
  for shape in ((32, 2), (6, 8), (7, 1)):
    count = np.prod(shape)
    devices = np.array(jax.devices("ipu"))[-count:].reshape(shape)
    mesh = Mesh(devices, ("x", "y"))
    spec = P(("x", "y"))
    whole = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    x = jax.device_put(whole, NamedSharding(mesh, spec))
    f = lambda x: x + lax.psum(x, ("x", "y")) + lax.axis_index(("x", "y"))
    f = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))
    expected = whole + whole.sum(0) + np.arange(count)[:, None]
    np.testing.assert_array_equal(f(x), expected)
  """
  plugin_test_util.run(
    code, JAX_IPU_DEVICE_COUNT="64", JAX_IPU_MODEL_NUM_TILES="16"
  )
