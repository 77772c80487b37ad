"""Python functions that programs call: what they get, when they run, and what
becomes of their errors."""

from __future__ import annotations

import functools
import gc
import threading
import weakref

import ipu_test_util as util
import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import buffer_callback, io_callback
from jaxlib.ipu import internals


def typed(x):
  return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


def host_sin(x):
  return jax.pure_callback(np.sin, typed(x), x, vmap_method="expand_dims")


# --- What goes there and back ------------------------------------------------


@pytest.mark.parametrize("dtype", util.ALL, ids=str)
@pytest.mark.parametrize("shape", util.SHAPES, ids=str)
def test_arrays_keep_their_bits(check, dtype, shape):
  x = util.sample(dtype, shape, special=True)

  def f(x):
    y, z = jax.pure_callback(lambda v: (v, np.asarray(v).T), (x, x.T), x)
    return y, z

  check(f, x)


# The host sees them as they are, though no tensor of a program holds them.
BOUNDARY_TYPES = (
  np.complex64, jnp.int2, jnp.uint4, jnp.float8_e4m3fn, jnp.float8_e5m2,
  jnp.float4_e2m1fn,
)  # fmt: skip


def drawn(dtype, shape):
  x = util.sample(np.float32, shape, low=0, high=1.9)
  if dtype is np.complex64:
    return x + 1j * util.sample(np.float32, shape, low=-2, high=2)
  return x.astype(dtype)


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


def test_views_and_constants_arrive_whole(check):
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


def test_neither_operands_nor_results(ipu):
  calls = []
  x = jax.device_put(1.0, ipu)

  @jax.jit
  def f(x):
    io_callback(lambda: calls.append(1), None)
    return x + jax.pure_callback(lambda: np.float32(3), typed(np.float32(0)))

  assert f(x) == 4
  jax.effects_barrier()
  assert calls == [1]


def test_kept_operands_stay_what_they_were(ipu):
  """A function may keep its arrays; the device goes on with its memory."""
  kept = []

  @jax.jit
  def f(x):
    return lax.fori_loop(
      0, 3, lambda i, x: (io_callback(kept.append, None, x), x + 1)[1], x
    )

  f(jax.device_put(np.zeros(3, np.float32), ipu))
  jax.effects_barrier()
  assert sorted(float(k[0]) for k in kept) == [0, 1, 2]


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


def test_a_loop_whose_test_asks_the_host(ipu):
  def test(i):
    return jax.pure_callback(lambda i: i < 3, typed(np.bool_(0)), i)

  f = jax.jit(lambda i: lax.while_loop(test, lambda i: i + 1, i))
  assert f(jax.device_put(0, ipu)) == 3


PRINTS = {
  "straight": lambda x: jax.debug.print("{}", x),
  "scan": lambda x: lax.scan(
    lambda c, i: (c, jax.debug.print("{} {}", c, i)), x, np.arange(3)
  ),
  "while": lambda x: lax.while_loop(
    lambda c: (jax.debug.print("test {}", c), c < 3)[1],
    lambda c: (jax.debug.print("turn {}", c), c + 1)[1],
    x,
  ),
  "cond": lambda x: lax.cond(
    x > 0,
    lambda: jax.debug.print("positive"),
    lambda: jax.debug.print("negative"),
  ),
  "vmap": lambda x: jax.vmap(lambda y: jax.debug.print("{}", y + x))(
    np.arange(3)
  ),
  "grad": lambda x: jax.grad(lambda y: (jax.debug.print("{}", y), y * y)[1])(
    x * 1.0
  ),
  "many": lambda x: [jax.debug.print("{} {}", i, x + i) for i in range(9)],
  "ordered": lambda x: [
    jax.debug.print("{} {}", i, x + i, ordered=True) for i in range(9)
  ],
}


@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.parametrize("jitted", [True, False], ids=["jit", "eager"])
def test_prints_come_in_order(ipu, cpu, capsys, name, jitted):
  """Those that are not said to be ordered, too; XLA:CPU mixes them up."""
  in_order = PRINTS[name]
  said = []
  for f, device in ((in_order, cpu), (in_order, ipu)):
    if jitted and device is ipu:
      f = jax.jit(lambda x: in_order(x))
    with jax.default_device(device):
      f(jax.device_put(np.int32(1), device))
    jax.effects_barrier()
    said.append(capsys.readouterr().out)
  assert said[0] == said[1] != ""


