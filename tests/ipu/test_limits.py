"""Programs at the limits: damaged strings, high ranks, deep nests, long loops,
and a host without memory."""

from __future__ import annotations

import dis
import re

import flipped_bytes
import ipu_test_util as util
import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import compiler, pipeline, plugin
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.ir import bytecode_strings, importer

pytestmark = pytest.mark.ipu_only
X = np.arange(8, dtype=np.float32)


def exported(f, *args) -> bytes:
  lowered = jax.export.export(jax.jit(f), platforms=["ipu"])
  return lowered(*args).mlir_module_serialized


# --- Strings ------------------------------------------------------------------


def scoped(x):
  with jax.named_scope("größe"):
    return jnp.sin(x) @ x


@pytest.mark.parametrize(
  "part", [b"gr\xc3\xb6", b"test_limits.py", b"jit_scoped", b"jax.result_info"]
)
def test_a_string_that_is_not_utf8_is_an_error(part):
  """Some of jaxlib's getters of names and files would end the process."""
  code = exported(scoped, X)
  assert code.count(part) == 1 or part == b"gr\xc3\xb6"
  bytecode_strings.Strings(code).check()
  with pytest.raises(CompileError, match=r"string b'.*\\xff.*is not UTF-8"):
    importer.parse(code.replace(part, part[:2] + b"\xff" + part[3:]))


def test_a_damaged_export_raises_where_it_is_called():
  """In a process of its own, which has to survive."""
  printed = plugin_test_util.output("""
import dataclasses
import numpy as np
import jax
import jax.numpy as jnp

def scoped(x):
  with jax.named_scope("layer"):
    return jnp.sin(x) @ x

ipu = jax.devices("ipu")[0]
x = np.ones(8, np.float32)
good = jax.export.export(jax.jit(scoped), platforms=["ipu"])(x)
code = good.mlir_module_serialized
bad = code.replace(b"layer", b"\\xffayer")
assert bad != code
exported = dataclasses.replace(good, mlir_module_serialized=bad)
try:
  with jax.default_device(ipu):
    jax.jit(exported.call)(x)
except jax.errors.JaxRuntimeError as error:
  print(str(error).splitlines()[0])
""")
  assert "is not UTF-8" in printed and "layer" not in printed


def test_a_damaged_length_that_cuts_a_character():
  """All strings together are UTF-8, one of them is not. The last byte of each
  is not part of it."""
  code = bytearray(exported(scoped, X))
  name = "jit(scoped)/größe/sin".encode()
  (before,) = (i for i in range(len(code)) if code[i:].startswith(name))
  cut = code.index(b"\xc3", before) + 2 - before
  strings = bytecode_strings._strings(bytecode_strings._section(bytes(code)))
  sizes = [len(s) + 1 for s in strings]
  at = strings.index(name)
  table = code.index(bytes([2 * n + 1 for n in sizes]))
  code[table + at] -= 2 * (len(name) + 1 - cut)
  code[table + at - 1] += 2 * (len(name) + 1 - cut)
  with pytest.raises(CompileError, match="is not UTF-8"):
    importer.parse(bytes(code))


def test_flipped_bytes_are_errors_or_programs():
  """`flipped_bytes.py` is also a command for more of them."""
  found = flipped_bytes.outcomes(count=60, seed=0)
  wrong = ("bug", "crash of the compiler")
  assert not [kind for kind in found if kind in wrong], found
  assert len(found["refused"]) > 10 and len(found["compiled"]) > 5


# --- Ranks --------------------------------------------------------------------


@pytest.mark.parametrize("rank", [31, 33, 40, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.float16])
def test_literals_of_high_rank(check, rank, dtype):
  shape = (2, 2, 2) + (1,) * (rank - 3)
  literal = (np.arange(8) % 3).astype(dtype)

  def f(x):
    y = lax.reshape(x.astype(dtype), shape)
    several = lax.reshape(jnp.asarray(literal), shape)
    one = lax.full(shape, dtype(1))
    both = lax.select(y == several, several, one)
    return lax.reshape(lax.transpose(both, range(rank)[::-1]), (8,))

  check(f, X)


RANK = 70  # NumPy's arrays have at most 64 dimensions
HIGH = (2, *(1,) * 34, 2, *(1,) * 33, 2)


