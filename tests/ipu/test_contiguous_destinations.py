"""Contiguous destinations of a move, checked by counting those of every
tile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_traffic import TILES, mapped, root_shape, views

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.check.tile_memory import strided
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.native import contiguous_destinations
from jaxlib.ipu.moves.segments import count_segments
from jaxlib.ipu.tile.tensor import dense_strides
from jaxlib.ipu.tile.view import View

GRAIN = 2  # elements of a word


def arrivals(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...], kept: bool
) -> Iterator[list[tuple[int | None, int | None]]]:
  """For each tile, in memory order: the tile that each element comes from, or
  None, and its index in the root. `kept`: elements that a tile already has come
  from itself."""
  begin = strided(source.offset, shape, source.strides).reshape(-1)
  end = strided(destination.offset, shape, destination.strides).reshape(-1)
  origin = dict(zip(end.tolist(), begin.tolist(), strict=True))
  first = dataclasses.replace(source.layout, replicas=())
  place = {e: t for t in range(TILES) for e in first.owned(t).tolist()}
  for tile in range(TILES):
    here = set() if kept else set(source.layout.owned(tile).tolist())
    moved = [origin.get(e) for e in destination.layout.owned(tile).tolist()]
    yield [(None if e in here else place.get(e), e) for e in moved]


def counted(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  kept: bool = False,
) -> tuple[int, int, bool]:
  """The most intervals of a tile's memory that come from one tile, and that go
  to one tile; and whether arriving intervals begin and end at words."""
  wanted: dict[int, set[int]] = {}
  arriving = leaving = 0
  even = True
  for tile, found in enumerate(arrivals(source, destination, shape, kept)):
    last, count = None, 0
    for i, (sender, element) in enumerate(found):
      even &= sender == last or not i % GRAIN
      count += sender not in (None, last)
      if sender is not None:
        wanted.setdefault(element, set()).add(tile)
      last = sender
    arriving = max(arriving, count)
  first = dataclasses.replace(source.layout, replicas=())
  for tile in range(TILES):
    readers = [wanted.get(e) for e in first.owned(tile).tolist()]
    pairs = zip([None, *readers], readers)
    leaving = max(leaving, sum(x not in (None, last) for last, x in pairs))
  return arriving, leaving, even


def bounds(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> tuple[int, int, bool]:
  """The same in closed form."""
  to, of = count_segments(destination, source, shape, 4 // GRAIN)
  arriving, even = contiguous_destinations(
    destination, source, shape, to.elements, GRAIN
  )
  leaving, _ = contiguous_destinations(
    source, destination, shape, of.elements, GRAIN
  )
  return arriving, leaving, even and to.even


@st.composite
def layout_of(draw, shape: tuple[int, ...]) -> Layout:
  """A mapping as for other moves, or in blocks of words, starting at any
  tile."""
  if draw(st.booleans()):
    return draw(mapped(shape))
  grain = draw(st.sampled_from([1, 2, 4]))
  found = layouts.linear(math.prod(shape), draw(st.integers(1, TILES)), grain)
  base = draw(st.integers(0, TILES - 1 - found.last_tile))
  return dataclasses.replace(found, base=base)


@st.composite
def moves(draw) -> tuple[MoveEnd, MoveEnd, tuple[int, ...]]:
  """A view into a part of a tensor; of several elements each, and broadcast."""
  view = draw(views())
  offset, strides, shape = view.offset, view.strides, view.shape
  if draw(st.booleans()):
    n = draw(st.sampled_from([2, 4, 6]))
    offset, strides = offset * n, (*(s * n for s in strides), 1)
    shape = (*shape, n)
  if not draw(st.integers(0, 3)):
    d = draw(st.integers(0, len(shape)))
    strides = (*strides[:d], 0, *strides[d:])
    shape = (*shape[:d], draw(st.integers(1, 4)), *shape[d:])
  last = int(strided(offset, shape, strides).max(initial=0))
  root = root_shape(draw, max(last + 1, math.prod(shape)))
  pads = [0, 0]
  if draw(st.booleans()):
    pads = [draw(st.integers(0, 2)) for _ in pads]
  whole = tuple(pads[0] + n + pads[1] for n in shape)
  part = View(0, 0, dense_strides(whole), whole, DType.F32).slice(
    [pads[0]] * len(shape), [pads[0] + n for n in shape], [1] * len(shape)
  )
  source = MoveEnd(draw(layout_of(root)), offset, strides)
  return (
    source,
    MoveEnd(draw(layout_of(whole)), part.offset, part.strides),
    shape,
  )


@settings(max_examples=600)
@given(moves())
def test_contiguous_destinations_are_an_upper_bound(move):
  arriving, leaving, even = bounds(*move)
  found = counted(*move)
  assert arriving >= found[0] and leaving >= found[1]
  assert found[2] or not even


def linear(n, tiles=TILES, grain=1):
  return layouts.linear(n, tiles, grain)


def cells(*parts):
  return layouts.grid((24, 40), parts)


PLAIN = {
  "reversed": (linear(240), 239, (-1,), (240,), linear(240), (1, 1)),
  "reversed, a block cut short": (
    linear(235), 234, (-1,), (235,), linear(235), (2, 2),
  ),
  "rows reversed": (
    cells(12, 1), 39, (40, -1), (24, 40), cells(12, 1), (1, 1),
  ),
  "columns of other tiles reversed": (
    cells(1, 10), 39, (40, -1), (24, 40), cells(1, 10), (1, 1),
  ),
  "transposed": (
    cells(24, 1), 0, (1, 40), (40, 24), layouts.grid((40, 24), (20, 1)),
    (48, 20),
  ),
  "blocks transposed": (
    cells(4, 5), 0, (1, 40), (40, 24), layouts.grid((40, 24), (5, 4)), (1, 1),
  ),
  "rows to columns": (
    cells(24, 1), 0, (40, 1), (24, 40), cells(1, 20), (24, 20),
  ),
  "rows to columns, a block cut short": (
    cells(12, 1), 0, (40, 1), (24, 40), cells(1, 14), (12, 28),
  ),
  "every other one": (linear(480), 0, (2,), (240,), linear(240), (1, 10)),
  "shifted": (linear(240), 10, (1,), (230,), linear(240), (1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_contiguous_destinations_of_plain_moves(name):
  mapping, offset, strides, shape, to, said = PLAIN[name]
  source = MoveEnd(mapping, offset, strides)
  destination = MoveEnd(to, 0, dense_strides(shape))
  assert bounds(source, destination, shape)[:2] == said
  assert counted(source, destination, shape, kept=True)[:2] == said
