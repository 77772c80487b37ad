"""Assigns SRAM addresses on tiles.

These are addresses on the IPU. Those of `allocate.py` are unrelated: they are
in the memory of the host that runs the model. An allocation group
(`allocation_groups.py`) is a set of tensors that share an address; on every
tile that holds any of it, it takes its bytes on that tile from that address on.

Tiles form groups with common addresses. The first group has the fullest tile
and all tiles that hold no more of any allocation group than that one. The
remaining tiles form a few more groups, in which an allocation group takes as
much as on the tile of the group that has most of it. So a program that is said
to fit does, whatever the number of tiles.

Only the first region of the SRAM can hold code. What the matrix unit loads 128
bits of at a time has to be in the second region, which is interleaved.
Everything but code is put there if it fits. Otherwise there are two stacks:
what has to be interleaved grows down from the last byte, and the rest grows up
from the code.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.layout import Array
from jaxlib.ipu.sram.allocation_groups import AllocationGroup
from jaxlib.ipu.sram.first_fit import Lives
from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.target import Target

# Up to this number, allocation groups are placed largest first, which mostly
# leaves the smallest gaps. Beyond it, this number of allocation groups with the
# longest lifetimes are placed first, the others in order of birth
# (`first_fit.py`). [G]
_MOST_SORTED = 128
# The same for a program that does not fit otherwise. [G]
_MOST_SORTED_IF_TIGHT = 1500
# If gaps take more than this part of the peak, the orders by lifetime and by
# lifetime times size are tried, too. [G]
_MOST_GAPS = 0.02
# Maximum number of groups of tiles. [G]
_MOST_GROUPS = 8
# Bytes of the matrix unit's loads, which are of 128 bits.
_WIDE = 16

Tiles = npt.NDArray[np.bool_]


@dataclasses.dataclass(slots=True)
class TileGroup:
  """Tiles with the same addresses.

  Attributes:
    tiles: for each tile, whether it is in the group.
    code: bytes of code.
    sizes: bytes reserved for each allocation group: the most that any tile of
      the group has of it, aligned.
    addresses: of each allocation group, in bytes from the beginning of the
      SRAM.
    down: the numbers of the allocation groups that grow down from the last
      byte.
    shift: bytes by which all others are higher than they have to be, so that
      they are in the interleaved region.
    needed: bytes of SRAM that code and all allocation groups take, gaps
      included.
    crowded: whether they do not fit, but would if all of the SRAM were
      interleaved.
  """

  tiles: Tiles
  code: int
  sizes: list[int]
  addresses: list[int]
  down: frozenset[int]
  shift: int
  needed: int
  crowded: bool


@dataclasses.dataclass(slots=True)
class Addresses:
  """The addresses of all allocation groups on each tile.

  Attributes:
    allocations: all allocation groups, first those that are live all the time.
    groups: groups of tiles; each tile is in one of them.
    table: the bytes of allocation groups on each tile.
  """

  allocations: list[AllocationGroup]
  groups: list[TileGroup]
  table: TileBytes

  @property
  def fullest(self) -> TileGroup:
    """The group that needs most SRAM."""
    return max(self.groups, key=lambda g: g.needed)

  def needed(self, target: Target, code: Array) -> Array:
    """The bytes of SRAM that each tile needs at these addresses, gaps included;
    int64[tile].

    Args:
      target: the machine.
      code: bytes of code on each tile.
    """
    end = target.bytes_per_tile // _WIDE * _WIDE
    up, down = code.copy(), np.zeros_like(code)
    for group in self.groups:
      # Of allocation groups with equal bytes on all tiles, only the one that
      # is furthest from where its stack begins matters.
      above: dict[int, int] = {}
      below: dict[int, int] = {}
      for n, (allocation, address) in enumerate(
        zip(self.allocations, group.addresses, strict=True)
      ):
        row = allocation.row
        if n in group.down:
          below[row] = max(below.get(row, 0), end - address)
        else:
          above[row] = max(above.get(row, 0), address - group.shift)
      for row, address in above.items():
        held = self.table.row(row)
        np.maximum(up, held + address, out=up, where=group.tiles & (held > 0))
      for row, depth in below.items():
        held = self.table.row(row)
        np.maximum(down, depth, out=down, where=group.tiles & (held > 0))
    # The stacks may meet, at different times: then they take all of the SRAM.
    both = np.minimum(up + down, target.bytes_per_tile)
    return np.where(down > 0, both, up)


def assign(
  target: Target,
  allocations: list[AllocationGroup],
  interleaved: Callable[[AllocationGroup], bool],
  table: TileBytes,
  code: Array,
  peaks: Array,
  end: int,
  thorough: bool = False,
) -> Addresses:
  """Assigns addresses to all allocation groups on all tiles.

  Args:
    target: the machine.
    allocations: all allocation groups.
    interleaved: tells whether an allocation group has to be in interleaved
      memory; called only if not everything fits there.
    table: the bytes of allocation groups on each tile.
    code: bytes of code on each tile.
    peaks: peak bytes of each tile, without gaps.
    end: the time at which the run ends.
    thorough: whether to search longer for smaller gaps.
  """
  first = table.of(code)
  most = table.most()
  packer = _Packer(target, allocations, interleaved, most, end, thorough)

  def group(tiles: Tiles, rows: list[int]) -> TileGroup:
    bound = int((1 + _MOST_GAPS) * int(peaks[tiles].max()))
    return packer.pack(tiles, rows, rows[first], bound)

  rest: Tiles = np.ones(len(code), np.bool_)
  fullest = int(peaks.argmax())
  if table.on(fullest) == most:
    return Addresses(packer.allocations, [group(rest, most)], table)
  rows = table.rows()
  groups: list[TileGroup] = []
  needed = 0
  while True:
    fullest = int(np.where(rest, peaks, -1).argmax())
    below: Tiles = rest & (rows <= rows[:, fullest, None]).all(0)
    last = len(groups) + 1 == _MOST_GROUPS or bool((below == rest).all())
    if last or peaks[fullest] <= needed:
      # One group of all other tiles may need no more than the fullest one.
      others = group(rest, rows[:, rest].max(1).tolist())
      if last or others.needed <= needed:
        return Addresses(packer.allocations, [*groups, others], table)
    groups.append(group(below, table.on(fullest)))
    needed = max(needed, groups[-1].needed)
    rest = rest & ~below


class _Packer:
  """Places allocation groups on a group of tiles.

  Attributes:
    allocations: first those that are live all the time, which leave no gaps,
      largest first.
  """

  def __init__(
    self,
    target: Target,
    allocations: list[AllocationGroup],
    interleaved: Callable[[AllocationGroup], bool],
    most: list[int],
    end: int,
    thorough: bool,
  ) -> None:
    always: list[AllocationGroup] = []
    others: list[AllocationGroup] = []
    for allocation in allocations:
      (always if allocation.always(end) else others).append(allocation)
    always.sort(key=lambda u: -most[u.row])
    self.allocations = always + others
    self._always = len(always)
    self._target = target
    self._count = _MOST_SORTED_IF_TIGHT if thorough else _MOST_SORTED
    self._interleaved = interleaved
    self._wide = target.has_regions and any(u.wide for u in allocations)
    self._lives: dict[tuple[int, ...], Lives] = {}

  def pack(
    self, tiles: Tiles, rows: list[int], code: int, bound: int
  ) -> TileGroup:
    """Assigns addresses to all allocation groups on a group of tiles.

    Args:
      tiles: the tiles of the group.
      rows: bytes of each row (tile_bytes.py), the most on any of these tiles.
      code: bytes of code.
      bound: a result of at most so many bytes ends the search.
    """
    sizes: list[int] = []
    steps: list[int] = []
    for allocation in self.allocations:
      size = rows[allocation.row]
      # Stores are at least 32 bits wide, loads of vectors 64.
      step = _WIDE if allocation.wide else 8 if size > 4 else 4
      sizes.append(-(-size // step) * step)
      steps.append(step)
    base = -(-code // _WIDE) * _WIDE if sizes else code
    everything = range(len(sizes))
    addresses, top = self._stack(everything, sizes, steps, base, bound)
    needed, limit = top, self._target.bytes_per_tile
    down: frozenset[int] = frozenset()
    shift = 0
    if self._wide:
      # Vertices' state and stacks may extend beyond the first region.
      begin = -(-self._target.executable_bytes // _WIDE) * _WIDE
      begin = max(begin, base)
      if top - base <= limit - begin:
        shift = begin - base
        addresses = [a + shift for a in addresses]
      elif top <= limit:
        stacks, needed = self._two_stacks(sizes, steps, base, begin, bound)
        if needed <= limit:
          addresses, down = stacks, frozenset(self._high())
        needed = max(top, needed)
    crowded = top <= limit < needed
    return TileGroup(
      tiles, code, sizes, addresses, down, shift, needed, crowded
    )

  def _high(self) -> list[int]:
    """The numbers of the allocation groups that have to be interleaved."""
    numbered = enumerate(self.allocations)
    return [n for n, allocation in numbered if self._interleaved(allocation)]

  def _two_stacks(
    self,
    sizes: list[int],
    steps: list[int],
    base: int,
    begin: int,
    bound: int,
  ) -> tuple[list[int], int]:
    """Addresses of all allocation groups, with those that have to be
    interleaved at the end of the SRAM, above `begin`; and the bytes needed,
    which exceed the SRAM if that is not possible."""
    high = self._high()
    among = set(high)
    low = [n for n in range(len(sizes)) if n not in among]
    limit = self._target.bytes_per_tile
    end = limit // _WIDE * _WIDE
    below, depth = self._stack(high, sizes, steps, 0, 0)
    addresses = [0] * len(sizes)
    for n, a in zip(high, below, strict=True):
      addresses[n] = end - a - sizes[n]
    lowest = end - depth
    fixed = sum(sizes[n] + steps[n] for n in low if n < self._always)
    if lowest < begin or base + fixed > lowest:
      return addresses, limit + max(begin, base + fixed) - lowest
    taken = {n: addresses[n] for n in high if sizes[n]}
    above, top = self._stack(low, sizes, steps, base, bound, taken)
    for n, a in zip(low, above, strict=True):
      addresses[n] = a
    return addresses, top + depth if top <= lowest else max(top, limit)

  def _stack(
    self,
    numbers: Sequence[int],
    sizes: list[int],
    steps: list[int],
    base: int,
    bound: int,
    taken: dict[int, int] | None = None,
  ) -> tuple[list[int], int]:
    """Addresses of some allocation groups from `base` on, and the end of the
    highest one. Several orders of placement are tried, until one keeps all
    allocation groups below `bound`; if none does, the best is taken. Those in
    `taken` already have addresses."""
    taken = taken or {}
    stay = [n for n in numbers if n < self._always]
    come = numbers[len(stay) :]
    addresses = []
    for n in stay:
      base = -(-base // steps[n]) * steps[n]
      addresses.append(base)
      base += sizes[n]
    lives = self._lives_of((*come, *taken))
    large = [sizes[n] for n in come]
    lengths = lives.lengths[: len(come)]
    orders = [lengths]
    if len(come) <= self._count:
      orders = [large, lengths, list(map(operator.mul, lengths, large))]
    best: list[int] = []
    top = math.inf
    how = [steps[n] for n in come], base, self._count
    beside = [(at, at + sizes[n]) for n, at in taken.items()]
    for order in orders:
      found = lives.place(large, *how, order, beside)
      end = max(map(operator.add, found, large), default=base)
      if end < top:
        best, top = found, end
      if top <= bound:
        break
    return addresses + best, int(top)

  def _lives_of(self, numbers: tuple[int, ...]) -> Lives:
    """The lifetimes of some allocation groups."""
    found = self._lives.get(numbers)
    if found is None:
      lives = [self.allocations[n].intervals for n in numbers]
      found = self._lives[numbers] = Lives(lives)
    return found
