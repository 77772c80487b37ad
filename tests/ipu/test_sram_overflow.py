"""SRAM overflow: what is refused, and with which message."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import lowering_kit
import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu import fitting
from jaxlib.ipu import target as machines
from jaxlib.ipu.diagnostics import CompileError, ErrorCode

pytestmark = pytest.mark.ipu_only


# --- Refusals ---------------------------------------------------------------

# Four tiles of 638,976 bytes; f32[n] takes n bytes of each.
FOUR = {"JAX_IPU_MODEL_NUM_TILES": "4"}
PRELUDE = """
import jax, jax.numpy as jnp, numpy as np
ipu = jax.devices("ipu")[0]
def put(n):
  return jax.device_put(np.ones(n, np.float32), ipu)
def refusal(f, *args):
  try:
    jax.block_until_ready(f(*args))
  except jax.errors.JaxRuntimeError as e:
    return str(e)
  raise AssertionError("not refused")
def free():
  return ipu.memory_stats()["largest_free_block_bytes"] // 4
"""


def run_on_four_tiles(code, **environment):
  return plugin_test_util.run(PRELUDE + code, **FOUR, **environment)


def test_arrays_beyond_the_sram_are_refused():
  run_on_four_tiles("""
x, y = put(300_000), put(200_000)
message = refusal(put, 150_000)
assert message.startswith("RESOURCE_EXHAUSTED: out of memory"), message
for words in (
  "f32[150000] needs 150,000 bytes of tile 0's SRAM",
  "138,976 of 638,976 are free",
  "1 x f32[300000]: 300,000 bytes",
  "1 x f32[200000]: 200,000 bytes",
  "x.delete()",
  "debug.allowOutOfMemory",
):
  assert words in message, (words, message)
assert free() == 138_976
x.delete()
put(150_000)
del y
assert free() == 638_976
""")


def test_programs_run_beside_resident_arrays():
  run_on_four_tiles("""
f = jax.jit(lambda x: jnp.sin(x) * 2)
x = put(150_000)
costs = f.lower(x).compile().cost_analysis()
need = costs["ipu peak tile bytes with gaps"]
assert 300_000 < need < 350_000
np.testing.assert_allclose(f(x), 2 * np.sin(1), rtol=1e-6)
others = [put(100_000) for _ in range(4)]
message = refusal(f, x)
for words in (
  "RESOURCE_EXHAUSTED", "program jit__lambda", "bytes", "638,976",
  "4 x f32[100000]: 100,000 bytes each", "donate", "allowOutOfMemory",
):
  assert words in message, (words, message)
assert "f32[150000]" not in message  # it is the argument
over = int(need) + 400_000 - 638_976
assert f"{over:,} more than" in message, (over, message)
assert free() == 638_976 - 550_000  # nothing is left behind
np.testing.assert_array_equal(x, 1)
others.pop()
f(x)
del others

