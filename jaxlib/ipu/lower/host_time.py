"""Estimates a run's time on the host, by which the engine decides where to run
a program."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.lower.tensors import TensorInfo
from jaxlib.ipu.lower.totals import MOST
from jaxlib.ipu.program import schema

# Rough costs of the model on the host: bytes through the caches, flops, and a
# step's own overhead. A loop of unknown length counts as 100 iterations: one
# over a few scalars then runs on the calling thread, since waking another takes
# as long as a thousand iterations.
_BYTES_PER_SECOND = 20e9
_FLOPS_PER_SECOND = 50e9
_STEP_SECONDS = 30e-9
_LOOP_TRIPS = 100
_CALLBACK_SECONDS = 50e-6


def host_seconds(steps: list[Any], tensors: list[TensorInfo]) -> float:
  """A guess of one run's wall time on the model, in seconds."""
  seconds = 0.0
  for step in steps:
    if isinstance(step, schema.Execute):
      touched = sum(tensors[a.tensor].bytes for a in step.operands)
      touched += sum(tensors[a.tensor].bytes for a in step.results)
      seconds += _STEP_SECONDS + touched / _BYTES_PER_SECOND
      seconds += step.cost.flops / _FLOPS_PER_SECOND
    elif isinstance(step, schema.Copy):
      for move in step.moves:
        info = tensors[move.destination]
        if info.root == move.destination:
          seconds += _STEP_SECONDS + info.bytes / _BYTES_PER_SECOND
    elif isinstance(step, schema.HostCallback):
      seconds += _CALLBACK_SECONDS
    elif isinstance(step, schema.While):
      inner = host_seconds(step.condition, tensors)
      inner += host_seconds(step.body, tensors)
      seconds += _LOOP_TRIPS * inner
    elif isinstance(step, schema.Repeat):
      seconds += step.count * host_seconds(step.body, tensors)
    elif isinstance(step, schema.Switch):
      seconds += max(host_seconds(b.steps, tensors) for b in step.branches)
  return min(seconds, MOST)
