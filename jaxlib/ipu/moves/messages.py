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

A *segment* is contiguous in the memories of both tiles, and can be sent from
its place as one message. Messages are sent in the receiver's storage order, so
the receiver sets its pointer once for each *contiguous destination*: an
interval of its memory that one peer fills
(runtime/moves/contiguous_destinations.h) [D].

If the instructions of all these messages took no less memory than the data, a
tile copies instead, which takes less code, and a buffer while the exchange
lasts [D]:

- The sender packs what goes to one peer in that peer's storage order. It
  arrives in place; the receiver sets the pointer anew for each contiguous
  destination during the message.
- Or the sender sends its own contiguous sources, if they are few, from their
  place. The receiver buffers everything and unpacks it.
- Or both copy, if both have too many contiguous intervals, or intervals that
  do not begin and end at words. The sender packs in the storage order of one
  end, so that the other end only has to copy contiguous intervals [D].

The alternative with the smallest copies is taken, and of equal ones that with
the least code. In a program whose code has no room, a word of code has a price
in bytes copied (tile_passes/pack.py), and the cheapest alternative is taken.
No copy is needed for a single segment from each peer: these
arrive in the order of their destinations, without setting the pointer anew [D].
Poplar packs in this way (the strided copies in its profile of a halo exchange)
[S], and so does ipu-stack, unless the copy takes longer than 160 cycles for
each segment that is sent from its place (`IPU21_LOGICAL_FRAGMENT_CYCLES`) [S],
which segments as small as these never do. For an interval that does not begin
and end at words, the words that contain it are sent, and the receiver extracts
it.

Packing is one copy on the tile for all moves of an exchange, and so are
unpacking and copying what stays on its tile when a root is copied to another
(`cost.local_copy`). A copy moves 8 bytes a cycle, as in poplin for contiguous
data (ConvModel.cpp, `reorderBytesPerCycle`) [S], and takes one more cycle for
each segment, whose first load has no parallel store [D]. Operands that vertices
read as vectors are copied as well, if they lie on their tile in segments
smaller than a vector; all others are read in place [D].

The numbers of segments and peers are upper bounds for all tiles
(moves/segments.py).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.move_ends import (
  contiguous_counts,
  move_ends,
  staying_segments,
)
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.moves.traffic import (
  EndFigures,
  FullestEnds,
  Traffic,
  of_move,
  traffic,
)

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


@of_move
def messages(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
  word_price: int = 0,
) -> Messages | None:
  """The code and buffers that a move needs; None if nothing changes its tile.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
    word_price: bytes that tiles may copy to save a word of code.
  """
  found = move_ends(source, destination, shape, item_bytes, once)
  if found is None:
    return None
  scheme = _cheapest(
    found.ends, (source, destination, shape, item_bytes), word_price
  )
  words = scheme.receives * found.mask(found.receivers)
  words += scheme.sends * found.mask(found.senders)
  buffers = None
  if scheme.packs or scheme.unpacks:
    moved = traffic(source, destination, shape, item_bytes, once)
    buffers = (scheme.unpacks > 0) * moved.received + (
      scheme.packs > 0
    ) * moved.sent
  return Messages(words, words > 0, scheme.packs, scheme.unpacks, buffers)


@of_move
def move_traffic(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool = False,
  gathers: bool = False,
  word_price: int = 0,
) -> Traffic:
  """A move's traffic, or an upper bound, with the copies that pack and unpack
  its messages.

  Args:
    source, destination, shape, item_bytes, once: see `traffic.traffic`.
    gathers: whether what stays on its tile is also copied, if it lies there in
      segments smaller than a vector.
    word_price: see `messages`.
  """
  moved = traffic(source, destination, shape, item_bytes, once)
  found = messages(source, destination, shape, item_bytes, once, word_price)
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
  source: MoveEnd,
  destination: MoveEnd,
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
  segments, most = staying_segments(source, destination, shape, item_bytes)
  if narrow and (segments <= 1 or most >= VECTOR * segments):
    return None
  kept = traffic(source, destination, shape, item_bytes).kept
  return kept if kept is None or not most else _copied(kept, segments)


