"""User errors: each message names the problem and says what to do.

Some messages are JAX's own, which are the same on every platform.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import numpy as np
import plugin_test_util
import pytest
from callback_kit import forget_effects

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.extend.core import Primitive

pytestmark = pytest.mark.ipu_only

F32 = np.float32
X = np.ones(8, F32)

without_rule = Primitive("without_rule")
without_rule.def_abstract_eval(lambda x: x)


def primitive(x):
  return without_rule.bind(x)


@jax.jit
def jitted(x):
  return without_rule.bind(x)


def in_a_loop(x):
  return lax.fori_loop(0, 3, lambda i, x: without_rule.bind(x) + 1, x)


def kernel(x):
  def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

  return pl.pallas_call(add_one, out_shape=jax.typeof(x))(x)


def foreign(x):
  return jax.ffi.ffi_call("no_such", jax.typeof(x))(x)


def outer_product(x):
  return lax.dot(x, x, preferred_element_type=jnp.int32)


def six_bits(x):
  return x.astype(jnp.float6_e3m2fn)


def too_large(x):
  return (jnp.zeros((20_000, 20_000), F32) + x[0]).at[0].set(1)


REFUSALS = [
  (primitive, ["primitive without_rule", "register_lowering", "ipu,cpu"]),
  (jitted, ["primitive without_rule", "register_lowering"]),
  (in_a_loop, ["primitive without_rule"]),
  (kernel, ["primitive pallas_call", "interpret=True"]),
  (foreign, ["@no_such", "register_ffi_target"]),
  (outer_product, ["f32 and f32 into i32", "astype"]),
  (six_bits, ["f6E3M2FN", "inside the program"]),
  (too_large, ["bytes of SRAM", "that tile:", "smaller arrays, narrower"]),
]


def line(f) -> str:
  """File and line of the refused operation in f."""
  lines, first = inspect.getsourcelines(inspect.unwrap(f))
  (i,) = (i for i, text in enumerate(lines) if "return" in text)
  return f"{Path(__file__).name}:{first + i}"


@pytest.mark.parametrize("way", ["argument", "default_device", "backend"])
@pytest.mark.parametrize(
  "f, said", REFUSALS, ids=[f.__name__ for f, _ in REFUSALS]
)
def test_refusals_name_the_users_line(ipu, f, said, way):
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    if way == "argument":
      jax.jit(f)(jax.device_put(X, ipu))
    elif way == "default_device":
      with jax.default_device(ipu):
        jax.jit(f)(X)
    else:
      with pytest.warns(DeprecationWarning, match="backend"):
        on_ipu = jax.jit(f, backend="ipu")
      on_ipu(X)
  message = str(caught.value)
  for part in [*said, line(f)]:
    assert part in message


def test_an_unused_primitive_is_not_refused(ipu):
  def f(x):
    without_rule.bind(x)
    return x + 1

  np.testing.assert_array_equal(jax.jit(f)(jax.device_put(X, ipu)), X + 1)


def test_a_traceback_has_no_frames_of_the_backend(ipu):
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.jit(primitive)(jax.device_put(X, ipu))
  files = [entry.path for entry in caught.traceback]
  assert not [f for f in files if "jax_plugins" in str(f)]


def raising(x):
  raise ValueError("mine")


@pytest.mark.parametrize(
  "function, said",
  [
    (raising, "mine"),
    (lambda x: x[:3], "Expected: (8,), Actual: (3,)"),
    (lambda x: x.astype(np.float16), "Expected: float32, Actual: float16"),
  ],
  ids=["raises", "shape", "dtype"],
)
def test_a_failing_callback_names_the_users_line(ipu, function, said):
  def f(x):
    return jax.pure_callback(function, jax.typeof(x), x)

  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.block_until_ready(jax.jit(f)(jax.device_put(X, ipu)))
  assert said in str(caught.value) and line(f) in str(caught.value)
  with pytest.raises(jax.errors.JaxRuntimeError):
    jax.effects_barrier()  # the effect has failed as well
  forget_effects()


@pytest.mark.parametrize(
  "name, value, expected",
  [
    ("ipu_num_tiles", "many", "an integer from 1 to 1472"),
    ("ipu_num_tiles", 0, "an integer from 1 to 1472"),
    ("ipu_available_memory_proportion", 1.5, "a number from 0 to 1"),
    ("ipu_available_memory_proportion", "half", "a number from 0 to 1"),
    ("ipu_code_budget", -1, "expected an integer >= 0, in bytes"),
    ("ipu_code_budget", "64 KB", "expected an integer >= 0, in bytes"),
    ("ipu_verify", "true", "expected True or False"),
    ("ipu_allow_out_of_memory", "yes", "expected True or False"),
    ("ipu_tiles", 4, "did you mean ipu_num_tiles?"),
    ("num_tiles", 4, "did you mean ipu_num_tiles?"),
  ],
)
def test_compiler_options(ipu, name, value, expected):
  if ipu.num_tiles != 1472:
    expected = expected.replace("1472", str(ipu.num_tiles))
  f = jax.jit(lambda x: x + 1, compiler_options={name: value})
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    f(jax.device_put(X, ipu))
  assert name in str(caught.value) and expected in str(caught.value)


def donated_twice(ipu, cpu):
  f = jax.jit(lambda x: x + 1, donate_argnums=0)
  x = jax.device_put(X, ipu)
  f(x)
  f(x)


def donated_and_passed(ipu, cpu):
  x = jax.device_put(X, ipu)
  jax.jit(lambda x, y: (x + 1, y), donate_argnums=0)(x, x)


def deleted(ipu, cpu):
  x = jax.device_put(X, ipu)
  x.delete()
  x + 1


def two_devices(ipu, cpu):
  jax.device_put(X, ipu) + jax.device_put(X, cpu)


def result_elsewhere(ipu, cpu):
  sharding = jax.sharding.SingleDeviceSharding(cpu)
  jax.jit(lambda x: x, out_shardings=sharding)(jax.device_put(X, ipu))


def compiled(ipu):
  return jax.jit(lambda x: x + 1).lower(jax.device_put(X, ipu)).compile()


def another_shape(ipu, cpu):
  compiled(ipu)(jax.device_put(X[:3], ipu))


def another_device(ipu, cpu):
  compiled(ipu)(jax.device_put(X, cpu))


def default_by_name(ipu, cpu):
  with jax.default_device("ipu"):
    pass


def default_is_a_list(ipu, cpu):
  with jax.default_device([ipu]):
    pass


def config_by_name(ipu, cpu):
  jax.config.update("jax_default_device", "ipu")


def export_for_the_cpu(ipu, cpu):
  f = jax.export.export(jax.jit(lambda x: x), platforms=["cpu"])(X)
  jax.jit(f.call)(jax.device_put(X, ipu))


def a_mesh_of_more_than_there_are(ipu, cpu):
  many = len(jax.devices("ipu")) + 1
  jax.make_mesh((many,), ("i",), devices=jax.devices("ipu"))


MISTAKES = [
  (donated_twice, (ValueError, RuntimeError), "been deleted"),
  (donated_and_passed, jax.errors.JaxRuntimeError, "f(donate(a), a)"),
  (deleted, RuntimeError, "has been deleted"),
  (two_devices, ValueError, "on platform IPU and argument y"),
  (result_elsewhere, ValueError, "on platform CPU"),
  (another_shape, TypeError, "compiled with float32[8]"),
  (another_device, ValueError, "Required sharding"),
  (default_by_name, ValueError, "a Device object"),
  (default_is_a_list, ValueError, "a Device object"),
  (config_by_name, ValueError, "a Device object"),
  (lambda i, c: jax.devices("IPU"), RuntimeError, "'ipu'"),
  (lambda i, c: jax.devices("ipus"), RuntimeError, "'ipu'"),
  (lambda i, c: jax.device_put(X, "ipu"), ValueError, "jax.Device"),
  (lambda i, c: np.from_dlpack(jax.device_put(X, i)), Exception, "DLPack"),
  (
    lambda i, c: jax.jit(lambda x: x)(jax.device_put("a", i)),
    TypeError,
    "<class 'str'>",
  ),
  (
    lambda i, c: jax.device_put(np.array([None]), i),
    TypeError,
    "valid JAX array type",
  ),
  (export_for_the_cpu, ValueError, "used on '('ipu',)'"),
  (a_mesh_of_more_than_there_are, ValueError, "Number of devices"),
]


@pytest.mark.parametrize("mistake, error, said", MISTAKES)
def test_user_errors(ipu, cpu, mistake, error, said):
  with pytest.raises(error) as caught:
    mistake(ipu, cpu)
  assert said in str(caught.value)


def test_float64_without_x64_is_a_warning(on_ipu):
  with pytest.warns(UserWarning, match="jax_enable_x64"):
    x = jnp.ones(3, jnp.float64)
  assert x.dtype == F32


# Tests that can only be done once per process.
PROCESSES = [
  ({"JAX_PLATFORMS": "IPU"}, "jax.devices()", "known backends: ['cpu', 'tpu'"),
  ({"JAX_PLATFORMS": "ipu, cpu"}, "jax.devices()", "backend ' cpu'"),
  ({"JAX_PLATFORMS": "ipu"}, "jax.devices('cpu')", "backends are ['ipu']"),
  ({"JAX_PLATFORMS": "cpu"}, "jax.devices('ipu')", "backends are ['cpu']"),
  (
    {"JAX_PLATFORMS": "ipu,cpu", "JAX_IPU_DEVICE_COUNT": "0"},
    "jax.numpy.ones(3)",
    "invalid JAX_IPU_DEVICE_COUNT='0': expected an integer from 1 to",
  ),
]


@pytest.mark.parametrize("environment, code, said", PROCESSES)
def test_invalid_environments(environment, code, said):
  script = f"import jax\ntry:\n  {code}\nexcept Exception as e:\n  print(e)"
  assert said in plugin_test_util.output(script, **environment)


def test_damaged_entries_of_the_compilation_cache(tmp_path):
  code = textwrap.dedent(
    """
    import pathlib, warnings
    import numpy as np
    import jax
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    ipu = jax.devices("ipu")[0]
    def run():
      jax.clear_caches()
      return str(jax.jit(lambda x: x * 3)(jax.device_put(np.ones(2), ipu)))
    run()
    (entry,) = pathlib.Path({path!r}).glob("*-cache")
    whole = entry.read_bytes()
    half = len(whole) // 2
    # A single bit may be of a distance in compressed zeros, and change nothing.
    other = bytes(b ^ 0x5a for b in whole[half : half + 32])
    changed = whole[:half] + other + whole[half + 32:]
    for damaged in (b"", whole[:half], changed):
      entry.write_bytes(damaged)
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(run(), *{{"cache entry" in str(w.message) for w in caught}})
    """
  ).format(path=str(tmp_path))
  lines = plugin_test_util.output(
    code, JAX_COMPILATION_CACHE_DIR=str(tmp_path)
  ).splitlines()
  assert lines == ["[3. 3.] True"] * 3


def test_exit_during_compilation():
  """Ctrl-C interrupts the wait for the compiler, which is stopped at exit."""
  code = """
    import os, signal, time
    import numpy as np
    import jax
    from jaxlib.ipu import compiler
    def endless(*args):
      os.kill(os.getpid(), signal.SIGINT)
      while True:
        time.sleep(0.01)
    x = jax.device_put(np.ones(2), jax.devices("ipu")[0])
    compiler.compile_program = endless
    # The test runner may ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
      jax.jit(lambda x: x * 3)(x)
    except KeyboardInterrupt:
      print("interrupted")
    """
  assert plugin_test_util.output(code) == "interrupted"


def test_exit_of_a_fork_during_compilation():
  """The fork does not have the compiling thread, and does not wait for it."""
  code = """
    import atexit, os, threading, time
    def end():
      print("ended", flush=True)
      os._exit(0)  # jaxlib's clients wait for their threads, which are not here
    atexit.register(end)  # runs after what the backend registers
    import numpy as np
    import jax
    from jaxlib.ipu import compiler
    started = threading.Event()
    def endless(*args):
      started.set()
      while True:
        time.sleep(0.01)
    x = jax.device_put(np.ones(2), jax.devices("ipu")[0])
    compiler.compile_program = endless
    f = jax.jit(lambda x: x * 3)
    threading.Thread(target=f, args=(x,), daemon=True).start()
    started.wait()
    child = os.fork()
    if child:
      os.waitpid(child, 0)
      os._exit(0)
    """
  assert plugin_test_util.output(code) == "ended"
