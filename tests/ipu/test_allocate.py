"""The arena: pieces are allocated, freed and merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jaxlib.ipu.tile_passes.allocate import _Holes


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_pieces_never_overlap_and_are_joined(steps):
  holes = _Holes()
  taken: list[tuple[int, int]] = []
  for release, number in steps:
    if release and taken:
      holes.release(*taken.pop(number % len(taken)))
    else:
      free = sorted(_between(taken, holes.top))
      fits = [piece for piece in free if piece[0] >= number]
      address = holes.take(number)
      if fits:  # the smallest, and the first of these
        assert address == fits[0][1]
      taken.append((address, number))
    ordered = sorted(taken)
    for (a, size), (b, _) in zip(ordered, ordered[1:], strict=False):
      assert a + size <= b
  for piece in taken:
    holes.release(*piece)
  assert holes.take(holes.top or 1) == 0


def _between(taken: list[tuple[int, int]], top: int) -> list[tuple[int, int]]:
  """The free pieces as (size, address)."""
  free, at = [], 0
  for address, size in [*sorted(taken), (top, 0)]:
    if address > at:
      free.append((address - at, at))
    at = address + size
  return free
