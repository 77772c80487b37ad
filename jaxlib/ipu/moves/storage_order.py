"""Operands whose storage order differs from their vertices' iteration order.

Vertices load and store whole vectors, so all operands over which they iterate
together need one storage order. An operand in another order is copied before
the compute set, and a result after it, as Poplar does for operands that are not
contiguous [D]. If two orders share their inner dimensions, and these fill a
vector, vertices iterate over rows instead of copying.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.moves.messages import VECTOR, vectors


class StorageOrder(NamedTuple):
  """The storage order of an operand or result of a compute set.

  Attributes:
    tensor: a number that identifies the operand or result.
    order: the iteration space's dimensions along which it is not broadcast, in
      storage order, outermost first.
    item_bytes: bytes of an element.
  """

  tensor: int
  order: tuple[int, ...]
  item_bytes: int


@functools.lru_cache(maxsize=4096)
def storage_order(dims: tuple[int, ...]) -> tuple[int, ...]:
  """The storage order of an access, outermost dimension first.

  For each dimension of the iteration space, `dims` has the tensor's dimension
  with the same index, or -1 where the tensor is broadcast.
  """
  return tuple(
    sorted((d for d, own in enumerate(dims) if own >= 0), key=dims.__getitem__)
  )


@functools.lru_cache(maxsize=4096)
def ascending(order: tuple[int, ...]) -> bool:
  """Whether a storage order is that of the iteration space."""
  return order == tuple(sorted(order))


def order_copies(
  cell: Sequence[int], given: Sequence[StorageOrder]
) -> dict[StorageOrder, int]:
  """The operands and results that a tile has to copy into the common order, and
  the bytes of each copy in whole vectors.

  The common order is the storage order of one of them: the one for which the
  copies of the others are the smallest.

  Args:
    cell: the cell's extent along each dimension of the iteration space.
    given: all operands and results.
  """
  iterated = sum(extent > 1 for extent in cell)
  orders = {
    one: tuple(d for d in one.order if cell[d] > 1)
    for one in dict.fromkeys(given)
  }
  found = []
  for order in dict.fromkeys(orders.values()):
    if len(order) == iterated:
      copies = {
        one: _copied(cell, own, order, one.item_bytes)
        for one, own in orders.items()
      }
      found.append({one: size for one, size in copies.items() if size})
  return min(found, key=lambda copies: sum(copies.values()), default={})


def _copied(
  cell: Sequence[int],
  own: tuple[int, ...],
  order: tuple[int, ...],
  item_bytes: int,
) -> int:
  """The size of a copy from storage order `own` into `order` (see
  `messages.vectors`); 0 if the inner dimensions that both share fill a vector.
  """
  wanted = [d for d in order if d in own]
  inner, same = 1, len(own)
  while same and own[same - 1] == wanted[same - 1]:
    same -= 1
    inner *= cell[own[same]]
  if not same or inner * item_bytes >= VECTOR:
    return 0
  pieces = math.prod(cell[d] for d in own[:same])
  return vectors(pieces * inner * item_bytes, pieces)
