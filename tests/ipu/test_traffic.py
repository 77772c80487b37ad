"""The traffic of exchanges, checked by counting every element of every tile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.check.tile_memory import strided
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import Factor, Layout, Replica
from jaxlib.ipu.moves.distinct import repeats
from jaxlib.ipu.moves.native import moved_bytes
from jaxlib.ipu.moves.traffic import MoveEnd, traffic
from jaxlib.ipu.tile.tensor import dense_strides
from jaxlib.ipu.tile.view import View

TILES = 24


def counted(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...], once: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Elements that each tile receives and sends, counted one by one."""
  begin = strided(source.offset, shape, source.strides).reshape(-1)
  end = strided(destination.offset, shape, destination.strides).reshape(-1)
  origin = dict(zip(end.tolist(), begin.tolist(), strict=True))
  received = np.zeros(TILES, np.int64)
  sent = np.zeros(TILES, np.int64)
  asked = set()
  for tile in range(TILES):
    here = set(source.layout.owned(tile).tolist())
    wanted = [
      origin[e] for e in destination.layout.owned(tile).tolist() if e in origin
    ]
    missing = [e for e in wanted if e not in here]
    received[tile] = len(set(missing) if once else missing)
    asked |= set(missing)
  first = Layout(source.layout.factors, (), source.layout.base)
  for tile in range(TILES):
    sent[tile] = len(asked & set(first.owned(tile).tolist()))
  return received, sent


def check(source, destination, shape, once=False, exact=False):
  found = traffic(source, destination, shape, 1, once)
  expected = counted(source, destination, shape, once)
  for name, a, e in zip(("received", "sent"), found, expected):
    a = np.concatenate([a, np.zeros(TILES - len(a), np.int64)])
    if exact:
      assert a.tolist() == e.tolist(), name
    assert (a >= e).all(), (name, a, e)
  return found