# Where another tile than the first is the fullest, the first has room for more.
pad = jax.jit(lambda x: jnp.pad(x, ((0, 100), (0, 0))))
y = jax.device_put(np.ones((472, 500), np.float32), ipu)
x.delete()
need = pad.lower(y).compile().cost_analysis()["ipu peak tile bytes with gaps"]
rest = put(int(638_976 - need) // 8 * 8)
small = put(8)  # 32 bytes of tile 0
assert float(pad(y).sum()) == 472 * 500
more = put(32)
assert "of tile 0's SRAM" in refusal(pad, y)
del rest, small, more, y
x = put(150_000)

# A donated argument makes room for the result.
others = [put(100_000) for _ in range(4)]
g = jax.jit(lambda x: jnp.sin(x) * 2, donate_argnums=0)
x = g(x)
np.testing.assert_allclose(x, 2 * np.sin(1), rtol=1e-6)
assert free() == 638_976 - 550_000
others.append(put(88_900))
y = g(x)  # but not any more; then it is not consumed
refusal(lambda: y)
del others, y
x = g(x)
np.testing.assert_allclose(x, 2 * np.sin(2 * np.sin(1)), rtol=1e-6)
""")


def test_pending_results_count():
  """However fast they are dispatched."""
  run_on_four_tiles("""
f = jax.jit(lambda x: x @ x)
x = jax.device_put(np.ones((256, 256), np.float32), ipu)  # 65,536 of a tile
f(x)
kept = [f(x) for _ in range(20)]
message = refusal(lambda: kept[-1])
assert "f32[256,256]: 65,536 bytes each" in message, message
fit = 0
while True:
  try:
    jax.block_until_ready(kept[fit])
  except jax.errors.JaxRuntimeError:
    break
  fit += 1
assert 1 <= fit <= 5, fit
for y in kept[fit:]:
  assert refusal(lambda: y) == message
kept.clear()
f(x)
""")


def test_arrays_in_host_memory_are_not_resident():
  run_on_four_tiles("""
x = put(400_000)
host = x.sharding.with_memory_kind("pinned_host")
y = jax.device_put(x, host)
x.delete()
x = put(400_000)
assert "f32[400000]: 400,000 bytes" in refusal(
  jax.device_put, y, y.sharding.with_memory_kind("device"))
x.delete()
z = jax.device_put(y, y.sharding.with_memory_kind("device"))
np.testing.assert_array_equal(z, 1)
""")


def test_an_allowed_overflow_is_reported():
  allow = '{"debug.allowOutOfMemory": "true"}'
  code = """
x, y = put(400_000), put(300_000)
f = jax.jit(lambda x: x + 1)
for _ in range(3):
  f(x)
"""
  said = run_on_four_tiles(code, POPLAR_ENGINE_OPTIONS=allow).stderr
  found = re.findall(r"out of memory: (.*) takes tile 0 ([\d,]+) bytes", said)
  assert [what for what, _ in found] == [
    "an array f32[300000]",
    "program jit__lambda",
  ]
  assert found[0][1] == "61,024"
  # Both arrays, the result, and the program's own code and data.
  more = int(found[1][1].replace(",", ""))
  assert 461_024 < more < 480_000
  quiet = {"POPLAR_ENGINE_OPTIONS": allow, "POPLAR_LOG_LEVEL": "ERR"}
  assert "out of memory" not in run_on_four_tiles(code, **quiet).stderr


def test_running_out_of_host_memory_is_an_error():
  """More than the process may allocate: arrays, results, and temporaries."""
  allow = '{"debug.allowOutOfMemory": "true"}'
  run_on_four_tiles(
    """
import resource
def wide(x):
  return jnp.cumsum(jnp.outer(x, x), 0).sum()
small, large = put(1000), put(100_000)
f = jax.jit(wide)
assert abs(float(f(small)) / (1000 * 1000 * 1001 / 2) - 1) < 1e-3
g = jax.jit(lambda x: jnp.outer(x, x))
g(small), put(1)
f.lower(large).compile()
in_use = int(open("/proc/self/statm").read().split()[0]) * 4096
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**30, hard))
for attempt in (lambda: f(large), lambda: g(large)):
  message = refusal(lambda: jax.block_until_ready(attempt()))
  assert "RESOURCE_EXHAUSTED" in message and "memory" in message, message
  assert float(f(small)) > 0
""",
    POPLAR_ENGINE_OPTIONS=allow,
  )


# --- Messages ---------------------------------------------------------------


def shapes(tree, ipu):
  sharding = SingleDeviceSharding(ipu)
  return jax.tree.map(
    lambda shape: jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding),
    tree,
    is_leaf=lambda leaf: isinstance(leaf, tuple),
  )


def train(params, unused, batch, *, rate):
  def loss(params):
    x = batch["x"]
    for p in params:
      x = jnp.tanh(x @ p["w"] + p["b"])  # the layers
    return jnp.mean((x - batch["y"]) ** 2)

  gradients = jax.grad(loss)(params)
  return jax.tree.map(lambda p, g: p - rate * g, params, gradients)


LAYERS = next(
  i
  for i, line in enumerate(Path(__file__).read_text().splitlines(), 1)
  if line.endswith("# the layers")
)


def refusal(f, *args, **kwargs) -> str:
  """The error of a compilation that runs out of SRAM."""
  options = {"ipu_allow_out_of_memory": False, **kwargs.pop("options", {})}
  lowered = jax.jit(f, compiler_options=options).lower(*args, **kwargs)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    lowered.compile()
  message = str(caught.value)
  assert message.startswith("RESOURCE_EXHAUSTED: out of memory"), message
  return message


def saved(message, words) -> int:
  """The number of bytes at the end of a piece of advice."""
  (found,) = re.findall(rf"{words}.*?: (?:about )?([\d,]+) bytes", message)
  return int(found.replace(",", ""))


def test_overflow_messages_use_the_users_names(ipu):
  params = [{"w": (1024, 1024), "b": (1024,)} for _ in range(2)]
  batch = {"x": (128, 1024), "y": (128, 1024)}
  args = shapes([params, (3,), batch], ipu)
  options = {"ipu_num_tiles": 16}
  message = refusal(train, *args, rate=0.1, options=options)
  assert "argument params[1]['w'] f32[1024,1024]" in message
  assert "program jit_train" in message
  assert f"dot_general at {Path(__file__)}:{LAYERS}" in message


def test_overflow_messages_name_copies_of_arguments(ipu):
  def product(batch):
    return batch["x"] @ batch["y"]

  (batch,) = shapes([{"x": (7680, 7680), "y": (7680, 7680)}], ipu)
  assert "copy of argument batch['x']" in refusal(product, batch)


def test_overflow_messages_name_buffers_of_steps(ipu):
  (x,) = shapes([(2**20,)], ipu)
  message = refusal(jnp.sort, x, options={"ipu_num_tiles": 16})
  (line,) = [l for l in message.splitlines() if "buffers of a Sort" in l]
  assert int(line.split()[0].replace(",", "")) == 2**20 // 16 * 2, line


def grown(x, count):
  """Steps of different shapes: none repeats."""
  for n in range(count):
    x = jnp.sin(jnp.pad(x, (0, 1))) + n  # the code
  return x


@pytest.fixture
def little_code():
  """Compiles 100 such steps for a machine with little room for code, which
  fails; returns the error's message."""
  few = dataclasses.replace(
    machines.resolve("ipu2", None), executable_bytes=20_000
  )

  def compile_steps():
    with pytest.raises(CompileError) as caught:
      lowering_kit.phases(lambda x: grown(x, 100), [np.ones(8, "f4")], few)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    return caught.value.message

  return compile_steps


