"""Bytes that an exchange makes each tile receive and send, and how many of them
the tile's own bus carries. The library counts the elements
(runtime/moves/moved_elements.h)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import repeats
from jaxlib.ipu.moves.native import moved_bytes

Array = npt.NDArray[np.int64]
_F = TypeVar("_F", bound=Callable[..., Any])


class EndFigures(NamedTuple):
  """The tile that sends or receives most.

  Attributes:
    segments: segments that it sends or receives.
    peers: the tiles that it exchanges them with.
    size: bytes that it sends or receives.
    elements: elements that it holds at this end.
  """

  segments: int
  peers: int
  size: int
  elements: int


class FullestEnds(NamedTuple):
  """The fullest sender and receiver of a move.

  Attributes:
    sender, receiver: their figures.
    whole: whether all segments begin and end at words.
    even: whether the receiver's contiguous blocks begin and end at words.
    keeps: whether every tile already holds some of what it needs.
  """

  sender: EndFigures
  receiver: EndFigures
  whole: bool
  even: bool
  keeps: bool


class Traffic(NamedTuple):
  """What a move makes each tile send, receive and copy. Compared by identity,
  so that functions of it can be cached.

  Attributes:
    received: bytes that each tile receives because it does not hold them.
    sent: bytes that each tile sends. A message to which several tiles listen
      is sent once, as the exchange is a broadcast medium. If several tiles
      hold an element, the one in the first replica sends it.
    alike: whether the tiles of each pair (2i, 2i + 1) receive the same.
    kept: bytes that each tile copies from place to place in its own memory;
      None if not counted.
    ends: the tiles that send and receive most; None if nothing changes its
      tile, or if unknown.
    staying: segments and bytes that stay on the tile of which most does; zeros
      if there are none or they are not counted.
    packed, unpacked: bytes, in whole vectors, that each tile copies to pack
      what it sends, and to unpack what it has received (moves/messages.py);
      None if no tile does.
  """

  received: Array
  sent: Array
  alike: bool = False
  kept: Array | None = None
  ends: FullestEnds | None = None
  staying: tuple[int, int] = (0, 0)
  packed: Array | None = None
  unpacked: Array | None = None

  def __eq__(self, other: object) -> bool:
    return self is other

  def __hash__(self) -> int:
    return id(self)

  def load(self) -> tuple[Array, Array]:
    """The bytes received and sent that each tile's own bus carries.

    What both tiles of a pair receive travels in words of 64 bits, which use the
    buses of both of them, and both buses of the sender's pair.
    """
    if not self.alike:
      return self.received, self.sent
    return -(-self.received // 2), halved(self.sent)


def halved(sent: Array) -> Array:
  """The mean over each pair of tiles (2i, 2i + 1), rounded up."""
  whole = np.append(sent, 0) if len(sent) % 2 else sent
  pairs = whole[::2] + whole[1::2]
  return np.repeat(-(-pairs // 2), 2)[: len(sent)]


def of_move(function: _F) -> _F:
  """Caches a function of a move, whose arguments begin with those of `traffic`.

  A view without repeated elements is the same move with and without `once`, so
  it is asked about once.
  """
  cached = functools.lru_cache(maxsize=4096)(function)

  @functools.wraps(function)
  def ask(
    source: MoveEnd,
    destination: MoveEnd,
    shape: tuple[int, ...],
    item_bytes: int,
    once: bool = False,
    *rest: Any,
    **named: Any,
  ) -> Any:
    once = once and repeats(shape, source.strides)
    return cached(source, destination, shape, item_bytes, once, *rest, **named)

  return cast(_F, ask)


@of_move
def traffic(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool = False,
) -> Traffic:
  """Bytes that a move makes each tile receive and send, or upper bounds.

  Args:
    source: the mapping and access of the tensor that is read.
    destination: those of the tensor that is written, each element once.
    shape: the iteration space.
    item_bytes: bytes per element.
    once: whether a tile that needs an element in several places receives it
      only once.

  Returns:
    Arrays over the tiles up to the last one that takes part.
  """
  last = max(source.layout.last_tile, destination.layout.last_tile)
  if math.prod(shape) == 0:
    nothing = np.zeros(last + 1, np.int64)
    return Traffic(nothing, nothing, False, nothing)
  figures, counted = moved_bytes(
    source, destination, shape, item_bytes, once, last + 1
  )
  figures.flags.writeable = False
  received, sent, kept = figures
  *ends, segments, most = counted
  return Traffic(
    received,
    sent,
    destination.layout.pairs_alike,
    kept,
    _fullest(item_bytes, *ends),
    (segments, most * item_bytes),
  )


def _fullest(item_bytes: int, *ends: int) -> FullestEnds | None:
  *tiles, whole, even, keeps = ends
  sender, receiver = (
    EndFigures(segments, peers, moved * item_bytes, elements)
    for segments, peers, moved, elements in (tiles[:4], tiles[4:])
  )
  if not receiver.size:
    return None
  return FullestEnds(sender, receiver, bool(whole), bool(even), bool(keeps))