@st.composite
def mapped(draw, shape: tuple[int, ...]) -> Layout:
  """A mapping of a tensor: linear, on one tile, or a grid; with replicas."""
  n = math.prod(shape)
  kind = draw(st.sampled_from(["linear", "single", "grid"]))
  if kind == "linear":
    base = layouts.linear(n, draw(st.integers(1, TILES)))
  elif kind == "single":
    return layouts.single(n, draw(st.integers(0, TILES - 1)))
  else:
    left, parts = TILES, []
    for _ in shape:
      parts.append(draw(st.integers(1, max(left, 1))))
      left //= parts[-1]
    base = layouts.grid(shape, parts)
  span = base.last_tile + 1
  copies = draw(st.integers(1, max(1, min(3, TILES // span))))
  if copies > 1:
    return Layout(base.factors, (Replica(copies, span),), base.base)
  return base


@st.composite
def views(draw) -> View:
  """A view of a root: slices, strides, reversals, permutations, windows."""
  shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
  view = View(0, 0, dense_strides(shape), shape, DType.F32)
  for _ in range(draw(st.integers(0, 3))):
    kind = draw(
      st.sampled_from("slice reverse transpose reshape windows".split())
    )
    rank = len(view.shape)
    if kind == "slice":
      starts = [draw(st.integers(0, n - 1)) for n in view.shape]
      limits = [draw(st.integers(b + 1, n)) for b, n in zip(starts, view.shape)]
      steps = [draw(st.integers(1, 3)) for _ in view.shape]
      view = view.slice(starts, limits, steps)
    elif kind == "reverse":
      view = view.reverse([draw(st.integers(0, rank - 1))])
    elif kind == "transpose":
      view = view.transpose(draw(st.permutations(range(rank))))
    elif kind == "reshape":
      n = view.size
      first = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
      view = view.reshape((first, n // first)) or view
    elif rank < 4:
      d = draw(st.integers(0, rank - 1))
      size = draw(st.integers(1, view.shape[d]))
      view = view.windows([d], [size], [draw(st.integers(1, 2))], [1])
  return view


def root_shape(draw, size: int) -> tuple[int, ...]:
  first = draw(
    st.sampled_from([d for d in range(1, size + 1) if size % d == 0])
  )
  return (first, size // first)


@settings(max_examples=400)
@given(st.data())
def test_charged_traffic_is_an_upper_bound(data):
  view = data.draw(views())
  size = max(
    strided(view.offset, view.shape, view.strides).max(initial=0) + 1, view.size
  )
  root = root_shape(data.draw, int(size))
  source = MoveEnd(data.draw(mapped(root)), view.offset, view.strides)
  destination = MoveEnd(
    data.draw(mapped(view.shape)), 0, dense_strides(view.shape)
  )
  check(source, destination, view.shape, once=True)


@settings(max_examples=200)
@given(st.data())
def test_charged_traffic_into_a_part_is_an_upper_bound(data):
  """Into a part of a tensor, as for a concatenation."""
  view = data.draw(views())
  size = int(strided(view.offset, view.shape, view.strides).max(initial=0) + 1)
  lows = [data.draw(st.integers(0, 2)) for _ in view.shape]
  highs = [data.draw(st.integers(0, 2)) for _ in view.shape]
  whole = tuple(a + n + b for a, n, b in zip(lows, view.shape, highs))
  part = View(0, 0, dense_strides(whole), whole, DType.F32).slice(
    lows, [a + n for a, n in zip(lows, view.shape)], [1] * len(lows)
  )
  source = MoveEnd(data.draw(mapped((size,))), view.offset, view.strides)
  destination = MoveEnd(data.draw(mapped(whole)), part.offset, part.strides)
  check(source, destination, view.shape)


@settings(max_examples=200)
@given(st.data())
def test_moves_of_distinct_elements_are_the_same_with_and_without_once(data):
  view = data.draw(views())
  elements = strided(view.offset, view.shape, view.strides).reshape(-1)
  if len(set(elements.tolist())) < view.size:
    assert repeats(view.shape, view.strides)
    return
  if repeats(view.shape, view.strides):
    return  # distinct by chance, in windows of less than their strides' reach
  size = int(elements.max(initial=0)) + 1
  ends = (
    MoveEnd(data.draw(mapped((size,))), view.offset, view.strides),
    MoveEnd(data.draw(mapped(view.shape)), 0, dense_strides(view.shape)),
  )
  (once, fullest), (each, other) = (
    moved_bytes(*ends, view.shape, 4, o, TILES) for o in (True, False)
  )
  assert fullest == other and (once == each).all()
  assert traffic(*ends, view.shape, 4, True) is traffic(*ends, view.shape, 4)


def test_broadcasts_and_windows_are_other_moves_with_once():
  for shape, strides in (((8, 6), (0, 1)), ((6, 3), (1, 1))):
    here = layouts.grid(shape, (2, 1))
    ends = (
      MoveEnd(linear(8), 0, strides),
      MoveEnd(here, 0, dense_strides(shape)),
    )
    once, each = (traffic(*ends, shape, 4, o) for o in (True, False))
    assert once.received.sum() < each.received.sum()


def linear(n, tiles=TILES):
  return layouts.linear(n, tiles)


EXACT = {
  "row of one tile": (linear(240), 10, (1,), (10,), linear(10)),
  "shifted by one": (linear(240), 1, (1,), (239,), linear(239)),
  "every third": (linear(240), 0, (3,), (80,), linear(80)),
  "reversed": (linear(240), 239, (-1,), (240,), linear(240)),
  "one column": (
    layouts.grid((12, 10), (12, 1)), 3, (10,), (12,), linear(12),
  ),
  "transposed": (
    layouts.grid((12, 10), (12, 1)), 0, (1, 10), (10, 12),
    layouts.grid((10, 12), (10, 1)),
  ),
  "a block": (
    layouts.grid((12, 10), (4, 2)), 23, (10, 1), (6, 5),
    layouts.grid((6, 5), (3, 5)),
  ),
  "rows of unlike blocks": (
    layouts.grid((12, 10), (12, 1)), 0, (1,), (120,), linear(120, 7),
  ),
  "replicated": (
    linear(24, 8), 0, (1,), (24,),
    Layout(linear(24, 8).factors, (Replica(3, 8),)),
  ),
  "a grid's cells in a row": (
    layouts.grid((6, 8), (6, 4)), 0, (1,), (48,), linear(48),
  ),
  "cells in another order": (
    layouts.grid((6, 8), (6, 4), (1, 0)), 0, (1,), (48,), linear(48),
  ),
  "to a grid with idle tiles": (
    layouts.grid((4, 6), (2, 1)), 0, (6, 1), (4, 6),
    Layout((Factor(4, 1, 1), Factor(6, 2, 7))),
  ),
  "replicated, with idle tiles": (
    Layout((Factor(6, 2, 1),), (Replica(4, 5),)), 0, (1,), (6,), linear(6),
  ),
  "windows of three": (
    linear(240), 0, (1, 1), (238, 3), layouts.grid((238, 3), (24, 1)),
  ),
  "windows that skip": (
    linear(241), 0, (2, 1), (120, 3), layouts.grid((120, 3), (20, 1)),
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact_figures(name):
  layout, offset, strides, shape, to = EXACT[name]
  check(
    MoveEnd(layout, offset, strides),
    MoveEnd(to, 0, dense_strides(shape)),
    shape,
    once=True,
    exact=True,
  )


def test_blocks_on_the_diagonal():
  """A dimension steps along two factors, one of which cannot stay split."""
  layout, to = layouts.grid((4, 4), (4, 1)), layouts.grid((2, 2, 2), (2, 2, 1))
  sides = MoveEnd(layout, 0, (10, 4, 1)), MoveEnd(to, 0, (4, 2, 1))
  check(*sides, (2, 2, 2))


def test_a_row_is_sent_by_its_owner_alone():
  source = MoveEnd(layouts.linear(1472 * 1024, 1472), 0, (1,))
  found = traffic(
    source, MoveEnd(layouts.linear(1024, 32), 0, (1,)), (1024,), 4
  )
  assert found.sent.max() == found.sent[0] == 4 * (1024 - 32)
  assert found.received.max() == 4 * 32
