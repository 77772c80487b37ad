"""Constants of a program are held once, and nothing ever writes to them."""

from __future__ import annotations

import io
import json
import pickle
import threading

import lowering_kit
import ml_dtypes
import numpy as np
import parse_kit
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import serialize_executable
from jaxlib.ipu import pipeline, target
from jaxlib.ipu.ir import detached_arrays, importer, stored_module
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

pytestmark = [pytest.mark.ipu_only, pytest.mark.usefixtures("on_ipu")]

MIB = 1 << 20

# Compiles and runs a program with a constant, and prints the peak of what that
# takes, and what stays while the executable lives and after that.
MEASURED = """
import gc, json, ml_dtypes, numpy as np, jax, jax.numpy as jnp

def status(name):
  with open("/proc/self/status") as lines:
    return next(int(l.split()[1]) << 10 for l in lines if l.startswith(name))

def warm_up(x):
  return (x * 2).sum(), -x

dtype, size = np.dtype({dtype!r}), {size}
device = jax.devices({platform!r})[0]
x = jax.device_put(np.ones(8, dtype), device)
jax.jit(warm_up).lower(x).compile()(x)
words = np.arange(size // 2, dtype=np.uint16) % 0x3f80
constant = words.view(dtype)  # no NaN, and no splat
scalar = jax.device_put(np.ones((), dtype), device)
empty = status("VmRSS")
lowered = jax.jit(lambda x: (constant * x).max()).lower(scalar)
before = status("VmRSS")
compiled = lowered.compile()
peak = status("VmHWM") - before
kept = status("VmRSS") - before
result = compiled(scalar)
assert np.asarray(result) == constant.max(), (result, constant.max())
ran = status("VmRSS") - before
del lowered, compiled
jax.clear_caches()
gc.collect()
print(json.dumps([peak, kept, ran, status("VmRSS") - empty]))
"""


def measured(platform: str, dtype: str, size: int) -> list[int]:
  code = MEASURED.format(platform=platform, dtype=dtype, size=size)
  return json.loads(plugin_test_util.output(code))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_of_a_large_constant(dtype):
  size = 64 * MIB
  peak, kept, ran, left = measured("ipu", dtype, size)
  # Beside the array and JAX's attribute, which are there before: jaxlib's
  # bytecode, and the program.
  assert peak < 3 * size
  assert kept < 1.5 * size  # the program
  assert ran < 1.5 * size
  *_, left_by_jax = measured("cpu", dtype, size)  # JAX 0.12 keeps the array
  assert left < left_by_jax + 0.5 * size


def array(dtype: str, *shape: int) -> np.ndarray:
  """Different elements, of a few KiB at least."""
  dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
  numbers = np.random.default_rng(0).integers(-2, 2, shape or (128, 96))
  if dtype.name.startswith(("u", "bool")):
    numbers = numbers % 2
  return numbers.astype(dtype)


@pytest.mark.parametrize(
  "dtype",
  [
    "bool", "int4", "uint4", "int2", "uint2", "int8", "uint16", "int32",
    "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32",
    "complex64",
  ],
)  # fmt: skip
@pytest.mark.parametrize("detached", [False, True])
def test_every_type(monkeypatch, dtype, detached):
  if detached:
    monkeypatch.setattr(detached_arrays, "LARGE", 1 << 10)
  c = array(dtype)
  compiled = jax.jit(lambda: (c, c[::-1])).lower().compile()
  for _ in range(2):
    same, reversed_ = compiled()
    np.testing.assert_array_equal(np.asarray(same), c)
    np.testing.assert_array_equal(np.asarray(reversed_), c[::-1])
  assert "constant(" in compiled.as_text()


def test_64_bits():
  with jax.enable_x64(True):
    for dtype in ("int64", "uint64", "float64", "complex128"):
      c = array(dtype)
      f = jax.jit(lambda c=c: (c, c + c))
      np.testing.assert_array_equal(f(), (c, c + c))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,)])
def test_small_and_empty(shape):
  c = np.ones(shape, np.float32)
  f = jax.jit(lambda x: (c, c + x))
  for got, expected in zip(f(np.float32(2)), (c, c + 2)):
    np.testing.assert_array_equal(got, expected)


@pytest.fixture
def c() -> np.ndarray:
  return np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)


def test_used_twice(c):
  f = jax.jit(lambda x: c * x + jnp.roll(c, 1, 0))
  expected = c * np.float32(3) + np.roll(c, 1, 0)
  np.testing.assert_allclose(f(np.float32(3)), expected, rtol=1e-6)


def test_a_result_is_not_the_constant(c):
  f = jax.jit(lambda: (c, c))
  first, second = f()
  overwrite = jax.jit(lambda x: x.at[:].set(7.0), donate_argnums=0)
  np.testing.assert_array_equal(overwrite(first), np.full_like(c, 7))
  np.testing.assert_array_equal(second, c)
  np.testing.assert_array_equal(f(), (c, c))


