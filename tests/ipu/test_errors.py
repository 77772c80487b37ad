"""Programs that cannot be compiled are refused with helpful messages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ir import refusals

pytestmark = pytest.mark.ipu_only


def no_such_kernel(x):
  """All JAX operations are lowered; what users call by name may not exist."""
  return jax.ffi.ffi_call("no_such_kernel", x)(x)


def test_an_operation_that_is_not_lowered(ipu):
  x = util.sample(np.float32, (8, 8))
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.jit(no_such_kernel).lower(jax.device_put(x, ipu)).compile()
  message = str(caught.value)
  assert "stablehlo.custom_call @no_such_kernel" in message
  assert f"{Path(__file__).name}:{_line_of_return(no_such_kernel)}" in message
  # What to do instead, rather than a list of what exists.
  assert "jax.numpy" in message
  assert "dot_general" not in message
  assert "UNIMPLEMENTED" in message


def _line_of_return(f) -> int:
  lines, first = inspect.getsourcelines(f)
  return first + next(i for i, line in enumerate(lines) if "return" in line)


def test_a_product_of_floats_into_integers(ipu):
  def f(x):
    return lax.dot(x, x, preferred_element_type=jnp.int32)

  with pytest.raises(jax.errors.JaxRuntimeError, match="f32 into i32") as e:
    jax.jit(f)(jax.device_put(np.ones((2, 2), np.float32), ipu))
  assert f"{Path(__file__).name}:{_line_of_return(f)}" in str(e.value)


def test_a_constant_larger_than_the_hosts_memory(ipu):
  options = {"ipu_allow_out_of_memory": False}
  with jax.default_device(ipu):
    full = jax.jit(lambda: jnp.full(2**40, 0.5), compiler_options=options)
    lowered = full.lower()
    with pytest.raises(jax.errors.JaxRuntimeError, match="bytes of SRAM"):
      lowered.compile()


def test_after_a_refusal_everything_else_still_works(ipu):
  x = jax.device_put(np.arange(4.0, dtype=np.float32), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_kernel"):
    jax.jit(no_such_kernel)(x)
  np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(x), [1, 2, 3, 4])


def test_the_operation_is_found_inside_a_loop(ipu):
  def f(x):
    return lax.fori_loop(0, 3, lambda i, x: no_such_kernel(x) + 1, x)

  with pytest.raises(jax.errors.JaxRuntimeError, match="@no_such_kernel"):
    jax.jit(f)(jax.device_put(np.ones(4, np.float32), ipu))


def six_bits(x):
  return x.astype(jnp.float6_e2m3fn)


def test_an_unsupported_dtype(ipu):
  x = jax.device_put(np.ones(8, np.float32), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError, match="f6E2M3FN") as caught:
    jax.jit(six_bits)(x)
  message = str(caught.value)
  assert f"{Path(__file__).name}:{_line_of_return(six_bits)}" in message
  assert "UNIMPLEMENTED" in message


def test_an_unknown_custom_call_is_named_by_its_target(ipu):
  call = jax.ffi.ffi_call("my_own", jax.ShapeDtypeStruct((4,), np.float32))
  x = jax.device_put(np.ones(4, np.float32), ipu)
  with pytest.raises(
    jax.errors.JaxRuntimeError, match="custom_call @my_own"
  ) as caught:
    jax.jit(lambda x: call(x))(x)
  assert "no function of that name is registered for the IPU" in str(
    caught.value
  )


@pytest.mark.parametrize(
  "operation, advice",
  [
    ("stablehlo.dynamic_reshape", "fixed shape"),
    ("stablehlo.send", "return what should leave"),
    ("stablehlo.custom_call @any", "jax.numpy"),
    ("stablehlo.no_such", 'jax.devices("cpu")'),
  ],
)
def test_suggested_alternatives(operation, advice):
  assert advice in refusals.instead_of(operation)


def test_a_folder_that_cannot_be_written(ipu, tmp_path):
  x = jax.device_put(np.ones(4, np.float32), ipu)
  (tmp_path / "file").touch()
  options = {"ipu_dump_to": str(tmp_path / "file")}
  f = jax.jit(lambda x: x + 1, compiler_options=options)
  with pytest.raises(jax.errors.JaxRuntimeError, match="a report") as caught:
    f(x)
  assert options["ipu_dump_to"] in str(caught.value)
  assert "autoReport.directory" in str(caught.value)


@pytest.mark.parametrize(
  "option, value, said",
  [
    ("ipu_dump_to", "", "expected a folder's name"),
    ("ipu_dump_to", 7, "expected a folder's name"),
    ("no_such", 7, "known: ipu_num_tiles,"),
  ],
)
def test_invalid_compiler_options(ipu, option, value, said):
  lowered = jax.jit(lambda x: x + 1).lower(jax.device_put(1.0, ipu))
  with pytest.raises(jax.errors.JaxRuntimeError, match=re.escape(said)):
    lowered.compile(compiler_options={option: value})


@pytest.mark.parametrize("name", ["ipu_num_tilez", "num_tiles"])
def test_an_unknown_compiler_option(ipu, name):
  x = jax.device_put(np.ones(4, np.float32), ipu)
  f = jax.jit(lambda x: x + 1, compiler_options={name: 3})
  with pytest.raises(jax.errors.JaxRuntimeError, match=f"'{name}'") as e:
    f(x)
  assert "did you mean ipu_num_tiles?" in str(e.value)


def test_options_of_xla_are_ignored(ipu):
  x = jax.device_put(np.ones(4, np.float32), ipu)
  options = {"xla_embed_ir_in_executable": True}
  f = jax.jit(lambda x: x + 1, compiler_options=options)
  np.testing.assert_array_equal(f(x), np.full(4, 2, np.float32))


@pytest.mark.parametrize("tiles", [0, -1, 1473, 2.5, True, "many"])
def test_an_invalid_number_of_tiles(ipu, tiles):
  x = jax.device_put(np.ones(4, np.float32), ipu)
  f = jax.jit(lambda x: x + 1, compiler_options={"ipu_num_tiles": tiles})
  with pytest.raises(jax.errors.JaxRuntimeError, match="ipu_num_tiles") as e:
    f(x)
  assert str(tiles) in str(e.value)
