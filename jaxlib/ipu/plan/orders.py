"""Operands whose order in memory differs from their vertices' iteration order.

Vertices load and store vectors, so all operands that they iterate over together
need one order. Others are copied: as Poplar does before a compute set with
non-contiguous operands, and after it with results [D]. Where the orders share
their inner dimensions, and these fill a vector, vertices iterate over rows
instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets._codelet import Extents
from jaxlib.ipu.plan.messages import VECTOR, vectors


class Lying(NamedTuple):
  """An operand or result of a compute set.

  Attributes:
    tensor: its number.
    order: its dimensions of the iteration space in memory order, outermost
      first.
    item_bytes: bytes of an element.
  """

  tensor: int
  order: tuple[int, ...]
  item_bytes: int


@functools.lru_cache(maxsize=4096)
def in_memory(dims: tuple[int, ...]) -> tuple[int, ...]:
  """The memory order of an access; for each dimension of the iteration space,
  `dims` has the tensor's own or -1."""
  return tuple(
    sorted((d for d, own in enumerate(dims) if own >= 0), key=dims.__getitem__)
  )


@functools.lru_cache(maxsize=4096)
def ascending(order: tuple[int, ...]) -> bool:
  """Whether a memory order is that of the iteration space."""
  return order == tuple(sorted(order))


def turned(cell: Extents, given: Sequence[Lying]) -> dict[Lying, int]:
  """The operands and results that a tile has to copy, and the bytes in vectors
  of each copy, for the cheapest of the orders that they have.

  Args:
    cell: the cell's extent along each dimension of the iteration space.
    given: operands and results.
  """
  walked = sum(extent > 1 for extent in cell)
  lying = {
    one: tuple(d for d in one.order if cell[d] > 1)
    for one in dict.fromkeys(given)
  }
  found = []
  for order in dict.fromkeys(lying.values()):
    if len(order) == walked:
      copies = {
        one: _copied(cell, own, order, one.item_bytes)
        for one, own in lying.items()
      }
      found.append({one: size for one, size in copies.items() if size})
  return min(found, key=lambda copies: sum(copies.values()), default={})


def _copied(
  cell: Extents, own: tuple[int, ...], order: tuple[int, ...], item_bytes: int
) -> int:
  """Bytes in vectors of a copy from one order into another; 0 if vectors can be
  loaded as they are."""
  wanted = [d for d in order if d in own]
  inner, same = 1, len(own)
  while same and own[same - 1] == wanted[same - 1]:
    same -= 1
    inner *= cell[own[same]]
  if not same or inner * item_bytes >= VECTOR:
    return 0
  pieces = math.prod(cell[d] for d in own[:same])
  return vectors(pieces * inner * item_bytes, pieces)
