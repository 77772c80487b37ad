"""Splits both sides of a move into dimensions that step along one factor each.

Figures of a dimension are then independent of the others', except for
dimensions that one factor cuts together (moved_elements.py).
"""

from __future__ import annotations

from jaxlib.ipu.plan.affine import AffineAccess
from jaxlib.ipu.plan.layout import Factor, split_factor

Accesses = tuple[
  AffineAccess, AffineAccess
]  # of the source and of the destination
Strides = tuple[list[int], list[int]]  # of both sides, by dimension


def unify(accesses: Accesses, shape: list[int], strides: Strides) -> bool:
  """Finds the digits of both sides; returns whether there are any.

  Args:
    accesses: both sides; factors are joined and split in place where needed.
    shape: the iteration space, whose dimensions are split in place.
    strides: split along with `shape`.
  """
  fits = _fit(accesses, shape, strides)
  while fits and _untie(accesses, shape, strides):
    pass
  return fits


def _fit(accesses: Accesses, shape: list[int], strides: Strides) -> bool:
  while True:
    again = False
    for access, steps in zip(accesses, strides, strict=True):
      found = access.fit(shape, steps)
      if found is False:
        return False
      if found is not True:
        _split(shape, strides, *found)
        # Joined factors may fit the smaller dimensions separately.
        for other in accesses:
          other.reset()
        again = True
        break
    if not again:
      return True


def _split(shape: list[int], strides: Strides, d: int, inner: int) -> None:
  shape[d : d + 1] = [shape[d] // inner, inner]
  for steps in strides:
    steps[d : d + 1] = [steps[d] * inner, steps[d]]


def _untie(accesses: Accesses, shape: list[int], strides: Strides) -> bool:
  """Splits a factor that cuts dimensions together while the other side's
  factors cut them separately or in another order; returns whether it did."""
  for access, other, steps in zip(
    accesses, accesses[::-1], strides, strict=True
  ):
    for k, factor in enumerate(access.factors):
      dims = sorted(access.dims(k), key=lambda d: -abs(access.step(d)))
      cut = [d for d in dims if other.cut(d) is not None]
      alike = len({other.cut(d) for d in cut}) < 2
      if factor.parts <= 1 or (alike and cut == dims[: len(cut)]):
        continue
      for inner in (abs(access.step(d)) for d in dims[:-1]):
        if inner > 1 and factor.extent % inner == 0:
          pieces = split_factor(factor, inner)
          if pieces and _fits_with(access, k, pieces, shape, steps):
            return True
  return False


def _fits_with(
  access: AffineAccess,
  k: int,
  pieces: tuple[Factor, Factor],
  shape: list[int],
  steps: list[int],
) -> bool:
  """Replaces factor k by `pieces`, if the digits exist without joining factors
  again: there are never more factors than dimensions."""
  before = access.factors
  access.factors = [*before[:k], *pieces, *before[k + 1 :]]
  if access.fit(shape, steps) is True and len(access.factors) > len(before):
    return True
  access.factors = before
  access.fit(shape, steps)
  return False
