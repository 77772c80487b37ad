"""Splits the iteration space of a move so that each dimension steps along one
factor of the mapping at either end.

What is counted along one dimension then does not depend on the others, except
for dimensions that the same factor cuts (moved_elements.py).
"""

from __future__ import annotations

from jaxlib.ipu.layout import Factor, split_factor
from jaxlib.ipu.moves.affine import AffineAccess

Accesses = tuple[
  AffineAccess, AffineAccess
]  # of the source and of the destination
Strides = tuple[list[int], list[int]]  # at both ends, by dimension


def unify(accesses: Accesses, shape: list[int], strides: Strides) -> bool:
  """Splits dimensions, and joins and splits factors, until both ends' accesses
  have digits; returns whether they have.

  Args:
    accesses: both ends, modified in place.
    shape: the iteration space, whose dimensions are split in place.
    strides: split in place along with `shape`.
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
        # Factors that had to be joined may fit the smaller dimensions unjoined.
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
  """Splits a factor that cuts several dimensions, if the other end cuts them
  by several factors or in another order; returns whether it did."""
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
          halves = split_factor(factor, inner)
          if halves and _fits_with(access, k, halves, shape, steps):
            return True
  return False


def _fits_with(
  access: AffineAccess,
  k: int,
  halves: tuple[Factor, Factor],
  shape: list[int],
  steps: list[int],
) -> bool:
  """Replaces factor k by `halves` if the access then has digits without joining
  factors again, and returns whether it did. This cannot go on for ever: there
  are never more factors than dimensions."""
  before = access.factors
  access.factors = [*before[:k], *halves, *before[k + 1 :]]
  if access.fit(shape, steps) is True and len(access.factors) > len(before):
    return True
  access.factors = before
  access.fit(shape, steps)
  return False
