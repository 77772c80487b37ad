"""Python functions called by programs: their arguments, results and errors."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import ipu_test_util as util
import numpy as np
import pytest
from callback_kit import drawn, forget_effects, host_sin, typed

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import io_callback
from jaxlib.ipu import host_functions, internals

# --- Arguments and results --------------------------------------------------


@pytest.mark.parametrize("dtype", util.ALL, ids=str)
@pytest.mark.parametrize("shape", util.SHAPES, ids=str)
def test_arrays_keep_their_bits(check, dtype, shape):
  x = util.sample(dtype, shape, special=True)

  def f(x):
    y, z = jax.pure_callback(lambda v: (v, np.asarray(v).T), (x, x.T), x)
    return y, z

  check(f, x)


# The host sees these types, although no tensor of a program has them.
BOUNDARY_TYPES = (
  np.complex64, jnp.int2, jnp.uint4, jnp.float8_e4m3fn, jnp.float8_e5m2,
  jnp.float4_e2m1fn,
)  # fmt: skip


@pytest.mark.parametrize("dtype", BOUNDARY_TYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", util.SHAPES, ids=str)
def test_complex_and_narrow_arrays_keep_their_bits(ipu, dtype, shape):
  seen = []
  x = drawn(dtype, shape)

  def function(x, y):
    seen.extend((x, y))
    return x.T, x[..., :1]

  def f(x):
    like = (typed(x.T), typed(x[..., :1]))
    y, z = jax.pure_callback(function, like, x, x.T)
    return y.T, z

  if not shape:
    f = lambda x: jax.pure_callback(lambda x: x, typed(x), x)
    assert util.run_on(ipu, f, x) == x
    return
  y, z = util.run_on(ipu, f, x)
  for actual, expected in zip((y, z, *seen), (x, x[..., :1], x, x.T)):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_views_and_constants_as_operands(check):
  x = util.sample(np.float32, (6, 8))

  def f(x):
    strided = host_sin(x[::-2, 1:5].T)
    splat = host_sin(jnp.full((3, 5), 0.5))
    constant = host_sin(jnp.arange(7, dtype=jnp.float32))
    return strided + 1, splat, constant

  check(f, x)


def test_trees_and_keywords(check):
  def function(a, *, b):
    return {"sum": a["x"] + b, "none": None, "pair": (b, a["x"] * 2)}

  def f(x, y):
    like = {"sum": typed(x), "none": None, "pair": (typed(y), typed(x))}
    return jax.pure_callback(function, like, {"x": x}, b=y)

  check(f, util.sample(np.float32, (4,)), util.sample(np.float32, (4,)))


def test_functions_without_operands_and_results(ipu):
  calls = []
  x = jax.device_put(1.0, ipu)

  @jax.jit
  def f(x):
    io_callback(lambda: calls.append(1), None)
    return x + jax.pure_callback(lambda: np.float32(3), typed(np.float32(0)))

  assert f(x) == 4
  jax.effects_barrier()
  assert calls == [1]


@pytest.mark.parametrize("size", (3, 100_000))
def test_operands_that_a_function_keeps_do_not_change(ipu, size):
  """A function may keep its arrays while the device reuses its own memory."""
  kept = []

  @jax.jit
  def f(x):
    return lax.fori_loop(
      0, 3, lambda i, x: (io_callback(kept.append, None, x), x + 1)[1], x
    )

  f(jax.device_put(np.zeros(size, np.float32), ipu))
  jax.effects_barrier()
  assert sorted(float(k[0]) for k in kept) == [0, 1, 2]
  assert all((np.asarray(k) == k[0]).all() for k in kept)


@pytest.mark.parametrize("dtype", (np.bool_, np.float64, jnp.bfloat16))
@pytest.mark.parametrize("shape", ((), (0, 3), (7, 5), (300, 1001)), ids=str)
def test_a_function_gets_copies(dtype, shape):
  """Large ones are aligned like JAX's own arrays, so that the CPU's device_put
  need not copy them again."""
  x, y = drawn(dtype, shape), np.empty(shape, dtype)
  kept = []
  types = [(x.dtype, shape)]
  function = host_functions.PythonFunction(
    lambda a: [kept.append(a) or a], types, types
  )
  before = x.copy()
  function.run([x.ctypes.data], [y.ctypes.data])
  np.testing.assert_array_equal(y, before)
  x[...] = y[...] = np.zeros((), dtype)
  np.testing.assert_array_equal(kept[0], before)
  assert kept[0].dtype == x.dtype
  if x.nbytes >= 1 << 18:
    assert kept[0].ctypes.data % 64 == 0


def test_random_keys(check):
  def f(seed):
    key = jax.random.key(seed)
    bits = jax.random.key_data(key)
    return jax.pure_callback(lambda b: np.asarray(b) ^ 1, typed(bits), bits)

  check(f, np.int32(3))


# --- Transformations and control flow ----------------------------------------


def test_vmap(check):
  x = util.sample(np.float32, (3, 4))

  def sequential(x):
    return jax.pure_callback(np.sin, typed(x), x, vmap_method="sequential")

  check(lambda x: (jax.vmap(host_sin)(x), jax.vmap(sequential)(x)), x)


def test_gradient_of_a_function_with_its_own_rule(check):
  @jax.custom_jvp
  def f(x):
    return host_sin(x)

  f.defjvps(lambda t, y, x: t * jax.pure_callback(np.cos, typed(x), x))
  check(jax.value_and_grad(lambda x: (f(x) ** 2).sum()),
        util.sample(np.float32, (5,)))  # fmt: skip


def test_loops_and_branches(check):
  def f(x, n):
    def body(state):
      i, x = state
      y = lax.cond(i % 2 == 0, host_sin, lambda x: x * 2, x)
      return i + 1, y

    i, y = lax.while_loop(lambda s: s[0] < n, body, (0, x))
    _, rows = lax.scan(lambda c, r: (c, host_sin(r) + c), 1.0, x)
    return i, y, rows

  check(f, util.sample(np.float32, (5,)), np.int32(4))


def test_a_loop_whose_condition_is_a_callback(ipu):
  def test(i):
    return jax.pure_callback(lambda i: i < 3, typed(np.bool_(0)), i)

  f = jax.jit(lambda i: lax.while_loop(test, lambda i: i + 1, i))
  assert f(jax.device_put(0, ipu)) == 3


# --- Errors -------------------------------------------------------------------


def test_thread_local_state_of_calling_threads(ipu):
  local = threading.local()

  def count(x):
    local.calls = getattr(local, "calls", 0) + 1
    return np.int32(local.calls)

  f = jax.jit(
    lambda x: jax.pure_callback(count, jax.ShapeDtypeStruct((), np.int32), x)
  )
  x = jax.device_put(np.float32(0), ipu)
  first = int(f(x))
  assert [int(f(x)) for _ in range(3)] == [first + 1, first + 2, first + 3]


def test_errors_are_raised_when_waiting_for_a_result(ipu):
  def function(x):
    raise ValueError("what the user said")

  f = jax.jit(lambda x: jax.pure_callback(function, typed(x), x) + 1)
  x = jax.device_put(np.float32(1), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError) as error:
    f(x).block_until_ready()
  text = str(error.value)
  assert "ValueError: what the user said" in text
  assert "in function" in text  # the traceback
  assert Path(__file__).name in text
  assert f"{jax.jit(host_sin)(x):.3f}" == "0.841"  # the device is still usable


def test_errors_of_effects_reach_the_barrier(ipu):
  def function(x):
    raise ValueError("what the user said")

  f = jax.jit(lambda x: io_callback(function, None, x, ordered=True))
  with pytest.raises(jax.errors.JaxRuntimeError, match="what the user said"):
    f(jax.device_put(np.float32(1), ipu))
    jax.effects_barrier()
  forget_effects()


@pytest.mark.parametrize(
  "value, message",
  [
    (np.zeros(3, np.float32), r"output shape .*Expected: \(\), Actual: \(3,\)"),
    (np.int32(1), "output dtype .*Expected: float32, Actual: int32"),
    ((np.float32(1),) * 2, "number of outputs .*Expected: 1, Actual: 2"),
  ],
)
def test_results_of_other_types_are_refused(ipu, value, message):
  f = jax.jit(lambda x: jax.pure_callback(lambda x: value, typed(x), x))
  with pytest.raises(jax.errors.JaxRuntimeError, match=message):
    f(jax.device_put(np.float32(1), ipu)).block_until_ready()
  forget_effects()


@pytest.mark.parametrize(
  "value",
  [
    np.array([None, "a"], object),
    np.array(["a", "b"]),
    np.zeros(2, "datetime64[s]"),
    np.zeros(2, [("a", np.int32)]),
  ],
  ids=lambda value: str(value.dtype),
)
def test_results_that_are_no_arrays_of_jax(ipu, cpu, caplog, value):
  """JAX's own error; no change of its internals is suspected."""
  lost = dict(internals.given_up)
  said = []
  for device in (cpu, ipu):
    f = jax.jit(lambda x: jax.pure_callback(lambda x: value, typed(x), x))
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
      f(jax.device_put(np.ones(2, np.float32), device)).block_until_ready()
    said.append(re.search("TypeError: .*", str(error.value))[0])
    forget_effects()
  assert said[0] == said[1]
  assert internals.given_up == lost and not caplog.records


