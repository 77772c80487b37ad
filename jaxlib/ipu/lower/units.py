"""Groups tensors that share one address in the SRAM of tiles.

Tensors can share an address if they are never live at once and take the same
bytes on each tile. Some tensors have to, as otherwise a copy that is charged
nothing would move something: the source and destination of coalesced copies
(`allocate.py`), and donated arguments with the results that replace them. Also,
an element-wise result takes the place of an operand whose last reader computes
it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable

from jaxlib.ipu.lower.allocate import Interval, overlap, union
from jaxlib.ipu.lower.liveness import Timeline
from jaxlib.ipu.lower.shares import Shares
from jaxlib.ipu.tile.tensor import TensorInfo


@dataclasses.dataclass(slots=True, eq=False)
class Unit:
  """Tensors with one address on a tile.

  Attributes:
    tensors: their numbers; empty for the buffers of a step.
    intervals: when any of them is live: closed intervals, ascending.
    share: the number under which `shares.py` has the unit's bytes on each tile.
    wide: whether loads of 128 bits may read the unit.
  """

  tensors: list[int]
  intervals: list[Interval]
  share: int
  wide: bool = False

  def always(self, end: int) -> bool:
    """Whether the unit is live throughout a run that ends at time `end`."""
    begin, last = self.intervals[0]
    return begin <= 0 and last >= end

  def join(self, other: Unit) -> None:
    """Merges another unit into this one."""
    self.tensors += other.tensors
    self.intervals = union(self.intervals, other.intervals)
    self.wide |= other.wide


def units(
  tensors: list[TensorInfo],
  line: Timeline,
  lives: dict[int, list[Interval]],
  shares: Shares,
  aliased: Iterable[tuple[int, int]],
  wide: Iterable[int],
) -> list[Unit]:
  """Groups the tensors in SRAM into units.

  Args:
    tensors: all tensors, with the storage assigned by `allocate`.
    line: the analysed steps.
    lives: when each tensor takes SRAM.
    shares: the tensors' bytes on each tile.
    aliased: pairs of a donated argument and the result that replaces it.
    wide: tensors that loads of 128 bits may read.
  """

  def alike(a: Unit, b: Unit) -> bool:
    """Whether each tile has the same elements of both, in the same order."""
    one, other = tensors[a.tensors[0]].layout, tensors[b.tensors[0]].layout
    return shares.equal(a.share, b.share) and (
      one is other or one.joined == other.joined
    )

  # A placed tensor that occupies its root's own memory has no lifetime of its
  # own.
  read = {n if n in lives else tensors[n].root for n in wide}
  found = {
    n: Unit([n], list(live), shares.of_tensor(n), n in read)
    for n, live in lives.items()
  }
  joined = [*aliased]
  for event in line.events:
    for move in event.copies:
      source, written = tensors[move.source], tensors[move.destination]
      if (source.space, source.address) == (written.space, written.address):
        joined.append((move.source, move.destination))
  for first, second in joined:
    a, b = found.get(first), found.get(second)
    if (
      a is not None
      and b is not None
      and a is not b
      and alike(a, b)
      and not overlap(a.intervals, b.intervals)
    ):
      a.join(b)
      for number in b.tensors:
        found[number] = a
  places = sorted({id(u): u for u in found.values()}.values(), key=_begin)
  # Not the times of copies: these read their source until they have written all
  # of their destination.
  times = {event.time for event in line.events if not event.copies}
  return _replaced(places, alike, times)


def _begin(unit: Unit) -> Interval:
  return unit.intervals[0]


def _replaced(
  places: list[Unit], alike: Callable[[Unit, Unit], bool], times: set[int]
) -> list[Unit]:
  """Joins results with operands whose last reader computes them.

  If a compute set reads an operand before it writes, index by index, and is its
  last reader, the operand is live until the step's own time, which is even, and
  the step's results from the next, odd time on. An operand that lives until the
  odd time must not share memory with a result: vertices would overwrite
  elements that others have yet to read.
  """
  out = []
  ending: dict[int, list[Unit]] = defaultdict(list)
  for unit in places:
    before = unit.intervals[0][0] - 1
    operand = None
    if before in times:
      dying = ending[before]
      operand = next((u for u in dying if alike(u, unit)), None)
    if operand is not None:
      dying.remove(operand)
      operand.join(unit)
      unit = operand
    else:
      out.append(unit)
    last = unit.intervals[-1][1]
    if not last & 1:
      ending[last].append(unit)
  for unit in out:
    intervals = [(b, e | 1) for b, e in unit.intervals]
    unit.intervals = intervals if len(intervals) == 1 else union(intervals, [])
  return out
