"""Compiled host functions: `jax.ffi` on the IPU."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from pathlib import Path

import ipu_test_util as util
import lowering_kit
import numpy as np
import plugin_test_util
import pytest
from callback_kit import forget_effects

import jax
import jax.numpy as jnp
from jax import lax

KERNELS = Path(__file__).parent / "data" / "ffi_kernels.cc"
NAMES = (
  "copy_arrays", "attributes", "in_place", "flat", "fail", "scratch", "later",
  "device_ordinal",
)  # fmt: skip


@pytest.fixture(scope="session")
def kernels(tmp_path_factory, ipu):
  """Everything in ffi_kernels.cc, registered for the IPU and the CPU."""
  library = tmp_path_factory.mktemp("ffi") / "kernels.so"
  subprocess.run(
    ["g++", "-std=c++17", "-O0", "-shared", "-fPIC",
     f"-I{jax.ffi.include_dir()}", KERNELS, "-o", library],
    check=True,
  )  # fmt: skip
  loaded = ctypes.CDLL(str(library))
  for platform in ("ipu", "cpu"):
    for name in NAMES:
      capsule = jax.ffi.pycapsule(getattr(loaded, name))
      jax.ffi.register_ffi_target(name, capsule, platform=platform)
  return loaded


def like(x):
  return jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("shape", util.SHAPES, ids=str)
def test_arrays_of_all_types(check, kernels, shape):
  arrays = [util.sample(d, shape, special=True) for d in util.ALL]

  def f(*xs):
    ys = [x.T[::-1] if x.ndim > 1 else x for x in xs]
    return jax.ffi.ffi_call("copy_arrays", [like(y) for y in ys])(*ys)

  check(f, *arrays)


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", (np.complex64, jnp.float8_e4m3fn, jnp.int4))
def test_arrays_of_host_only_types(ipu, kernels, dtype):
  """XLA:CPU aborts the process for an int4."""
  x = util.sample(np.float32, (6, 5), low=0, high=4).astype(dtype)

  def f(x):
    call = jax.ffi.ffi_call(
      "copy_arrays",
      [like(x)],
      input_layouts=[(0, 1)],
      output_layouts=[(0, 1)],
    )
    return call(x)[0][1:]

  np.testing.assert_array_equal(util.run_on(ipu, f, x), x[1:])


@pytest.mark.ipu_only
@pytest.mark.parametrize("tiles", (1, 16))
def test_tiles_send_complex_and_narrow_arrays(cpu, kernels, tiles):
  x = util.sample(np.float32, (6, 5), low=0, high=4)

  def f(z, n):
    z, n = z[::2].T, n[1:] * 2
    z, n = jax.ffi.ffi_call("copy_arrays", [like(z), like(n)])(z, n)
    return (z * 2).real, n.T

  arguments = [(x - 2j * x).astype(np.complex64), x.astype(jnp.float8_e5m2)]
  lowering_kit.check(cpu, f, arguments, tiles)


def test_attributes(check, kernels):
  def f():
    call = jax.ffi.ffi_call(
      "attributes", jax.ShapeDtypeStruct((3,), np.float32)
    )
    return call(
      i32=np.int32(-7),
      i64=-1000,
      f32=np.float32(0.5),
      f64=np.float64(0.25),
      b=True,
      text="four",
      i64s=np.array([1, 2, 3]),
      f32s=np.array([1.5, 2.5], np.float32),
      dictionary={"inner": np.float32(9), "name": "xy"},
    )

  check(f)


def test_results_in_the_memory_of_operands(check, kernels):
  def f(x):
    y = jax.ffi.ffi_call("in_place", like(x), input_output_aliases={0: 0})(x)
    return x, y

  check(f, util.sample(np.float32, (5,)))


def test_layouts(check, kernels):
  """Arguments and results in other dimension orders."""
  x = util.sample(np.float32, (2, 3, 4))

  def f(x):
    def flat(inner, outer):
      call = jax.ffi.ffi_call(
        "flat", like(x), input_layouts=[inner], output_layouts=outer
      )
      return call(x)

    return (
      flat((2, 0, 1), None),
      flat(None, (1, 2, 0)),
      flat((1, 0, 2), (2, 1, 0)),
    )

  check(f, x)


def test_loops_and_vmap(check, kernels):
  def f(x):
    def copy(x):
      return jax.ffi.ffi_call(
        "copy_arrays", [like(x)], vmap_method="sequential"
      )(x)[0]

    total = lax.fori_loop(0, 3, lambda i, x: copy(x) + i, x)
    return total, jax.vmap(copy)(x)

  check(f, util.sample(np.float32, (3, 4)))


@pytest.mark.ipu_only
def test_memory_threads_and_time_of_handlers(kernels, ipu):
  """Memory and threads (XLA:CPU has no memory for them), and time."""
  x = util.sample(np.float32, (1000,))

  @jax.jit
  def f(x):
    scratch = jax.ffi.ffi_call("scratch", like(x))(x)
    return scratch, jax.ffi.ffi_call("later", like(x))(x, fails=False)

  for y in f(jax.device_put(x, ipu)):
    np.testing.assert_array_equal(y, x)


@pytest.mark.ipu_only
def test_a_state_lives_as_long_as_the_program(kernels, ipu):
  jax.ffi.register_ffi_type(
    "counter",
    {
      "type_id": _capsule(kernels.counter_type_id),
      "type_info": _capsule(kernels.counter_type_info),
    },
    platform="ipu",
  )
  stages = {
    "instantiate": jax.ffi.pycapsule(kernels.make_counter),
    "execute": jax.ffi.pycapsule(kernels.count),
  }
  jax.ffi.register_ffi_target("count", stages, platform="ipu")

  def run():
    f = jax.jit(
      lambda x: (
        jax.ffi.ffi_call(
          "count", jax.ShapeDtypeStruct((), np.int32), has_side_effect=True
        )(start=5)
        + x
      )
    )
    x = jax.device_put(np.int32(0), ipu)
    assert [int(f(x)) for _ in range(3)] == [5, 6, 7]
    assert kernels.counters_alive() == 1

  run()
  jax.clear_caches()
  gc.collect()
  assert kernels.counters_alive() == 0


def _capsule(function):
  function.restype = ctypes.c_void_p
  make = ctypes.pythonapi.PyCapsule_New
  make.restype = ctypes.py_object
  make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
  return make(function(), None, None)


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  "name, attributes, message",
  [
    ("fail", {"how": np.int32(0)}, "RESOURCE_EXHAUSTED: refused"),
    ("fail", {"how": np.int32(1)}, "INTERNAL: exception .* thrown"),
    ("fail", {"why": np.int32(1)}, "INVALID_ARGUMENT(.|\n)*why vs how"),
    ("device_ordinal", {}, "FFI handlers on an IPU get no device ordinal"),
  ],
)
def test_errors_name_the_target(kernels, ipu, name, attributes, message):
  @jax.jit
  def f(x):
    jax.ffi.ffi_call(name, (), has_side_effect=True)(**attributes)
    return x + 1

  with pytest.raises(jax.errors.JaxRuntimeError, match=message) as error:
    f(jax.device_put(np.float32(1), ipu)).block_until_ready()
  forget_effects()
  assert f"FFI target {name}" in str(error.value)
  assert "test_ffi.py" in str(error.value)


@pytest.mark.ipu_only
def test_asynchronous_errors(kernels, ipu):
  f = jax.jit(lambda x: jax.ffi.ffi_call("later", like(x))(x, fails=True))
  with pytest.raises(jax.errors.JaxRuntimeError, match="failed later"):
    f(jax.device_put(np.float32(1), ipu)).block_until_ready()


@pytest.mark.ipu_only
def test_an_unknown_target_is_refused_when_it_is_compiled(ipu):
  f = jax.jit(lambda x: jax.ffi.ffi_call("no_such_function", like(x))(x))
  with pytest.raises(jax.errors.JaxRuntimeError) as error:
    f.lower(jax.device_put(np.float32(1), ipu)).compile()
  text = str(error.value)
  assert "no_such_function" in text and "register_ffi_target" in text
  assert "test_ffi.py" in text


@pytest.mark.ipu_only
def test_invalid_registrations(kernels, ipu):
  capsule = jax.ffi.pycapsule(kernels.flat)
  with pytest.raises(ValueError, match="api_version=1"):
    jax.ffi.register_ffi_target("x", capsule, platform="ipu", api_version=0)
  with pytest.raises(ValueError, match="expected 'execute'"):
    jax.ffi.register_ffi_target("x", {"prepare": capsule}, platform="ipu")


@pytest.mark.ipu_only
@pytest.mark.parametrize("handler", [42, None, "flat"], ids=repr)
def test_a_handler_that_is_no_capsule(ipu, handler):
  with pytest.raises(TypeError, match=f"'x', 'execute' is {handler!r}: expect"):
    jax.ffi.register_ffi_target("x", handler, platform="ipu")
  with pytest.raises(TypeError, match=f"'x', 'type_id' is {handler!r}: expect"):
    jax.ffi.register_ffi_type("x", {"type_id": handler}, platform="ipu")


@pytest.mark.ipu_only
def test_refused_registrations_before_the_client():
  """JAX passes them on with the client: each is named, none stops another."""
  result = plugin_test_util.run(
    """
    import jax, numpy as np
    from jaxlib.ipu import host_functions
    jax.ffi.register_ffi_target("bad", 42, platform="ipu")
    jax.ffi.register_ffi_target("worse", {1: 2}, platform="ipu")
    jax.ffi.register_ffi_type("odd", {}, platform="ipu")
    x = jax.device_put(np.float32(1), jax.devices("ipu")[0])
    assert x + 1 == 2
    f = jax.jit(lambda x: jax.ffi.ffi_call("bad", x)(x))
    try:
      f(x)
    except jax.errors.JaxRuntimeError as error:
      print(error)
    """
  )
  assert "bad" in result.stdout and "register_ffi_target" in result.stdout
  for what in ("target 'bad'", "target 'worse'", "type 'odd'"):
    assert f"FFI {what} for the IPU is refused" in result.stderr
  assert "has changed" not in result.stderr


@pytest.mark.ipu_only
def test_interpreter_and_engine_agree(kernels):
  from lowering_kit import check

  def f(x):
    call = jax.ffi.ffi_call(
      "copy_arrays", [like(x.T), like(x)], has_side_effect=True
    )
    y, z = call(x.T, jnp.sin(x))
    w = jax.ffi.ffi_call("in_place", like(z), input_output_aliases={0: 0})(z)
    v = jax.ffi.ffi_call(
      "flat", like(w), input_layouts=[(1, 0)], output_layouts=(1, 0)
    )(w)
    return y, z, w, v

  x = util.sample(np.float32, (5, 7))
  check(jax.devices("cpu")[0], f, [x], 16, ulps=8)
