"""Finds equal parts of a sequence, in time linear in it but for a logarithm.

Prefix doubling (Karp, Miller and Rosenberg, 1972): equal parts of length 2k are
pairs of equal parts of length k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Repeat(NamedTuple):
  """Equal parts of a sequence that do not overlap.

  Attributes:
    length: of each part.
    begins: where they begin, ascending; at least two.
  """

  length: int
  begins: Numbers


def repeats(numbers: Sequence[int]) -> list[Repeat]:
  """The equal parts of a sequence.

  For each power of two, the parts of that length are compared, and each group
  of equal ones is extended for as long as all of them stay equal and none
  reaches the next. A group is left out if its parts are the ends of longer
  ones.
  """
  values = np.asarray(numbers, np.int64)
  found: dict[tuple[int, int, int], Repeat] = {}
  ranks, length = values, 1
  while len(ranks):
    ranks = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    alike = list(_alike(ranks))
    if not alike:
      break
    for begins in alike:
      repeat = _longest(values, begins, length)
      if repeat is not None:
        key = repeat.length, int(repeat.begins[0]), len(repeat.begins)
        found.setdefault(key, repeat)
    pairs = ranks[:-length] * len(ranks) + ranks[length:]
    ranks, length = pairs, 2 * length
  return list(found.values())


def _alike(ranks: Numbers) -> Iterator[Numbers]:
  """The places of each number that occurs more than once."""
  order = np.argsort(ranks, kind="stable")
  ends = np.flatnonzero(np.diff(ranks[order])) + 1
  for places in np.split(order, ends):
    if len(places) > 1:
      yield places


def _longest(values: Numbers, begins: Numbers, length: int) -> Repeat | None:
  """Extends equal parts.

  Args:
    values: the sequence.
    begins: where parts of this length are equal, ascending.
    length: see `begins`.

  Returns:
    Those parts that do not overlap, as long as all of them stay equal. None if
    there is only one, or if the elements before the parts are equal, too: these
    are then found as parts that begin earlier.
  """
  if begins[0] > 0:
    before = values[begins - 1]
    if (before == before[0]).all():
      return None
  chosen, end = [], 0
  for begin in begins.tolist():
    if begin >= end:
      chosen.append(begin)
      end = begin + length
  if len(chosen) < 2:
    return None
  some = np.array(chosen)
  most = min(int(np.diff(some).min()), len(values) - chosen[-1])
  while length < most:
    after = values[some + length]
    if (after != after[0]).any():
      break
    length += 1
  return Repeat(length, some)
