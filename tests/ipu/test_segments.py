"""The segments of a move and its peers, checked by counting those of every
tile."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from test_contiguous_destinations import moves
from test_messages import counted, ends

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.layout import linear
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.moves.segments import count_segments
from jaxlib.ipu.tile.tensor import dense_strides


def check(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> None:
  """No tile receives more segments, from more tiles, or sends more."""
  said = ends(source, destination, shape)
  found = counted(source, destination, shape)
  assert all(most >= count for most, count in zip(said, found, strict=True))


@settings(max_examples=600)
@given(moves())
def test_segments_are_an_upper_bound(move):
  source, _, shape = move
  # A tile holds overlapping windows as they are in their root.
  assume(not overlapping(shape, source.strides))
  check(*move)


MOVES = {
  "copies cut differently": (linear(3, 1), 0, (0, 1), (4, 3), linear(12, 6), 3),
  "blocks of two rows": (linear(18, 9), 0, (3, 1), (6, 3), linear(40, 5), 5),
  "a row's end and the next begin": (
    linear(180, 24), 0, (0, 0, 1), (4, 1, 45), linear(180, 24), 45,
  ),
  "rows that lead back": (
    linear(100, 7), 3, (-1, 20, 4), (4, 5, 5), linear(100, 13), 5,
  ),
  "rows that begin elsewhere in a factor": (
    layouts.grid((48, 9), (1, 3), grains=(1, 4)), 288, (48, 2), (3, 5),
    layouts.Layout((layouts.Factor(15, 15, 0),), (layouts.Replica(2, 1),)), 5,
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_segments_of_uneven_moves(name):
  mapping, offset, strides, shape, to, width = MOVES[name]
  source = MoveEnd(mapping, offset, strides)
  dense = dense_strides((*shape[:-1], width))
  check(source, MoveEnd(to, 0, dense), shape)


def test_segments_of_blocks_of_different_sizes():
  """Blocks of 8 columns and of 6: each begins at an even one and ends in the
  next; in rows of 10, blocks of 3 start afresh where those of 4 do."""
  for columns, cut in ((24, (3, 4)), (10, (4, 3))):
    one, other = (layouts.grid((12, columns), (1, n)) for n in cut)
    sides = (MoveEnd(x, 0, (columns, 1)) for x in (one, other))
    assert [
      end.segments for end in count_segments(*sides, (12, columns), 4)
    ] == [
      24,
      24,
    ]


def test_a_reversal_has_one_or_two_partners():
  """Both sides pack it, however many tiles there are."""
  for n, peers in ((500, 2), (512, 1), (1024, 1)):
    mapping = layouts.linear(n, -(-n // 32))
    back, there = MoveEnd(mapping, n - 1, (-1,)), MoveEnd(mapping, 0, (1,))
    assert [x.peers for x in count_segments(back, there, (n,), 4)] == [
      peers
    ] * 2
