"""Errors and reports name the user's own line."""

from __future__ import annotations

import importlib.util
import os
import re
import site
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu import location
from jaxlib.ipu.location import location_text
from jaxlib.ipu.program import schema

HERE = __file__
LIBRARY = """
import jax
import jax.numpy as jnp

def layer(f, x):
  return f(x)

def outer(x):
  return inner(x)

def inner(x):
  y = jax.lax.neg(x)
  return y

def unknown(x):
  call = jax.ffi.ffi_call("no_such", jax.ShapeDtypeStruct(x.shape, x.dtype))
  return call(x)

@jax.jit
def jitted(x):
  return unknown(x)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
  """A module that is installed like a package."""
  folder = tmp_path_factory.mktemp("env") / "site-packages" / "somelib"
  folder.mkdir(parents=True)
  path = folder / "layers.py"
  path.write_text(LIBRARY)
  spec = importlib.util.spec_from_file_location("somelib.layers", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def located(f, operation: str) -> schema.Location:
  """The location of the only operation of this name in jit(f)."""
  x = np.ones(4, np.float32)
  module = jax.jit(lambda x: f(x)).lower(x).compiler_ir("stablehlo")
  found = []
  for function in module.body.operations:
    for op in function.regions[0].blocks[0].operations:
      if op.operation.name == f"stablehlo.{operation}":
        found.append(location.resolve(op.location, op.operation.name))
  (only,) = found
  return only


def line_of(text: str) -> int:
  """The first line of this file that ends with a text."""
  lines = Path(HERE).read_text().splitlines()
  return 1 + next(i for i, line in enumerate(lines) if line.endswith(text))


def test_an_operation_in_user_code():
  def f(x):
    return jnp.exp(x)  # an own line

  at = located(f, "exponential")
  assert (at.file, at.line) == (HERE, line_of("# an own line"))
  assert re.search(rf"exp at {re.escape(HERE)}:\d+$", location_text(at))


def test_an_operation_in_a_package(library):
  def f(x):
    return library.outer(x)  # a call of a package

  at = located(f, "negate")
  assert at.line == line_of("# a call of a package")
  assert location_text(at).endswith(
    f" at somelib/layers.py:12, called from {HERE}:{at.line}"
  )


def test_a_user_function_that_a_package_calls(library):
  def f(x):
    return library.layer(lambda y: jnp.sin(y), x)  # called back

  at = located(f, "sine")
  assert (at.file, at.line) == (HERE, line_of("# called back"))


def test_frames_of_the_standard_library_are_skipped():
  import functools

  def f(x):
    return functools.reduce(lambda a, _: jnp.tanh(a), [1], x)  # reduced

  assert located(f, "tanh").line == line_of("# reduced")
  assert location.installed(functools.__file__) == "functools.py"


@pytest.mark.parametrize(
  "file, expected",
  [
    ("/home/me/env/lib/python3/site-packages/flax/core.py", "flax/core.py"),
    ("/usr/lib/python3/dist-packages/numpy/a.py", "numpy/a.py"),
    (os.path.join(sysconfig.get_paths()["purelib"], "a", "b.py"), "a/b.py"),
    (os.path.join(site.getusersitepackages(), "c.py"), "c.py"),
    ("<frozen runpy>", "<frozen runpy>"),
    ("<stdin>", None),
    ("<ipython-input-1-abc>", None),
    (os.path.join(tempfile.gettempdir(), "ipykernel_3", "4.py"), None),
    ("/home/me/train.py", None),
    (os.path.join(sys.prefix, "train.py"), None),
  ],
)
def test_installed_files(file, expected):
  assert location.installed(file) == expected


def test_locations_without_user_code():
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  from jaxlib.mlir import ir

  with context:
    path = "/x/site-packages/lib/a.py"
    inner = ir.Location.file(path, 3, 1)
    outer = ir.Location.file("/x/site-packages/lib/b.py", 4, 1)
    call = ir.Location.name("dot", ir.Location.callsite(inner, [outer]))
    expected = schema.Location("", "dot", path, 3)
    assert location.resolve(call) == expected
    assert location.resolve(ir.Location.unknown()) == location.UNKNOWN
  assert location.resolve(None) == location.UNKNOWN
  assert location_text(location.UNKNOWN) == ""


@pytest.mark.ipu_only
@pytest.mark.parametrize("name", ["unknown", "jitted"])
def test_a_refusal_names_both_lines(ipu, library, name):
  f = getattr(library, name)
  x = jax.device_put(np.ones(4, np.float32), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.jit(lambda x: f(x))(x)  # a refused call
  both = (
    f"somelib/layers.py:17, called from {HERE}:{line_of('# a refused call')}"
  )
  assert both in str(caught.value)


@pytest.mark.ipu_only
def test_nested_functions_keep_the_names_of_their_callers(ipu, library):
  @jax.jit
  def attention(x):
    with jax.named_scope("scores"):
      return library.jitted(x)

  def layer(x, _):
    with jax.named_scope("layer"):
      return attention(x), None

  def model(x):
    return jax.lax.scan(layer, x, length=2)[0]

  x = jax.device_put(np.ones(4, np.float32), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.jit(model)(x)
  # How JAX calls the body itself depends on its version.
  body = r"in jit\(model\)/while/body/(\w+/)?"
  inside = re.escape("layer/jit(attention)/scores/jit(jitted)/ffi_call at")
  assert re.search(body + inside, str(caught.value)), caught.value


def test_names_of_python_functions_are_not_callers():
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  from jaxlib.mlir import ir

  with context:
    line = ir.Location.file("/x/a.py", 3, 1)
    frames = ir.Location.callsite(
      ir.Location.name("inner", line), [ir.Location.name("outer", line)]
    )
    assert location.resolve(frames).name == "inner"
    call = ir.Location.name("jit(f)/jit(g)", frames)
    inlined = ir.Location.callsite(ir.Location.name("add", frames), [call])
    assert location.resolve(inlined).name == "jit(f)/jit(g)/add"
    unnamed = ir.Location.callsite(ir.Location.unknown(), [call])
    assert location.resolve(unnamed).name == "jit(f)/jit(g)"


@pytest.mark.ipu_only
def test_the_largest_tensors_name_both_lines(ipu, library):
  def f(x):
    return library.outer(x)  # too large

  sharding = jax.sharding.SingleDeviceSharding(ipu)
  x = jax.ShapeDtypeStruct((2**30,), np.float32, sharding=sharding)
  options = {"ipu_allow_out_of_memory": False}
  lowered = jax.jit(f, compiler_options=options).lower(x)
  with pytest.raises(jax.errors.JaxRuntimeError, match="SRAM") as caught:
    lowered.compile()
  both = f"somelib/layers.py:12, called from {HERE}:{line_of('# too large')}"
  assert both in str(caught.value)
