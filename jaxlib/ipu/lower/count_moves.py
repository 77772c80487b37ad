"""Counts what a move makes tiles receive and send, without closed forms.

- *Runs.* Elements that are consecutive, and on one tile, on both sides are
  counted together (lower/moved_runs.py).
- *Pairs.* Whether a run changes tile depends only on the tiles at both ends, so
  what each pair of tiles exchanges is added up first. All replicas of the
  destination need the same runs.
- *Tiles.* Everything that a tile receives and sends can be counted for some
  tiles, if a move is too large to count it for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxlib.ipu.lower.moved_runs import Mask, Runs, alike, runs_of
from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.distinct import overlapping
from jaxlib.ipu.plan.layout import Array, Layout


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


def counted(
  source: Side,
  destination: Side,
  shape: tuple[int, ...],
  grain: int,
  once: bool = True,
  tiles: Array | None = None,
) -> Counted:
  """Counts a move.

  Args:
    source, destination, shape, once: see `traffic.traffic`. An element that a
      tile needs in several places goes to the first of them, if it comes once.
    grain: elements of a word.
    tiles: counts only what these receive, and what they send; None for all.
  """
  copies = Layout((), destination.layout.replicas).tiles()
  chosen = None
  if tiles is not None:
    last = max(source.layout.last_tile, destination.layout.last_tile)
    chosen = np.zeros(last + 1, np.bool_)
    chosen[tiles[tiles <= last]] = True
  runs = runs_of(source, destination, shape, chosen)
  several = not one_to_one(shape, source.strides)
  if several:
    runs = alike(runs)
  # In the order of the receivers' memories.
  runs = runs.part(_order(runs.near, runs.to))
  if several and once:
    elements = source.layout.num_elements
    each = runs.near * elements + runs.begin
    runs = runs.part(np.sort(np.unique(each, return_index=True)[1]))
  if not runs.near.size:
    nothing = np.zeros(0, np.int64)
    return Counted(nothing, nothing, 0, 0, 0, 0, 0, True)

  follows = _follow(runs.near, runs.to, runs.length)
  follows &= runs.sender[1:] == runs.sender[:-1]
  stretch = np.append(True, ~follows)
  piece = np.append(True, ~(follows & _adjoin(runs.at, runs.length)))
  starts = np.flatnonzero(stretch)
  ends = np.append(starts[1:], len(stretch)) - 1
  size = destination.layout.elements(runs.near[starts])
  behind = runs.to[ends] + runs.length[ends]
  torn = (runs.to[starts] % grain > 0) | (behind % grain * (behind < size) > 0)

  span = source.layout.last_tile + 1
  pairs, pair = np.unique(
    runs.near[starts] * span + runs.sender[starts], return_inverse=True
  )
  tile = pairs[:, None] // span + copies
  moves = _missing(tile - pairs[:, None] % span, source.layout)
  leaves = runs.part(
    np.logical_or.reduce(moves, 1)[pair][np.cumsum(stretch) - 1]
  )
  if chosen is not None:
    moves &= chosen[tile]
    leaves = leaves.part(chosen[leaves.sender])

  def arriving(counts: Array) -> Array:
    """What each tile receives of something that is given for each stretch."""
    total = np.bincount(pair, counts)
    each = np.broadcast_to(total[:, None], tile.shape)[moves]
    return np.bincount(tile[moves], each).astype(np.int64)

  sent, leaving_pieces, leaving = _leaving(leaves)
  return Counted(
    arriving(np.add.reduceat(runs.length, starts)),
    sent,
    _most(arriving(np.add.reduceat(piece.astype(np.int64), starts))),
    _most(np.bincount(tile[moves])),
    leaving_pieces,
    _most(arriving(np.ones_like(starts))),
    leaving,
    not arriving(torn).any(),
  )


def _missing(apart: Array, source: Layout) -> Mask:
  """Whether a tile lacks what a sender has, given how far it is from it."""
  span = int(np.abs(apart).max(initial=0)) + source.last_tile
  held = np.zeros(2 * span + 1, np.bool_)
  held[span + Layout((), source.replicas).tiles()] = True
  return ~held[span + apart]


def _leaving(runs: Runs) -> tuple[Array, int, int]:
  """Elements that each tile sends; and pieces and stretches of the fullest
  one: intervals of its memory whose elements go to the same tiles, each shifted
  by a constant, or anywhere. The runs are in the order of the receivers."""
  if not runs.near.size:
    return np.zeros(0, np.int64), 0, 0
  # In the order of the senders' memories.
  runs = runs.part(_order(runs.sender, runs.at))
  pieces = _intervals(runs, runs.near, runs.to - runs.at)
  # To several places of one tile.
  again = _same(runs.sender, runs.at, runs.near)
  if again.any():
    runs = runs.part(np.append(True, ~again))
  first = runs.part(np.append(True, ~_same(runs.sender, runs.at)))
  sent = np.bincount(first.sender, first.length).astype(np.int64)
  return sent, pieces, _intervals(runs, runs.near)


def _intervals(runs: Runs, *goes: Array) -> int:
  """Intervals of the fullest sender's memory of which all elements go to the
  same."""
  new = np.append(True, ~_same(runs.sender, runs.at))
  starts = np.flatnonzero(new)
  count = np.diff(starts, append=len(new))
  # Where an element's destinations end, those of the next one begin: compares
  # both in order, if they are equally many.
  there = np.arange(len(new)) + count[np.cumsum(new) - 1]
  there = np.minimum(there, len(new) - 1)
  other = np.any([x != x[there] for x in goes], 0)
  same = ~np.logical_or.reduceat(other, starts)[:-1]
  same &= count[1:] == count[:-1]
  sender, at, length = (x[starts] for x in (runs.sender, runs.at, runs.length))
  same &= _follow(sender, at, length)
  return _most(np.bincount(sender[np.append(True, ~same)]))


def _order(tile: Array, at: Array) -> Array:
  """The order of places in tiles' memories."""
  size = int(at.max(initial=0)) + 1
  return np.argsort(tile * size + at, kind="stable")


def _same(*of: Array) -> Mask:
  """Which are the same as the ones before them."""
  return np.all([x[1:] == x[:-1] for x in of], 0)


def _adjoin(at: Array, length: Array) -> Mask:
  """Which places adjoin the ones before them."""
  return at[1:] == at[:-1] + length[:-1]


def _follow(tile: Array, at: Array, length: Array) -> Mask:
  """Which places adjoin the ones before them, on the same tile."""
  return _same(tile) & _adjoin(at, length)


def _most(counts: Array) -> int:
  """The count of the fullest tile."""
  return int(counts.max(initial=0))


def one_to_one(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
  """Whether a view has each element of its root once."""
  steps = [s for n, s in zip(shape, strides) if n > 1]
  return all(steps) and not overlapping(shape, strides)
