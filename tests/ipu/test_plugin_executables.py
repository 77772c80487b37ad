"""Compiled programs: introspection, serialisation and caching."""

from __future__ import annotations

import re

import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import serialize_executable

pytestmark = pytest.mark.ipu_only


def model(x, w):
  return jnp.tanh(x @ w).sum(axis=0)


@pytest.fixture
def arguments(ipu):
  return jax.device_put(
    (np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)), ipu
  )


@pytest.fixture
def compiled(arguments):
  return jax.jit(model).lower(*arguments).compile()


def test_a_compiled_program_runs(compiled, arguments):
  np.testing.assert_allclose(
    compiled(*arguments), np.full(4, 8 * np.tanh(16.0)), rtol=1e-6
  )


def test_as_text_shows_the_program(compiled):
  text = compiled.as_text()
  for name in ("HloModule jit_model", "dot(", "tanh(", "f32[8,16]"):
    assert name in text


@pytest.mark.ipu_only
def test_as_text_of_a_program_with_shardings():
  """JAX says of a key how it is sharded. jaxlib's conversion understands that
  only once there is a client of XLA's."""
  text = plugin_test_util.output(
    """
    import jax
    draw = lambda key: jax.random.bits(key, (5,))
    print(jax.jit(draw).lower(jax.random.key(0)).compile().as_text())
    """,
    JAX_PLATFORMS="ipu",
  )
  assert "u32[5]" in text


def test_cost_analysis(compiled):
  costs = compiled.cost_analysis()
  assert costs["flops"] >= 2 * 8 * 16 * 4
  assert all(isinstance(value, int | float) for value in costs.values())
  assert any("cycles" in name for name in costs)
  assert any("bytes" in name for name in costs)


def test_memory_analysis(compiled):
  stats = compiled.memory_analysis()
  assert stats.argument_size_in_bytes >= 4 * (8 * 16 + 16 * 4)
  assert stats.output_size_in_bytes >= 4 * 4
  assert stats.alias_size_in_bytes == 0


def add_in_a_loop(x):
  return lax.fori_loop(0, 4, lambda i, x: x * 2 + i, x)


def choose(x):
  return lax.switch(x[0, 0].astype(int), [lambda x: x + 1, jnp.sin], x)


@pytest.mark.parametrize("f", [jnp.sin, add_in_a_loop, choose])
def test_memory_analysis_counts_results_once(ipu, f):
  """Roots that share the storage of a result are not results."""
  x = jax.device_put(np.ones((64, 50), np.float32), ipu)
  stats = jax.jit(f).lower(x).compile().memory_analysis()
  assert stats.argument_size_in_bytes == x.nbytes
  assert stats.output_size_in_bytes == x.nbytes


def test_a_donated_argument_does_not_stay_in_sram(ipu):
  x = jax.device_put(np.ones((ipu.num_tiles, 1000), np.float32), ipu)
  lend, give = (
    jax.jit(lambda x: x + 1, donate_argnums=d).lower(x).compile()
    for d in ((), 0)
  )
  assert give.memory_analysis().alias_size_in_bytes == x.nbytes
  key = "ipu peak tile bytes"
  tile = x.nbytes / ipu.num_tiles
  assert lend.cost_analysis()[key] - give.cost_analysis()[key] == tile


def test_formats_of_arguments_and_results(ipu):
  arguments = jax.device_put(
    (
      np.ones((2, 3, 4), np.float32),
      np.ones((5, 6), np.float16),
      np.int32(3),
      np.ones(7, np.bool_),
    ),
    ipu,
  )
  f = jax.jit(lambda a, b, c, d: (a + 1, b, c * 2, ~d))
  compiled = f.lower(*arguments).compile()
  for formats in (compiled.input_formats[0], compiled.output_formats):
    assert [f.layout.major_to_minor for f in formats] == [
      (0, 1, 2),
      (0, 1),
      (),
      (0,),
    ]


