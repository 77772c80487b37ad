"""What an exchange takes of the tiles' SRAM: its code, and message buffers.

Exchanges are timed when a program is compiled, so a tile's part of one is a row
of instructions, one after the other. ipu-stack has taken them off a C600, and
off rows of Poplar's own (crates/ipu-target/src/exchange.rs and
docs/EXCHANGE_INSTRUCTION_REFERENCE.md) [S]:

- a message that is sent: `delay` until its time, `send` for its first 64
  words, `sendoff` for each 4,096 words more;
- one that is received: the pointer to where it goes (PIC), and where the last
  one came from another tile, its source (XPIC);
- once: the neutral source, `delay` until the end, the return.

A message is contiguous in the sender's memory and in the receiver's. Where its
instructions take no less than its data, a tile packs what it sends for each of
the others, or receives all in one piece and unpacks it: less code, and a buffer
while the exchange lasts [D]. Where that is one piece of each other tile, it is
sent from its place, and received in the order of places, without a copy [D]. So
does Poplar (the strided copies in its profile of a halo exchange) [S], and
ipu-stack, unless the copy takes longer than 160 cycles for each piece that is
sent as it is (`IPU21_LOGICAL_FRAGMENT_CYCLES`) [S], which pieces as small as
these never do. Of a piece that does not begin and end where words do, the words
that have it are sent, and the receiver takes it out of them.

Packing and unpacking are copies on the tile, each of all moves of an exchange
(`cost.local_copy`), as is what a copy of a root leaves on its tile: 8 bytes a
cycle, as poplin has it for what is contiguous (ConvModel.cpp,
`reorderBytesPerCycle`) [S], and a cycle more for each piece, whose first load
has no store beside it [D]. A move's pieces and partners are bounds for all
tiles (plan/runs.py).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.plan.runs import WORD, runs
from jaxlib.ipu.plan.traffic import Traffic, traffic
from jaxlib.ipu.plan.walk import Side

Array = npt.NDArray[np.int64]

# What a copy on a tile moves at once (`Target::getMemcpyBytesPerCycle`) [S].
VECTOR = 8
# Bytes of pieces that go as they are: their instructions take half as much.
WIDE = 16
# Words that `send` and `sendoff` send, at most (ipu-stack) [S].
_SEND, _SEND_ON = 64, 4096
# Of a row, beside its messages: neutral source, delay, return (ipu-stack) [S].
ROW = 3


class Messages(NamedTuple):
  """What a move takes of each tile.

  Attributes:
    words: of exchange code, without what a row has once.
    busy: which tiles have any.
    packs, unpacks: pieces that the fullest tile copies to what it sends, or
      from what it has received; 0 where tiles do not.
    buffers: bytes in which a tile does; None where no tile does.
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
  """What a move takes of each tile; None if nothing changes its tile.

  Args:
    source, destination, shape, item_bytes, once: as of `traffic.traffic`.
  """
  moved = traffic(source, destination, shape, item_bytes, once)
  most = int(moved.received.max(initial=0)) // item_bytes
  if not most:
    return None
  to, of = runs(destination, source, shape, item_bytes)
  keeps = moved.kept is not None and bool(moved.kept.all())
  left = int(moved.sent.max()) // item_bytes
  to_pieces, senders = to.crossing(most, keeps, moved.arriving)
  receives, unpacks = _received(to.whole, to_pieces, senders, most * item_bytes)
  of_pieces, receivers = of.crossing(left, keeps, moved.leaving)
  sends, packs = _sent(of_pieces, receivers, left * item_bytes)
  arrives, leaves = moved.received > 0, moved.sent > 0
  buffers = None
  if packs or unpacks:
    buffers = unpacks * moved.received + packs * moved.sent
  words = receives * arrives + sends * leaves
  return Messages(
    words, words > 0, packs * of_pieces, unpacks * to_pieces, buffers
  )


@functools.lru_cache(maxsize=4096)
def move(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool = False,
) -> Traffic:
  """What a move makes each tile receive and send, or more, and what it copies
  to pack and unpack messages.

  Args:
    source, destination, shape, item_bytes, once: as of `traffic.traffic`.
  """
  moved = traffic(source, destination, shape, item_bytes, once)
  found = messages(source, destination, shape, item_bytes, once)
  if found is None or found.buffers is None:
    return moved
  return moved._replace(
    packed=_copied(moved.sent, found.packs),
    unpacked=_copied(moved.received, found.unpacks),
  )


@functools.lru_cache(maxsize=4096)
def staying(
  source: Side, destination: Side, shape: tuple[int, ...], item_bytes: int
) -> Array | None:
  """Bytes in vectors that each tile copies to other places of its own; None
  where nobody counts them.

  Args:
    source, destination, shape, item_bytes: as of `traffic.traffic`.
  """
  kept = traffic(source, destination, shape, item_bytes).kept
  if kept is None or not kept.any():
    return kept
  most = int(kept.max()) // item_bytes
  pieces = min(
    side.pieces for side in runs(source, destination, shape, item_bytes)
  )
  return _copied(kept, min(pieces, most))


def _copied(size: Array, pieces: int) -> Array | None:
  """Bytes in vectors, and one vector for each piece, where the fullest tile has
  so many pieces and the others no smaller ones."""
  most = int(size.max())
  if not pieces or not most:
    return None
  vectors = pieces * (1 - (-most // (pieces * VECTOR)))
  return -(-size * vectors // most) * VECTOR


def _received(
  whole: bool, pieces: int, partners: int, size: int
) -> tuple[int, bool]:
  """Words, and whether the tile unpacks what comes in one piece: where it
  comes from and where it goes."""
  if not whole or (pieces > 1 and WORD * pieces >= size):
    # One piece from each: they may come in the order of their places, and the
    # pointer runs on.
    return 1 + partners, not whole or pieces > partners
  return pieces + partners, False


def _sent(pieces: int, partners: int, size: int) -> tuple[int, bool]:
  """Words, and whether the tile packs what goes to each other."""
  packs = pieces > partners and 2 * WORD * pieces >= size
  if packs:
    pieces = partners
  longest = -(-size // (WORD * pieces))
  return pieces * (2 - (-max(longest - _SEND, 0) // _SEND_ON)), packs


def between(sends: int, receives: int) -> int:
  """Words of a tile's part of an exchange of so many messages, each of
  another tile."""
  return 2 * (sends + receives) + ROW