def test_updated_in_place(c):
  rows = np.array([3, 5, 3], np.int32)
  f = jax.jit(
    lambda x, i: (
      jnp.asarray(c).at[0].set(x),
      lax.dynamic_update_slice(c, jnp.full((2, 3), x), (i, i)),
      jnp.asarray(c).at[rows].add(x),
    ),
  )
  for x, i in ((1.0, 4), (2.0, 7)):
    first, window, added = c.copy(), c.copy(), c.copy()
    first[0] = x
    window[i : i + 2, i : i + 3] = x
    np.add.at(added, rows, np.float32(x))
    got = f(np.float32(x), np.int32(i))
    np.testing.assert_array_equal(got[0], first)
    np.testing.assert_array_equal(got[1], window)
    np.testing.assert_allclose(got[2], added, rtol=1e-6)


@pytest.mark.parametrize("kind", ["repeat", "while", "scan", "cond"])
def test_carried(c, kind):
  add_row = lambda i, a: a.at[i].add(1)

  def f(n):
    if kind == "repeat":
      return lax.fori_loop(0, 5, add_row, c)
    if kind == "while":
      return lax.fori_loop(0, n, add_row, c)
    if kind == "scan":
      return lax.scan(lambda a, i: (a.at[i].add(1), a[i]), c, jnp.arange(5))[0]
    return lax.cond(n > 5, lambda: c, lambda: jnp.asarray(c).at[:5].add(1))

  expected = c.copy()
  expected[:5] += 1
  f = jax.jit(f)
  for _ in range(2):
    np.testing.assert_allclose(f(np.int32(5)), expected, rtol=1e-6)


