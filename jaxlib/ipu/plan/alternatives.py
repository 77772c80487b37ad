"""What a planner has considered: a hook for reports.

A planner keeps the best candidate. Within `watch`, it also prices others, and
hands them over. Outside of it, `note` does nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class Considered(NamedTuple):
  """Candidates of one kind.

  Attributes:
    steps: the numbers of serial steps along m, n and k.
    total: the number of all candidates.
    best: the best of them, and maybe others: their parts along each dimension,
      the estimated cycles of all steps, the SRAM of the fullest tile in bytes,
      and whether that is within the budget.
  """

  steps: tuple[int, ...]
  total: int
  best: Sequence[tuple[tuple[int, ...], float, float, bool]]


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


def note(consider: Callable[[], Considered]) -> None:
  """Hands over candidates, which are only priced if somebody watches."""
  found = _watching.get()
  if found is not None:
    found.append(consider())
