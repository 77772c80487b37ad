"""What the planner has to know of the two ends of a move, without the bytes of
every tile.

Large programs ask several times about more moves than the figures of all tiles
can be kept of (traffic.of_move): when alternatives are priced, when code is
counted, and when messages are packed. What is kept here takes a few hundred
bytes a move.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import repeats
from jaxlib.ipu.moves.native import contiguous_destinations
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.moves.traffic import FullestEnds, traffic

Bits = npt.NDArray[np.uint8]

# Moves of which it is kept: more than large programs have. [G]
_KEPT = 1 << 15


class MoveEnds(NamedTuple):
  """What is kept of a move.

  Attributes:
    ends: the tiles that send and receive most.
    receivers, senders: which tiles receive and send, as bits.
    length: the number of these tiles.
  """

  ends: FullestEnds
  receivers: Bits
  senders: Bits
  length: int

  def mask(self, bits: Bits) -> npt.NDArray[np.bool_]:
    """Which tiles receive or send."""
    return np.unpackbits(bits, count=self.length).view(np.bool_)


def fullest_ends(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> FullestEnds | None:
  """The tiles that send and receive most; None if nothing changes its tile.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
  """
  found = move_ends(source, destination, shape, item_bytes, once)
  return None if found is None else found.ends


@functools.lru_cache(maxsize=_KEPT)
def move_ends(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> MoveEnds | None:
  """The ends of a move; None if nothing changes its tile."""
  moved = traffic(source, destination, shape, item_bytes, once)
  if moved.ends is None:
    return None
  return MoveEnds(
    moved.ends,
    np.packbits(moved.received > 0),
    np.packbits(moved.sent > 0),
    len(moved.received),
  )


@functools.lru_cache(maxsize=_KEPT)
def contiguous_counts(
  found: FullestEnds,
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
) -> tuple[int, int, bool]:
  """The contiguous sources of the fullest sender, the contiguous destinations
  of the fullest receiver, and whether the latter begin and end at words."""
  grain = max(WORD // item_bytes, 1)
  destinations, even = contiguous_destinations(
    destination, source, shape, found.receiver.elements, grain
  )
  sources, _ = contiguous_destinations(
    source, destination, shape, found.sender.elements, grain
  )
  # What a receiver keeps is at least one such interval, which it does not
  # receive. A sender does not send what it keeps, unless another tile reads it
  # as well.
  destinations = min(destinations - found.keeps, found.receiver.segments)
  keeps = found.keeps and _one_reader(source, destination, shape)
  sources = min(sources - keeps, found.sender.segments)
  return max(sources, 1), max(destinations, 1), even and found.even


@functools.lru_cache(maxsize=_KEPT)
def staying_segments(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
) -> tuple[int, int]:
  """The segments and bytes that stay on the tile of which most does; zeros if
  there are none or they are not counted."""
  return traffic(source, destination, shape, item_bytes).staying


def _one_reader(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> bool:
  """Whether each element is read for a single place on a single tile."""
  return destination.layout.num_replicas == 1 and not repeats(
    shape, source.strides
  )
