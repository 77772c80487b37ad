"""`jax.ipu.compat`: names of JAX 0.3 for programs of that time."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import plugin_test_util
import pytest

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "ipu" / "docs" / "migration.md"

# In the style of the earlier examples: a default platform by `config.FLAGS`,
# optimisers of `example_libraries`, `backend=`, donation, `tree_map`.
TRAINING = """
import jax.ipu.compat
from functools import partial
import numpy as np
import jax
import jax.numpy as jnp
from jax import jit, grad, random
from jax.config import config
from jax.tree_util import tree_map
from jax.example_libraries import optimizers, stax

init, predict = stax.serial(stax.Dense(2), stax.Relu, stax.Dense(2))

def loss(params, batch):
  inputs, targets = batch
  return jnp.mean((predict(params, inputs) - targets) ** 2)

evaluate = partial(jit, backend="cpu")(loss)

config.FLAGS.jax_platform_name = "cpu"
assert jax.default_backend() == "cpu" == config.FLAGS.jax_platform_name
_, params = init(random.PRNGKey(0), (-1, 4))
opt_init, opt_update, get_params = optimizers.momentum(0.05, mass=0.9)

@partial(jit, backend="ipu", donate_argnums=[1])
def update(i, state, batch):
  return opt_update(i, grad(loss)(get_params(state), batch), state)

state = opt_init(params)
draw = np.random.RandomState(0)
inputs = draw.rand(64, 4).astype(np.float32)
batch = inputs, inputs[:, :2] * 2
losses = [float(evaluate(get_params(state), batch))]
for i in range(30):
  state = update(i, state, batch)
tree_map(lambda x: x.block_until_ready(), state)
params = jax.tree_map(lambda x: x, get_params(state))
assert {x.device().platform for x in jax.tree_leaves(params)} == {"ipu"}
losses.append(float(evaluate(params, batch)))
assert losses[1] < losses[0] / 2, losses
"""

ARRAYS = """
import jax.ipu.compat
import numpy as np
import jax
from jax.config import config
config.FLAGS.jax_ipu_device_count = 2
config.FLAGS.jax_ipu_model_num_tiles = 4
print(jax.default_backend(), jax.device_count(), config.FLAGS.jax_platforms)
devices = jax.devices()
for device in (*devices, jax.devices("cpu")[0]):
  x = jax.device_put(np.arange(3.0, dtype=np.float32), device)
  assert x.device() == device == x.device and x.platform() == device.platform
  assert [b.device() for b in x.device_buffers] == [device]
  assert x.device_buffer.device() == device and x.to_py().tolist() == [0, 1, 2]
  assert isinstance(x, jax.numpy.DeviceArray)
y = jax.device_put_sharded([{"a": np.ones(2)}, {"a": np.zeros(2)}], devices)
assert [b.device() for b in y["a"].device_buffers] == devices
assert y["a"].to_py().tolist() == [[1, 1], [0, 0]]
z = jax.device_put_replicated(np.float32(3), devices)
assert z.shape == (2,) and z.to_py().tolist() == [3, 3]
"""

FUNCTIONS = """
import jax.ipu.compat
import numpy as np
import jax, jax.numpy as jnp
from jax.experimental import PartitionSpec, maps
from jax.experimental.pjit import pjit
from jax.lib import xla_bridge
import jax.linear_util as linear_util
a, b = np.array([[3, 1], [2, 5]]), np.array([1, 5])
assert jnp.in1d(a, b).tolist() == np.isin(a.ravel(), b).tolist()
assert jnp.in1d(a, b, invert=True).tolist() == [True, False, True, False]
assert jnp.msort(a).tolist() == np.sort(a, axis=0).tolist()
assert jnp.alltrue(a > 0) and not jnp.sometrue(a > 5)
assert jnp.product(a) == 30 and jnp.cumproduct(b).tolist() == [1, 5]
assert jnp.NINF == -np.inf and np.signbit(jnp.NZERO)
assert jnp.fix(np.float32(-1.5)) == -1 and jnp.trapz(b) == 3
drawn = jax.random.shuffle(jax.random.PRNGKey(0), jnp.arange(9))
assert sorted(drawn.tolist()) == list(range(9))
assert xla_bridge.get_backend().platform == "ipu"
mesh = maps.Mesh(np.array(jax.devices()).reshape(1, 1), ("x", "y"))
f = pjit(lambda x: x * x, in_axis_resources=None,
         out_axis_resources=PartitionSpec("x", "y"))
with maps.Mesh(mesh.devices, mesh.axis_names):
  assert f(a).tolist() == (a * a).tolist()
try:
  f(a)
except RuntimeError as error:
  assert "with mesh:" in str(error)
assert pjit(lambda x: x + 1)(1) == 2
"""

DEVICES = """
import jax.ipu.compat
import numpy as np
import jax
from functools import partial
from jax import lax, pmap
from jax._src.lib import xla_bridge
from jaxlib.ipu_xla_client import IpuPjRtDevice, IpuTargetType
from jaxlib.xla_extension import XlaRuntimeError
from jax.config import config
config.FLAGS.jax_ipu_device_count = 6
device = jax.devices()[0]
assert device.target_type == IpuTargetType.IPU_MODEL
assert not isinstance(device, IpuPjRtDevice)
assert not hasattr(jax.devices("cpu")[0], "target_type")
assert XlaRuntimeError is jax.errors.JaxRuntimeError
assert xla_bridge.device_count() == 6

