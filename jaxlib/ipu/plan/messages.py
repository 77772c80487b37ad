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
(`cost.local_copy`): 8 bytes a cycle, as poplin has it for what is contiguous
(ConvModel.cpp, `reorderBytesPerCycle`) [S], and a cycle more for each piece,
whose first load has no store beside it [D]. A move's pieces and partners are
found for the fullest tile, from the mappings' blocks, the strides and what of
its lines crosses: they are bounds for all tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.plan.layout import Factor, Layout
from jaxlib.ipu.plan.traffic import Lines, Traffic, traffic
from jaxlib.ipu.plan.walk import Side

Array = npt.NDArray[np.int64]

WORD = 4
# What a copy on a tile moves at once (`Target::getMemcpyBytesPerCycle`) [S].
VECTOR = 8
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


class Runs(NamedTuple):
  """Of one side of a move: the fullest tile's, and so any tile's at most.

  Attributes:
    pieces: contiguous in its memory and in that of the other side's tile.
    partners: tiles of the other side. What several tiles listen to is one
      message, and of replicas the first one sends.
    piece: elements of each piece; 1 where they may differ.
    cut: into how many pieces a row of `block` elements is cut, at most.
    block: elements that are contiguous in its memory.
    whole: whether all pieces begin and end where words do.
  """

  pieces: int
  partners: int
  piece: int
  cut: int
  block: int
  whole: bool

  def crossing(
    self, most: int, keeps: bool, lines: Lines | None = None
  ) -> tuple[int, int]:
    """Pieces and partners of a tile of which so many elements cross to other
    tiles at most; `keeps`: itself is among the partners; `lines`: of what
    crosses."""
    pieces = max(min(self.pieces, -(-most // self.piece)), 1)
    if lines is not None and pieces > 1:
      row = min(lines.length, self.block)
      each = -(-int(np.max(lines.inner)) // row) * self.cut
      pieces = max(min(pieces, lines.crossing(each)), 1)
    return pieces, min(max(self.partners - keeps, 1), pieces)


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


def runs(
  one: Side, other: Side, shape: tuple[int, ...], item_bytes: int
) -> tuple[Runs, Runs]:
  """What the fullest tile of one side of a move sends to, or receives from,
  the other side's; and the other way round."""
  if 0 in shape:
    return Runs(0, 0, 1, 1, 1, True), Runs(0, 0, 1, 1, 1, True)
  line, apart = _line(shape, one.strides, other.strides)
  grain = WORD // item_bytes
  first, second = _padded(one.layout, other.layout, grain)
  if line == one.layout.num_elements == other.layout.num_elements:
    line = max(first.row, second.row)  # all of both
  spacings = [one.offset, other.offset, *first, *second]
  spacings += [line, *(x for pair in apart for x in pair)] if apart else []
  whole = grain < 2 or not _off(spacings, grain)
  back = [(t, s) for s, t in apart]

  def side(near: _End, far: _End) -> Runs:
    held = [_held(near.side, shape, d) for d in range(len(shape))]
    elements = math.prod(h.indices for h in held)
    pieces, piece = _pieces(line, near, far)
    count = min(-(-elements // min(line, near.block)) * pieces, elements)
    partners = min(_met(held, far.side, shape), count) if count > 1 else 1
    return Runs(count, partners, piece, pieces, near.block, whole)

  ends = _End.of(one, first, apart), _End.of(other, second, back)
  return side(*ends), side(*ends[::-1])


def _line(
  shape: Sequence[int], near: Sequence[int], far: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
  """Elements that are contiguous in both roots: a line; in both, the strides
  from there to other lines."""
  length, apart = 1, []
  for s, t, n in sorted(zip(near, far, shape)):
    if n == 1:
      continue
    if s == t == length and not apart:
      length *= n
    else:
      apart.append((s, t))
  return length, apart


class _End(NamedTuple):
  """One side of a move.

  Attributes:
    side: its mapping and walk.
    block: elements that are contiguous in the memory of a tile.
    row: the interval in which blocks begin anew; its last one may be short.
    apart: strides from a line to others.
    beside: what each of them is less than on the other side.
  """

  side: Side
  block: int
  row: int
  apart: list[int]
  beside: list[int]

  @classmethod
  def of(
    cls, side: Side, blocks: _Blocks, apart: list[tuple[int, int]]
  ) -> _End:
    """A side, given its strides and the other's."""
    own = [s for s, _ in apart]
    return cls(side, *blocks, own, [t - s for s, t in apart])


def _pieces(line: int, near: _End, far: _End) -> tuple[int, int]:
  """How many messages what a tile holds contiguously of a line is, at most;
  and their length, 1 where that may differ."""
  own, block, row = near.side.offset, near.block, near.row
  if line <= block:
    even = _fits(line, own, (*near.apart, block, row))
    run, starts = line, (far.side.offset, line, *far.apart)
  else:
    even = not row % block and not _off((line, own, *near.apart), block)
    run, starts = block, (far.side.offset - own, block, row, *near.beside)
    inside = not _off((line, own, *near.apart), row)
    if not (even or inside or _fits(line, own, (*near.apart, row))):
      return 2 * _cuts(run, far), 1
  limits = (far.block, far.row)
  shift = (*near.beside, row, *limits)
  delta = far.side.offset - own
  if (
    _fits(run, starts[0], (*starts[2 if line <= block else 1 :], *limits))
    or _fits(block, delta, (block, *shift))
    or _fits(row, delta, shift)
    or (line > block and _nested(near, far, delta))
  ):
    cuts, length = 1, run
  elif not far.row % far.block and not _off((run, *starts), far.block):
    cuts, length = run // far.block, far.block
  else:
    cuts, length = _cuts(run, far), 1
  whole = even and (line <= block or not row % block)
  return (1 if whole or line > block else 2) * cuts, length if whole else 1


def _nested(near: _End, far: _End, delta: int) -> bool:
  """Whether both sides' blocks begin anew at the same places, and each of the
  other's is some of one's own."""
  alike = near.row == far.row and not _off((delta, *near.beside), near.row)
  return alike and not far.block % near.block


def _cuts(run: int, far: _End) -> int:
  """In how many blocks of the other side a run may lie."""
  ends = (run - 1) // far.row + 1 if far.row % far.block else 0
  return (run - 1) // far.block + 2 + ends


def _fits(size: int, start: int, steps: Sequence[int]) -> bool:
  """Whether intervals that begin at a start and multiples of steps from there
  lie between multiples of all steps."""
  grid = math.gcd(*steps)
  return start % grid + size <= grid


def _off(starts: Sequence[int], spacing: int) -> bool:
  return any(x % spacing for x in starts)


class _Blocks(NamedTuple):
  """Elements that are contiguous in the memory of a tile, and the interval in
  which such blocks begin anew, where the last may be short."""

  block: int
  row: int


def _padded(one: Layout, other: Layout, grain: int) -> tuple[_Blocks, _Blocks]:
  """The blocks of two mappings, where what only a root's end cuts short is
  whole, to the next word."""
  found = [(_blocks(x), x.num_elements) for x in (one, other)]
  unit = math.lcm(max(grain, 1), *(b.block for b, n in found if b.block < n))
  first, second = (
    _Blocks(*(x if x < n else -(-x // unit) * unit for x in b))
    for b, n in found
  )
  return first, second


def _blocks(layout: Layout) -> _Blocks:
  unit = 1
  for f in reversed(layout.factors):
    if f.parts > 1:
      return _Blocks(f.block * unit, f.extent * unit)
    unit *= f.extent
  return _Blocks(unit, unit)


class _Held(NamedTuple):
  """Of a dimension of the iteration space: how many indices a tile has, at
  most; how many lie from its first to its last; and whether every tile's first
  one is a multiple of that."""

  indices: int
  span: int
  even: bool


def _held(side: Side, shape: Sequence[int], d: int) -> _Held:
  extent, stride = shape[d], abs(side.strides[d])
  if extent == 1 or not stride:
    return _Held(1, 1, True)
  f, unit = _factor(side.layout, stride)
  if f.parts <= 1:
    return _Held(extent, extent, True)
  step, rest = divmod(stride, unit)
  if rest:
    return _Held(extent, extent, False)
  start = side.offset // unit % f.extent
  # How far smaller steps lead along the same factor.
  inside = sum(
    (n - 1) * abs(s)
    for n, s in zip(shape, side.strides)
    if unit <= abs(s) < stride
  )
  even = (
    side.strides[d] > 0
    and not start % f.block
    and not f.block % step
    and inside < stride
  )
  count = (f.block - 1) // step + 1 + (inside > 0 and not even)
  reach = start + (extent - 1) * step
  if reach >= f.extent or side.strides[d] < 0:
    # Once in each of the blocks to which it carries.
    count *= (extent - 1) * step // f.extent + 2
    return _Held(min(count, extent), extent, False)
  count = min(count, extent)
  return _Held(count, count, even)


def _factor(layout: Layout, stride: int) -> tuple[Factor, int]:
  """The factor along which a stride steps, and its unit."""
  unit = layout.num_elements
  for f in layout.factors:
    unit //= f.extent
    if unit <= stride:
      break
  return f, unit


def _met(held: Sequence[_Held], far: Side, shape: Sequence[int]) -> int:
  """Of how many tiles on the other side a tile's elements are."""
  most = math.prod(h.indices for h in held)
  tiles, carry, unit = 1, 0, 1
  for f in reversed(far.layout.factors):
    if f.extent == 1:
      continue
    dims = [
      (abs(s) // unit, n, h if s > 0 else h._replace(even=False))
      for h, s, n in zip(held, far.strides, shape)
      if n > 1 and unit <= abs(s) < unit * f.extent
    ]
    if any(unit <= abs(s) < unit * f.extent and s % unit for s in far.strides):
      return min(most, math.prod(x.parts for x in far.layout.factors))
    dims.sort(reverse=True)
    start = far.offset // unit % f.extent
    tiles *= _parts(f, start, carry, dims)
    reach = carry + sum((n - 1) * step for step, n, _ in dims)
    over = start + reach >= f.extent or any(s < 0 for s in far.strides)
    span = carry + sum((h.span - 1) * step for step, _, h in dims)
    carry = span // f.extent + 1 if over else 0
    unit *= f.extent
  return min(most, tiles)


def _parts(
  f: Factor, start: int, carry: int, dims: Sequence[tuple[int, int, _Held]]
) -> int:
  """In how many parts of a factor some digits lie: those to which dimensions
  lead from a start, each (step, extent, held), the largest step first."""
  if f.parts <= 1 or not (carry or any(h.indices > 1 for _, _, h in dims)):
    return 1
  if len(dims) == 1 and not carry and dims[0][2].even:
    width = dims[0][2].indices * dims[0][0]
    if not f.block % width and not start % width:
      return 1
    if not width % f.block and not start % f.block:
      return min(width // f.block, f.parts)
  # Each index along the outer dimensions, and a span of the inner ones.
  found, outer = f.parts, 1
  span = carry + sum((h.span - 1) * step for step, _, h in dims)
  for step, _, h in dims:
    found = min(found, outer * (span // f.block + 2))
    outer *= h.indices
    span -= (h.span - 1) * step
  return min(found, outer * (span // f.block + 2))
