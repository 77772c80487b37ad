"""Times a workload on two devices, interleaved, after comparing results."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics

import numpy as np

import jax
from benchmarks.workload import Case, Workload

# A sample is long enough for the clock, and a workload short enough for the
# patience of who waits.
_SAMPLE_SECONDS = 2e-3
_WORKLOAD_SECONDS = 4.0
_LEAST_REPEAT = 5


class WrongResultError(Exception):
  """The two devices disagree about a workload's result."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
  """Seconds per unit of a workload, sample by sample, on both devices.

  Attributes:
    workload: what was measured.
    seconds: of the device under test.
    baseline: of the one it is compared with, taken in turns with `seconds`.
  """

  workload: Workload
  seconds: list[float]
  baseline: list[float]

  @property
  def median(self) -> float:
    return statistics.median(self.seconds)

  @property
  def baseline_median(self) -> float:
    return statistics.median(self.baseline)

  @property
  def ratio(self) -> float:
    return self.median / self.baseline_median


def measure(
  workload: Workload, device: jax.Device, baseline: jax.Device, repeat: int
) -> Measurement:
  """Takes up to `repeat` samples on each device: A B A B and so on.

  Raises:
    WrongResultError: when the results differ by more than the tolerance.
  """
  cases = [workload.make(d) for d in (device, baseline)]
  compare(workload, *(jax.device_get(case.result()) for case in cases))
  counts = [_units_per_sample(case) for case in cases]
  gc.collect()
  gc.disable()
  try:
    first = [case.sample(n) for case, n in zip(cases, counts, strict=True)]
    affordable = int(_WORKLOAD_SECONDS / sum(first))
    samples: list[list[float]] = [[], []]
    for _ in range(min(repeat, max(_LEAST_REPEAT, affordable))):
      for case, n, seconds in zip(cases, counts, samples, strict=True):
        seconds.append(case.sample(n) / n)
  finally:
    gc.enable()
  return Measurement(workload=workload, seconds=samples[0], baseline=samples[1])


def _units_per_sample(case: Case) -> int:
  """Enough units that a sample of a warm case is no blink of the clock."""
  case.sample(2)
  seconds = max(case.sample(1), 1e-7)
  return min(max(1, math.ceil(_SAMPLE_SECONDS / seconds)), 500)


def compare(workload: Workload, actual, expected) -> None:
  """Checks a result; integers exactly, floats relative to the largest."""
  pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
  for i, (a, b) in enumerate(pairs):
    a, b = np.asarray(a), np.asarray(b)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
      raise WrongResultError(
        f"result {i} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
      )
    if a.dtype.kind in "biu":
      wrong = a != b
    else:
      a, b = a.astype(np.float64), b.astype(np.float64)
      bound = workload.tolerance * max(np.abs(b).max(initial=0), 1e-30)
      wrong = ~(np.abs(a - b) <= bound)
    if wrong.any():
      raise WrongResultError(
        f"{int(wrong.sum())} of {wrong.size} values of result {i} are wrong"
      )
