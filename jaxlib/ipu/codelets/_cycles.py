"""Cycles with their sources, and arithmetic on single values or arrays of
candidates.

Cycle formulas are written once, with tagged numbers: a plain number is read in
a public source [S]; `derived` and `guessed` tag the others. Sums and products
propagate the shares, so that they always agree with the total.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxlib.ipu.target import Target

# basicOpSupervisorOverhead (popops/PerformanceEstimation.cpp): the launch of a
# MultiVertex [S].
MULTI_VERTEX = 11


@dataclasses.dataclass(unsafe_hash=True, slots=True)
class Cycles:
  """Cycles of a worker or of a tile. Never modified, but not frozen: programs
  take thousands, and frozen ones take four times as long to make.

  Attributes:
    total: all of them: a number, or an array with one per candidate.
    derived: of these, derived from published figures ([D]).
    guessed: of these, without any public source ([G]). All others are read in a
      source ([S]).
  """

  total: Any
  derived: Any = 0.0
  guessed: Any = 0.0

  # Lets NumPy arrays defer sums and products to this class.
  __array_ufunc__ = None

  def __add__(self, other: Cycles | Any) -> Cycles:
    if isinstance(other, Cycles):
      return Cycles(
        self.total + other.total,
        _sum(self.derived, other.derived),
        _sum(self.guessed, other.guessed),
      )
    return Cycles(self.total + other, self.derived, self.guessed)

  __radd__ = __add__

  def __mul__(self, times: Any) -> Cycles:
    return Cycles(
      self.total * times,
      _product(self.derived, times),
      _product(self.guessed, times),
    )

  __rmul__ = __mul__


def derived(cycles: Any) -> Cycles:
  """Cycles derived from published figures."""
  return Cycles(cycles, derived=cycles)


def guessed(cycles: Any) -> Cycles:
  """Cycles without a public source."""
  return Cycles(cycles, guessed=cycles)


def all_derived(cycles: Any) -> Any:
  """The same cycles, for a combination that no source has: all that is not
  guessed is derived. Plain numbers are unchanged."""
  if not isinstance(cycles, Cycles):
    return cycles
  return Cycles(cycles.total, cycles.total - cycles.guessed, cycles.guessed)


def multi_vertex(target: Target, worker: Any) -> Cycles:
  """A vertex that runs on all workers, the slowest of which takes `worker`;
  launch included."""
  launch = derived(float(target.launch_cycles))
  return launch + MULTI_VERTEX + target.num_workers * worker


# NumPy is slow at single numbers. A share of exactly 0.0 stays a number.


def _sum(a: Any, b: Any) -> Any:
  if isinstance(b, float) and not b:
    return a
  return b if isinstance(a, float) and not a else a + b


def _product(share: Any, times: Any) -> Any:
  return share if isinstance(share, float) and not share else share * times


def ceil_div(a: Any, b: Any) -> Any:
  """Rounds up; for ints, floats and arrays."""
  if isinstance(a, int) and isinstance(b, int):
    return -(-a // b)
  if isinstance(a, float | int) and isinstance(b, int | float):
    return float(math.ceil(a / b))
  return np.ceil(np.asarray(a) / b)


def up(x: Any) -> Any:
  """Rounds up; the total of cycles, scaling the shares in proportion."""
  if isinstance(x, Cycles):
    total = up(x.total)
    grown = total / most(x.total, 1e-9)
    return Cycles(total, _product(x.derived, grown), _product(x.guessed, grown))
  return np.ceil(x) if isinstance(x, np.ndarray) else math.ceil(x)


def most(a: Any, b: Any) -> Any:
  """The larger one; for cycles, that with the larger total."""
  if isinstance(a, Cycles) or isinstance(b, Cycles):
    a, b = _cycles(a), _cycles(b)
    return choose(a.total >= b.total, a, b)
  if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
    return np.maximum(a, b)
  return max(a, b)


def least(a: Any, b: Any) -> Any:
  """The smaller one; for cycles, that with the smaller total."""
  if isinstance(a, Cycles) or isinstance(b, Cycles):
    a, b = _cycles(a), _cycles(b)
    return choose(a.total <= b.total, a, b)
  if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
    return np.minimum(a, b)
  return min(a, b)


def plain(x: Any) -> Any:
  """The total of cycles, without their sources."""
  return x.total if isinstance(x, Cycles) else x


def choose(test: Any, a: Any, b: Any) -> Any:
  """`a` where the test holds, `b` elsewhere."""
  if not isinstance(test, np.ndarray):
    return a if test else b
  if isinstance(a, Cycles) or isinstance(b, Cycles):
    a, b = _cycles(a), _cycles(b)
    return Cycles(
      np.where(test, a.total, b.total),
      _choose_share(test, a.derived, b.derived),
      _choose_share(test, a.guessed, b.guessed),
    )
  return np.where(test, a, b)


def _choose_share(test: Any, a: Any, b: Any) -> Any:
  none = isinstance(a, float) and isinstance(b, float) and a == b == 0.0
  return 0.0 if none else np.where(test, a, b)


def _cycles(x: Any) -> Cycles:
  return x if isinstance(x, Cycles) else Cycles(x)