def test_overflow_messages_name_the_lines_of_code(little_code):
  message = little_code()
  lines = Path(__file__).read_text().splitlines()
  (line,) = (i for i, l in enumerate(lines, 1) if l.endswith("# the code"))
  named = re.findall(
    rf"([\d,]+) bytes: \S+ at {re.escape(__file__)}:{line} \(exchange code "
    r"[\d,]+, code of vertices [\d,]+, control code [\d,]+\)",
    message,
  )
  (needed,) = re.findall(r"needs ([\d,]+) bytes for its code", message)
  sizes = [int(n.replace(",", "")) for n in (needed, *named)]
  assert 0.9 * sizes[0] < sum(sizes[1:]) <= sizes[0]


def test_what_cannot_fit_is_lowered_once(little_code, monkeypatch):
  """Its code has no room, and less data would not help."""
  lowered = []
  lower = fitting._lower_once
  monkeypatch.setattr(
    fitting, "_lower_once", lambda *a: lowered.append(1) or lower(*a)
  )
  little_code()
  assert len(lowered) == 1


def descend(params, gradients, rates):
  return jax.tree.map(lambda p, g: p - rates[0] * g, params, gradients)


def test_overflow_messages_say_what_donation_saves(ipu):
  """As much as in the plan of the program that donates them."""
  params = [{"w": (1024, 1024), "b": (1024,)} for _ in range(3)]
  args = shapes([params, params, (3,)], ipu)
  options = {"ipu_num_tiles": 16}
  message = refusal(descend, *args, options=options)
  freed = saved(message, re.escape("donating params (6 arrays)"))
  options["ipu_allow_out_of_memory"] = True
  lend, give = (
    jax.jit(descend, donate_argnames=donate)
    .lower(*args)
    .compile(options)
    .cost_analysis()["ipu peak tile bytes"]
    for donate in ((), ("params",))
  )
  assert freed == pytest.approx(lend - give, rel=0.05)
  assert f"needs {int(lend):,} bytes" in message
  assert f"{int(lend) - ipu.bytes_per_tile:,} more than" in message


def test_overflow_messages_say_what_a_smaller_batch_saves(ipu):
  args = [
    shapes([[{"w": (256, 256), "b": (256,)}], (3,), {"x": b, "y": b}], ipu)
    for b in ((16384, 256), (8192, 256))
  ]
  options = {"ipu_num_tiles": 16}
  message = refusal(train, *args[0], rate=0.1, options=options)
  less = saved(message, "half of the 16,384 along the first dimension of batch")
  options["ipu_allow_out_of_memory"] = True
  whole, half = (
    jax.jit(train)
    .lower(*a, rate=0.1)
    .compile(options)
    .cost_analysis()["ipu peak tile bytes"]
    for a in args
  )
  assert less == pytest.approx(whole - half, rel=0.1)


def test_overflow_messages_say_how_many_tiles_are_needed(ipu):
  x = shapes((1024, 1024), ipu)
  message = refusal(lambda x: x + 1, x, options={"ipu_num_tiles": 2})
  (least,) = re.findall(r"which ([\d,]+) tiles have: raise ipu_num", message)
  assert int(least) == math.ceil(2 * 4 * 1024**2 / ipu.bytes_per_tile)
  (x,) = shapes([(2**28,)], ipu)
  message = refusal(lambda x: x + 1, x)
  assert "no single ipu2 has so many" in message
