"""What a benchmark is: a workload, and its case on one device.

A `Workload` knows how to set itself up on a device; the `Case` it makes there
can be timed and can give its result, which must agree between devices before
anything is timed. Every timed unit waits for its results, except where the
time to enqueue is the question.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

# How many times as long as XLA:CPU a workload may take.
RUN_LIMIT = 3.0


@dataclasses.dataclass(frozen=True)
class Case:
  """A workload that is set up on a device.

  Attributes:
    sample: sample(n) runs n units and returns the seconds they took; what it
      does before and after is not counted.
    result: a pytree of arrays to compare with another device's.
  """

  sample: Callable[[int], float]
  result: Callable[[], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
  """Something to time.

  Attributes:
    family: what it belongs to; `dispatch` and `compile` are not run time and
      stay out of the overall mean.
    name: unique within the family.
    make: sets up the case on a device.
    limit: largest ratio to XLA:CPU that is acceptable.
    tolerance: error allowed to results, relative to the largest of an array.
    memory: one of the workloads that `--memory` runs by default.
  """

  family: str
  name: str
  make: Callable[[jax.Device], Case]
  limit: float = RUN_LIMIT
  tolerance: float = 1e-4
  memory: bool = False

  @property
  def full_name(self) -> str:
    return f"{self.family}/{self.name}"


def blocking(call: Callable[[], Any], result: Any = None) -> Case:
  """Times call(), waiting for what it returns, each time."""

  def sample(n: int) -> float:
    start = time.perf_counter()
    for _ in range(n):
      jax.block_until_ready(call())
    return time.perf_counter() - start

  return Case(sample, result or call)


def enqueuing(call: Callable[[], Any]) -> Case:
  """Times call() without waiting; waits after the clock has stopped."""

  def sample(n: int) -> float:
    results = [None] * n
    start = time.perf_counter()
    for i in range(n):
      results[i] = call()
    seconds = time.perf_counter() - start
    jax.block_until_ready(results)
    return seconds

  return Case(sample, call)


def prepared(
  prepare: Callable[[], Any],
  call: Callable[[Any], Any],
  result: Callable[[], Any],
) -> Case:
  """Times call(x) alone, with a fresh x = prepare() each time."""

  def sample(n: int) -> float:
    seconds = 0.0
    for _ in range(n):
      x = prepare()
      start = time.perf_counter()
      out = call(x)
      seconds += time.perf_counter() - start
      del out
    return seconds

  return Case(sample, result)


def jitted(
  family: str,
  name: str,
  function: Callable[..., Any],
  make_args: Callable[[], Sequence[Any]],
  **options: Any,
) -> Workload:
  """The warm, blocking call of jit(function) on arrays of the device.

  Args:
    family, name: see `Workload`.
    function: to be jitted.
    make_args: gives NumPy arrays or trees of them; called only when the
      workload is set up, so that a list of workloads costs no memory.
    **options: further attributes of the `Workload`.
  """

  def make(device: jax.Device) -> Case:
    args = jax.device_put(tuple(make_args()), device)
    compiled = jax.jit(function)
    return blocking(lambda: compiled(*args))

  return Workload(family=family, name=name, make=make, **options)


def wide(workload: Workload) -> Workload:
  """The same with 64-bit types."""

  def make(device: jax.Device) -> Case:
    with jax.enable_x64(True):
      case = workload.make(device)

    def sample(n: int) -> float:
      with jax.enable_x64(True):
        return case.sample(n)

    def result():
      with jax.enable_x64(True):
        return case.result()

    return Case(sample, result)

  return dataclasses.replace(workload, make=make)


def training(
  family: str,
  name: str,
  step: Callable[..., Any],
  make_state: Callable[[], Any],
  make_batch: Callable[[], Sequence[Any]],
  **options: Any,
) -> Workload:
  """state, loss = step(state, *batch) with the state donated, as users do.

  The result compared is the loss after three steps.
  """

  def make(device: jax.Device) -> Case:
    compiled = jax.jit(step, donate_argnums=0)
    batch = jax.device_put(tuple(make_batch()), device)
    state = jax.device_put(make_state(), device)

    def call():
      nonlocal state
      state, loss = compiled(state, *batch)
      return state, loss

    def result():
      fresh = jax.device_put(make_state(), device)
      losses = []
      for _ in range(3):
        fresh, loss = compiled(fresh, *batch)
        losses.append(loss)
      return losses

    return blocking(call, result)

  return Workload(family=family, name=name, make=make, **options)
