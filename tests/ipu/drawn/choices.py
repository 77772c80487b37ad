"""Choices that make a program: drawn, recorded, replayed and shrunk.

All is drawn as integers from 0, of which smaller ones mean simpler programs. A
program is what a list of them makes, so a list that is shorter, or smaller
element by element, makes a simpler one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


class Choices:
  """Integers: those of a list, then zeros; or drawn at random."""

  def __init__(
    self, given: Sequence[int] = (), rng: random.Random | None = None
  ) -> None:
    self.made: list[int] = []
    self._given = given
    self._rng = rng

  def below(self, n: int) -> int:
    """An integer of [0, n)."""
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
  """A list that is shorter or smaller and for which `fails` holds too.

  Args:
    choices: for which it holds.
    fails: tells whether the list makes a program that fails.
    most: calls of it allowed.
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
    while size:  # spans go
      start = 0
      while start < len(choices):
        if not try_(choices[:start] + choices[start + size :]):
          start += size
      size //= 2
    for i in range(len(choices)):  # elements become smaller
      if i >= len(choices):
        break
      for value in (0, choices[i] // 2, choices[i] - 1):
        if 0 <= value < choices[i]:
          candidate = choices[:i] + [value] + choices[i + 1 :]
          if try_(candidate):
            break
  return choices
