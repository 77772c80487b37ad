"""The lifetime of functions called by programs, and where they are
registered."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import plugin_test_util
import pytest
from callback_kit import host_sin, typed

import jax
from jax.experimental import serialize_executable
from jaxlib.ipu import host_functions, internals


class Probe:
  def __call__(self, x):
    return np.asarray(x)


def test_functions_are_freed_with_their_programs(ipu):
  def run():
    probe = Probe()
    f = jax.jit(lambda x: jax.pure_callback(probe, typed(x), x))
    f(jax.device_put(np.float32(1), ipu)).block_until_ready()
    return weakref.ref(probe)

  gone = run()
  jax.clear_caches()
  gc.collect()
  assert gone() is None


def test_functions_outlive_pending_programs(ipu):
  go = threading.Event()

  def function(x):
    assert go.wait(60)
    return np.asarray(x) + 1

  def start(x):
    f = jax.jit(lambda x: jax.pure_callback(function, typed(x), x))
    g = jax.jit(lambda x: jax.pure_callback(lambda x: x * 2, typed(x), x))
    return g(f(x))

  # The second one has not started when its program is deleted.
  y = start(jax.device_put(np.float32(1), ipu))
  jax.clear_caches()
  gc.collect()
  go.set()
  assert y == 4


@pytest.mark.ipu_only
def test_exit_with_pending_callbacks():
  ended = plugin_test_util.run(
    """
    import jax, numpy as np, time
    from jax.experimental import io_callback
    x = jax.device_put(np.float32(1), jax.devices("ipu")[0])
    def slow(x):
      time.sleep(0.2)
      print("effect", flush=True)
    f = jax.jit(lambda x: io_callback(slow, None, x))
    def late(x):
      time.sleep(0.1)
      return x
    g = jax.jit(lambda x: jax.pure_callback(late, x, x))
    f(x); f(x)
    ys = [g(x) for _ in range(20)]
    """
  )
  assert ended.stdout == "effect\neffect\n"
  assert not ended.stderr


@pytest.mark.ipu_only
def test_cached_programs_do_not_call_functions_of_another_process(tmp_path):
  code = """
    import jax, numpy as np
    x = jax.device_put(np.float32(1), jax.devices("ipu")[0])
    times = lambda x: np.asarray(x) * np.float32(%s)
    f = jax.jit(lambda x: jax.pure_callback(times, x, x))
    g = jax.jit(lambda x: x + 1)
    print(f(g(x)))
    """
  flags = {
    "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  for factor in (2, 3):
    ended = plugin_test_util.run(code % factor, **flags)
    assert float(ended.stdout) == 2 * factor
  # Newer versions of JAX cache programs with functions, under a key that
  # contains the process' number and so keeps other processes away; older ones
  # do not.
  names = [p.name for p in tmp_path.iterdir() if p.name.endswith("-cache")]
  written = 3 if internals.jaxlib_version() >= (0, 11) else 1
  assert len(names) == written, names


@pytest.mark.ipu_only
def test_programs_with_functions_cannot_be_serialised(ipu):
  x = jax.device_put(np.float32(1), ipu)
  compiled = jax.jit(host_sin).lower(x).compile()
  with pytest.raises(TypeError, match="calls a Python function"):
    serialize_executable.serialize(compiled)
  with pytest.raises(LookupError, match="the process that compiled it"):
    host_functions.find(host_functions.PROCESS ^ 1, 0)
