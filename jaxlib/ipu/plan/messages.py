"""SRAM that an exchange takes on its tiles: code and message buffers.

Exchanges are timed when a program is compiled, so a tile's part of one is a
straight-line sequence (row) of instructions. ipu-stack has read them off a
C600, and off rows of Poplar's own (crates/ipu-target/src/exchange.rs and
docs/EXCHANGE_INSTRUCTION_REFERENCE.md) [S]:

- a message that is sent: `delay` until its time, `send` for its first 64
  words, `sendoff` for each further 4,096 words;
- one that is received: the pointer to its destination (PIC), and if the last
  one came from another tile, its source (XPIC);
- once: the neutral source, `delay` until the end, the return.

A message is contiguous in the sender's memory and in the receiver's. It is sent
in the order of the latter, where the pointer is set once for all that continues
in one stretch (plan/stretches.py) [D]. Where its instructions take no less than
its data, one of the two tiles copies: less code, and a buffer while the
exchange lasts [D]. A sender that packs what it sends to a tile in the order of
that tile's memory leaves nothing to unpack: it arrives at its destination, in
as many parts as it has there, and the pointer is set anew during the message.
What has few parts at its source is sent as it is, and the receiver receives all
in one piece and unpacks it. Where both sides have too many parts, or parts that
do not begin and end at words, the sender packs in one side's order, so that the
other side copies no more than these parts [D]. The cheapest copies are taken,
and among those the least code. One piece from each other tile is sent in place,
and received in the order of destinations, without a copy [D]. Poplar packs in
this way (the strided copies in its profile of a halo exchange) [S], and so does
ipu-stack, unless the copy takes longer than 160 cycles for each piece that is
sent as it is (`IPU21_LOGICAL_FRAGMENT_CYCLES`) [S], which pieces as small as
these never do. For a part that does not begin and end at words, the words that
contain it are sent, and the receiver extracts it.

Packing and unpacking are copies on the tile, each of all moves of an exchange
(`cost.local_copy`), as is the part of a root's copy that stays on its tile: 8
bytes a cycle, as in poplin for contiguous data (ConvModel.cpp,
`reorderBytesPerCycle`) [S], and one more cycle for each piece, whose first load
has no parallel store [D]. Operands of vertices that read vectors are copied
too, if they are on the tile in pieces smaller than a vector; all others are
read in place [D]. A move's pieces and partners are bounds for all tiles
(plan/runs.py).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.distinct import overlapping
from jaxlib.ipu.plan.runs import WORD, runs
from jaxlib.ipu.plan.stretches import stretches
from jaxlib.ipu.plan.traffic import Traffic, traffic

Array = npt.NDArray[np.int64]

# Bytes that a copy on a tile moves at once (`Target::getMemcpyBytesPerCycle`)
# [S].
VECTOR = 8
# Bytes of pieces that are sent as they are: their instructions take half that.
WIDE = 16
# Maximum words of `send` and of `sendoff` (ipu-stack) [S].
_SEND, _SEND_ON = 64, 4096
# Words of a row besides its messages: neutral source, delay, return
# (ipu-stack) [S].
ROW = 3


class End(NamedTuple):
  """Figures of the fullest sender or receiver: pieces, tiles of the other side,
  bytes."""

  pieces: int
  partners: int
  size: int


class Ends(NamedTuple):
  """Both ends of a move.

  Attributes:
    begin, end: the tiles that send and receive most.
    whole: whether all pieces begin and end at words.
    keeps: whether every tile has some of what it needs.
  """

  begin: End
  end: End
  whole: bool
  keeps: bool


class Messages(NamedTuple):
  """A move's code and buffers on each tile.

  Attributes:
    words: of exchange code, without the fixed part of a row.
    busy: which tiles have any.
    packs, unpacks: pieces that the fullest tile copies to what it sends, or
      from what it has received; 0 if tiles do not.
    buffers: bytes of each tile's buffer; None if no tile has one.
  """

  words: Array
  busy: npt.NDArray[np.bool_]
  packs: int
  unpacks: int
  buffers: Array | None


@functools.lru_cache(maxsize=4096)
def messages(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> Messages | None:
  """A move's code and buffers on each tile; None if nothing changes its tile.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
  """
  found = ends(source, destination, shape, item_bytes, once)
  if found is None:
    return None
  begin, end, whole, _ = found
  sides = source, destination, shape, item_bytes
  way = _plain(begin, end, end.pieces) if whole else None
  if way is None or end.pieces > end.partners:
    leaving, arriving, even = stretched(found, *sides)
    if way is not None and even:
      way = _plain(begin, end, arriving) or way
  if way is None:
    ways = [
      _both(begin, begin.pieces, end, arriving),
      _both(begin, leaving, end, end.pieces),
      _unpacked(begin, leaving, end),
    ]
    if even:
      ways.append(_packed(begin, end, arriving))
    elif whole:
      ways.append(_packed(begin, end, end.pieces))
    way = min((w for w in ways if w is not None), key=_Way.rank)
  moved = traffic(source, destination, shape, item_bytes, once)
  arrives, leaves = moved.received > 0, moved.sent > 0
  words = way.receives * arrives + way.sends * leaves
  buffers = None
  if way.packs or way.unpacks:
    buffers = (way.unpacks > 0) * moved.received + (way.packs > 0) * moved.sent
  return Messages(words, words > 0, way.packs, way.unpacks, buffers)


def ends(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> Ends | None:
  """The tiles that send and receive most; None if nothing changes its tile.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
  """
  moved = traffic(source, destination, shape, item_bytes, once)
  most = int(moved.received.max(initial=0)) // item_bytes
  if not most:
    return None
  to, of = runs(destination, source, shape, item_bytes)
  keeps = moved.kept is not None and bool(moved.kept.all())
  left = int(moved.sent.max()) // item_bytes
  end = End(*to.crossing(most, keeps, moved.arriving), most * item_bytes)
  begin = End(*of.crossing(left, keeps, moved.leaving), left * item_bytes)
  return Ends(begin, end, to.whole, keeps)


def stretched(
  found: Ends,
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
) -> tuple[int, int, bool]:
  """Numbers of stretches that the ends of a move send and receive, and whether
  those that arrive begin and end at words."""
  to, of = runs(destination, source, shape, item_bytes)
  grain = max(WORD // item_bytes, 1)
  arriving, even = stretches(destination, source, shape, to.elements, grain)
  leaving, _ = stretches(source, destination, shape, of.elements, grain)
  # What a tile keeps is a stretch of its own, if no other tile reads it.
  arriving = max(min(arriving - found.keeps, found.end.pieces), 1)
  keeps = found.keeps and _one_reader(source, destination, shape)
  leaving = max(min(leaving - keeps, found.begin.pieces), 1)
  return leaving, arriving, even and to.even


@functools.lru_cache(maxsize=4096)
def move(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool = False,
  gathers: bool = False,
) -> Traffic:
  """A move's traffic, or an upper bound, with the copies that pack and unpack
  its messages.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
    gathers: also copy what stays on its tile, if it is in pieces smaller than
      a vector.
  """
  moved = traffic(source, destination, shape, item_bytes, once)
  found = messages(source, destination, shape, item_bytes, once)
  packed = unpacked = None
  if found is not None and found.buffers is not None:
    packed = _copied(moved.sent, found.packs)
    unpacked = _copied(moved.received, found.unpacks)
  if gathers:
    beside = staying(source, destination, shape, item_bytes, narrow=True)
    if beside is not None:
      unpacked = beside if unpacked is None else unpacked + beside
  if packed is None and unpacked is None:
    return moved
  return moved._replace(packed=packed, unpacked=unpacked)


@functools.lru_cache(maxsize=4096)
def staying(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  narrow: bool = False,
) -> Array | None:
  """Bytes in vectors that each tile copies to other places of its own; None if
  not counted.

  Args:
    source, destination, shape, item_bytes: see `traffic.traffic`.
    narrow: only if they are in pieces smaller than a vector.
  """
  kept = traffic(source, destination, shape, item_bytes).kept
  if kept is None or not kept.any():
    return None if narrow else kept
  most = int(kept.max()) // item_bytes
  pieces = min(
    side.crossing(most, False)[0]
    for side in runs(source, destination, shape, item_bytes)
  )
  if narrow and (pieces == 1 or most * item_bytes >= VECTOR * pieces):
    return None
  return _copied(kept, pieces)


def _copied(size: Array, pieces: int) -> Array | None:
  """Bytes in vectors, plus one vector for each piece, if the fullest tile has
  so many pieces and the others no smaller ones."""
  most = int(size.max())
  if not pieces or not most:
    return None
  return -(-size * (vectors(most, pieces) // VECTOR) // most) * VECTOR


def vectors(size: int, pieces: int) -> int:
  """Bytes in vectors of a copy of so many bytes in so many pieces, plus one
  vector for each piece."""
  return pieces * (1 - (-size // (pieces * VECTOR))) * VECTOR


def _one_reader(
  source: Side, destination: Side, shape: tuple[int, ...]
) -> bool:
  """Whether each element goes to a single place."""
  steps = [s for n, s in zip(shape, source.strides) if n > 1]
  return (
    destination.layout.num_replicas == 1
    and all(steps)
    and not overlapping(shape, source.strides)
  )


class _Way(NamedTuple):
  """A way to turn pieces into messages.

  Attributes:
    copies: bytes in vectors, of the fullest tiles.
    sends, receives: words of exchange code.
    packs, unpacks: pieces that are copied; 0 if tiles do not.
  """

  copies: int
  sends: int
  receives: int
  packs: int = 0
  unpacks: int = 0

  def rank(self) -> tuple[int, int]:
    """Sort key; lower is better."""
    return self.copies, self.sends + self.receives


def _plain(begin: End, end: End, stretches: int) -> _Way | None:
  """Each piece is sent as it is, in the order of the receivers' memory, where
  so many stretches arrive; None if code is no smaller than the data."""
  sends = _sent(begin, begin.pieces)
  receives = _received(end, stretches)
  if sends is None or receives is None:
    return None
  return _Way(0, sends, receives)


def _packed(begin: End, end: End, stretches: int) -> _Way | None:
  """Senders pack in the order of the receivers' memory; these receive so many
  stretches."""
  sends = _sent(begin, begin.partners)
  receives = _received(end, stretches)
  if sends is None or receives is None:
    return None
  copies = _vectors(begin, begin.pieces)
  return _Way(copies, sends, receives, packs=begin.pieces)


def _unpacked(begin: End, stretches: int, end: End) -> _Way | None:
  """Senders send so many stretches in place; receivers unpack them."""
  sends = _sent(begin, stretches)
  if sends is None:
    return None
  copies = _vectors(end, end.pieces)
  return _Way(copies, sends, 1 + end.partners, unpacks=end.pieces)


def _both(begin: End, packs: int, end: End, unpacks: int) -> _Way:
  """One message for each pair of tiles, in the order of one of them: the other
  one copies pieces, that one copies stretches."""
  sends = _sent(begin, begin.partners)
  assert sends is not None
  copies = _vectors(begin, packs) + _vectors(end, unpacks)
  return _Way(copies, sends, 1 + end.partners, packs, unpacks)


def _vectors(end: End, pieces: int) -> int:
  """Bytes in vectors of a copy of so many pieces."""
  return vectors(end.size, pieces) if pieces and end.size else 0


def _received(end: End, messages: int) -> int | None:
  """Words that receive so many messages, each in its place; None if they are
  too many."""
  if messages > 1 and WORD * messages >= end.size:
    # One from each: they can arrive in the order of their places without
    # setting the pointer anew.
    return 1 + end.partners if messages <= end.partners else None
  return messages + end.partners


def _sent(end: End, messages: int) -> int | None:
  """Words that send so many messages; None if they are too many."""
  if messages > end.partners and 2 * WORD * messages >= end.size:
    return None
  longest = -(-end.size // (WORD * messages))
  return messages * (2 - (-max(longest - _SEND, 0) // _SEND_ON))


def between(sends: int, receives: int) -> int:
  """Words of a tile's part of an exchange with so many messages, each from or
  to another tile."""
  return 2 * (sends + receives) + ROW
