"""Sums of the costs of steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.walk import of_regions, walk

# A limit for figures of loops that no run gets to the end of: jaxlib passes
# figures on as float32, and all of them are finite.
MOST = 3e38


@dataclasses.dataclass(slots=True)
class Totals:
  """Sums over the steps of one run.

  A loop whose trip count is only known at run time counts as one iteration, as
  in XLA's own analysis; a branch as the costliest one.
  """

  cycles: float = 0.0
  compute_cycles: float = 0.0
  exchange_cycles: float = 0.0
  link_cycles: float = 0.0
  sync_cycles: float = 0.0
  host_cycles: float = 0.0
  derived_cycles: float = 0.0
  guessed_cycles: float = 0.0
  exchange_bytes: float = 0.0
  link_bytes: float = 0.0
  host_bytes: float = 0.0
  flops: float = 0.0
  bytes_accessed: float = 0.0
  supersteps: float = 0.0
  host_calls: float = 0.0

  def add(self, other: Totals, times: float = 1.0) -> None:
    """Adds the other's figures, `times` times."""
    for field in dataclasses.fields(Totals):
      value = getattr(self, field.name) + times * getattr(other, field.name)
      setattr(self, field.name, min(value, MOST))

  def step(self, c: schema.Cost) -> None:
    """Adds a step on the tiles."""
    self._sources(c)
    self.compute_cycles += c.compute_cycles
    self.exchange_cycles += c.exchange_cycles
    self.sync_cycles += c.sync_cycles
    self.exchange_bytes += c.exchange_bytes
    self.flops += c.flops

  def _sources(self, c: schema.Cost) -> None:
    known = cost.sourced(c)
    self.cycles += cost.cycles(known)
    self.derived_cycles += known.derived
    self.guessed_cycles += known.guessed
    self.supersteps += known.syncs

  def host_step(self, c: schema.Cost) -> None:
    """Adds a step whose exchange is with the host."""
    self._sources(c)
    self.host_cycles += c.exchange_cycles
    self.host_bytes += c.exchange_bytes
    self.sync_cycles += c.sync_cycles

  def link_step(self, c: schema.Cost) -> None:
    """Adds a step whose exchange is with other devices."""
    self._sources(c)
    self.compute_cycles += c.compute_cycles
    self.link_cycles += c.exchange_cycles
    self.sync_cycles += c.sync_cycles
    self.link_bytes += c.exchange_bytes


def totals(
  target: Target, steps: Sequence[Step], tensors: Sequence[TensorInfo]
) -> Totals:
  """Adds up a list of steps."""
  return _totals(target, steps, tensors, {})


def _totals(
  target: Target,
  steps: Sequence[Step],
  tensors: Sequence[TensorInfo],
  known: dict[int, Totals],
) -> Totals:
  """The same; `known` has the sums of regions by their ids."""
  sums = Totals()
  for step in steps:
    add = sums.link_step if step.on_links else sums.step
    (sums.host_step if step.on_host else add)(step.price(target))
    sums.host_calls += step.calls_host
    for number in step.loaded:
      sums.bytes_accessed += tensors[number].bytes
    inner = of_regions(
      step, known, lambda region: _totals(target, region, tensors, known)
    )
    if step.exclusive:
      inner = [max(inner, key=lambda t: t.cycles)]
    for each in inner:
      sums.add(each, 1 if step.trips is None else step.trips)
  return sums


def loops_counted_once(steps: Sequence[Step]) -> int:
  """The number of loops whose trip count is only known at run time."""
  return sum(step.trips is None for step in walk(steps))