def test_effects_stay_where_values_die(ipu):
  """Nothing uses what these loops and branches make."""
  log = []

  @jax.jit
  def f(x):
    def body(c, i):
      io_callback(lambda i: log.append(("turn", int(i))), None, i)
      return c * 2, c

    lax.scan(body, x, jnp.arange(2))
    lax.cond(
      x > 0,
      lambda: io_callback(lambda: log.append("branch"), None),
      lambda: None,
    )
    io_callback(lambda v: np.float32(log.append("result") or 0),
                typed(np.float32(0)), x)  # fmt: skip
    return x + 1

  f(jax.device_put(np.float32(1), ipu))
  jax.effects_barrier()
  assert log == [("turn", 0), ("turn", 1), "branch", "result"]


def test_pure_functions_that_nobody_needs_do_not_run(ipu):
  calls = []

  @jax.jit
  def f(x):
    jax.pure_callback(lambda v: calls.append(1) or v, typed(x), x)
    return x + 1

  assert f(jax.device_put(np.float32(1), ipu)) == 2
  assert not calls


def test_element_wise_work_around_effects_keeps_their_order(ipu):
  """Fusion may move what is between calls, not the calls."""
  log = []

  def say(name, x):
    return io_callback(
      lambda v: np.float32(log.append(name) or v * 2), typed(x), x
    )

  @jax.jit
  def f(x):
    wide = jnp.broadcast_to(x, (5000,)).at[3].set(2.0)
    a = say("a", x + 1)
    late = wide.sum() * x
    b = say("b", jnp.sin(x))
    c = say("c", late + x)
    return a + b * late, jnp.cos(b) + c

  a, b = f(jax.device_put(np.float32(1), ipu))
  jax.effects_barrier()
  assert log == ["a", "b", "c"]
  b_ = np.float32(2 * np.sin(1))
  np.testing.assert_allclose(a, 4 + b_ * 5001, rtol=1e-6)
  np.testing.assert_allclose(b, np.cos(b_) + 10004, rtol=1e-6)


# --- Order, asynchrony, devices ----------------------------------------------


def test_ordered_effects_of_several_programs(ipu):
  log = []
  f = jax.jit(
    lambda x: io_callback(lambda v: log.append(int(v)), None, x, ordered=True)
  )
  g = jax.jit(
    lambda x: (
      io_callback(lambda v: log.append(-int(v)), None, x, ordered=True),
      x + 1,
    )[1]
  )
  x = jax.device_put(1, ipu)
  for _ in range(20):
    f(x)
    x = g(x)
  jax.effects_barrier()
  assert log == [s * i for i in range(1, 21) for s in (1, -1)]


def test_dispatch_does_not_wait_for_the_function(ipu):
  go = threading.Event()

  def function(x):
    assert go.wait(60)
    return np.asarray(x)

  f = jax.jit(lambda x: jax.pure_callback(function, typed(x), x) + 1)
  y = f(jax.device_put(np.float32(1), ipu))
  assert not y.is_ready()
  go.set()
  assert y == 2


def test_functions_may_use_jax(ipu, cpu):
  """On any device, compiling included, however much waits for the program."""
  double = jax.jit(lambda x: x * 2)
  give = jax.jit(lambda x: x + 1, donate_argnums=0)

  def function(x):
    on_ipu = double(jax.device_put(x, ipu))
    given = give(on_ipu)
    assert on_ipu.is_deleted()
    fresh = jax.jit(lambda x: jnp.sin(x).sum())(given)
    with jax.default_device(ipu):
      eager = jnp.ones(3).sum()
    return np.asarray(jax.device_put(fresh, cpu) + jax.device_put(eager, cpu))

  f = jax.jit(lambda x: jax.pure_callback(function, typed(x[0]), x))
  x = np.arange(3, dtype=np.float32)
  expected = np.sin(x * 2 + 1).sum() + 3
  on_ipu = jax.device_put(x, ipu)
  results = [f(on_ipu) for _ in range(100)]  # more than a queue holds
  np.testing.assert_allclose(results, [expected] * 100, rtol=1e-6)


def test_functions_whose_programs_call_functions(ipu):
  def level(n, x):
    if n == 0:
      return np.asarray(x) + 1
    inner = jax.jit(
      lambda x: jax.pure_callback(functools.partial(level, n - 1), typed(x), x)
    )
    return np.asarray(inner(jax.device_put(x, ipu))) * 2

  outer = jax.jit(
    lambda x: jax.pure_callback(functools.partial(level, 4), typed(x), x)
  )
  assert outer(jax.device_put(np.float32(1), ipu)) == 32


def test_donated_arguments(ipu):
  f = jax.jit(lambda x: host_sin(x) + x, donate_argnums=0)
  x = jax.device_put(np.ones(8, np.float32), ipu)
  y = f(x)
  assert x.is_deleted()
  np.testing.assert_allclose(y, np.sin(1) + 1, rtol=1e-6)


