"""When work runs, on which thread, and what happens when it fails."""

from __future__ import annotations

import threading

import numpy as np
import plugin_test_util
import pytest

import jax
from jax import lax

pytestmark = pytest.mark.ipu_only

# A program that keeps the model busy long enough to be observed.
LONG = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
@jax.jit
def long(x):
  return lax.fori_loop(0, 400, lambda i, x: x @ x * 1e-3 + 1, x)
ipu = jax.devices("ipu")[0]
x = jax.device_put(np.ones((384, 384), np.float32), ipu)
"""


def long(x):
  return lax.fori_loop(0, 400, lambda i, x: x @ x * 1e-3 + 1, x)


@pytest.fixture
def x(ipu):
  return jax.device_put(np.ones((384, 384), np.float32), ipu)


def test_dispatch_does_not_wait_for_a_long_program(x):
  f = jax.jit(long).lower(x).compile()
  y = f(x)
  assert not y.is_ready()
  y.block_until_ready()
  assert y.is_ready()


def test_programs_run_in_order(x):
  f = jax.jit(long).lower(x).compile()
  add = jax.jit(lambda a, b: a + b)
  y = f(x)
  z = add(y, x)
  np.testing.assert_allclose(z, np.asarray(y) + 1, rtol=1e-6)


def test_many_calls_may_be_pending(ipu):
  f = jax.jit(lambda x: x + 1)
  x = jax.device_put(np.zeros(100_000, np.float32), ipu)
  for _ in range(500):
    x = f(x)
  assert np.asarray(x).max() == 500


def test_several_threads(ipu):
  f = jax.jit(lambda x: x * 2 + 1)
  g = jax.jit(lambda x: x + 1, donate_argnums=0)
  errors = []

  def work(seed):
    try:
      x = jax.device_put(np.full(16, seed, np.float32), ipu)
      for _ in range(200):
        x = g(x)
      np.testing.assert_array_equal(f(x), np.full(16, 2 * (seed + 200) + 1))
    except Exception as e:
      errors.append(e)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not errors


def test_several_threads_compile(ipu):
  results = {}

  def work(i):
    x = jax.device_put(np.float32(i), ipu)
    results[i] = float(jax.jit(lambda x: x * i + 1)(x))

  threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert results == {i: i * i + 1 for i in range(8)}


def test_running_programs_do_not_hold_the_gil(x):
  """No thread of the backend holds the interpreter's lock."""
  f = jax.jit(long).lower(x).compile()
  y = f(x)
  count = 0
  while not y.is_ready():
    count += 1
  assert count > 100


def test_exit_with_pending_programs():
  plugin_test_util.run(LONG + "results = [long(x) for _ in range(20)]")


def test_exit_by_an_exception():
  result = plugin_test_util.run(
    LONG + "y = long(x)\nraise SystemExit(3)", check=False
  )
  assert result.returncode == 3, result.stderr


def test_use_in_a_forked_child_is_an_error():
  """The device's threads stay with the parent: an error, not a hang."""
  assert (
    plugin_test_util.output(
      """
      import os, warnings
      import jax, numpy as np
      warnings.simplefilter("ignore")
      ipu = jax.devices("ipu")[0]
      f = jax.jit(lambda x: x + 1)
      x = jax.device_put(np.ones(4, np.float32), ipu)
      f(x)
      child = os.fork()
      if child == 0:
        try:
          f(x)
        except Exception as e:
          print("spawn" in str(e), flush=True)
        os._exit(0)
      os.waitpid(child, 0)
      # The parent goes on.
      print(np.asarray(f(x))[0])
      """
    )
    == "True\n2.0"
  )


def test_a_second_client_after_the_first():
  plugin_test_util.run(
    """
    import jax, numpy as np
    from jax.extend.backend import clear_backends
    for tiles in (4, 8):
      jax.config.update("jax_ipu_model_num_tiles", tiles)
      ipu = jax.devices("ipu")[0]
      assert ipu.num_tiles == tiles
      x = jax.device_put(np.ones(4, np.float32), ipu)
      assert float(jax.jit(lambda x: (x + 1).sum())(x)) == 8
      clear_backends()
    """.replace("import jax,", "import jax, jax.ipu,")
  )


def test_running_out_of_memory_poisons_dependent_results():
  """Running out of memory is reported when waiting for any dependent result."""
  plugin_test_util.run(
    """
    import resource
    import jax, jax.numpy as jnp, numpy as np
    ipu = jax.devices("ipu")[0]
    fill = jax.jit(lambda x: jnp.broadcast_to(x, (1 << 28,)))
    add = jax.jit(lambda x: x + 1)
    x = jax.device_put(np.float32(1), ipu)
    big = jax.ShapeDtypeStruct((1 << 28,), np.float32)
    with jax.default_device(ipu):
      fill, add = fill.lower(x).compile(), add.lower(big).compile()
    with open("/proc/self/statm") as f:
      used = int(f.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), hard))
    y = fill(x)
    z = add(y)
    for result in (y, z):
      try:
        result.block_until_ready()
      except jax.errors.JaxRuntimeError as e:
        assert "RESOURCE_EXHAUSTED" in str(e), e
      else:
        raise AssertionError("no error")
    # The device works on.
    print(float(jax.jit(lambda x: x * 2)(x)))
    """,
    POPLAR_ENGINE_OPTIONS='{"debug.allowOutOfMemory": "true"}',
  )
