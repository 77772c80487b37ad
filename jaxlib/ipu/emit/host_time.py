"""Estimates a run's time on the host, by which the engine decides where to run
a program."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.totals import MOST
from jaxlib.ipu.tile.walk import of_regions

# Rough costs of the model on the host: bytes through the caches, flops, and a
# step's own overhead. A loop of unknown length counts as 100 iterations: one
# over a few scalars then runs on the calling thread, since waking another takes
# as long as a thousand iterations.
_BYTES_PER_SECOND = 20e9
_FLOPS_PER_SECOND = 50e9
_STEP_SECONDS = 30e-9
_LOOP_TRIPS = 100
_CALLBACK_SECONDS = 50e-6


def host_seconds(
  target: Target, steps: Sequence[Step], tensors: Sequence[TensorInfo]
) -> float:
  """A guess of one run's wall time on the model, in seconds."""
  return _seconds(target, steps, tensors, {})


def _seconds(
  target: Target,
  steps: Sequence[Step],
  tensors: Sequence[TensorInfo],
  known: dict[int, float],
) -> float:
  """The same; `known` has the seconds of regions by their ids."""
  seconds = 0.0
  for step in steps:
    for work in step.host_work(target, tensors):
      seconds += _STEP_SECONDS + work.bytes / _BYTES_PER_SECOND
      seconds += work.flops / _FLOPS_PER_SECOND
    if step.calls_host:
      seconds += _CALLBACK_SECONDS
    inner = of_regions(
      step, known, lambda region: _seconds(target, region, tensors, known)
    )
    if inner:
      trips = _LOOP_TRIPS if step.trips is None else step.trips
      seconds += trips * (max(inner) if step.exclusive else sum(inner))
  return min(seconds, MOST)
