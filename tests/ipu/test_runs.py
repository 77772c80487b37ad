"""The pieces of a move and its partners, checked by counting those of every
tile."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from test_messages import counted, ends
from test_stretches import moves

from jaxlib.ipu.plan import layout as layouts
from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.distinct import overlapping
from jaxlib.ipu.plan.layout import linear
from jaxlib.ipu.plan.runs import runs
from jaxlib.ipu.tile.tensor import dense_strides


def check(source: Side, destination: Side, shape: tuple[int, ...]) -> None:
  """No tile receives more pieces, from more tiles, or sends more."""
  said = ends(source, destination, shape)
  found = counted(source, destination, shape)
  assert all(most >= count for most, count in zip(said, found, strict=True))


@settings(max_examples=600)
@given(moves())
def test_pieces_are_an_upper_bound(move):
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
def test_pieces_of_uneven_moves(name):
  mapping, offset, strides, shape, to, width = MOVES[name]
  source = Side(mapping, offset, strides)
  dense = dense_strides((*shape[:-1], width))
  check(source, Side(to, 0, dense), shape)


def test_pieces_of_blocks_of_different_sizes():
  """Blocks of 8 columns and of 6: each begins at an even one and ends in the
  next; in rows of 10, blocks of 3 start afresh where those of 4 do."""
  for columns, cut in ((24, (3, 4)), (10, (4, 3))):
    one, other = (layouts.grid((12, columns), (1, n)) for n in cut)
    sides = (Side(x, 0, (columns, 1)) for x in (one, other))
    assert [end.pieces for end in runs(*sides, (12, columns), 4)] == [24, 24]


def test_a_reversal_has_one_or_two_partners():
  """Both sides pack it, however many tiles there are."""
  for n, partners in ((500, 2), (512, 1), (1024, 1)):
    mapping = layouts.linear(n, -(-n // 32))
    back, there = Side(mapping, n - 1, (-1,)), Side(mapping, 0, (1,))
    assert [x.partners for x in runs(back, there, (n,), 4)] == [partners] * 2
