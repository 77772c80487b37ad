"""The choices that determine a program: generated, recorded, replayed and
shrunk.

All choices are integers >= 0, where smaller ones mean simpler programs. A list
of them determines a program, so a list that is shorter, or smaller element by
element, determines a simpler one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


class Choices:
  """Integers, from a list followed by zeros, or random."""

  def __init__(
    self, given: Sequence[int] = (), rng: random.Random | None = None
  ) -> None:
    self.made: list[int] = []
    self._given = given
    self._rng = rng

  def below(self, n: int) -> int:
    """An integer in [0, n)."""
    at = len(self.made)
    if self._rng:
      choice = self._rng.randrange(n)
    else:
      choice = min(self._given[at], n - 1) if at < len(self._given) else 0
    self.made.append(choice)
    return choice


def shrink(
  choices: list[int], fails: Callable[[list[int]], bool], most: int
) -> list[int]:
  """A shorter or smaller list for which `fails` still holds.

  Args:
    choices: a list for which it holds.
    fails: whether the list produces a program that fails.
    most: the maximum number of calls to it.
  """
  tried: set[tuple[int, ...]] = set()

  def try_(candidate: list[int]) -> bool:
    nonlocal choices
    key = tuple(candidate)
    if key in tried or len(tried) >= most:
      return False
    tried.add(key)
    if not fails(candidate):
      return False
    choices = candidate
    return True

  before: list[int] | None = None
  while choices != before and len(tried) < most:
    before = choices
    size = len(choices) // 2
    while size:  # remove spans
      start = 0
      while start < len(choices):
        if not try_(choices[:start] + choices[start + size :]):
          start += size
      size //= 2
    for i in range(len(choices)):  # decrease elements
      if i >= len(choices):
        break
      for value in (0, choices[i] // 2, choices[i] - 1):
        if 0 <= value < choices[i]:
          candidate = choices[:i] + [value] + choices[i + 1 :]
          if try_(candidate):
            break
  return choices