def test_donated_argument_replaced_by_the_constant(ipu, c):
  f = jax.jit(lambda x: (jnp.asarray(c), x.sum()), donate_argnums=0)
  for _ in range(2):
    x = jax.device_put(np.ones_like(c), ipu)
    new, total = f(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(new, c)
    assert total == c.size
    f(new)  # writes to the result's memory


def test_runs_at_once(ipu, c):
  f = jax.jit(lambda x: jnp.asarray(c).at[0].set(x) @ c.T)
  f = f.lower(np.float32(0)).compile()
  wrong = []

  def run(x):
    for _ in range(5):
      changed = c.copy()
      changed[0] = x
      got = f(jax.device_put(np.float32(x), ipu))
      if not np.allclose(got, changed @ c.T, rtol=1e-3, atol=1e-3):
        wrong.append(x)

  threads = [threading.Thread(target=run, args=[x]) for x in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


def test_serialised(ipu, c):
  f = jax.jit(lambda x: c * x)
  x = jax.device_put(np.float32(2), ipu)
  compiled = f.lower(x).compile()
  payload, *trees = serialize_executable.serialize(compiled)
  assert payload.count(c.tobytes()) == 1

  def load(data):
    return serialize_executable.deserialize_and_load(
      data, *trees, backend="ipu", execution_devices=[ipu]
    )

  loaded = load(payload)
  del compiled, f
  np.testing.assert_array_equal(loaded(x), c * 2)
  assert module_holds(loaded, c)
  assert len(pickle.dumps(payload)) < 1.5 * c.nbytes

  at = payload.index(c.tobytes()) + c.nbytes // 2
  damaged = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
  with pytest.raises(jax.errors.JaxRuntimeError, match="checksum"):
    load(damaged)


def module_holds(compiled: jax.stages.Compiled, c: np.ndarray) -> bool:
  """Whether the optimised module has the array's elements."""
  (module,) = compiled.runtime_executable().hlo_modules()
  return c.tobytes() in module.as_serialized_hlo_module_proto()


def test_the_module_is_whole(c):
  other = c + 1
  f = jax.jit(lambda x: (c * x, x - other))
  compiled = f.lower(np.float32(1)).compile()
  assert module_holds(compiled, c)
  assert module_holds(compiled, other)
  assert "constant(" in compiled.as_text()


def artifact(*constants: np.ndarray) -> bytes:
  """A module that returns the constants."""
  f = lambda: [jnp.asarray(c) for c in constants]
  return lowering_kit.lowered_code(jax.jit(f).lower())


def test_omissions(c):
  module = importer.parse(artifact(c, c + 1, np.arange(8)))
  out = io.BytesIO()
  module.operation.write_bytecode(out)
  given = [b"", c.tobytes(), bytes(24)]
  code, omissions, more = stored_module.bytecode(module, {}, given)
  assert [bytes(piece) for piece in more] == [(c + 1).tobytes()]
  data = b"".join([*given, *more])
  rest, parts = 0, []
  for o in omissions:
    parts += [code[rest : o.position], data[o.address : o.address + o.size]]
    rest = o.position
  assert b"".join([*parts, code[rest:]]) == out.getvalue()
  assert len(code) == len(out.getvalue()) - 2 * c.nbytes


@pytest.fixture
def small_arrays(monkeypatch):
  """Arrays of a KiB are detached."""
  monkeypatch.setattr(detached_arrays, "LARGE", 1 << 10)


@pytest.mark.usefixtures("small_arrays")
def test_detached_arrays_are_attached_again(c):
  code = artifact(c, c + 1, np.full_like(c, 2), c[0, 0], np.arange(8))
  found = detached_arrays.detach(code)
  assert [bytes(a) for a in found.arrays.values()] == [
    c.tobytes(), (c + 1).tobytes()
  ]  # fmt: skip
  assert len(found.code) < len(code) - 2 * c.nbytes + 16
  again = detached_arrays.attach(found.code, found.arrays, 1 << 10)
  assert b"".join(again) == code


@pytest.mark.usefixtures("small_arrays")
def test_marks_differ_from_all_elements(c):
  mark = detached_arrays._unused(4, set())
  value = np.frombuffer(mark, np.float32)[0]
  integer = np.frombuffer(mark, np.int32)[0]
  code = artifact(c, np.full_like(c, value), np.full(c.shape, integer), value)
  assert mark not in detached_arrays.detach(code).arrays
  assert detached_arrays._unused(1, {bytes([i]) for i in range(256)}) is None
  f = jax.jit(lambda x: (x * c, np.full_like(c, value), np.full(7, integer)))
  for got, expected in zip(
    f(np.float32(1)), (c, np.full_like(c, value), np.full(7, integer))
  ):
    np.testing.assert_array_equal(
      np.asarray(got).view(np.int32), expected.view(np.int32)
    )


@pytest.mark.usefixtures("small_arrays")
def test_an_array_that_nothing_uses(c):
  module = importer.parse(artifact(c, c + 1))
  text = str(module)
  dead = text.replace("return %cst, %cst_0", "return %cst, %cst")
  assert dead != text
  with module.context:
    code = stablehlo.serialize_portable_artifact(
      ir.Module.parse(dead), stablehlo.get_current_version()
    )
  options = pipeline.Options(target=target.resolve("ipu2", 16))
  state = pipeline.compile_module(code, options)
  assert state.arrays == {}  # one was lost, so all were read by MLIR
  assert c.tobytes() in state.data


@pytest.mark.usefixtures("small_arrays")
def test_damaged_bytecode_is_left_to_mlir(c):
  code = artifact(c[:4], c[4:8])
  start = code.index(c[:4].tobytes())
  for at in range(start):
    for bit in (1, 64):
      damaged = bytearray(code)
      damaged[at] ^= bit
      detached_arrays.detach(bytes(damaged))
  for size in range(0, len(code), 7):
    detached_arrays.detach(code[:size])
  assert detached_arrays.detach(b"module {}" * 200).arrays == {}


def test_no_pass_of_mlirs_computes_with_constants():
  """What it computed with a mark would be wrong. The dynamic operation makes
  all passes run that could."""
  operations = {
    "add": "%c, %k : tensor<4xf32>",
    "negate": "%c : tensor<4xf32>",
    "reshape": "%c : (tensor<4xf32>) -> tensor<2x2xf32>",
    "convert": "%c : (tensor<4xf32>) -> tensor<4xi32>",
    "slice": "%c [0:2] : (tensor<4xf32>) -> tensor<2xf32>",
    "transpose": "%c, dims = [0] : (tensor<4xf32>) -> tensor<4xf32>",
    "broadcast_in_dim": ("%c, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>"),
    "concatenate": (
      "%c, %c, dim = 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>"
    ),
    "dynamic_reshape": (
      "%c, %s : (tensor<4xf32>, tensor<1xi32>) -> tensor<4xf32>"
    ),
  }
  lines = [
    f"%{i} = stablehlo.{name} {rest}"
    for i, (name, rest) in enumerate(operations.items())
  ]
  types = [
    rest.split("-> ")[-1].split(" : ")[-1] for rest in operations.values()
  ]
  values = ", ".join(f"%{i}" for i in range(len(lines)))
  text = f"""
func.func public @main() -> ({", ".join(types)}) {{
  %c = stablehlo.constant dense<2.5> : tensor<4xf32>
  %k = stablehlo.constant dense<1.0> : tensor<4xf32>
  %s = stablehlo.constant dense<[4]> : tensor<1xi32>
  {chr(10).join(lines)}
  return {values} : {", ".join(types)}
}}"""
  parsed = str(importer.parse(parse_kit.artifact(text)))
  del operations["dynamic_reshape"]  # becomes a reshape, or its operand
  for name in operations:
    assert f"stablehlo.{name} %" in parsed, name
