"""The messages of an exchange, checked by counting those of every tile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_traffic import TILES, mapped, root_shape, views

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.check import count_moves
from jaxlib.ipu.check.tile_memory import strided
from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import VECTOR, messages, move_traffic, staying
from jaxlib.ipu.moves.traffic import traffic
from jaxlib.ipu.tile.tensor import dense_strides


def counted(source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]):
  """For the tile that receives most, its messages and source tiles; for the one
  that sends most, its messages. An element that is needed in several places of
  a tile is sent once, to the first of them."""
  found = count_moves.counted(source, destination, shape, 1)
  return found.segments, found.peers, found.leaving_segments


def ends(source, destination, shape):
  found = traffic(source, destination, shape, 4, True).ends
  if found is None:
    return 0, 0, 0
  return found.receiver.segments, found.receiver.peers, found.sender.segments


@settings(max_examples=400)
@given(st.data())
def test_charged_messages_are_an_upper_bound(data):
  view = data.draw(views())
  at = strided(view.offset, view.shape, view.strides)
  root = root_shape(data.draw, max(int(at.max(initial=0)) + 1, view.size))
  source = MoveEnd(data.draw(mapped(root)), view.offset, view.strides)
  to = MoveEnd(data.draw(mapped(view.shape)), 0, dense_strides(view.shape))
  most = ends(source, to, view.shape)
  segments, peers, sent = counted(source, to, view.shape)
  whole = len(np.unique(at)) == at.size  # no windows that overlap
  assert (most[0] >= segments) and (most[1] >= peers)
  for item_bytes in (1, 4, 8):
    found = messages(source, to, view.shape, item_bytes, True)
    assert (found is not None and found.words.max() >= 2) or not segments
    if found is not None and found.unpacks and not found.packs:
      # A load and a store for each segment that is copied.
      copied = move_traffic(source, to, view.shape, item_bytes, True).unpacked
      assert copied.max() >= 2 * VECTOR * segments
    if found is not None and found.packs and found.unpacks:
      # One end copies segments, the other contiguous
      # intervals.
      assert found.packs >= sent * whole or found.unpacks >= segments
  if whole:
    assert most[2] >= sent


def linear(n, tiles=TILES):
  return layouts.linear(n, tiles)


EXACT = {
  "row of one tile": (linear(240), 10, (1,), (10,), linear(10)),
  "shifted by a block": (linear(240), 10, (1,), (230,), linear(240)),
  "columns of rows": (
    layouts.grid((12, 8), (12, 1)), 0, (8, 1), (12, 8),
    layouts.grid((12, 8), (3, 2)),
  ),
  "transposed": (
    layouts.grid((12, 10), (12, 1)), 0, (1, 10), (10, 12),
    layouts.grid((10, 12), (10, 1)),
  ),
  "blocks transposed": (
    layouts.grid((12, 8), (6, 2)), 0, (1, 8), (8, 12),
    layouts.grid((8, 12), (4, 3)),
  ),
  "to one tile": (linear(240), 0, (1,), (240,), layouts.single(240, 0)),
}  # fmt: skip


BEGUN_ANEW = {
  "blocks as long as what a tile receives": ((1, 2), (3, 7), 4, 2),
  "a short block at the end of a row": ((1, 4), (40, 13), 3, 3),
  "rows of rows": ((4, 1, 1), (7, 8, 2), 14, 2),
}


@pytest.mark.parametrize("name", BEGUN_ANEW)
def test_blocks_that_cross_rows_have_one_more_sender(name):
  parts, shape, each, senders = BEGUN_ANEW[name]
  n = math.prod(shape)
  source = MoveEnd(layouts.grid(shape, parts), 0, (1,))
  to = MoveEnd(linear(n, -(-n // each)), 0, (1,))
  _, peers, _ = counted(source, to, (n,))
  assert ends(source, to, (n,))[1] >= peers == senders


# A tile receives the end of one row and the beginning of the next: from how
# many tiles.
ENDS_OF_ROWS = {
  "a short block": (
    layouts.grid((8, 7), (1, 3)), 0, (7, 1), (8, 7), 3, 3,
  ),
  "begin within a block": (
    layouts.grid((8, 32), (1, 8)), 1, (32, 1), (8, 8), 3, 3,
  ),
  "of windows": (
    layouts.grid((8, 16), (1, 8)), 0, (16, 1, 1), (8, 13, 4), 16, 6,
  ),
  "longer than a factor": (
    layouts.grid((14, 4), (7, 1)), 0, (0, 1), (6, 17), 3, 3,
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS_OF_ROWS)
def test_ends_of_rows_have_senders_of_their_own(name):
  mapping, offset, strides, shape, each, senders = ENDS_OF_ROWS[name]
  n = math.prod(shape)
  source = MoveEnd(mapping, offset, strides)
  to = MoveEnd(linear(n, -(-n // each)), 0, dense_strides(shape))
  _, peers, _ = counted(source, to, shape)
  assert ends(source, to, shape)[1] >= peers == senders


def test_indices_that_carry_give_a_tile_parts_of_two_rows():
  source = MoveEnd(layouts.grid((3, 66), (3, 1)), 0, (66, 2, 1))
  blocks = Layout((Factor(66, 10, 1), Factor(3, 3, 0)))
  to = MoveEnd(blocks, 0, (66, 2, 1))
  assert ends(source, to, (3, 33, 2))[1] >= 2
  assert counted(source, to, (3, 33, 2))[1] == 2


def test_local_copies_are_charged_by_segment():
  rows = MoveEnd(layouts.single(64), 0, (8, 1))
  columns = MoveEnd(layouts.single(64), 0, (1, 8))
  assert staying(rows, columns, (8, 8), 4).tolist() == [2 * VECTOR * 64]
  assert staying(rows, rows, (8, 8), 4).tolist() == [64 * 4 + VECTOR]


@pytest.mark.parametrize("name", EXACT)
def test_messages_of_even_blocks_are_exact(name):
  mapping, offset, strides, shape, to = EXACT[name]
  source = MoveEnd(mapping, offset, strides)
  destination = MoveEnd(to, 0, dense_strides(shape))
  most = ends(source, destination, shape)
  found = counted(source, destination, shape)
  assert most == found