def high(x):
  return lax.reshape(x, HIGH)


def gather(x):
  numbers = lax.GatherDimensionNumbers(tuple(range(RANK)), (), (0, RANK - 1))
  sizes = (1, *HIGH[1:-1], 1)
  return lax.gather(high(x), jnp.array([1, 0]), numbers, sizes)


def scatter(x):
  numbers = lax.ScatterDimensionNumbers(tuple(range(RANK)), (), (0,))
  updates = high(x)[:1] * 2
  return lax.scatter_add(high(x), jnp.array([1]), updates, numbers)


def dot(batch):
  def f(x):
    summed = (RANK - 1, *([] if batch else range(1, RANK // 2)))
    outer = range(RANK - 1) if batch else ()
    numbers = ((summed, summed), (tuple(outer),) * 2)
    return lax.dot_general(high(x), high(x + 1), numbers)

  return f


def window(x):
  size = (2, *HIGH[1:-1], 1)
  ones = (1,) * RANK
  return lax.reduce_window(high(x), 0.0, lax.add, size, ones, "VALID")


def literal(dtype):
  def f(x):
    values = lax.reshape(jnp.asarray(np.arange(8) % 3, dtype), HIGH)
    return jnp.real(values * lax.full(HIGH, 3, dtype) + high(x).astype(dtype))

  return f


OF_ANY_RANK = {
  "f32": literal(np.float32),
  "i32": literal(np.int32),
  "bf16": literal(jnp.bfloat16),
  "c64": literal(np.complex64),
  "element-wise": lambda x: jnp.where(high(x) > 3, jnp.sin(high(x)), 1),
  "iota": lambda x: lax.broadcasted_iota(np.int32, HIGH, RANK - 1) + high(x),
  "sum": lambda x: jnp.sum(high(x), axis=(0, RANK - 1)),
  "function": lambda x: lax.reduce(
    high(x), 0.0, lambda a, b: a * 0.5 + b, (0,)
  ),
  "argmax": lambda x: lax.argmax(high(x), RANK - 1, np.int32),
  "transpose": lambda x: lax.transpose(high(x) * 2, range(RANK)[::-1]),
  "broadcast": lambda x: lax.broadcast_in_dim(x[:2], HIGH, (RANK - 1,)),
  "slice": lambda x: lax.slice(high(x), (1, *(0,) * (RANK - 1)), HIGH),
  "dynamic slice": lambda x: lax.dynamic_slice_in_dim(
    high(x), x[1].astype(int), 1, RANK - 1
  ),
  "concatenate": lambda x: lax.concatenate([high(x), high(x) + 1], 3),
  "pad": lambda x: lax.pad(
    high(x), 7.0, ((1, 0, 1), *((0, 0, 0),) * (RANK - 1))
  ),
  "reverse": lambda x: lax.rev(high(x), (0, RANK - 1)),
  "sort": lambda x: lax.sort(-high(x), dimension=RANK - 1),
  "cumsum": lambda x: lax.cumsum(high(x), axis=0),
  "gather": gather,
  "scatter": scatter,
  "dot": dot(batch=False),
  "batched dot": dot(batch=True),
  "window": window,
  "loop": lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2, high(x)),
  "bits": lambda x: lax.bitcast_convert_type(high(x), np.uint16),
}


@pytest.mark.parametrize("name", OF_ANY_RANK)
def test_ranks_that_numpy_has_not(check, name):
  """Arrays of such ranks stay on the device."""
  f = OF_ANY_RANK[name]
  check(lambda x: lax.reshape(y := f(x), (y.size,)), X, rtol=2e-6)


def test_arrays_of_high_rank_between_programs(ipu):
  y = jax.jit(high)(jax.device_put(X, ipu))
  assert y.shape == HIGH
  z = jax.jit(lambda y: y + 1)(y)
  flat = jax.jit(lambda z: lax.reshape(z, (8,)))(z)
  np.testing.assert_array_equal(flat, X + 1)


def test_ranks_of_iteration_spaces(check):
  """A window's dimensions come after the array's."""
  shape = (2, *(1,) * 126)
  strides = (1,) + (2,) * 126
  ones = (1,) * 127

  def f(x):
    y = lax.reshape(x[:2], shape)
    total = lax.reduce_window(y, 0.0, lax.add, shape, ones, "VALID")
    apart = lax.reduce_window(y, 0.0, lax.add, ones, strides, "VALID")
    return lax.reshape(total, (1,)), lax.reshape(apart, (2,))

  check(f, X)


def test_a_rank_beyond_the_limit_is_named(ipu):
  shape = (2, 2, 2) + (1,) * 125
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    util.run_on(ipu, lambda x: lax.reshape(x, shape).sum(), X)
  message = str(caught.value)
  for words in (
    "UNIMPLEMENTED",
    "128 dimensions",
    "at most 127",
    "test_limits.py",
  ):
    assert words in message, message


# --- Control flow -------------------------------------------------------------


def nested(depth: int, f):
  """`depth` conditionals within each other around f."""
  if not depth:
    return f
  inner = nested(depth - 1, f)
  return lambda i, x: lax.cond(i > depth, inner, lambda i, x: jnp.cos(x), i, x)


def test_deep_nests(check, monkeypatch):
  f = nested(90, lambda i, x: jnp.sin(x))
  check(f, np.int32(400), X, atol=1e-6)
  check(f, np.int32(3), X, atol=1e-6)


def test_deeper_nests_are_an_error_that_says_so(ipu):
  printed = plugin_test_util.output("""
import sys
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

sys.setrecursionlimit(100_000)

def nested(depth):
  if not depth:
    return lambda i, x: jnp.sin(x)
  inner = nested(depth - 1)
  return lambda i, x: lax.cond(i > depth, inner, lambda i, x: jnp.cos(x), i, x)

ipu = jax.devices("ipu")[0]
args = jax.device_put((np.int32(1), np.ones(3, np.float32)), ipu)
try:
  jax.jit(nested(300))(*args)
except jax.errors.JaxRuntimeError as error:
  print(str(error).splitlines()[0])
""")
  assert "control flow nested more than" in printed, printed


@pytest.mark.parametrize("trips", [2**62, 2**62 + 5])
def test_loops_that_never_end_compile(ipu, trips):
  with jax.enable_x64(True):

    def f(x):
      return lax.fori_loop(0, trips, lambda i, x: x + 1, x)

    costs = util.costs(ipu, f, X)
  assert 1e20 < costs["ipu cycles"] < np.inf


@pytest.mark.parametrize("depth", [2, 20])
def test_figures_of_nested_endless_loops_are_finite(ipu, depth):
  """jaxlib passes them on as float32."""

  def nested(depth, x):
    if not depth:
      return x + 1
    return lax.fori_loop(0, 2**62, lambda i, x: nested(depth - 1, x) * 2, x)

  with jax.enable_x64(True):
    costs = util.costs(ipu, lambda x: nested(depth, x), X)
  assert 1e37 < costs["flops"] < np.inf
  assert 1e37 < costs["ipu cycles"] < np.inf


def test_deep_loops_whose_trip_counts_data_decide(check):
  def nested(depth, n, x):
    if not depth:
      return x + 1
    return lax.fori_loop(0, n, lambda i, x: nested(depth - 1, n, x), x)

  check(lambda n, x: nested(36, n, x), np.int32(1), X)


def test_a_nest_beyond_pythons_recursion_limit(ipu, monkeypatch):
  def compile_program(*args):
    return compile_program(*args)

  monkeypatch.setattr(compiler, "compile_program", compile_program)
  with pytest.raises(
    jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: .*setrecursionlimit"
  ):
    util.run_on(ipu, lambda x: x + 3, X)


# --- Memory of the host -------------------------------------------------------


@pytest.mark.parametrize(
  "error",
  [MemoryError(), RuntimeError("std::bad_alloc")],
  ids=["Python's", "MLIR's"],
)
def test_no_memory_while_compiling(ipu, monkeypatch, error):
  def compile_program(*args):
    raise error

  monkeypatch.setattr(compiler, "compile_program", compile_program)
  with pytest.raises(
    jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED: the host ran out"
  ):
    util.run_on(ipu, lambda x: x + 1, X)


@pytest.mark.parametrize(
  "function",
  [
    plugin._compile,
    plugin._compiled,
    compiler.compile_program,
    pipeline.compile_module,
    type(pipeline.no_collection).__exit__,
  ],
)
def test_handlers_are_reached_without_memory(function):
  """Where an instruction has a number above 256, which is a new object, CPython
  repeats forever what leads to a handler."""
  entries = dis.Bytecode(function).exception_entries
  ends = [entry.end // 2 for entry in entries if entry.lasti]
  assert ends and max(ends) <= 257


def test_a_process_without_memory_to_compile():
  """It can go on afterwards."""
  for _ in range(3):
    result = plugin_test_util.run(
      """
import resource
import numpy as np
import jax
import jax.numpy as jnp

ipu = jax.devices("ipu")[0]
x = jax.device_put(np.ones(64, np.float32), ipu)
small = jax.jit(lambda x: x + 1)

def large(x):
  for i in range(300):
    x = jnp.sin(x * i) + jnp.flip(x)
  return x

print(small(x)[0])
lowered = jax.jit(large).lower(x)
# LLVM ends a process that cannot start one of JAX's threads for MLIR.
context = lowered.compiler_ir("stablehlo").context
context.enable_multithreading(False)
pages = int(open("/proc/self/statm").read().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
limit = pages * resource.getpagesize() + (2 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
try:
  lowered.compile()
except jax.errors.JaxRuntimeError as error:
  print(str(error).splitlines()[0])
resource.setrlimit(resource.RLIMIT_AS, before)
print(jax.jit(lambda x: x * 3)(x)[0])
""",
      check=False,
      MALLOC_ARENA_MAX="1",  # others would have address space in reserve
    )
    # CPython itself crashes now and then: 3.11 cannot recover from the error,
    # and where 3.12 and 3.13 find no memory for a generator expression's
    # function, they release its code twice.
    if result.returncode >= 0:
      break
  assert result.returncode == 0, result.stderr
  before, error, after = result.stdout.splitlines()
  assert (before, after) == ("2.0", "3.0")
  # Even its text may have found no memory.
  assert re.match(r"RESOURCE_EXHAUSTED: .*host .*r[au]n out of memory", error)


def test_a_function_that_fails_without_an_exception():
  """If there is memory for one, the function is wrong."""
  printed = plugin_test_util.output(
    """
import resource
import jax
import jax.numpy as jnp
from jaxlib.ipu import compiler

before = resource.getrlimit(resource.RLIMIT_AS)

def compile_program(*args):
  if used_up:
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
  raise SystemError("error return without exception set")

compiler.compile_program = compile_program
ipu = jax.devices("ipu")[0]
lowered = jax.jit(lambda x: x + 1, device=ipu).lower(jnp.zeros(3))
for used_up in False, True:
  try:
    lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    resource.setrlimit(resource.RLIMIT_AS, before)
    print(str(error).partition(":")[0])
""",
    MALLOC_ARENA_MAX="1",
  )
  assert printed.split() == ["INTERNAL", "RESOURCE_EXHAUSTED"]


@pytest.mark.filterwarnings("ignore:Exception ignored on calling ctypes")
def test_a_compiler_that_cannot_even_report(ipu, monkeypatch):
  """What cannot be raised is taken for a lack of memory."""
  from jaxlib.ipu import plugin

  def compile_program(*args):
    raise MemoryError

  def fail(*args):
    raise MemoryError

  monkeypatch.setattr(compiler, "compile_program", compile_program)
  monkeypatch.setattr(plugin, "_fail", fail)
  with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
    util.run_on(ipu, lambda x: x + 2, X)


# --- Attributes ---------------------------------------------------------------


def test_an_fft_of_another_length(ipu):
  x = np.ones((3, 8), np.complex64)
  f = util.from_stablehlo(
    """
func.func @main(
  %platform: tensor<i32>, %x: tensor<3x8xcomplex<f32>>
) -> tensor<3x8xcomplex<f32>> {
  %y = "stablehlo.fft"(%x) {
    fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 7>
  } : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xcomplex<f32>>
  return %y : tensor<3x8xcomplex<f32>>
}""",
    x,
  )
  with pytest.raises(
    jax.errors.JaxRuntimeError, match=r"FFT of length \[7\].*\[3, 8\]"
  ):
    util.run_on(ipu, f, x)