@pytest.mark.ipu_only
def test_several_devices():
  plugin_test_util.run(
    """
    import jax, numpy as np, threading
    devices = jax.devices("ipu")
    assert len(devices) == 3
    barrier = threading.Barrier(3, timeout=60)
    def function(x):
      barrier.wait()  # all three are here at once
      other = devices[(int(x) + 1) % 3]
      return np.asarray(jax.device_put(x, other)) + 1
    f = jax.jit(lambda x: jax.pure_callback(function, x, x))
    ys = [f(jax.device_put(np.float32(i), d)) for i, d in enumerate(devices)]
    assert [float(y) for y in ys] == [1, 2, 3]
    assert [y.device for y in ys] == devices
    """,
    JAX_IPU_DEVICE_COUNT="3",
  )


# --- Errors -------------------------------------------------------------------


def test_errors_reach_whoever_waits(ipu):
  def function(x):
    raise ValueError("what the user said")

  f = jax.jit(lambda x: jax.pure_callback(function, typed(x), x) + 1)
  x = jax.device_put(np.float32(1), ipu)
  with pytest.raises(jax.errors.JaxRuntimeError) as error:
    f(x).block_until_ready()
  text = str(error.value)
  assert "ValueError: what the user said" in text
  assert "in function" in text  # the traceback
  assert "test_callbacks.py" in text
  assert f"{jax.jit(host_sin)(x):.3f}" == "0.841"  # the device goes on


def test_errors_of_effects_reach_the_barrier(ipu):
  def function(x):
    raise ValueError("what the user said")

  f = jax.jit(lambda x: io_callback(function, None, x, ordered=True))
  with pytest.raises(jax.errors.JaxRuntimeError, match="what the user said"):
    f(jax.device_put(np.float32(1), ipu))
    jax.effects_barrier()
  internals.resolve("jax._src.dispatch.runtime_tokens").clear()


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


# --- Lifetimes ----------------------------------------------------------------


class Probe:
  def __call__(self, x):
    return np.asarray(x)


def test_functions_go_with_their_programs(ipu):
  def run():
    probe = Probe()
    f = jax.jit(lambda x: jax.pure_callback(probe, typed(x), x))
    f(jax.device_put(np.float32(1), ipu)).block_until_ready()
    return weakref.ref(probe)

  gone = run()
  jax.clear_caches()
  gc.collect()
  assert gone() is None


def test_functions_outlive_programs_under_way(ipu):
  go = threading.Event()

  def function(x):
    assert go.wait(60)
    return np.asarray(x) + 1

  def start(x):
    f = jax.jit(lambda x: jax.pure_callback(function, typed(x), x))
    g = jax.jit(lambda x: jax.pure_callback(lambda x: x * 2, typed(x), x))
    return g(f(x))

  # The second has not started when its program goes.
  y = start(jax.device_put(np.float32(1), ipu))
  jax.clear_caches()
  gc.collect()
  go.set()
  assert y == 4


@pytest.mark.ipu_only
def test_the_process_ends_well():
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
def test_a_cache_brings_no_function_of_another_process(tmp_path):
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
  # Newer versions of JAX write programs with functions, which a key with the
  # process' number keeps from other processes; older ones do not.
  names = [p.name for p in tmp_path.iterdir() if p.name.endswith("-cache")]
  written = 3 if internals.jaxlib_version() >= (0, 11) else 1
  assert len(names) == written, names


@pytest.mark.ipu_only
def test_programs_with_functions_stay_in_their_process(ipu):
  from jax.experimental import serialize_executable
  from jaxlib.ipu import host_functions

  x = jax.device_put(np.float32(1), ipu)
  compiled = jax.jit(host_sin).lower(x).compile()
  with pytest.raises(TypeError, match="calls a Python function"):
    serialize_executable.serialize(compiled)
  with pytest.raises(LookupError, match="the process that compiled it"):
    host_functions.find(host_functions.PROCESS ^ 1, 0)


# --- What JAX builds on it ----------------------------------------------------


def test_checkify(check, ipu):
  from jax.experimental import checkify

  def f(x):
    checkify.check(x.sum() > 0, "sum is {s}", s=x.sum())
    return jnp.log(x)

  checked = jax.jit(checkify.checkify(f, errors=checkify.all_checks))
  good = jax.device_put(np.ones(3, np.float32), ipu)
  error, value = checked(good)
  assert error.get() is None
  np.testing.assert_array_equal(value, 0)
  error, _ = checked(-good)
  assert "sum is -3" in error.get()
  error, _ = checked(good.at[0].set(-0.5))
  assert "nan generated by primitive: log" in error.get()


