"""The traversal of a tile program's steps, nested ones included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxlib.ipu.tile.step import Access, Step


def walk(steps: Sequence[Step]) -> Iterator[Step]:
  """All steps, each before those in its regions."""
  for step in steps:
    yield step
    for region in step.regions:
      yield from walk(region)


def with_lists(steps: list[Step]) -> Iterator[tuple[Step, list[Step]]]:
  """As `walk`, each step with the list that contains it."""
  for step in steps:
    yield step, steps
    for region in step.regions:
      yield from with_lists(region)


def exchanges(steps: Sequence[Step]) -> Iterator[Step]:
  """All steps with moves."""
  return (step for step in walk(steps) if step.moves)


def accesses(steps: Sequence[Step]) -> Iterator[Access]:
  """The accesses of all steps, and of control flow, in the order in which they
  run; of alternatives and loops each region once."""
  for step in steps:
    yield from step.accesses()
    decision = step.decision
    for i, region in enumerate(step.regions):
      if decision is not None and decision.after == i:
        yield Access(decision.tensor, False)
      yield from accesses(region)