# --- Costs -------------------------------------------------------------------


@pytest.mark.ipu_only
def test_a_call_is_charged_as_a_round_trip(ipu):
  def once(x):
    return host_sin(jnp.sin(x))

  def looped(x):
    return lax.fori_loop(0, 5, lambda i, x: host_sin(x), jnp.sin(x))

  x = util.spec(1000)
  without, once, looped = (
    util.costs(ipu, f, x) for f in (jnp.sin, once, looped)
  )
  assert without["ipu host calls"] == 0
  assert once["ipu host calls"] == 1
  assert looped["ipu host calls"] == 5
  assert once["ipu host bytes"] - without["ipu host bytes"] == 8000
  assert looped["ipu host bytes"] - without["ipu host bytes"] == 40000
  assert once["ipu cycles"] > without["ipu cycles"] + 2 * 1600


@pytest.mark.ipu_only
def test_interpreter_and_engine_agree():
  import engine_kit
  from lowering_kit import lowered_code

  from jaxlib.ipu import pipeline
  from jaxlib.ipu import target as machines
  from jaxlib.ipu.check import interp

  def f(x, n):
    def body(i, x):
      y = io_callback(lambda v: np.sort(v, 0), typed(x), x, ordered=True)
      return host_sin(y.T + i).T

    return lax.fori_loop(0, n, body, x[::-1]), host_sin(x[1:2])

  x = util.sample(np.float32, (5, 7))
  arguments = [x, np.int32(3)]
  lowered = jax.jit(f).trace(*arguments).lower(lowering_platforms=("ipu",))
  code = lowered_code(lowered)
  for tiles in (1, 3, 1472):
    options = pipeline.Options(
      target=machines.resolve("ipu2", tiles), verify=True
    )
    data = pipeline.compile_module(code, options).data
    given = [np.zeros((0,), np.bool_), *arguments]  # the token comes first
    engine_kit.check(data, given)
    result = interp.run(data, given)
    y = x[::-1]
    for i in range(3):
      y = np.sin(np.sort(y, 0).T + i).T
    np.testing.assert_array_equal(result.outputs[1], y)
    assert result.host_bytes >= 3 * 4 * x.nbytes
