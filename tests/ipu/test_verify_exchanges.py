"""The exchange counter against a separate count, and whether it finds exchanges
that are charged too little."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import test_contiguous_destinations
import test_traffic
from hypothesis import given, settings
from lowering_kit import compiled
from test_contiguous_destinations import moves
from test_traffic import TILES

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.check import count_moves, moved_chunks, verify_exchanges
from jaxlib.ipu.check.tile_memory import strided
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import overlapping


def segments(source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]):
  """For the tile that receives most, its messages and source tiles; for the one
  that sends most, its messages. An element that is needed in several places of
  a tile is sent once, to the first of them."""
  begin = strided(source.offset, shape, source.strides).reshape(-1)
  end = strided(destination.offset, shape, destination.strides).reshape(-1)
  origin = dict(zip(end.tolist(), begin.tolist(), strict=True))
  first = dataclasses.replace(source.layout, replicas=())
  place = {
    e: (tile, i)
    for tile in range(TILES)
    for i, e in enumerate(first.owned(tile).tolist())
  }
  most, peers = 0, 0
  wanted: dict[tuple[int, int], set[tuple[int, int]]] = {}
  for tile in range(TILES):
    here = set(source.layout.owned(tile).tolist())
    count, senders, last, seen = 0, set(), None, set()
    for i, e in enumerate(destination.layout.owned(tile).tolist()):
      element = origin.get(e)
      if element is None or element in here or element in seen:
        continue
      seen.add(element)
      sender, at = place[element]
      wanted.setdefault((sender, at), set()).add((tile, i - at))
      count += last != (sender, at - 1, i - 1)
      senders.add(sender)
      last = sender, at, i
    most, peers = max(most, count), max(peers, len(senders))
  sent = [
    sum(
      wanted[tile, at] != wanted.get((tile, at - 1))
      for owner, at in wanted
      if owner == tile
    )
    for tile in range(TILES)
  ]
  return most, peers, max(sent)


def by_tile(elements: np.ndarray) -> list[int]:
  return [*elements.tolist(), *[0] * (TILES - len(elements))]


@settings(max_examples=150)
@given(moves())
def test_elements_are_counted(move):
  source, _, shape = move
  found = count_moves.counted(*move, test_contiguous_destinations.GRAIN)
  received, sent = test_traffic.counted(*move, True)
  assert by_tile(found.received) == received.tolist()
  assert by_tile(found.sent) == sent.tolist()
  assert (found.segments, found.peers, found.leaving_segments) == segments(
    *move
  )
  if all(source.strides) and not overlapping(shape, source.strides):
    said = found.arriving, found.leaving, found.even
    assert said == test_contiguous_destinations.counted(*move)


@settings(max_examples=30)
@given(moves())
def test_every_tile_is_counted_alone(move):
  found = count_moves.counted(*move, test_contiguous_destinations.GRAIN)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(moved_chunks, "_AT_ONCE", 4)
    each = [
      count_moves.counted(
        *move, test_contiguous_destinations.GRAIN, tiles=np.array([tile])
      )
      for tile in range(TILES)
    ]
  for side in ("received", "sent"):
    alone = np.stack([by_tile(getattr(one, side)) for one in each])
    assert not alone[~np.eye(TILES, dtype=bool)].any()
    assert alone.sum(0).tolist() == by_tile(getattr(found, side))
  for one, *of in zip(found[2:-1], *(x[2:-1] for x in each), strict=True):
    assert one == max(of)
  assert found.even == all(one.even for one in each)


@settings(max_examples=100)
@given(moves())
def test_chunks_are_no_more_than_estimated(move):
  chunks = moved_chunks.chunks_of(*move)
  assert len(chunks.near) <= moved_chunks.number_of_chunks(*move)


def transposed(x, y):
  return x.T + y


ARGUMENTS = [np.ones((41, 7), np.float16), np.ones((7, 41), np.float16)]


@pytest.mark.parametrize("less, message", [
  (lambda found: found._replace(received=found.received // 2), "is received"),
  (lambda found: found._replace(sent=found.sent[:-1]), "is sent"),
])  # fmt: skip
def test_bytes_that_are_not_charged(monkeypatch, less, message):
  wrong(monkeypatch, "traffic", less, message)


def fewer(side: str, field: str):
  """Ends of which one has fewer than there are."""

  def less(found):
    end = getattr(found, side)._replace(**{field: 0})
    return found._replace(**{side: end})

  return less


@pytest.mark.parametrize("name, less, message", [
  ("fullest_ends", fewer("receiver", "segments"), "0 charged"),
  ("fullest_ends", fewer("receiver", "peers"), "peers, 0 charged"),
  ("fullest_ends", fewer("sender", "segments"), "segments that leave, 0"),
  ("contiguous_counts", lambda found: (found[0], 0, False), "destinations, 0"),
  ("contiguous_counts", lambda found: (0, *found[1:]), "contiguous sources, 0"),
  ("contiguous_counts", lambda found: (*found[:2], True), "words are torn"),
])  # fmt: skip
def test_messages_that_are_not_charged(monkeypatch, name, less, message):
  wrong(monkeypatch, name, less, message)


@pytest.mark.parametrize("chunks", [1 << 20, 1 << 12])
def test_large_moves_are_counted(monkeypatch, chunks):
  """All tiles of them, or the fullest ones and some more."""
  rows, columns = layouts.grid((300, 400), (100, 1)), (400, 300)
  source = MoveEnd(rows, 0, (1, 400))
  destination = MoveEnd(layouts.grid(columns, (80, 1)), 0, (300, 1))
  move = source, destination, columns, 4, False
  monkeypatch.setattr(verify_exchanges, "_CHUNKS", chunks)
  check = verify_exchanges._verify.__wrapped__
  check(*move)
  said = verify_exchanges.traffic(*move)
  for side in ("received", "sent"):
    each = np.maximum(getattr(said, side) - 4, 0)
    less = said._replace(**{side: each})
    monkeypatch.setattr(verify_exchanges, "traffic", lambda *_, less=less: less)
    with pytest.raises(verify_exchanges.InvalidExchange, match=side):
      check(*move)


def wrong(monkeypatch, name, less, message):
  """A program is refused if a closed form gives less than it moves."""
  verify_exchanges._verify.cache_clear()
  compiled(transposed, ARGUMENTS, 7)
  form = getattr(verify_exchanges, name)
  monkeypatch.setattr(verify_exchanges, name, lambda *a: less(form(*a)))
  verify_exchanges._verify.cache_clear()
  with pytest.raises(verify_exchanges.InvalidExchange, match=message):
    compiled(transposed, ARGUMENTS, 7)
  verify_exchanges._verify.cache_clear()
