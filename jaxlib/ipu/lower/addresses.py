"""Assigns SRAM addresses on tiles.

These are addresses on the IPU. Those of `allocate.py` are unrelated: they are
in the memory of the host that runs the model. A unit (`units.py`) is a set of
tensors that share an address; on every tile that holds any of it, it takes its
bytes on that tile from that address on.

Tiles form groups with common addresses. The first group has the fullest tile
and all tiles that hold no more of any unit than that one. The remaining tiles
form a few more groups, in which a unit takes as much as on the tile of the
group that has most of it. So a program that is said to fit does, whatever the
number of tiles.

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

from jaxlib.ipu.lower.allocate import Interval
from jaxlib.ipu.lower.first_fit import place
from jaxlib.ipu.lower.shares import Shares
from jaxlib.ipu.lower.units import Unit
from jaxlib.ipu.plan.layout import Array
from jaxlib.ipu.target import Target

# Up to this number, units are placed largest first, which mostly leaves the
# smallest gaps. Beyond it, this number of units with the longest lifetimes are
# placed first, the others in order of birth (`first_fit.py`). [G]
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
class Group:
  """Tiles with the same addresses.

  Attributes:
    tiles: for each tile, whether it is in the group.
    code: bytes of code.
    sizes: bytes reserved for each unit: the most that any tile of the group has
      of it, aligned.
    addresses: of each unit, in bytes from the beginning of the SRAM.
    needed: bytes of SRAM that code and all units take, gaps included.
    crowded: whether they do not fit, but would if all of the SRAM were
      interleaved.
  """

  tiles: Tiles
  code: int
  sizes: list[int]
  addresses: list[int]
  needed: int
  crowded: bool


@dataclasses.dataclass(slots=True)
class Addresses:
  """The addresses of all units on each tile.

  Attributes:
    units: all units, first those that are live all the time.
    groups: groups of tiles; each tile is in one of them.
  """

  units: list[Unit]
  groups: list[Group]

  @property
  def fullest(self) -> Group:
    """The group that needs most SRAM."""
    return max(self.groups, key=lambda g: g.needed)


def assign(
  target: Target,
  units: list[Unit],
  interleaved: Callable[[Unit], bool],
  shares: Shares,
  code: Array,
  peaks: Array,
  end: int,
  thorough: bool = False,
) -> Addresses:
  """Assigns addresses to all units on all tiles.

  Args:
    target: the machine.
    units: all units.
    interleaved: tells whether a unit has to be in interleaved memory; called
      only if not everything fits there.
    shares: the bytes of units on each tile.
    code: bytes of code on each tile.
    peaks: peak bytes of each tile, without gaps.
    end: the time at which the run ends.
    thorough: whether to search longer for smaller gaps.
  """
  first = shares.of(code)
  most = shares.most()
  packer = _Packer(target, units, interleaved, most, end, thorough)

  def group(tiles: Tiles, rows: list[int]) -> Group:
    bound = int((1 + _MOST_GAPS) * int(peaks[tiles].max()))
    return packer.pack(tiles, rows, rows[first], bound)

  rest: Tiles = np.ones(len(code), np.bool_)
  fullest = int(peaks.argmax())
  if shares.on(fullest) == most:
    return Addresses(packer.units, [group(rest, most)])
  rows = shares.rows()
  groups: list[Group] = []
  while True:
    groups.append(group(rest, rows[:, rest].max(1).tolist()))
    fullest = int(np.where(rest, peaks, -1).argmax())
    below: Tiles = rest & (rows <= rows[:, fullest, None]).all(0)
    if (
      groups[-1].needed <= max((g.needed for g in groups[:-1]), default=0)
      or len(groups) == _MOST_GROUPS
      or (below == rest).all()
    ):
      return Addresses(packer.units, groups)
    groups[-1] = group(below, shares.on(fullest))
    rest = rest & ~below


class _Packer:
  """Places the units of a group of tiles.

  Attributes:
    units: first those that are live all the time, which leave no gaps, largest
      first.
  """

  def __init__(
    self,
    target: Target,
    units: list[Unit],
    interleaved: Callable[[Unit], bool],
    most: list[int],
    end: int,
    thorough: bool,
  ) -> None:
    always: list[Unit] = []
    others: list[Unit] = []
    for unit in units:
      (always if unit.always(end) else others).append(unit)
    always.sort(key=lambda u: -most[u.share])
    self.units = always + others
    self._always = len(always)
    self._target = target
    self._count = _MOST_SORTED_IF_TIGHT if thorough else _MOST_SORTED
    self._interleaved = interleaved
    self._wide = target.has_regions and any(u.wide for u in units)

  def pack(self, tiles: Tiles, rows: list[int], code: int, bound: int) -> Group:
    """Assigns addresses to all units of a group.

    Args:
      tiles: the tiles of the group.
      rows: bytes of each share (shares.py), the most on any of these tiles.
      code: bytes of code.
      bound: a result of at most so many bytes ends the search.
    """
    sizes: list[int] = []
    steps: list[int] = []
    for unit in self.units:
      size = rows[unit.share]
      # Stores are at least 32 bits wide, loads of vectors 64.
      step = _WIDE if unit.wide else 8 if size > 4 else 4
      sizes.append(-(-size // step) * step)
      steps.append(step)
    base = -(-code // _WIDE) * _WIDE if sizes else code
    everything = range(len(sizes))
    addresses, top = self._stack(everything, sizes, steps, base, bound)
    needed, limit = top, self._target.bytes_per_tile
    if self._wide:
      # Vertices' state and stacks may extend beyond the first region.
      begin = -(-self._target.executable_bytes // _WIDE) * _WIDE
      begin = max(begin, base)
      if top - base <= limit - begin:
        addresses = [a - base + begin for a in addresses]
      elif top <= limit:
        stacks, needed = self._two_stacks(sizes, steps, base, begin, bound)
        addresses = stacks if needed <= limit else addresses
        needed = max(top, needed)
    crowded = top <= limit < needed
    return Group(tiles, code, sizes, addresses, needed, crowded)

  def _two_stacks(
    self,
    sizes: list[int],
    steps: list[int],
    base: int,
    begin: int,
    bound: int,
  ) -> tuple[list[int], int]:
    """Addresses of all units, with those that have to be interleaved at the end
    of the SRAM, above `begin`; and the bytes needed, which exceed the SRAM if
    that is not possible."""
    wide = [self._interleaved(u) for u in self.units]
    high = [n for n, interleaved in enumerate(wide) if interleaved]
    low = [n for n, interleaved in enumerate(wide) if not interleaved]
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
    taken = [
      (addresses[n], addresses[n] + sizes[n], self.units[n].intervals)
      for n in high
      if sizes[n]
    ]
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
    taken: Sequence[tuple[int, int, list[Interval]]] = (),
  ) -> tuple[list[int], int]:
    """Addresses of some units from `base` on, and the end of the highest one.
    Several orders of placement are tried, until one keeps all units below
    `bound`; if none does, the best is taken."""
    stay = [n for n in numbers if n < self._always]
    come = numbers[len(stay) :]
    addresses = []
    for n in stay:
      base = -(-base // steps[n]) * steps[n]
      addresses.append(base)
      base += sizes[n]
    lives = [self.units[n].intervals for n in come]
    large = [sizes[n] for n in come]
    lengths = [live[-1][1] - live[0][0] + 1 for live in lives]
    orders = [lengths]
    if len(come) <= self._count:
      orders = [large, lengths, list(map(operator.mul, lengths, large))]
    best: list[int] = []
    top = math.inf
    how = [steps[n] for n in come], base, self._count
    for order in orders:
      found = place(lives, large, *how, order, taken)
      end = max(map(operator.add, found, large), default=base)
      if end < top:
        best, top = found, end
      if top <= bound:
        break
    return addresses + best, int(top)
