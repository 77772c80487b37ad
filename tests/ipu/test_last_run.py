"""What a run took, whatever its trip counts: `device.ipu_last_run()`."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax

pytestmark = pytest.mark.ipu_only


def run(ipu, f, *args):
  args = jax.device_put(args, ipu)
  compiled = jax.jit(f).lower(*args).compile()
  jax.block_until_ready(compiled(*args))
  return compiled.cost_analysis(), ipu.ipu_last_run()


def counted(n, x):
  return lax.while_loop(
    lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5 + 1), (0, x)
  )[1]


def test_a_loop_counts_its_iterations(ipu):
  x = np.ones((64, 64), np.float32)
  cost, one = run(ipu, counted, np.int32(1), x)
  assert cost["ipu loops counted once"] == 1
  assert one.program == "jit_counted"
  assert [trips for _, trips in one.trips] == [1]
  cost, many = run(ipu, counted, np.int32(1000), x)
  ((line, trips),) = many.trips
  assert "test_last_run.py:" in line and trips == 1000
  each = (many.cycles - one.cycles) / 999
  assert one.cycles < 2 * cost["ipu cycles"]
  assert many.cycles == pytest.approx(one.cycles + 999 * each)
  assert each > 0.2 * cost["ipu cycles"]
  assert many.seconds == pytest.approx(many.cycles / ipu.tile_clock_frequency)


def test_without_loops_it_is_what_the_analysis_says(ipu):
  cost, last = run(ipu, lambda x: jnp.sort(x) @ x, np.ones(100, np.float32))
  assert cost["ipu loops counted once"] == 0 and last.trips == ()
  assert last.cycles == pytest.approx(cost["ipu cycles"])
  assert last.exchange_bytes == pytest.approx(cost["ipu exchange bytes"])


def test_inner_loops_and_loops_of_single_elements(ipu):
  def f(n, x):
    def outer(i, x):
      return lax.fori_loop(0, i, lambda j, x: jnp.sin(x) + x.sum(), x)

    return lax.fori_loop(0, n, outer, x), lax.fori_loop(
      0, n, lambda i, y: y * 2 + i, np.int32(1)
    )

  cost, last = run(ipu, f, np.int32(5), np.ones(300, np.float32))
  assert cost["ipu loops counted once"] == 3
  assert sorted(trips for _, trips in last.trips) == [5, 5, 10]


def test_loops_within_loops_of_single_elements(ipu):
  """Each level counts its own trips, and each trip costs the same."""

  def f(n, counts, x):
    def inner(s):
      j, x = s
      x = lax.cond(x % 2 == 0, lambda x: x // 2, lambda x: x * 3 + 1, x)
      return j + 1, x

    def outer(s):
      i, x = s
      return i + 1, lax.while_loop(
        lambda s: s[0] < counts[i % 4], inner, (0, x)
      )[1]

    return lax.while_loop(lambda s: s[0] < n, outer, (0, x))[1]

  def after(n, counts):
    _, last = run(ipu, f, np.int32(n), np.array(counts, np.int32), np.int32(27))
    return sorted(trips for _, trips in last.trips), last.cycles

  assert after(4, [0, 0, 0, 0])[0] == [0, 4]
  assert after(3, [1, 2, 3, 9])[0] == [3, 6]
  trips, few = after(4, [1, 2, 3, 4])
  assert trips == [4, 10]
  trips, more = after(4, [2, 4, 6, 8])
  assert trips == [4, 20]
  _, most = after(4, [9, 9, 9, 3])
  assert (most - few) / 20 == pytest.approx((more - few) / 10, rel=0.2)


@pytest.mark.parametrize("taken", [0, 1])
def test_a_branch_counts_as_the_one_that_was_taken(ipu, taken):
  def f(i, x):
    return lax.cond(i == 1, lambda x: jnp.linalg.inv(x), lambda x: x + 1, x)

  x = np.eye(32, dtype=np.float32)
  cost, last = run(ipu, f, np.int32(taken), x)
  if taken:
    assert last.cycles == pytest.approx(cost["ipu cycles"], rel=0.01)
  else:
    assert last.cycles < 0.2 * cost["ipu cycles"]


def test_threads_may_ask_while_programs_run(ipu):
  f = jax.jit(lambda x: x + 1)
  x = jax.device_put(np.zeros(8, np.float32), ipu)
  f(x).block_until_ready()
  seen = set()
  ended = threading.Event()

  def ask():
    while not ended.is_set():
      seen.add(ipu.ipu_last_run().program)

  thread = threading.Thread(target=ask)
  thread.start()
  for _ in range(200):
    x = f(x)
  x.block_until_ready()
  ended.set()
  thread.join()
  assert seen <= {"jit__lambda"}


def test_only_ipus_have_it(ipu, cpu):
  assert hasattr(ipu, "ipu_last_run") and not hasattr(cpu, "ipu_last_run")
  assert "ipu_last_run" in dir(ipu) and "ipu_last_run" not in dir(cpu)
  with pytest.raises(AttributeError):
    cpu.ipu_last_run()
