"""Address assignment in tiles' SRAM: no overlaps, and room for every tile's
share."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from jaxlib.ipu.sram.addresses import assign
from jaxlib.ipu.sram.allocation_groups import AllocationGroup
from jaxlib.ipu.sram.first_fit import Lives
from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.target import Target

pytestmark = pytest.mark.ipu_only

END = 60


@st.composite
def intervals(draw):
  """The lifetime of an allocation group: closed intervals, ascending, ending at
  odd times."""
  times = draw(
    st.lists(st.integers(0, END // 2), min_size=1, max_size=4, unique=True)
  )
  times.sort()
  found = [(2 * t, 2 * u - 1) for t, u in zip(times, times[1:], strict=False)]
  return found[::2] or [(2 * times[0], 2 * times[0] + 1)]


def at_once(allocations: list[AllocationGroup], sizes: list[int]) -> int:
  """Bytes at the fullest moment."""
  there = np.zeros(END + 3, np.int64)
  for allocation, size in zip(allocations, sizes, strict=True):
    for begin, end in allocation.intervals:
      there[begin : end + 1] += size
  return int(there.max())


def require_apart(
  allocations: list[AllocationGroup], sizes: list[int], found: list[int]
) -> None:
  """No byte is used twice at any time."""
  for i, a in enumerate(allocations):
    for j, b in enumerate(allocations[:i]):
      if any(x <= w and v <= y for x, y in a.intervals for v, w in b.intervals):
        apart = found[i] + sizes[i] <= found[j] or (
          found[j] + sizes[j] <= found[i]
        )
        assert apart or not sizes[i] or not sizes[j], (i, j)


def by_definition(lives, sizes, steps, base, count, weights):
  """First fit, with a list of the addresses that are taken at each time."""
  found = [base] * len(lives)
  taken: list[set[int]] = [set() for _ in range(END + 3)]
  births = [live[0][0] for live in lives]
  some = [i for i, size in enumerate(sizes) if size]
  some.sort(key=lambda i: (-weights[i], -sizes[i], births[i]))
  rest = sorted(some[count:], key=lambda i: (births[i], -sizes[i], i))
  for i in [*some[:count], *rest]:
    live = lives[i] if i in some[:count] else [(births[i], lives[i][-1][1])]
    times = [t for b, e in live for t in range(b, e + 1)]
    at = -(-base // steps[i]) * steps[i]
    while any(not taken[t].isdisjoint(range(at, at + sizes[i])) for t in times):
      at += steps[i]
    found[i] = at
    for t in times:
      taken[t].update(range(at, at + sizes[i]))
  return found


@given(
  st.lists(
    st.tuples(intervals(), st.sampled_from([0, 4, 8, 16, 24, 104])),
    max_size=14,
  ),
  st.sampled_from([0, 24]),
  st.integers(0, 15),
)
def test_live_tensors_do_not_overlap(drawn, base, count):
  """However many are placed by size, with the others placed by birth."""
  allocations = [AllocationGroup([], i, 0) for i, _ in drawn]
  sizes = [size for _, size in drawn]
  lives = [i for i, _ in drawn]
  steps = [16 if size % 16 == 0 else 8 if size > 4 else 4 for size in sizes]
  placed = Lives(lives)
  for weights in (sizes, [len(i) for i in lives]):
    found = placed.place(sizes, steps, base, count, weights)
    assert found == placed.place(sizes, steps, base, count, weights)
    assert found == by_definition(lives, sizes, steps, base, count, weights)
    require_apart(allocations, sizes, found)
    for address, size, step in zip(found, sizes, steps, strict=True):
      assert address >= base
      assert address % step == 0 or not size
    top = max(map(sum, zip(found, sizes, strict=True)), default=base)
    assert top >= base + at_once(allocations, sizes)
    # Around an allocation group that is already placed.
    half = len(lives) // 2
    there = [i for i in range(half) if sizes[i]]
    taken = [(found[i], found[i] + sizes[i]) for i in there]
    rest = slice(half, None)
    found[rest] = Lives([*lives[rest], *(lives[i] for i in there)]).place(
      sizes[rest], steps[rest], base, count, weights[rest], taken
    )
    require_apart(allocations, sizes, found)


def is_wide(allocation: AllocationGroup) -> bool:
  """Everything that 128-bit loads may read has to be interleaved."""
  return allocation.wide


def machine(code: int, data: int, tiles: int = 1) -> Target:
  """The first `code` bytes can hold code, the next ones are interleaved."""
  return Target(
    version="small",
    num_tiles=tiles,
    bytes_per_tile=code + data,
    executable_bytes=code,
    clock_hz=1e9,
  )


@given(st.data())
def test_each_tile_has_room_for_its_share(data):
  tiles = data.draw(st.integers(1, 6), "tiles")
  target = machine(data.draw(st.sampled_from([80, 320, 1600])), 320, tiles)
  rows = st.lists(
    st.integers(0, 40).map(lambda n: 4 * n), min_size=tiles, max_size=tiles
  ).map(lambda row: np.array(row, np.int64))
  table = TileBytes([], tiles)
  allocations = [
    AllocationGroup([], i, table.of(row), wide)
    for i, row, wide in data.draw(
      st.lists(st.tuples(intervals(), rows, st.booleans()), max_size=10),
      "allocations",
    )
  ]
  code = data.draw(rows, "code")
  peaks = table.peaks((u.row, u.intervals) for u in allocations) + code
  found = assign(target, allocations, is_wide, table, code, peaks, END)
  assert sum(g.tiles.astype(int) for g in found.groups).tolist() == [1] * tiles
  assert {id(u) for u in found.allocations} == {id(u) for u in allocations}
  for group in found.groups:
    require_apart(found.allocations, group.sizes, group.addresses)
    for tile in np.flatnonzero(group.tiles):
      assert group.needed >= peaks[tile]
      for allocation, size in zip(found.allocations, group.sizes, strict=True):
        assert size >= table.row(allocation.row)[tile]
    most = code[group.tiles].max()
    assert group.code == most
    pieces = zip(found.allocations, group.addresses, group.sizes, strict=True)
    fits = group.needed <= target.bytes_per_tile
    for allocation, address, size in pieces:
      if not size:
        continue
      assert address >= most
      assert address + size <= (target.bytes_per_tile if fits else group.needed)
      if allocation.wide:
        assert address % 16 == 0
        assert not fits or address >= target.executable_bytes


def test_tiles_with_different_tensors_have_different_addresses():
  """With a single group of tiles, both would need the sum."""
  table = TileBytes([], 4)
  halves = [np.array(row) for row in ([800, 800, 0, 0], [0, 0, 800, 800])]
  allocations = [AllocationGroup([], [(0, 9)], table.of(row)) for row in halves]
  target = machine(10_000, 0, 4)
  found = assign(
    target, allocations, is_wide, table, np.zeros(4, np.int64), halves[0], END
  )
  assert [g.needed for g in found.groups] == [800, 800]


@pytest.mark.parametrize("always", [False, True])
def test_weights_are_interleaved(always):
  """Below everything else if there is room, otherwise from the last byte
  down."""

  def found(data: int, plain: int, size: int = 40):
    table = TileBytes([], 1)
    end = END if always else 9
    allocations = [
      AllocationGroup([], [(0, end)], table.of(np.array([n])), wide)
      for n, wide in ((plain, False), (96, True), (48, True))
    ]
    code, peaks = np.array([size]), np.array([size + plain + 144])
    plan = assign(
      machine(800, data), allocations, is_wide, table, code, peaks, END
    )
    (group,) = plan.groups
    where = zip(plan.allocations, group.addresses, strict=True)
    return group, sorted((a, u.wide) for u, a in where)

  group, where = found(400, 208)
  assert group.needed == 48 + 208 + 144
  assert min(where)[0] == 800
  group, where = found(400, 800)
  assert where == [(48, False), (1056, True), (1104, True)]
  assert group.needed == 48 + 800 + 144 and not group.crowded
  # Data other than code may lie beyond the first region.
  group, where = found(600, 208, 1000)
  assert where[0][0] == 1008 and group.needed == 1008 + 208 + 144
  # The bytes would suffice, but too few of them are interleaved.
  group, where = found(128, 608)
  assert group.crowded and group.needed > 928
  assert min(where)[0] == 48


def test_stacks_may_meet_at_different_times():
  """Then they take all of the SRAM, and no more."""
  target, table = machine(800, 400), TileBytes([], 1)
  code = np.array([40])
  allocations = [
    AllocationGroup([], [lives], table.of(np.array([n])), wide)
    for n, lives, wide in (
      (300, (0, 9), True),
      (700, (0, 9), False),
      (1000, (20, 29), False),
    )
  ]
  plan = assign(
    target, allocations, is_wide, table, code, np.array([1040]), END
  )
  assert plan.fullest.needed == 1200
  assert plan.needed(target, code).tolist() == [1200]


def test_the_number_of_tile_groups_is_bounded():
  tiles = 64
  table = TileBytes([], tiles)
  allocations = [
    AllocationGroup([], [(0, 9)], table.of(row))
    for row in 80 * np.eye(tiles, dtype=int)
  ]
  peaks = np.full(tiles, 80)
  target = machine(10_000, 0, tiles)
  found = assign(
    target, allocations, is_wide, table, np.zeros(tiles, np.int64), peaks, END
  )
  assert len(found.groups) < 10
  assert sum(g.tiles.astype(int) for g in found.groups).tolist() == [1] * tiles