@partial(pmap, axis_name="rows")
@partial(pmap, axis_name="cols")
def f(x, y):
  both = lax.psum(x, ("rows", "cols"))
  return {"rows": x / lax.psum(y, "rows"), "both": both}

x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
y = x + 1
found = f(x, y)
np.testing.assert_allclose(found["rows"], x / y.sum(0), rtol=1e-6)
np.testing.assert_array_equal(
  found["both"], np.broadcast_to(x.sum((0, 1)), x.shape)
)
assert len(found["both"].sharding.device_set) == 6
import pytest
with pytest.raises(ValueError, match="the same 2 leading dimensions"):
  f(x, y[:1])
with pytest.raises(ValueError, match="needs 9 devices"):
  f(np.ones((3, 3)), np.ones((3, 3)))
with pytest.raises(NotImplementedError, match="use jax.shard_map"):
  pmap(pmap(lambda x: x), in_axes=1)
z = pmap(lambda x: x + 1, in_axes=1)(x)
np.testing.assert_array_equal(z, 1 + x.swapaxes(0, 1))
"""

KEEPS = """
import jax
tree_map = jax.tree_map = object()  # a JAX that still has it
import jax.ipu.compat
assert jax.tree_map is tree_map and jax.numpy.product is jax.numpy.prod
# A JAX that has lost today's name too.
jax.ipu.compat._give_back(jax.ipu.compat.Name("jax.old", "jax.new"))
assert not hasattr(jax, "old")
"""
UNTOUCHED = """
import jax, jax.ipu, numpy as np
assert jax.default_backend() == "cpu" and not hasattr(jax, "tree_map")
assert not hasattr(jax.config, "FLAGS")
x = jax.device_put(np.float32(1), jax.devices("cpu")[0])
try:
  x.device()
except TypeError:
  print("not callable")
assert not hasattr(jax.numpy, "product")
"""


@pytest.mark.parametrize(
  "code",
  [TRAINING, FUNCTIONS, DEVICES, KEEPS],
  ids=["training", "functions", "devices", "keeps"],
)
def test_programs_in_the_style_of_the_earlier_jax(code):
  plugin_test_util.run(code, JAX_IPU_MODEL_NUM_TILES="8")


def test_arrays_and_devices():
  assert plugin_test_util.output(ARRAYS) == "ipu 2 ipu,cpu"


def test_other_programs_see_jax_unchanged():
  assert plugin_test_util.output(UNTOUCHED) == "not callable"


@pytest.mark.parametrize(
  ("before", "environment", "default"),
  [
    ("", {"JAX_PLATFORMS": "cpu,ipu"}, "cpu"),
    ("", {"JAX_PLATFORM_NAME": "cpu"}, "cpu"),
    ("import jax; jax.devices(); ", {}, "cpu"),
  ],
)
def test_ipus_are_the_default_unless_the_user_chose(
  before, environment, default
):
  code = "import jax.ipu.compat, jax; print(jax.default_backend())"
  result = plugin_test_util.run(before + code, **environment)
  assert result.stdout.strip() == default
  assert ("import it first" in result.stderr) is bool(before)


def test_the_table_of_the_documents():
  """What it promises exists in the installed JAX, by both names."""
  printed = plugin_test_util.run(
    """
    import jax.ipu.compat as compat
    for name in compat.GIVEN:
      owner, _, attribute = name.old.rpartition(".")
      assert hasattr(compat._owner(owner), attribute), name
      if name.value is None:
        assert compat._resolve(name.today) is not None, name
    print(compat.markdown(), end="")
    """
  ).stdout
  table = re.search(
    r"<!-- names: .* -->\n(.*)<!-- names end -->",
    DOCUMENT.read_text(),
    re.DOTALL,
  )
  assert table and table[1] == printed, (
    "ipu/docs/migration.md: paste the output of jax.ipu.compat.markdown() "
    "between the two comments that name it"
  )


NOTEBOOK = {
  "cells": [
    {"cell_type": "markdown", "source": ["# Not code"]},
    {"cell_type": "code", "source": ["!pip install jax==0.3.16+ipu"]},
    {"cell_type": "code", "source": ["import jax\n", "x = jax.numpy.ones(3)"]},
    {"cell_type": "code", "source": ["print(x.device().platform)"]},
  ]
}


def test_earlier_programs_are_run_with_one_line_added(
  tmp_path, monkeypatch, capsys
):
  """`build/earlier_programs.py`, on programs of our own."""
  monkeypatch.syspath_prepend(str(ROOT / "build"))
  tool = importlib.import_module("earlier_programs")
  (tmp_path / "a.ipynb").write_text(json.dumps(NOTEBOOK))
  (tmp_path / "b.py").write_text('print("gpu")')
  programs = [tool.Program(name, 1, "ipu") for name in ("a.ipynb", "b.py")]
  monkeypatch.setattr(tool, "PROGRAMS", programs)
  assert tool.main([str(tmp_path)]) == 1
  said = capsys.readouterr().out
  assert "ran a.ipynb" in said and "FAILED b.py" in said
  assert "1 of 2 ran" in said
  with pytest.raises(tool.BuildError, match=r"known are a\.ipynb"):
    tool.main([str(tmp_path), "c.py"])
