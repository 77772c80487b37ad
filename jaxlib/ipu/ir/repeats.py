"""Finds equal parts of a sequence, in time linear in it but for a logarithm.

Prefix doubling (Karp, Miller and Rosenberg, 1972): equal parts of length 2k are
pairs of equal parts of length k.
"""

from __future__ import annotations

import operator
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
  begins: list[int]


def repeats(numbers: Sequence[int], least: int = 1) -> list[Repeat]:
  """The equal parts of a sequence.

  For each power of two, the parts of that length are compared, and each group
  of equal ones is extended for as long as all of them stay equal and none
  reaches the next. A group is left out if its parts are the ends of longer
  ones.

  Args:
    numbers: the sequence.
    least: shorter parts are of no use; some are found nevertheless.
  """
  values = [*numbers]
  found: dict[tuple[int, int, int], Repeat] = {}
  array = np.asarray(numbers, np.int64)
  ranks, length = array, 1
  while len(ranks):
    ranks = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    if int(ranks.max()) + 1 == len(ranks):
      break
    if 2 * length > least:
      for begins in _alike(ranks, array):
        repeat = _longest(values, begins, length)
        if repeat is not None:
          key = repeat.length, repeat.begins[0], len(repeat.begins)
          found.setdefault(key, repeat)
    pairs = ranks[:-length] * len(ranks) + ranks[length:]
    ranks, length = pairs, 2 * length
  return list(found.values())


def _alike(ranks: Numbers, values: Numbers) -> Iterator[list[int]]:
  """The places of each rank that occurs more than once. If the values before
  all of them are equal, too, they are left out: these parts are found as parts
  that begin earlier."""
  order = np.argsort(ranks, kind="stable")
  before = values[order - 1]
  before[order == 0] = -1
  sorted_ranks = ranks[order]
  joined = sorted_ranks[1:] == sorted_ranks[:-1]
  # How often the value before changes, up to each place.
  changes = np.concatenate(
    [[0], np.cumsum(joined & (before[1:] != before[:-1]))]
  )
  ends = np.append(np.flatnonzero(~joined) + 1, len(order))
  begins = np.concatenate([[0], ends[:-1]])
  differ = changes[ends - 1] > changes[begins]
  places = order.tolist()
  for begin, end in zip(begins[differ].tolist(), ends[differ].tolist()):
    yield places[begin:end]


def _longest(
  values: Sequence[int], begins: list[int], length: int
) -> Repeat | None:
  """Extends equal parts.

  Args:
    values: the sequence.
    begins: where parts of this length are equal, ascending.
    length: see `begins`.

  Returns:
    Those parts that do not overlap, as long as all of them stay equal; None if
    there is only one.
  """
  chosen, end = [], 0
  for begin in begins:
    if begin >= end:
      chosen.append(begin)
      end = begin + length
  if len(chosen) < 2:
    return None
  most = min(map(operator.sub, chosen[1:], chosen))
  most = min(most, len(values) - chosen[-1])
  first, *others = chosen
  while length < most:
    after = values[first + length]
    if any(values[begin + length] != after for begin in others):
      break
    length += 1
  return Repeat(length, chosen)
