"""Brings both sides of a move to dimensions that each walk along one factor.

Then figures of a dimension are independent of the others', but for those that
one factor cuts together (traffic.py).
"""

from __future__ import annotations

from jaxlib.ipu.plan.layout import Factor, split_factor
from jaxlib.ipu.plan.walk import Walk

Walks = tuple[Walk, Walk]  # of the source and of the destination
Strides = tuple[list[int], list[int]]  # of both sides, by dimension


def fit(walks: Walks, shape: list[int], strides: Strides) -> bool:
  """Finds the digits of both sides; whether there are any.

  Args:
    walks: the sides; their factors are joined and split where that helps.
    shape: the iteration space, whose dimensions are split for it.
    strides: as `shape`.
  """
  fits = _fit(walks, shape, strides)
  while fits and _untie(walks, shape, strides):
    pass
  return fits


def _fit(walks: Walks, shape: list[int], strides: Strides) -> bool:
  while True:
    again = False
    for walk, steps in zip(walks, strides, strict=True):
      found = walk.fit(shape, steps)
      if found is False:
        return False
      if found is not True:
        _split(shape, strides, *found)
        # Factors that were joined may fit the smaller dimensions apart.
        for other in walks:
          other.reset()
        again = True
        break
    if not again:
      return True


def _split(shape: list[int], strides: Strides, d: int, inner: int) -> None:
  shape[d : d + 1] = [shape[d] // inner, inner]
  for steps in strides:
    steps[d : d + 1] = [steps[d] * inner, steps[d]]


def _untie(walks: Walks, shape: list[int], strides: Strides) -> bool:
  """Splits a factor that cuts dimensions together, where the other side's
  factors cut them apart or in another order; whether there was one."""
  for walk, other, steps in zip(walks, walks[::-1], strides, strict=True):
    for k, factor in enumerate(walk.factors):
      dims = sorted(walk.dims(k), key=lambda d: -abs(walk.step(d)))
      cut = [d for d in dims if other.cut(d) is not None]
      alike = len({other.cut(d) for d in cut}) < 2
      if factor.parts <= 1 or (alike and cut == dims[: len(cut)]):
        continue
      for inner in (abs(walk.step(d)) for d in dims[:-1]):
        if inner > 1 and factor.extent % inner == 0:
          pieces = split_factor(factor, inner)
          if pieces and _fits_with(walk, k, pieces, shape, steps):
            return True
  return False


def _fits_with(
  walk: Walk,
  k: int,
  pieces: tuple[Factor, Factor],
  shape: list[int],
  steps: list[int],
) -> bool:
  """Takes `pieces` for factor k, if there are digits with them, and none are
  joined for it: there are not more factors than dimensions."""
  before = walk.factors
  walk.factors = [*before[:k], *pieces, *before[k + 1 :]]
  if walk.fit(shape, steps) is True and len(walk.factors) > len(before):
    return True
  walk.factors = before
  walk.fit(shape, steps)
  return False
