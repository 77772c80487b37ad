"""When functions called by programs run: their order, and who waits."""

from __future__ import annotations

import functools
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import plugin_test_util
import pytest
from callback_kit import forget_effects, host_sin, typed

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import io_callback

PRINTS = {
  "straight": lambda x: jax.debug.print("{}", x),
  "scan": lambda x: lax.scan(
    lambda c, i: (c, jax.debug.print("{} {}", c, i)), x, np.arange(3)
  ),
  "while": lambda x: lax.while_loop(
    lambda c: (jax.debug.print("test {}", c), c < 3)[1],
    lambda c: (jax.debug.print("iteration {}", c), c + 1)[1],
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
  """Even unordered callbacks; XLA:CPU reorders them."""
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


def test_effects_with_unused_results_are_kept(ipu):
  """The results of these loops and branches are unused."""
  log = []

  @jax.jit
  def f(x):
    def body(c, i):
      io_callback(lambda i: log.append(("iteration", int(i))), None, i)
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
  assert log == [("iteration", 0), ("iteration", 1), "branch", "result"]


def test_unused_pure_functions_do_not_run(ipu):
  calls = []

  @jax.jit
  def f(x):
    jax.pure_callback(lambda v: calls.append(1) or v, typed(x), x)
    return x + 1

  assert f(jax.device_put(np.float32(1), ipu)) == 2
  assert not calls


def test_element_wise_work_around_effects_keeps_their_order(ipu):
  """Fusion may move what is between calls, but not the calls."""
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


WAITING = {
  "print": lambda x, say: jax.debug.print("{}", x),
  "callback": lambda x, say: jax.debug.callback(say, x),
  "ordered": lambda x, say: jax.debug.callback(say, x, ordered=True),
  "loop": lambda x, say: lax.fori_loop(
    0, 2, lambda i, y: (jax.debug.callback(say, y), y + 1)[1], x
  ),
  "vmap": lambda x, say: jax.vmap(lambda y: jax.debug.callback(say, y))(
    jnp.stack([x, x + 1])
  ),
}


@pytest.mark.parametrize("form", WAITING)
def test_what_a_program_prints_comes_before_what_the_caller_prints(
  ipu, cpu, capsys, form
):
  """As in JAX on CPU, though the caller reads no result."""
  said = []
  go = jax.jit(lambda x: lax.fori_loop(0, 50, lambda i, y: jnp.sin(y) @ y, x))
  for device in (cpu, ipu):
    f = jax.jit(lambda x: (WAITING[form](x[0, 0], print), jnp.sin(x))[1])
    x = jax.device_put(np.eye(64, dtype=np.float32), device)
    f(x).block_until_ready()
    capsys.readouterr()
    for i in range(3):
      if device is ipu:
        go(x)  # still running; on the CPU, f would not wait for it
      f(x)
      print("host", i)
    said.append(capsys.readouterr().out)
  assert said[0] == said[1] and said[0].count("host") == 3


@pytest.mark.ipu_only
def test_a_debugging_function_may_take_a_lock_of_its_caller(ipu):
  """It runs on the caller's thread."""
  lock = threading.RLock()
  threads = []

  def function(x):
    with lock:
      threads.append(threading.current_thread())

  f = jax.jit(lambda x: (jax.debug.callback(function, x), x + 1)[1])
  x = jax.device_put(np.float32(1), ipu)
  with lock:
    for _ in range(40):  # more than a queue holds
      x = f(x)
  assert x == 41 and set(threads) == {threading.current_thread()}


def test_debugging_functions_of_several_threads(ipu):
  """Each thread gets its turn on the device, and calls from functions too."""
  double = jax.jit(lambda x: x * 2)
  seen = []

  def function(x):
    seen.append(float(double(jax.device_put(np.asarray(x), ipu))))

  f = jax.jit(lambda x: (jax.debug.callback(function, x), x + 1)[1])
  wait = jax.jit(
    lambda x: jax.pure_callback(lambda v: np.asarray(v), typed(x), x)
  )

  def work(start):
    x = jax.device_put(np.float32(start), ipu)
    for _ in range(10):
      x = wait(f(x))
    assert x == start + 10

  with ThreadPoolExecutor(4) as pool:
    list(pool.map(work, (0, 100, 200, 300)))
  assert sorted(seen) == [
    2.0 * (s + i) for s in (0, 100, 200, 300) for i in range(10)
  ]


@pytest.mark.ipu_only
def test_a_program_that_prints_does_not_wait_for_host_functions(ipu):
  """They may wait for what the caller does next."""
  go = threading.Event()

  def function(x):
    assert go.wait(60)
    return np.asarray(x)

  wait = jax.jit(lambda x: jax.pure_callback(function, typed(x), x))
  seen = []
  f = jax.jit(lambda x: (jax.debug.callback(seen.append, x), x + 1)[1])
  x = jax.device_put(np.float32(1), ipu)
  y = wait(x)
  results = f(x), f(y)  # behind it in the queue, and with its result
  assert not seen
  go.set()
  assert results == (2, 2) and seen == [1, 1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_a_debugging_function_is_raised_by_the_call(
  ipu, cpu, error
):
  """As in JAX on CPU; Ctrl-C reaches such a function too."""

  def function(x):
    if x == 2:
      raise error("what the user said")

  for device in (cpu, ipu):
    f = jax.jit(lambda x: (jax.debug.callback(function, x), x + 1)[1])
    y = f(f(jax.device_put(np.float32(0), device)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="what the user said"):
      f(y)
    forget_effects()
    assert f(y + 1) == 4  # the device is free again


def test_functions_may_use_jax(ipu, cpu):
  """On any device, compilation included, however much work is queued."""
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


def test_nested_callbacks(ipu):
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


_TWO_DEVICES = """
  import jax, numpy as np, signal, threading
  from concurrent.futures import ThreadPoolExecutor
  signal.alarm(100)  # a deadlock ends the process
  a, b = jax.devices("ipu")

  def calls(function):
    return jax.jit(
      lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct((), "f4"), x)
    )

  def on(device, program):
    \"\"\"A host function that runs a program on a device and waits.\"\"\"
    return lambda x: np.asarray(program(jax.device_put(x, device)))

  add = jax.jit(lambda x: x + 1)
"""
# Callbacks that wait, through another device or thread, for work on a device
# that waits for a callback.
_WAITING = {
  "there and back": """
    back = calls(on(a, add))
    there = calls(on(b, back))
    assert there(jax.device_put(np.float32(1), a)) == 2
    """,
  "there and back, five times": """
    program = add
    for device in (a, b, a, b, a):
      program = calls(on(device, program))
    assert program(jax.device_put(np.float32(1), b)) == 2
    """,
  "crossing": """
    both = threading.Barrier(2, timeout=60)
    def cross(device):
      wait = on(device, calls(on(device, add)))
      return calls(lambda x: (both.wait(), wait(x))[1])
    ab, ba = cross(b), cross(a)
    for i in range(3):
      y = ab(jax.device_put(np.float32(i), a))
      z = ba(jax.device_put(np.float32(-i), b))
      assert (y, z) == (i + 1, 1 - i)
    """,
  "crossing there and back": """
    both = threading.Barrier(2, timeout=60)
    def cross(other, own):
      wait = on(other, calls(on(own, add)))
      return calls(lambda x: (both.wait(), wait(x))[1])
    y = cross(b, a)(jax.device_put(np.float32(1), a))
    z = cross(a, b)(jax.device_put(np.float32(2), b))
    assert (y, z) == (2, 3)
    """,
  "another thread": """
    pool = ThreadPoolExecutor(1)
    deep = calls(on(a, add))
    hand_over = calls(lambda x: pool.submit(on(a, deep), x).result())
    assert hand_over(jax.device_put(np.float32(1), a)) == 2
    through = calls(lambda x: pool.submit(on(b, hand_over2), x).result())
    pool2 = ThreadPoolExecutor(1)
    hand_over2 = calls(lambda x: pool2.submit(on(a, add), x).result())
    assert through(jax.device_put(np.float32(1), a)) == 2
    """,
  "another thread, more than a queue holds": """
    pool = ThreadPoolExecutor(1)
    def many(x):
      ys = [add(jax.device_put(x + i, a)) for i in range(200)]
      return np.float32(sum(float(y) for y in ys))
    f = calls(lambda x: pool.submit(many, x).result())
    assert f(jax.device_put(np.float32(1), a)) == sum(i + 2 for i in range(200))
    """,
  "behind arguments from another device": """
    y = None
    sent = threading.Event()
    def function(x):
      assert sent.wait(60)
      return on(a, add)(x)
    y = calls(function)(jax.device_put(np.float32(1), b))
    z = add(jax.device_put(y, a))  # waits for b, which waits for a
    sent.set()
    assert z == 3
    """,
  "donation": """
    # Overtaken programs still read what later ones overwrite.
    give = jax.jit(lambda x: x * 0, donate_argnums=0)
    go, started = threading.Event(), threading.Event()
    def function(x):
      started.set()
      assert go.wait(60)
      return np.asarray(x)
    f = calls(function)
    x = jax.device_put(np.arange(2**20, dtype=np.float32), a)
    y = f(jax.device_put(np.float32(3), a))
    assert started.wait(60)
    z = jax.jit(lambda x, y: x + y)(x, y)  # behind f, waits for it
    assert np.asarray(give(x)).max() == 0  # overtakes both
    go.set()
    np.testing.assert_array_equal(z, np.arange(2**20, dtype=np.float32) + 3)
    """,
}


@pytest.mark.ipu_only
def test_waiting_across_devices_and_threads():
  script = [textwrap.dedent(_TWO_DEVICES)]
  for name, case in _WAITING.items():
    script += [f"print({name!r}, flush=True)", textwrap.dedent(case)]
  plugin_test_util.run("\n".join(script), JAX_IPU_DEVICE_COUNT="2")
