"""SRAM that an exchange takes on its tiles: code and message buffers.

Exchanges are timed when a program is compiled, so a tile's part of an exchange
is a straight-line sequence of instructions, a *row*. ipu-stack has read them
off a C600, and off rows of Poplar's own (crates/ipu-target/src/exchange.rs and
docs/EXCHANGE_INSTRUCTION_REFERENCE.md) [S]:

- to send a message: `delay` until its time, `send` for its first 64 words,
  `sendoff` for each further 4,096 words;
- to receive one: set the pointer to its destination (PIC) and, if the previous
  message came from another tile, its source (XPIC);
- once: the neutral source, `delay` until the end, the return.

A segment (*piece*) is contiguous in the memories of both tiles, and can be sent
from its place as one message. Messages are sent in the receiver's storage
order, so the receiver sets its pointer once for each contiguous destination
(*stretch*, plan/stretches.py) [D].

If the instructions of so many messages took no less memory than the data, a
tile copies instead, which takes less code, and a buffer while the exchange
lasts [D]:

- The sender packs what goes to one peer in that peer's storage order. It
  arrives in place; the receiver sets the pointer anew for each contiguous
  destination during the message.
- Or the sender sends its own stretches, if they are few, from their place. The
  receiver buffers everything and unpacks it.
- Or both copy, if both have too many stretches, or stretches that do not begin
  and end at words. The sender packs in the storage order of one side, so that
  the other side only has to copy stretches [D].

The alternative with the smallest copies is taken, and of equal ones that with
the least code. No copy is needed for a single segment from each peer: these
arrive in the order of their destinations, without setting the pointer anew [D].
Poplar packs in this way (the strided copies in its profile of a halo exchange)
[S], and so does ipu-stack, unless the copy takes longer than 160 cycles for
each segment that is sent from its place (`IPU21_LOGICAL_FRAGMENT_CYCLES`) [S],
which segments as small as these never do. For a stretch that does not begin and
end at words, the words that contain it are sent, and the receiver extracts it.

Packing is one copy on the tile for all moves of an exchange, and so are
unpacking and copying what stays on its tile when a root is copied to another
(`cost.local_copy`). A copy moves 8 bytes a cycle, as in poplin for contiguous
data (ConvModel.cpp, `reorderBytesPerCycle`) [S], and takes one more cycle for
each segment, whose first load has no parallel store [D]. Operands that vertices
read as vectors are copied as well, if they lie on their tile in segments
smaller than a vector; all others are read in place [D].

The numbers of segments and peers are upper bounds for all tiles (plan/runs.py).
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
# Segments of at least so many bytes are sent from their place: their
# instructions take half of that.
WIDE = 16
# Maximum words of `send` and of `sendoff` (ipu-stack) [S].
_SEND, _SEND_ON = 64, 4096
# Words of a row besides its messages: neutral source, delay, return
# (ipu-stack) [S].
ROW = 3


class End(NamedTuple):
  """The tile that sends or receives most: its numbers of segments and of peers,
  and its bytes."""

  pieces: int
  partners: int
  size: int


class Ends(NamedTuple):
  """The fullest sender and receiver of a move.

  Attributes:
    begin: the sender.
    end: the receiver.
    whole: whether all segments begin and end at words.
    keeps: whether every tile already holds some of what it needs.
  """

  begin: End
  end: End
  whole: bool
  keeps: bool


class Messages(NamedTuple):
  """The code and buffers that a move needs, as arrays over tiles.

  Attributes:
    words: words of exchange code, without the fixed part of a row.
    busy: whether the tile has any.
    packs: segments that the fullest sender packs; 0 if senders do not pack.
    unpacks: segments that the fullest receiver unpacks; 0 if receivers do not.
    buffers: bytes of the tile's buffer; None if no tile needs one.
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
  """The code and buffers that a move needs; None if nothing changes its tile.

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
  """The numbers of stretches of the fullest sender and of the fullest receiver,
  and whether those of receivers begin and end at words."""
  to, of = runs(destination, source, shape, item_bytes)
  grain = max(WORD // item_bytes, 1)
  arriving, even = stretches(destination, source, shape, to.elements, grain)
  leaving, _ = stretches(source, destination, shape, of.elements, grain)
  # What a receiver keeps is at least one stretch, which it does not receive. A
  # sender does not send what it keeps, unless another tile reads it as well.
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
    gathers: whether what stays on its tile is also copied, if it lies there in
      segments smaller than a vector.
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
  """The size of the copy that each tile makes of what stays on it, in bytes of
  whole vectors; None if there is none or it is not counted.

  Args:
    source, destination, shape, item_bytes: see `traffic.traffic`.
    narrow: whether to return None if segments fill vectors, so that vertices
      can read them in place.
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
  """The size of a copy on each tile (see `vectors`). The fullest tile has so
  many segments, and the segments of the others are taken to be as large."""
  most = int(size.max())
  if not pieces or not most:
    return None
  return -(-size * (vectors(most, pieces) // VECTOR) // most) * VECTOR


def vectors(size: int, pieces: int) -> int:
  """The bytes that a copy is charged for: each segment in whole vectors, plus
  one vector per segment, whose first load has no parallel store.

  Args:
    size: bytes copied.
    pieces: number of segments, of equal sizes.
  """
  return pieces * (1 - (-size // (pieces * VECTOR))) * VECTOR


def _one_reader(
  source: Side, destination: Side, shape: tuple[int, ...]
) -> bool:
  """Whether each element is read for a single place on a single tile."""
  steps = [s for n, s in zip(shape, source.strides) if n > 1]
  return (
    destination.layout.num_replicas == 1
    and all(steps)
    and not overlapping(shape, source.strides)
  )


class _Way(NamedTuple):
  """A way to turn segments into messages; figures of the fullest tiles.

  Attributes:
    copies: bytes copied, in whole vectors.
    sends, receives: words of exchange code of a sender and of a receiver.
    packs, unpacks: segments that a sender packs and a receiver unpacks.
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
  """Sends each segment from its place, in the receiver's storage order, in
  which it has so many contiguous destinations (`stretches`). None if the code
  would be no smaller than the data."""
  sends = _sent(begin, begin.pieces)
  receives = _received(end, stretches)
  if sends is None or receives is None:
    return None
  return _Way(0, sends, receives)


def _packed(begin: End, end: End, stretches: int) -> _Way | None:
  """Senders pack in the storage order of the receivers, each of which has so
  many contiguous destinations. None if the code would be no smaller than the
  data.
  """
  sends = _sent(begin, begin.partners)
  receives = _received(end, stretches)
  if sends is None or receives is None:
    return None
  copies = _vectors(begin, begin.pieces)
  return _Way(copies, sends, receives, packs=begin.pieces)


def _unpacked(begin: End, stretches: int, end: End) -> _Way | None:
  """Senders send so many stretches from their place; receivers unpack them.
  None if the code would be no smaller than the data."""
  sends = _sent(begin, stretches)
  if sends is None:
    return None
  copies = _vectors(end, end.pieces)
  return _Way(copies, sends, 1 + end.partners, unpacks=end.pieces)


def _both(begin: End, packs: int, end: End, unpacks: int) -> _Way:
  """Sends one message to each peer. Messages have the storage order of one
  side, which copies stretches; the other side copies segments."""
  sends = _sent(begin, begin.partners)
  assert sends is not None
  copies = _vectors(begin, packs) + _vectors(end, unpacks)
  return _Way(copies, sends, 1 + end.partners, packs, unpacks)


def _vectors(end: End, pieces: int) -> int:
  """The size of the copy of all of a tile's bytes in so many segments."""
  return vectors(end.size, pieces) if pieces and end.size else 0


def _received(end: End, messages: int) -> int | None:
  """Words of code that receive so many messages, each at its own destination;
  None if they would be no less than the data."""
  if messages > 1 and WORD * messages >= end.size:
    # A single message from each peer can arrive in the order of destinations,
    # which does not need to set the pointer anew.
    return 1 + end.partners if messages <= end.partners else None
  return messages + end.partners


def _sent(end: End, messages: int) -> int | None:
  """Words of code that send so many messages; None if they would be no less
  than the data."""
  if messages > end.partners and 2 * WORD * messages >= end.size:
    return None
  longest = -(-end.size // (WORD * messages))
  return messages * (2 - (-max(longest - _SEND, 0) // _SEND_ON))


def between(sends: int, receives: int) -> int:
  """Words of code of a tile that sends and receives so many messages, each to
  or from another tile."""
  return 2 * (sends + receives) + ROW
