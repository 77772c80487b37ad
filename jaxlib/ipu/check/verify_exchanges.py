"""Counts what exchanges move, and checks the closed forms that are charged.

What a tile receives and sends (moves/traffic.py), in how many segments and
contiguous destinations and from how many peers (moves/messages.py), is charged
by closed forms, which are exact or upper bounds for all tiles. They are
compared with a count of all elements (check/count_moves.py). For large moves in
many chunks, only what some tiles receive and send is counted; moves in more
than `_MOST_CHUNKS` chunks are not checked.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from jaxlib.ipu.check.count_moves import counted, one_to_one
from jaxlib.ipu.check.moved_chunks import number_of_chunks
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.layout import Array
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.move_ends import contiguous_counts, fullest_ends
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.moves.traffic import Traffic, traffic
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.walk import exchanges

# All chunks of a move are counted if there are at most so many, which takes
# about half a second.
_CHUNKS = 1 << 20
# Finding more chunks takes too long, and one tile may send all of them; a
# guess.
_MOST_CHUNKS = 1 << 24


class InvalidExchange(Exception):
  """An exchange that is charged too little."""


def verify(program: TileProgram) -> None:
  """Counts the moves of a program.

  Raises:
    InvalidExchange: names the first move that is charged too little.
  """
  tensors = program.tensors
  for step in exchanges(program.steps):
    for m in step.moves:
      a, b = tensors[m.source], tensors[m.destination]
      _verify(
        MoveEnd(a.layout, m.source_offset, tuple(m.source_strides)),
        MoveEnd(b.layout, m.destination_offset, tuple(m.destination_strides)),
        tuple(m.shape),
        SIZE[a.dtype],
        b.root != m.destination,
      )


@functools.lru_cache(maxsize=4096)
def _verify(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> None:
  chunks = (
    number_of_chunks(source, destination, shape) if math.prod(shape) else 0
  )
  if not 0 < chunks <= _MOST_CHUNKS:
    return
  move = source, destination, shape, item_bytes, once
  moved = traffic(*move)
  grain = max(WORD // item_bytes, 1)
  tiles = _some(moved, chunks)
  found = counted(source, destination, shape, grain, once, tiles)
  for what, said, is_ in (
    ("received", moved.received, found.received),
    ("sent", moved.sent, found.sent),
  ):
    low = said[: len(is_)] < is_[: len(said)] * item_bytes
    if low.any() or is_[len(said) :].any():
      raise InvalidExchange(f"more is {what} than charged: {move}")
  both = fullest_ends(*move)
  if both is None:
    return
  leaving, arriving, even = contiguous_counts(both, *move[:-1])
  bounds = [("peers", both.receiver.peers, found.peers)]
  # Elements needed in several places of a tile may arrive once, laid out as in
  # their root.
  alone = one_to_one(shape, source.strides)
  if alone:
    bounds += [
      ("segments", both.receiver.segments, found.segments),
      ("contiguous destinations", arriving, found.arriving),
      ("segments that leave", both.sender.segments, found.leaving_segments),
      ("contiguous sources", leaving, found.leaving),
    ]
  for what, most, count in bounds:
    if most < count:
      raise InvalidExchange(f"{count} {what}, {most} charged: {move}")
  if alone and even and not found.even:
    raise InvalidExchange(f"words are torn: {move}")


def _some(moved: Traffic, chunks: int) -> Array | None:
  """The tiles to count for a move of so many chunks; None for all. These are
  the fullest ones by the closed form, the first, the last, and others at
  random."""
  if chunks <= _CHUNKS:
    return None
  size = len(moved.received)
  fullest = moved.received.argmax(), moved.sent.argmax()
  others = np.random.default_rng(0).permutation(size)
  return np.array([*fullest, 0, size - 1, *others[: size * _CHUNKS // chunks]])
