"""Hints: what a compute set's cycles depend on besides its fields, the types of
its operands and results, and its largest cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
  """What is known of every compute set; `Builder.execute` adds it. A codelet
  whose `cycles` need more has a subclass, its `Codelet.hints`.

  Attributes:
    scalars: the numbers of the operands that have one element.
    walks: for each operand that is broadcast along some dimensions, not all,
      whether it varies along each dimension of the iteration space.
  """

  scalars: tuple[int, ...] = ()
  walks: tuple[tuple[bool, ...], ...] = ()

  def reading(
    self, shape: Sequence[int], accesses: Sequence[Sequence[int]]
  ) -> Self:
    """These hints, with the scalars and walks of operands.

    Args:
      shape: the iteration space.
      accesses: for each operand its dimension for each one of the iteration
        space, or -1 where it is broadcast.
    """
    scalars = tuple(
      i for i, dims in enumerate(accesses) if all(d < 0 for d in dims)
    )
    walks = tuple(_walks(shape, accesses))
    if (scalars, walks) == (self.scalars, self.walks):
      return self  # most have neither, and a replacement takes longer
    return dataclasses.replace(self, scalars=scalars, walks=walks)


def _walks(
  shape: Sequence[int], accesses: Iterable[Sequence[int]]
) -> Iterable[tuple[bool, ...]]:
  for dims in accesses:
    if -1 not in dims:
      continue
    moves = tuple(d >= 0 for d in dims)
    still = any(n > 1 and not m for n, m in zip(shape, moves, strict=True))
    if still and any(moves):
      yield moves


NO_HINTS = Hints()