def _copied(size: Array, segments: int) -> Array | None:
  """The size of a copy on each tile (see `vectors`). The fullest tile has so
  many segments, and the segments of the others are taken to be as large."""
  most = int(size.max())
  if not segments or not most:
    return None
  return -(-size * (vectors(most, segments) // VECTOR) // most) * VECTOR


def vectors(size: int, segments: int) -> int:
  """The bytes that a copy is charged for: each segment in whole vectors, plus
  one vector per segment, whose first load has no parallel store.

  Args:
    size: bytes copied.
    segments: number of segments, of equal sizes.
  """
  return segments * (1 - (-size // (segments * VECTOR))) * VECTOR


class _Scheme(NamedTuple):
  """How to turn segments into messages; figures of the fullest tiles.

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

  def rank(self, word_price: int) -> tuple[int, int]:
    """Sort key; lower is better."""
    words = self.sends + self.receives
    return self.copies + word_price * words, words


def _cheapest(
  found: FullestEnds,
  ends: tuple[MoveEnd, MoveEnd, tuple[int, ...], int],
  word_price: int,
) -> _Scheme:
  """The scheme of a move between two ends at a price for code."""
  sender, receiver, whole = found.sender, found.receiver, found.whole
  plain = _plain(sender, receiver, receiver.segments) if whole else None
  if plain is not None and receiver.segments <= receiver.peers:
    if not word_price:
      return plain
  sources, destinations, even = contiguous_counts(found, *ends)
  if plain is not None and even:
    plain = _plain(sender, receiver, destinations) or plain
  if plain is not None and not word_price:
    return plain
  schemes = [
    plain,
    _both(sender, sender.segments, receiver, destinations),
    _both(sender, sources, receiver, receiver.segments),
    _unpacked(sender, sources, receiver),
  ]
  if even:
    schemes.append(_packed(sender, receiver, destinations))
  elif whole:
    schemes.append(_packed(sender, receiver, receiver.segments))
  return min(
    (s for s in schemes if s is not None), key=lambda s: s.rank(word_price)
  )


def _plain(
  sender: EndFigures, receiver: EndFigures, destinations: int
) -> _Scheme | None:
  """Sends each segment from its place, in the receiver's storage order, in
  which it has so many contiguous `destinations`. Returns None if the code would
  be no smaller than the data."""
  sends = _sent(sender, sender.segments)
  receives = _received(receiver, destinations)
  if sends is None or receives is None:
    return None
  return _Scheme(0, sends, receives)


def _packed(
  sender: EndFigures, receiver: EndFigures, destinations: int
) -> _Scheme | None:
  """Senders pack in the storage order of the receivers, each of which has so
  many contiguous `destinations`. Returns None if the code would be no smaller
  than the data."""
  sends = _sent(sender, sender.peers)
  receives = _received(receiver, destinations)
  if sends is None or receives is None:
    return None
  copies = _vectors(sender, sender.segments)
  return _Scheme(copies, sends, receives, packs=sender.segments)


def _unpacked(
  sender: EndFigures, sources: int, receiver: EndFigures
) -> _Scheme | None:
  """Senders send so many contiguous `sources` from their place, and receivers
  unpack them. Returns None if the code would be no smaller than the data."""
  sends = _sent(sender, sources)
  if sends is None:
    return None
  copies = _vectors(receiver, receiver.segments)
  return _Scheme(copies, sends, 1 + receiver.peers, unpacks=receiver.segments)


def _both(
  sender: EndFigures, packs: int, receiver: EndFigures, unpacks: int
) -> _Scheme:
  """Sends one message to each peer. Messages have the storage order of one
  end, which copies contiguous intervals; the other end copies segments."""
  sends = _sent(sender, sender.peers)
  assert sends is not None
  copies = _vectors(sender, packs) + _vectors(receiver, unpacks)
  return _Scheme(copies, sends, 1 + receiver.peers, packs, unpacks)


def _vectors(figures: EndFigures, segments: int) -> int:
  """The size of the copy of all of a tile's bytes in so many segments."""
  return vectors(figures.size, segments) if segments and figures.size else 0


def _received(figures: EndFigures, messages: int) -> int | None:
  """Words of code that receive so many messages, each at its own destination.
  Returns None if they would take no less memory than the data."""
  if messages > 1 and WORD * messages >= figures.size:
    # A single message from each peer can arrive in the order of destinations,
    # which does not need to set the pointer anew.
    return 1 + figures.peers if messages <= figures.peers else None
  return messages + figures.peers


def _sent(figures: EndFigures, messages: int) -> int | None:
  """Words of code that send so many messages. Returns None if they would take
  no less memory than the data."""
  if messages > figures.peers and 2 * WORD * messages >= figures.size:
    return None
  longest = -(-figures.size // (WORD * messages))
  return messages * (2 - (-max(longest - _SEND, 0) // _SEND_ON))


def row_words(sends: int, receives: int) -> int:
  """Words of code of a tile that sends and receives so many messages, each to
  or from another tile."""
  return 2 * (sends + receives) + ROW
