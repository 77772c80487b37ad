"""Properties of tile mappings, checked by counting elements."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxlib.ipu import layout as layouts
from jaxlib.ipu.layout import Factor, Layout, Replica
from jaxlib.ipu.moves.distinct import distinct
from jaxlib.ipu.tile.tensor import elements_of

TILES = 256
ALL_TILES = np.arange(TILES)


@st.composite
def mappings(draw: st.DrawFn, extents: tuple[int, ...] | None = None) -> Layout:
  """A well-formed mapping: its tile strides nest in some order, with gaps."""
  if extents is None:
    extents = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
  blocks = [draw(st.integers(1, e + 1)) for e in extents]
  counts = [-(-e // b) for e, b in zip(extents, blocks, strict=True)]
  copies = draw(st.lists(st.integers(1, 3), max_size=2))
  everything = counts + copies
  strides = [0] * len(everything)
  stride = draw(st.integers(1, 2))
  for i in draw(st.permutations(range(len(everything)))):
    if everything[i] > 1:
      if stride * everything[i] > 128:
        # Too many parts for the machine: keep this dimension whole.
        if i < len(extents):
          blocks[i] = extents[i]
        else:
          everything[i] = 1
        continue
      strides[i] = stride
      stride *= everything[i]
      if draw(st.booleans()):  # a gap
        stride += draw(st.integers(0, max(min(5, 128 - stride), 0)))
  rank = len(extents)
  return Layout(
    tuple(map(Factor, extents, blocks, strides[:rank])),
    tuple(
      Replica(c, s)
      for c, s in zip(everything[rank:], strides[rank:], strict=True)
      if c > 1
    ),
    draw(st.integers(0, 7)),
  )


def brute(layout: Layout) -> list[set[int]]:
  """For each element the tiles that hold it, by definition."""
  extents = [f.extent for f in layout.factors]
  shifts = [0]
  for r in layout.replicas:
    shifts = [s + i * r.stride for s in shifts for i in range(r.count)]
  held = []
  for element in range(math.prod(extents)):
    tile = layout.base
    for f, i in zip(
      layout.factors, np.unravel_index(element, extents), strict=True
    ):
      tile += int(i) // f.block * f.stride
    held.append({tile + s for s in shifts})
  return held


@given(mappings())
def test_owned_and_elements_agree_with_the_definition(layout):
  held = brute(layout)
  counts = layout.elements(ALL_TILES)
  for tile in range(layout.last_tile + 2):
    expected = [e for e, tiles in enumerate(held) if tile in tiles]
    assert layout.owned(tile).tolist() == expected
    assert counts[tile] == len(expected)
  assert counts.max() == layout.max_elements
  assert (elements_of(layout, TILES) == counts).all()
  assert counts.sum() == layout.num_elements * layout.num_replicas


@given(mappings())
def test_every_element_is_on_one_tile_per_replica(layout):
  for tiles in brute(layout):
    assert len(tiles) == layout.num_replicas


def num_parts(layout: Layout) -> int:
  return math.prod(f.parts for f in layout.factors)


@given(mappings())
def test_tiles_in_use(layout):
  used = sorted(set().union(*brute(layout)))
  assert layout.tiles().tolist() == used
  assert layout.last_tile == used[-1]
  assert len(used) == num_parts(layout) * layout.num_replicas


@given(mappings())
def test_coordinates_tell_which_tiles_are_in_use(layout):
  used = set(layout.tiles().tolist())
  _, active = layout.coordinates(ALL_TILES)
  assert set(ALL_TILES[active].tolist()) == used


@given(mappings())
def test_records_round_trip(layout):
  assert Layout.from_record(layout.record()) == layout


@given(mappings(), st.data())
def test_refined_mappings_are_equivalent(layout, data):
  n = layout.num_elements
  divisors = [d for d in range(1, n + 1) if n % d == 0]
  inner = data.draw(st.sampled_from(divisors))
  refined = layout.over((n // inner, inner))
  if refined is None:
    return
  assert brute(refined) == brute(layout)
  grouped = layouts.refine(layout.factors, (n // inner, inner))
  assert [math.prod(f.extent for f in g) for g in grouped] == [
    n // inner,
    inner,
  ]


@given(mappings())
def test_a_mapping_refines_over_its_own_extents(layout):
  assert layout.over([f.extent for f in layout.factors]) is not None


@given(mappings())
def test_joined_factors_are_equivalent(layout):
  joined = layout.joined
  assert brute(joined) == brute(layout)
  assert joined.joined == joined
  cut = [f for f in layout.factors if f.parts > 1]
  assert len(joined.factors) <= len(cut) + 1


@st.composite
def projections(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...], list[int]]:
  shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
  n = math.prod(shape)
  split = draw(st.sampled_from(["grid", "linear", "any"]))
  if split == "linear":
    partition = layouts.linear(n, draw(st.integers(1, 16)))
  elif split == "grid":
    parts = [draw(st.integers(1, e)) for e in shape]
    partition = layouts.grid(shape, parts)
  else:
    partition = draw(mappings(shape))
  order = draw(st.permutations(range(len(shape))))
  return partition, shape, order[: draw(st.integers(0, len(shape)))]


@given(projections())
def test_a_projection_holds_exactly_the_accessed_elements(case):
  partition, shape, kept = case
  projected = layouts.project(partition, shape, tuple(kept))
  if projected is None:
    return
  extents = [shape[d] for d in kept]
  touched: dict[int, set[int]] = {}
  for point, tiles in enumerate(brute(partition)):
    index = np.unravel_index(point, shape)
    element = 0
    for d, extent in zip(kept, extents, strict=True):
      element = element * extent + int(index[d])
    for tile in tiles:
      touched.setdefault(tile, set()).add(element)
  for tile in range(partition.last_tile + 2):
    assert set(projected.owned(tile).tolist()) == touched.get(tile, set())


@given(st.data())
def test_overlap_counts_common_elements(data):
  extents = tuple(
    data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
  )
  a = data.draw(mappings(extents))
  n = a.num_elements
  b = data.draw(
    st.one_of(
      mappings(extents),
      mappings((n,)),
      st.integers(1, 16).map(lambda tiles: layouts.linear(n, tiles)),
    )
  )
  count = layouts.overlap(a, b, TILES)
  if count is None:
    return
  expected = np.zeros(TILES, int)
  for x, y in zip(brute(a), brute(b), strict=True):
    for tile in x & y:
      expected[tile] += 1
  np.testing.assert_array_equal(count, expected)


@given(mappings())
def test_a_mapping_overlaps_itself_completely(layout):
  count = layouts.overlap(layout, layout, TILES)
  np.testing.assert_array_equal(count, layout.elements(ALL_TILES))


@given(
  st.integers(0, 500),
  st.integers(1, 20),
  st.integers(1, 5),
  st.integers(1, 40),
)
def test_linear_gives_whole_grains_to_as_few_tiles_as_allowed(
  n, tiles, grain, smallest
):
  layout = layouts.linear(n, tiles, grain, smallest)
  counts = layout.elements(ALL_TILES)
  assert counts.sum() == n
  assert not counts[tiles:].any()
  full = counts[: max(num_parts(layout) - 1, 0)]
  assert (full % grain == 0).all() and (full >= min(smallest, n)).all()


@given(
  st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1,
           max_size=3)
)  # fmt: skip
def test_grid_makes_no_more_parts_than_asked(dimensions):
  extents, parts = zip(*dimensions, strict=True)
  layout = layouts.grid(extents, parts)
  assert num_parts(layout) <= math.prod(parts)
  assert layout.tiles().tolist() == list(range(num_parts(layout)))


@given(st.data())
def test_overlapping_windows_are_counted_once(data):
  """One window along each dimension, in either order, and the rest."""
  places, size, channels = (data.draw(st.integers(1, 6)) for _ in range(3))
  step, dilation = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
  sign = data.draw(st.sampled_from([1, -1]))
  dims = [
    (places, step * channels),
    (size, sign * dilation * channels),
    (channels, 1),
    (3, channels * (places * step + size * dilation)),
  ]
  shape, strides = zip(*data.draw(st.permutations(dims)), strict=True)
  parts = [data.draw(st.integers(1, 3)) for _ in shape]
  layout = layouts.grid(shape, parts)
  held = distinct(layout, shape, strides, TILES)
  element = sum(
    i * s for i, s in zip(np.indices(shape), strides, strict=True)
  ).reshape(-1)
  for tile in range(TILES):
    owned = layout.owned(tile)
    assert held[tile] == len(np.unique(element[owned])), (shape, strides)


def test_everything_on_one_tile():
  assert layouts.single(3, 7).owned(7).tolist() == [0, 1, 2]


def test_empty_tensors_are_on_no_tile():
  for layout in (
    layouts.linear(0, 8),
    layouts.single(0),
    layouts.grid((0, 4), (2, 2)),
  ):
    assert layout.elements(ALL_TILES).sum() == 0
    assert layout.num_elements == layout.max_elements == 0
    assert layout.owned(0).size == 0


@given(mappings(), st.data())
def test_a_mapping_covers_those_with_fewer_replicas(mapping, data):
  fewer = tuple(
    Replica(data.draw(st.integers(1, r.count)), r.stride)
    for r in mapping.replicas
  )
  few = Layout(
    mapping.factors, tuple(r for r in fewer if r.count > 1), mapping.base
  )
  assert mapping.covers(few)
  assert few.covers(mapping) == (few == mapping)
  for tile in range(0, TILES, 3):
    assert set(few.owned(tile)) <= set(mapping.owned(tile))
