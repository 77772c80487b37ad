"""Operands that lie in another order than vertices go through them.

Vertices load and store vectors, so all that they go through side by side has to
lie in one order. What does not is copied: as Poplar does before a compute set
with what is not contiguous, and after it with results [D]. Where the orders
share their inner dimensions, and these fill a vector, vertices go through rows
of them instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets._codelet import Extents
from jaxlib.ipu.plan.messages import VECTOR, vectors


class Lying(NamedTuple):
  """What a compute set reads or writes.

  Attributes:
    tensor: its number.
    order: the dimensions of the iteration space that it has, as they lie in
      memory, the outermost first.
    item_bytes: bytes of an element.
  """

  tensor: int
  order: tuple[int, ...]
  item_bytes: int


@functools.lru_cache(maxsize=4096)
def in_memory(dims: tuple[int, ...]) -> tuple[int, ...]:
  """The order of an access: for each dimension of the iteration space, `dims`
  has the tensor's own or -1."""
  return tuple(
    sorted((d for d, own in enumerate(dims) if own >= 0), key=dims.__getitem__)
  )


@functools.lru_cache(maxsize=4096)
def ascending(order: tuple[int, ...]) -> bool:
  """Whether something lies in the order of the iteration space."""
  return order == tuple(sorted(order))


def turned(cell: Extents, given: Sequence[Lying]) -> dict[Lying, int]:
  """What a tile has to copy for vertices that go through a cell, and the bytes
  in vectors that each copy takes; of the orders that something lies in, the one
  with the least of them.

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
  """Bytes in vectors that it takes to bring one order into another."""
  wanted = [d for d in order if d in own]
  inner, same = 1, len(own)
  while same and own[same - 1] == wanted[same - 1]:
    same -= 1
    inner *= cell[own[same]]
  if not same or inner * item_bytes >= VECTOR:
    return 0
  pieces = math.prod(cell[d] for d in own[:same])
  return vectors(pieces * inner * item_bytes, pieces)
