"""Counts what exchanges move, element by element, and checks closed forms.

What a tile receives and sends (plan/traffic.py), and in how many pieces and
stretches from how many tiles (plan/messages.py), is charged by closed forms,
which are exact or bounds for all tiles.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.local_copies import copies
from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.distinct import overlapping
from jaxlib.ipu.plan.layout import Array, Layout, sizes_of_parts
from jaxlib.ipu.plan.messages import ends, stretched
from jaxlib.ipu.plan.runs import WORD
from jaxlib.ipu.plan.traffic import traffic
from jaxlib.ipu.program.tile_memory import strided

# Maximum elements of a move that is counted; larger ones take too long.
_LARGEST = 1 << 15


class InvalidExchange(Exception):
  """An exchange that is charged too little."""


class Counted(NamedTuple):
  """Counts of a move; all but the first two of the fullest tile.

  Attributes:
    received, sent: elements, by tile.
    pieces: that arrive, contiguous in the memories of both tiles.
    partners: tiles that they come from.
    leaving_pieces: the same of what leaves. A piece that several tiles listen
      to counts once.
    arriving, leaving: stretches, whose elements come from, or go to, the same
      tiles.
    even: whether stretches that arrive begin and end at words.
  """

  received: Array
  sent: Array
  pieces: int
  partners: int
  leaving_pieces: int
  arriving: int
  leaving: int
  even: bool


def verify(builder: Builder) -> None:
  """Counts the moves of a program.

  Raises:
    InvalidExchange: names the first that is charged for less than it is.
  """
  tensors = builder.tensors
  for step in copies(builder.steps):
    for m in step.moves:
      a, b = tensors[m.source], tensors[m.destination]
      _verify(
        Side(a.layout, m.source_offset, tuple(m.source_strides)),
        Side(b.layout, m.destination_offset, tuple(m.destination_strides)),
        tuple(m.shape),
        SIZE[a.dtype],
        b.root != m.destination,
      )


@functools.lru_cache(maxsize=4096)
def _verify(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
) -> None:
  move = source, destination, shape, item_bytes, once
  size = source.layout.num_replicas * destination.layout.num_replicas
  if not 0 < size * math.prod(shape) <= _LARGEST:
    return
  found = counted(source, destination, shape, max(WORD // item_bytes, 1), once)
  moved = traffic(*move)
  for what, said, is_ in (
    ("received", moved.received, found.received),
    ("sent", moved.sent, found.sent),
  ):
    low = said[: len(is_)] < is_[: len(said)] * item_bytes
    if low.any() or is_[len(said) :].any():
      raise InvalidExchange(f"more is {what} than charged: {move}")
  both = ends(*move)
  if both is None:
    return
  leaving, arriving, even = stretched(both, *move[:-1])
  bounds = [("partners", both.end.partners, found.partners)]
  # Elements needed in several places of a tile may arrive once, laid out as in
  # their root.
  steps = [s for n, s in zip(shape, source.strides) if n > 1]
  alone = all(steps) and not overlapping(shape, source.strides)
  if alone:
    bounds += [
      ("pieces", both.end.pieces, found.pieces),
      ("stretches", arriving, found.arriving),
      ("pieces that leave", both.begin.pieces, found.leaving_pieces),
      ("stretches that leave", leaving, found.leaving),
    ]
  for what, most, count in bounds:
    if most < count:
      raise InvalidExchange(f"{count} {what}, {most} charged: {move}")
  if alone and even and not found.even:
    raise InvalidExchange(f"words are torn: {move}")


def counted(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  grain: int,
  once: bool = True,
) -> Counted:
  """Counts a move element by element.

  Args:
    source, destination, shape, once: see `traffic.traffic`. An element that a
      tile needs in several places goes to the first of them, if it comes once.
    grain: elements of a word.
  """
  begin = strided(source.offset, shape, source.strides).reshape(-1)
  end = strided(destination.offset, shape, destination.strides).reshape(-1)
  sender, at = _places(source.layout, begin)
  near, to = _places(destination.layout, end)
  holders = sender + Layout((), source.layout.replicas).tiles()[:, None]
  tile = near + Layout((), destination.layout.replicas).tiles()[:, None]
  missing = (tile[:, None] != holders).all(1)
  each = (x[missing] for x in np.broadcast_arrays(tile, to, sender, at))
  found = np.stack(list(each))
  found = found[:, np.lexsort((found[1], found[0]))]  # as in tiles' memories
  if once:
    _, first = np.unique(found[[0, 2, 3]], axis=1, return_index=True)
    found = found[:, np.sort(first)]
  tile, to, sender, at = found
  if not tile.size:
    return Counted(tile, tile, 0, 0, 0, 0, 0, True)
  follows = _follow(tile, to) & (sender[1:] == sender[:-1])
  piece = np.append(True, ~(follows & (at[1:] == at[:-1] + 1)))
  stretch = np.append(True, ~follows)
  last = np.append(~follows, True)
  behind = to[last] + 1
  size = destination.layout.elements(tile[last])
  even = not (to[stretch] % grain).any()
  even &= not (behind % grain * (behind < size)).any()
  pairs = np.unique(np.stack((tile, sender)), axis=1)
  return Counted(
    np.bincount(tile),
    np.bincount(np.unique(np.stack((sender, at)), axis=1)[0]),
    _most(tile[piece]),
    _most(pairs[0]),
    _leaving(sender, at, tile, to - at),
    _most(tile[stretch]),
    _leaving(sender, at, tile, np.zeros_like(to)),
    even,
  )


def _leaving(sender: Array, at: Array, tile: Array, shift: Array) -> int:
  """Intervals of the fullest sender's memory whose elements go to the same
  tiles, each shifted by a constant."""
  found = np.unique(np.stack((sender, at, tile, shift)), axis=1)
  sender, at, *goes = found
  new = np.append(True, (sender[1:] != sender[:-1]) | (at[1:] != at[:-1]))
  starts = np.flatnonzero(new)
  count = np.diff(starts, append=len(at))
  # Offset from an element's destinations to the next element's, if both have
  # equally many.
  group = np.cumsum(new) - 1
  there = np.minimum(np.arange(len(at)) + count[group], len(at) - 1)
  other = np.any([x != x[there] for x in goes], 0)
  same = ~np.logical_or.reduceat(other, starts)
  sender, at = sender[starts], at[starts]
  same = same[:-1] & (count[1:] == count[:-1]) & _follow(sender, at)
  return _most(sender[np.append(True, ~same)])


def _follow(tile: Array, at: Array) -> npt.NDArray[np.bool_]:
  """Which places follow the ones before them."""
  return (tile[1:] == tile[:-1]) & (at[1:] == at[:-1] + 1)


def _most(tiles: Array) -> int:
  """The count of the most frequent tile."""
  return int(np.bincount(tiles).max())


def _places(layout: Layout, elements: Array) -> tuple[Array, Array]:
  """The tile of each element (of replicas the first), and its place in the
  tile's memory."""
  tile = np.full_like(elements, layout.base)
  at = np.zeros_like(elements)
  unit = layout.num_elements
  for f in layout.factors:
    unit //= f.extent
    digit = elements // unit % f.extent
    part = digit // f.block
    tile += part * f.stride
    at = at * sizes_of_parts(f, part) + digit - part * f.block
  return tile, at
