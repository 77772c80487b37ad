"""Defines benchmarks: a workload, and its case on one device.

A `Workload` can be set up on a device. The resulting `Case` can be timed and
returns its result, which has to agree between devices before anything is timed.
Every timed unit waits for its results, except where the time to enqueue is
measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from benchmarks import clock

# Default limit of a workload's run time, relative to XLA:CPU.
RUN_LIMIT = 3.0


@dataclasses.dataclass(frozen=True)
class Case:
  """A workload that is set up on a device.

  Attributes:
    sample: sample(n) runs n units and returns the seconds they took, excluding
      set-up and clean-up.
    result: returns a pytree of arrays to compare with another device's.
  """

  sample: Callable[[int], float]
  result: Callable[[], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
  """A workload to time.

  Attributes:
    family: its group; `dispatch` and `compile` are not run time and do not
      count in the overall mean.
    name: unique within the family.
    make: sets up the case on a device.
    limit: the largest acceptable ratio to XLA:CPU.
    tolerance: allowed error of results, relative to the largest value of an
      array.
    memory: whether `--memory` runs it by default.
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
  """Times call(), blocking on its results each time."""

  def sample(n: int) -> float:
    start = clock.seconds()
    for _ in range(n):
      jax.block_until_ready(call())
    return clock.seconds() - start

  return Case(sample, result or call)


def enqueuing(call: Callable[[], Any]) -> Case:
  """Times call() without blocking; blocks after the clock has stopped."""

  def sample(n: int) -> float:
    results = [None] * n
    start = clock.seconds()
    for i in range(n):
      results[i] = call()
    seconds = clock.seconds() - start
    jax.block_until_ready(results)
    return seconds

  return Case(sample, call)


def prepared(
  prepare: Callable[[], Any],
  call: Callable[[Any], Any],
  result: Callable[[], Any],
) -> Case:
  """Times only call(x), with a fresh x = prepare() each time."""

  def sample(n: int) -> float:
    seconds = 0.0
    for _ in range(n):
      x = prepare()
      start = clock.seconds()
      out = call(x)
      seconds += clock.seconds() - start
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
  """A workload that times warm, blocking calls of jit(function).

  Args:
    family, name: see `Workload`.
    function: the function to jit.
    make_args: returns NumPy arrays or pytrees of them; called only when the
      workload is set up, so that a list of workloads takes no memory.
    **options: further attributes of the `Workload`.
  """

  def make(device: jax.Device) -> Case:
    args = jax.device_put(tuple(make_args()), device)
    compiled = jax.jit(function)
    return blocking(lambda: compiled(*args))

  return Workload(family=family, name=name, make=make, **options)


def wide(workload: Workload) -> Workload:
  """The same workload with 64-bit types."""

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
  """A workload that times state, loss = step(state, *batch), donating state.

  Results are compared by the loss after three steps.
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
