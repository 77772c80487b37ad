"""What a planner has considered: a hook for reports.

A planner prices all candidates at once and keeps the best. Within `watch`, it
also hands over what it has priced. Outside of it, `note` does nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Considered(NamedTuple):
  """Candidates that were priced together.

  Attributes:
    steps: the numbers of serial steps along m, n and k.
    parts: of each candidate, int64[dimension, candidate].
    cycles: estimated, of all steps.
    bytes: SRAM of the fullest tile.
    fits: whether these are within the budget.
  """

  steps: tuple[int, ...]
  parts: Array
  cycles: Array
  bytes: Array
  fits: Array


class Planned(NamedTuple):
  """A product that was planned.

  Attributes:
    location: the number of its location.
    arguments: those of `matmul.plan`.
    parts: of the split that was taken, along b, m, n and k, and its steps;
      empty if it is not one of the planner's.
    cycles: what it was estimated to take.
  """

  location: int
  arguments: tuple[Any, ...]
  parts: tuple[int, ...]
  cycles: float


_watching: contextvars.ContextVar[list[Considered] | None] = (
  contextvars.ContextVar("considered", default=None)
)


@contextlib.contextmanager
def watch() -> Iterator[list[Considered]]:
  """Collects what planners of this thread consider. Their caches know nothing
  of it: call what they wrap."""
  found: list[Considered] = []
  token = _watching.set(found)
  try:
    yield found
  finally:
    _watching.reset(token)


def note(
  steps: tuple[int, ...], parts: Array, cycles: Array, size: Array, fits: Array
) -> None:
  """Hands over candidates, as in `Considered`."""
  found = _watching.get()
  if found is not None:
    found.append(Considered(steps, parts, cycles, np.asarray(size), fits))
