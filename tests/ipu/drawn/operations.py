"""All families of operations for random programs."""

from __future__ import annotations

from . import (
  contractions,
  elementwise,
  indexing,
  movement,
  nesting,
  numerics,
  reductions,
)

FAMILIES = nesting.FAMILIES
FAMILIES += [
  elementwise.OPERATIONS,
  movement.OPERATIONS,
  reductions.OPERATIONS,
  indexing.OPERATIONS,
  contractions.OPERATIONS,
  nesting.OPERATIONS,
  numerics.OPERATIONS,
  elementwise.OPERATIONS,
  nesting.OPERATIONS,
]
