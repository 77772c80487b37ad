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

from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile_passes.lifetimes import Interval, overlap, union
from jaxlib.ipu.tile_passes.liveness import Timeline


@dataclasses.dataclass(slots=True, eq=False)
class AllocationGroup:
  """Tensors with one address on a tile.

  Attributes:
    tensors: their numbers; empty for the buffers of a step.
    intervals: when any of them is live: closed intervals, ascending.
    row: the number under which `tile_bytes.py` has the allocation group's
      bytes on each tile.
    wide: whether loads of 128 bits may read the allocation group.
  """

  tensors: list[int]
  intervals: list[Interval]
  row: int
  wide: bool = False

  def always(self, end: int) -> bool:
    """Whether the allocation group is live throughout a run that ends at time
    `end`."""
    begin, last = self.intervals[0]
    return begin <= 0 and last >= end

  def join(self, other: AllocationGroup) -> None:
    """Merges another allocation group into this one."""
    self.tensors += other.tensors
    self.intervals = union(self.intervals, other.intervals)
    self.wide |= other.wide


def allocation_groups(
  tensors: list[TensorInfo],
  line: Timeline,
  lives: dict[int, list[Interval]],
  table: TileBytes,
  aliased: Iterable[tuple[int, int]],
  wide: Iterable[int],
) -> list[AllocationGroup]:
  """Groups the tensors in SRAM into allocations.

  Args:
    tensors: all tensors, with the storage assigned by `allocate`.
    line: the analysed steps.
    lives: when each tensor takes SRAM.
    table: the tensors' bytes on each tile.
    aliased: pairs of a donated argument and the result that replaces it.
    wide: tensors that loads of 128 bits may read.
  """

  def alike(a: AllocationGroup, b: AllocationGroup) -> bool:
    """Whether each tile has the same elements of both, in the same order."""
    one, other = tensors[a.tensors[0]].layout, tensors[b.tensors[0]].layout
    return table.equal(a.row, b.row) and (
      one is other or one.joined == other.joined
    )

  # A placed tensor that occupies its root's own memory has no lifetime of its
  # own.
  read = {n if n in lives else tensors[n].root for n in wide}
  found = {
    n: AllocationGroup([n], list(live), table.of_tensor(n), n in read)
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


def _begin(allocation: AllocationGroup) -> Interval:
  return allocation.intervals[0]


def _replaced(
  places: list[AllocationGroup],
  alike: Callable[[AllocationGroup, AllocationGroup], bool],
  times: set[int],
) -> list[AllocationGroup]:
  """Joins results with operands whose last reader computes them.

  If a compute set reads an operand before it writes, index by index, and is its
  last reader, the operand is live until the step's own time, which is even, and
  the step's results from the next, odd time on. An operand that lives until the
  odd time must not share memory with a result: vertices would overwrite
  elements that others have yet to read.
  """
  out = []
  ending: dict[int, list[AllocationGroup]] = defaultdict(list)
  for allocation in places:
    before = allocation.intervals[0][0] - 1
    operand = None
    if before in times:
      dying = ending[before]
      operand = next((u for u in dying if alike(u, allocation)), None)
    if operand is not None:
      dying.remove(operand)
      operand.join(allocation)
      allocation = operand
    else:
      out.append(allocation)
    last = allocation.intervals[-1][1]
    if not last & 1:
      ending[last].append(allocation)
  for allocation in out:
    intervals = [(b, e | 1) for b, e in allocation.intervals]
    allocation.intervals = (
      intervals if len(intervals) == 1 else union(intervals, [])
    )
  return out
