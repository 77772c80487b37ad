"""Compares a workload's results on two devices, then times it, interleaved."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics

import numpy as np

import jax
from benchmarks.workload import Case, Workload

# The target length of a sample, which the clock has to resolve, and of a
# workload, so that the whole run does not take too long.
_SAMPLE_SECONDS = 2e-3
_WORKLOAD_SECONDS = 4.0
_LEAST_REPEAT = 5


class WrongResultError(Exception):
  """The two devices disagree about a workload's result."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
  """Samples of the seconds per unit of a workload, on both devices.

  Attributes:
    workload: the measured workload.
    seconds: samples on the device under test.
    baseline: samples on the device it is compared with, interleaved with
      `seconds`.
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
  """Takes up to `repeat` samples on each device, alternating.

  Raises:
    WrongResultError: the results differ by more than the tolerance.
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
  """The number of units for a sample that is long enough to time."""
  case.sample(2)
  seconds = max(case.sample(1), 1e-7)
  return min(max(1, math.ceil(_SAMPLE_SECONDS / seconds)), 500)


def compare(workload: Workload, actual, expected) -> None:
  """Checks a result: integers exactly, floats and complex numbers relative to
  the largest value."""
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
      wide = np.complex128 if a.dtype.kind == "c" else np.float64
      a, b = a.astype(wide), b.astype(wide)
      bound = workload.tolerance * max(np.abs(b).max(initial=0), 1e-30)
      wrong = ~(np.abs(a - b) <= bound)
    if wrong.any():
      raise WrongResultError(
        f"{int(wrong.sum())} of {wrong.size} values of result {i} are wrong"
      )
