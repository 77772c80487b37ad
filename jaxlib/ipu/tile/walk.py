"""The traversal of a tile program's steps, nested ones included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from jaxlib.ipu.tile.step import Region, Step, TensorAccess

_T = TypeVar("_T")


def walk(steps: Sequence[Step]) -> Iterator[Step]:
  """All steps, each before those in its regions."""
  for step in steps:
    yield step
    for region in step.regions:
      yield from walk(region)


def with_regions(region: Region) -> Iterator[tuple[Step, Region]]:
  """As `walk`, each step with the region that contains it."""
  for step in region:
    yield step, region
    for inner in step.regions:
      yield from with_regions(inner)


def regions(outer: Region) -> Iterator[Region]:
  """A region and all regions in it, each after those in it. Those of functions
  are left out: they are the same for all calls."""
  for step in outer:
    if step.callee is None:
      for region in step.regions:
        yield from regions(region)
  yield outer


def exchanges(steps: Sequence[Step]) -> Iterator[Step]:
  """All steps with moves."""
  return (step for step in walk(steps) if step.moves)


def of_regions(
  step: Step, known: dict[int, _T], find: Callable[[Region], _T]
) -> list[_T]:
  """What `find` gives for each region of a step. It is asked once for regions
  that are alike (`Region.like`): `known` has its answers, by their ids."""
  found = []
  for region in step.regions:
    key = id(region.model)
    if key not in known:
      known[key] = find(region)
    found.append(known[key])
  return found


def accesses(steps: Sequence[Step]) -> Iterator[TensorAccess]:
  """The accesses of all steps, and of control flow, in the order in which they
  run; of alternatives and loops each region once."""
  for step in steps:
    yield from step.accesses()
    decision = step.decision
    for i, region in enumerate(step.regions):
      if decision is not None and decision.after == i:
        yield decision.tensor, False
      yield from accesses(region)