def test_debug_checks(ipu):
  from jax.experimental import checkify

  def f(x):
    checkify.debug_check(x > 0, "x is {x}", x=x)
    return x + 1

  x = jax.device_put(np.float32(-1), ipu)
  assert jax.jit(f)(x) == 0  # nothing is checked
  error, _ = jax.jit(checkify.checkify(f))(x)
  assert "x is -1" in error.get()


def test_checks_without_checkify(ipu):
  from jax.experimental import checkify

  def f(x):
    checkify.check(x > 0, "x is {x}", x=x)
    return x + 1

  x = jax.device_put(np.float32(1), ipu)
  with internals.resolve("jax._src.config.xla_runtime_errors")(True):
    assert jax.jit(f)(x) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="x is -1"):
      jax.jit(f)(-x).block_until_ready()
      jax.effects_barrier()
  internals.resolve("jax._src.dispatch.runtime_tokens").clear()


@pytest.mark.parametrize("flag, bad", [("nans", np.nan), ("infs", np.inf)])
def test_debug_flags(ipu, flag, bad):
  f = jax.jit(lambda x: x * 2)
  x = jax.device_put(np.float32(bad), ipu)
  with getattr(jax, f"debug_{flag}")(True):
    assert f(jax.device_put(np.float32(1), ipu)) == 2
    with pytest.raises(FloatingPointError):
      f(x)


# --- Pallas ------------------------------------------------------------------


@pytest.mark.parametrize("interpret", [True, False])
def test_pallas_kernels_are_interpreted(ipu, interpret):
  from jax.experimental import pallas as pl

  def kernel(x, y):
    y[...] = x[...] * 2 + pl.program_id(0)

  rows = pl.BlockSpec((4, 3), lambda i: (i, 0))
  x = jax.device_put(np.arange(24, dtype=np.float32).reshape(8, 3), ipu)
  f = jax.jit(
    pl.pallas_call(
      kernel,
      out_shape=typed(x),
      grid=(2,),
      in_specs=[rows],
      out_specs=rows,
      interpret=interpret,
    )
  )
  if interpret:
    expected = np.asarray(x) * 2 + np.repeat([0, 1], 4)[:, None]
    np.testing.assert_array_equal(f(x), expected)
  else:
    with pytest.raises(jax.errors.JaxRuntimeError, match="interpret=True"):
      f(x)


# --- What it costs -----------------------------------------------------------


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
  from jaxlib.ipu.program import interp

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


# --- Functions that fill the memory of their results --------------------------


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", (np.float32, jnp.bfloat16, np.complex64))
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)], ids=str)
def test_buffer_callback(ipu, dtype, shape):
  x = drawn(dtype, shape)

  def fill(ctx, out, a, *, b):
    assert ctx.stage is buffer_callback.ExecutionStage.EXECUTE
    with pytest.raises(jax.errors.JaxRuntimeError, match="not available"):
      _ = ctx.stream
    assert (a.shape, a.dtype, a.ndim) == (x.shape, x.dtype, x.ndim)
    assert out["y"].writeable and not a.writeable and not b.writeable
    np.asarray(out["y"])[...] = np.asarray(a) + np.asarray(b)

  call = buffer_callback.buffer_callback(fill, {"y": typed(x)})
  y = util.run_on(ipu, lambda x: call(x, b=x * 2)["y"], x)
  np.testing.assert_array_equal(y, (x + x * 2).astype(dtype))


@pytest.mark.ipu_only
def test_buffer_callback_in_place_and_vmapped(ipu):
  def add_one(ctx, out, x):
    assert np.asarray(out).ctypes.data == np.asarray(x).ctypes.data
    np.asarray(out)[...] += 1

  call = buffer_callback.buffer_callback(
    add_one,
    typed(np.zeros(3, np.float32)),
    input_output_aliases={0: 0},
    vmap_method="sequential",
  )
  x = util.sample(np.float32, (4, 3))
  f = lambda x: (jax.vmap(call)(x), lax.fori_loop(0, 5, lambda i, x: call(x),
                                                  x[0]), x)  # fmt: skip
  y, z, same = util.run_on(ipu, f, x)
  np.testing.assert_array_equal(y, x + 1)
  np.testing.assert_allclose(z, x[0] + 5, rtol=1e-6)
  np.testing.assert_array_equal(same, x)


@pytest.mark.ipu_only
def test_buffer_callback_with_a_result_is_an_error(ipu):
  call = buffer_callback.buffer_callback(
    lambda ctx, out: 3, typed(np.float32(0)), has_side_effect=True
  )
  with pytest.raises(jax.errors.JaxRuntimeError, match="not return any values"):
    util.run_on(ipu, lambda: call())
  internals.resolve("jax._src.dispatch.runtime_tokens").clear()
