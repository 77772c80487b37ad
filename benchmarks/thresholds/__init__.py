"""Finds the sizes from which on another way of computing pays.

A threshold is a constant that chooses between two ways of computing the same.
A `Case` is a program of any size in which one threshold matters. At each size
it is run in both ways, by moving the threshold: what it costs in the way meant
for smaller sizes, divided by what it costs in the other, is below 1 up to the
size where they cross.

The compiler's thresholds (`compiler.py`) are compared in modelled cycles, which
are the same on every machine. Those of the library (`library.py`) are compared
in processor time on one core, and only if the library has them as variables:

  bazel build --config=monolithic --config=opt \\
    --copt=-DIPU_VARY_THRESHOLDS //jaxlib/ipu:libjaxipu.so
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.report import align

Program = tuple[Callable[..., Any], Sequence[Any]]

# A threshold with which everything is computed in the way of small sizes.
ALL = 1 << 40


@dataclasses.dataclass(frozen=True)
class Case:
  """A program in which a threshold matters.

  Attributes:
    name: the threshold: `module._NAME` of the compiler, `file.kName` of the
      library.
    what: what the size is, such as "columns".
    sizes: ascending.
    program: program(size) is a function to jit and its arguments.
    compare: (case, size) -> costs in the way of small and of large sizes.
    small: small(size) is a value of the threshold with which this size is
      computed in the way of small sizes.
    large: the same of large sizes.
  """

  name: str
  what: str
  sizes: Sequence[int]
  program: Callable[[int], Program]
  compare: Callable[[Case, int], tuple[float, float]]
  small: Callable[[int], float] = lambda _: ALL
  large: Callable[[int], float] = lambda _: 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crossing:
  """What was found for a case.

  Attributes:
    case: the case.
    value: the threshold's own value.
    ratios: for each size, the cost in the way of small sizes relative to the
      other.
  """

  case: Case
  value: float
  ratios: Sequence[float]

  @property
  def size(self) -> float | None:
    """From where on the way of large sizes is cheaper; None if it is at all
    sizes, or not at the largest."""
    pairs = list(zip(self.case.sizes, self.ratios, strict=True))
    for (n, r), (m, q) in reversed(list(zip(pairs, pairs[1:]))):
      if q <= 1:
        return None
      if r <= 1:
        part = -math.log(r) / (math.log(q) - math.log(r))
        return n * (m / n) ** part
    return None

  @property
  def sentence(self) -> str:
    if self.size is not None:
      return f"crosses at {self.size:,.0f} {self.case.what}"
    first, last = self.case.sizes[0], self.case.sizes[-1]
    within = f"from {first:,} to {last:,} {self.case.what}"
    if max(self.ratios) < 1:
      return f"the way of small sizes is cheaper {within}"
    if min(self.ratios) > 1:
      return f"the way of large sizes is cheaper {within}"
    return f"no clear crossing {within}"


def cases() -> list[Case]:
  from benchmarks.thresholds import compiler, library

  return [*compiler.CASES, *(library.CASES if library.varies() else ())]


def measure(pattern: str | None) -> list[Crossing]:
  """Raises SystemExit if no case's name matches."""
  from benchmarks.thresholds import compiler, library

  chosen = [c for c in cases() if re.search(pattern or "", c.name)]
  if not chosen:
    raise SystemExit(f"--filter {pattern!r} matches no threshold")
  if any(c in library.CASES for c in chosen):
    library.use_one_core()
  found = []
  for case in chosen:
    pairs = [case.compare(case, size) for size in case.sizes]
    value = compiler.value if case in compiler.CASES else library.value
    found.append(
      Crossing(
        case=case, value=value(case.name), ratios=[a / b for a, b in pairs]
      )
    )
  return found


def table(found: Sequence[Crossing]) -> str:
  """A line for each case, and one with its ratios."""
  rows = [["threshold", "value", "found"]]
  for crossing in found:
    rows.append(
      [crossing.case.name, f"{crossing.value:,.4g}", crossing.sentence]
    )
  ratios = [
    f"{c.case.name}: "
    + ", ".join(
      f"{n:,} {r:.3f}" for n, r in zip(c.case.sizes, c.ratios, strict=True)
    )
    for c in found
  ]
  return "\n".join((align(rows), "", *ratios))
