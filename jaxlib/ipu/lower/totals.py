"""What a whole program costs: the figures of `compiled.cost_analysis()`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.lower.builder import TensorInfo
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


@dataclasses.dataclass(slots=True)
class Totals:
  """Sums over the steps of one run.

  A loop whose trip count is only known at run time counts as one turn, as
  XLA's own analysis has it; a branch as the costliest one.
  """

  cycles: float = 0.0
  compute_cycles: float = 0.0
  exchange_cycles: float = 0.0
  sync_cycles: float = 0.0
  exchange_bytes: float = 0.0
  host_bytes: float = 0.0
  flops: float = 0.0
  bytes_accessed: float = 0.0
  supersteps: float = 0.0
  host_calls: float = 0.0

  def add(self, other: Totals, times: float = 1.0) -> None:
    """Adds `times` the other's figures."""
    for field in dataclasses.fields(Totals):
      value = getattr(self, field.name) + times * getattr(other, field.name)
      setattr(self, field.name, value)

  def step(self, c: schema.Cost) -> None:
    """Adds a superstep."""
    self.cycles += cost.cycles(c)
    self.compute_cycles += c.compute_cycles
    self.exchange_cycles += c.exchange_cycles
    self.sync_cycles += c.sync_cycles
    self.exchange_bytes += c.exchange_bytes
    self.flops += c.flops
    self.supersteps += cost.cycles(c) > 0  # nothing moves: no step


def totals(steps: list[Any], tensors: list[TensorInfo]) -> Totals:
  """Adds up a list of steps."""
  sums = Totals()
  for step in steps:
    if isinstance(step, schema.Execute):
      sums.step(step.cost)
      for access in (*step.operands, *step.results):
        sums.bytes_accessed += tensors[access.tensor].bytes
    elif isinstance(step, schema.Copy):
      sums.step(step.cost)
    elif isinstance(step, schema.HostCopy | schema.HostCallback):
      sums.step(step.cost)
      sums.host_calls += isinstance(step, schema.HostCallback)
      sums.exchange_bytes -= step.cost.exchange_bytes
      sums.host_bytes += step.cost.exchange_bytes
    elif isinstance(step, schema.While):
      sums.step(step.cost)
      sums.add(totals(step.condition, tensors))
      sums.add(totals(step.body, tensors))
    elif isinstance(step, schema.Repeat):
      sums.add(totals(step.body, tensors), step.count)
    elif isinstance(step, schema.Switch):
      sums.step(step.cost)
      branches = [totals(b.steps, tensors) for b in step.branches]
      sums.add(max(branches, key=lambda t: t.cycles))
  return sums


def analysis(
  target: Target, sums: Totals, peak_tile_bytes: int
) -> dict[str, float]:
  """The entries of `compiled.cost_analysis()`, XLA's own keys first."""
  return {
    "flops": sums.flops,
    "bytes accessed": sums.bytes_accessed,
    "optimal_seconds": sums.cycles / target.clock_hz,
    "ipu cycles": sums.cycles,
    "ipu seconds": sums.cycles / target.clock_hz,
    "ipu compute cycles": sums.compute_cycles,
    "ipu exchange cycles": sums.exchange_cycles,
    "ipu sync cycles": sums.sync_cycles,
    "ipu exchange bytes": sums.exchange_bytes,
    "ipu host bytes": sums.host_bytes,
    "ipu host calls": sums.host_calls,
    "ipu supersteps": sums.supersteps,
    "ipu peak tile bytes": float(peak_tile_bytes),
  }