def test_serialisation(compiled, arguments):
  payload = serialize_executable.serialize(compiled)
  loaded = serialize_executable.deserialize_and_load(
    *payload, backend="ipu", execution_devices=[arguments[0].device]
  )
  np.testing.assert_array_equal(loaded(*arguments), compiled(*arguments))
  assert loaded.as_text() == compiled.as_text()


def test_programs_are_compiled_once_for_all_devices():
  assert (
    plugin_test_util.output(
      """
      import jax, numpy as np
      from jaxlib.ipu import compiler
      compile_program, count = compiler.compile_program, []
      def counting(code, options):
        count.append(code)
        return compile_program(code, options)
      compiler.compile_program = counting
      f = jax.jit(lambda x: x * 3)
      for device in jax.devices("ipu"):
        x = jax.device_put(np.ones(5, np.float32), device)
        y = f(x)
        assert np.asarray(y)[0] == 3 and y.devices() == {device}
      print(len(count))
      """,
      JAX_IPU_DEVICE_COUNT="3",
    )
    == "1"
  )


# Prints how often the compiler was called.
CACHED = """
import jax, numpy as np
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from jaxlib.ipu import compiler
compile_program, count = compiler.compile_program, []
def counting(code, options):
  count.append(code)
  return compile_program(code, options)
compiler.compile_program = counting
x = jax.device_put(np.arange(5, dtype=np.float32), jax.devices("ipu")[0])
y = jax.jit(lambda x: x * 3 + 1)(x)
assert float(y[4]) == 13
jax.jit(lambda x: x * 3 + 1)(x)
print(len(count))
"""


def test_the_persistent_compilation_cache(tmp_path):
  def calls(**environment):
    return plugin_test_util.output(
      CACHED, JAX_COMPILATION_CACHE_DIR=str(tmp_path), **environment
    )

  assert calls() != "0"
  assert list(tmp_path.iterdir())
  assert calls() == "0"
  # Another machine means another program.
  assert calls(JAX_IPU_MODEL_NUM_TILES="16") != "0"


def test_the_compilation_cache_may_be_enabled_late(tmp_path):
  """After programs that were compiled without one."""
  late = f"""jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
x = x[:3]
jax.jit(lambda x: x * 3 + 1)(x)
"""
  plugin_test_util.run(CACHED + late)
  assert list(tmp_path.iterdir())


def test_a_damaged_cache_entry_is_compiled_again(tmp_path):
  cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
  plugin_test_util.run(CACHED, **cache)
  for path in tmp_path.iterdir():
    if path.suffix != ".lock" and "atime" not in path.name:
      path.write_bytes(path.read_bytes()[:-20])
  result = plugin_test_util.run(CACHED, **cache)
  assert result.stdout.strip() != "0"


def test_the_platform_version_names_compiler_and_machine(ipu):
  version = ipu.client.platform_version
  assert re.search(r"compiler [0-9a-f]{16}", version)
  assert f"num_tiles={ipu.num_tiles}" in version


def test_caches_can_be_cleared(ipu):
  f = jax.jit(lambda x: x + 1)
  x = jax.device_put(np.float32(1), ipu)
  f(x)
  jax.clear_caches()
  assert float(f(x)) == 2


def test_programs_without_arguments_or_results(ipu):
  with jax.default_device(ipu):
    np.testing.assert_array_equal(
      jax.jit(lambda: jnp.arange(3))(), np.arange(3)
    )
    assert jax.jit(lambda x: ())(np.float32(1)) == ()


def test_logged_cycles_count_the_actual_iterations():
  result = plugin_test_util.run(
    """
    import jax
    from jax import lax

    def f(n):
      return lax.while_loop(lambda n: n < 1000, lambda n: n * 2, n)

    with jax.default_device(jax.devices("ipu")[0]):
      f = jax.jit(f)
      for n in (2000, 999, 1):
        f(n).block_until_ready()
    """,
    TF_POPLAR_FLAGS="--log_cycle_count=0",
  )
  lines = re.findall(
    r"IpuDevice\(id=0.* jit_f took (\d+) cycles", result.stderr
  )
  none, one, ten = map(int, lines)
  assert ten - none == 10 * (one - none) > 0
