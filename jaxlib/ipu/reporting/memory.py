"""What each tile holds, and when."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import NAME
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.memory import MemoryPlan
from jaxlib.ipu.sram.tile_bytes import TileBytes
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.step import Step

Array = npt.NDArray[Any]

# Kinds of tensors, in the order in which they are drawn, from the bottom up.
TENSORS = (
  "arguments",
  "donated arguments",
  "constants",
  "results",
  "temporaries",
  "exchanged copies",
  "buffers",
)
# Parts of `TileCode`, and what they are called.
CODE = {
  "stacks": "stacks",
  "state": "vertex state",
  "vertices": "vertex code",
  "control": "control code",
  "host": "host stream code",
  "exchange": "exchange code",
}
CATEGORIES = (*CODE.values(), *TENSORS)


@dataclasses.dataclass(frozen=True)
class Tensors:
  """What takes SRAM, besides code: tensors, then the buffers of steps.

  Attributes:
    columns: an entry for each.
    begin, end, owner: closed intervals of time, and the entry that is live.
    shares: bytes of each distinct distribution, int64[share, tile].
  """

  columns: dict[str, Array]
  begin: Array
  end: Array
  owner: Array
  shares: Array

  @property
  def category(self) -> Array:
    """The number of each entry's category in `TENSORS`."""
    return self.columns["category"]

  @property
  def share(self) -> Array:
    """The number of each entry's row of `shares`."""
    return self.columns["share"]


def tensors(builder: Builder, module: Module, plan: MemoryPlan) -> Tensors:
  """The table of everything that takes SRAM while it is live."""
  shares = TileBytes(builder.tensors, builder.target.num_tiles)
  names = _Names(builder, module)
  rows: list[tuple[Any, ...]] = []
  spans: list[tuple[int, int, int]] = []
  for tensor, intervals in plan.lives.items():
    spans += [(b, e, len(rows)) for b, e in intervals]
    rows.append((tensor, *names.tensor(tensor), shares.of_tensor(tensor)))
  for time, buffer in plan.buffers.items():
    spans.append((time, time + 1, len(rows)))
    rows.append((-1, *names.buffer(buffer.step), shares.of(buffer.bytes)))
  columns = list(zip(*rows, strict=True)) or [()] * 6
  number, category, location, share = (
    np.array(columns[i], np.int64) for i in (0, 3, 4, 5)
  )
  name, type_ = (np.array(columns[i], object) for i in (1, 2))
  begin, end, owner = np.array(spans, np.int64).reshape(-1, 3).T
  held = (
    shares.rows() if rows else np.zeros((0, builder.target.num_tiles), np.int64)
  )
  table = {
    "number": number,
    "name": name,
    "type": type_,
    "category": category,
    "location": location,
    "share": share,
    "bytes": held.sum(1)[share],
    "most": held.max(1, initial=0)[share],
  }
  return Tensors(table, begin, end, owner, held)


class _Names:
  """Names and categories of tensors, in the user's words."""

  def __init__(self, builder: Builder, module: Module) -> None:
    self._tensors = builder.tensors
    self._arguments, self._results = module.names()
    self._donated = module.donated
    self._operations = [
      name.rpartition("/")[2] or operation.removeprefix("stablehlo.")
      for operation, name, *_ in builder.locations
    ]

  def tensor(self, number: int) -> tuple[str, str, int, int]:
    """Name, type, category and location of a tensor."""
    info = self._tensors[number]
    root = self._tensors[info.root]
    name, category = self._root(root)
    location = root.location if info.location is None else info.location
    if info.root != number:
      category = TENSORS.index("exchanged copies")
    extents = ",".join(map(str, info.shape))
    return name, f"{NAME[info.dtype]}[{extents}]", category, location or 0

  def _root(self, root: Any) -> tuple[str, int]:
    if root.space == schema.ARGUMENT:
      donated = root.address in self._donated
      kind = "donated arguments" if donated else "arguments"
      return self._arguments[root.address], TENSORS.index(kind)
    if root.space == schema.RESULT:
      known = root.address < len(self._results)
      name = self._results[root.address] if known else ""
      return name or f"result {root.address}", TENSORS.index("results")
    kind = "constants" if root.space == schema.CONSTANT else "temporaries"
    return self._operations[root.location or 0], TENSORS.index(kind)

  def buffer(self, step: Step) -> tuple[str, str, int, int]:
    """The same for the buffers of a step."""
    return step.buffers_of, "", TENSORS.index("buffers"), step.location


def by_tile(
  target: Target, plan: MemoryPlan, found: Tensors
) -> dict[str, Array]:
  """What each tile holds at its own fullest moment.

  Returns:
    `memory` int64[category, tile] bytes, code by all of its kinds and whether
    it can be held or not; `moment` [tile], a time of the liveness analysis;
    `refused` [tile], the part of the code that exceeds the region that can
    hold it; `gaps` [tile], bytes between tensors.
  """
  moment = _moments(found, target.num_tiles)
  memory = np.zeros((len(CATEGORIES), target.num_tiles), np.int64)
  for i, part in enumerate(CODE):
    memory[i] = getattr(plan.code, part)
  for time in np.unique(moment):
    tiles = np.flatnonzero(moment == time)
    live = found.owner[(found.begin <= time) & (time <= found.end)]
    counts = np.zeros((len(TENSORS), len(found.shares)), np.int64)
    np.add.at(counts, (found.category[live], found.share[live]), 1)
    memory[len(CODE) :, tiles] = counts @ found.shares[:, tiles]
  needed = np.zeros(target.num_tiles, np.int64)
  for group in plan.addresses.groups:
    needed[group.tiles] = group.needed
  return {
    "memory": memory,
    "moment": moment,
    "refused": np.maximum(plan.code.executable - target.executable_bytes, 0),
    "gaps": np.maximum(needed - memory.sum(0), 0),
  }


def _moments(found: Tensors, num_tiles: int) -> Array:
  """The first time at which each tile holds most."""
  moment = np.zeros(num_tiles, np.int64)
  now = np.zeros(num_tiles, np.int64)
  most = np.full(num_tiles, -1, np.int64)
  for time, changed in _events(found):
    for share, count in changed:
      now += count * found.shares[share]
    above = now > most
    if above.any():
      moment[above] = time
      np.maximum(most, now, out=most)
  return moment


def _events(found: Tensors) -> list[tuple[int, list[tuple[int, int]]]]:
  """Times at which something begins or has ended, ascending, each with the
  shares that come (1) and go (-1)."""
  at: dict[int, dict[int, int]] = {}
  share = found.share[found.owner].tolist()
  for begin, end, number in zip(
    found.begin.tolist(), found.end.tolist(), share, strict=True
  ):
    come, go = at.setdefault(begin, {}), at.setdefault(end + 1, {})
    come[number] = come.get(number, 0) + 1
    go[number] = go.get(number, 0) - 1
  return [(time, [x for x in at[time].items() if x[1]]) for time in sorted(at)]


def over_time(found: Tensors, code: Array, tile: int) -> dict[str, Array]:
  """How full the SRAM is at each time at which that changes.

  Args:
    code: bytes of everything but tensors, on each tile.
    tile: the one that is fullest at its peak.

  Returns:
    `time` [event]; `tile` int64[category of TENSORS, event], bytes on that
    tile; `total` [event], bytes on all tiles, code included.
  """
  times, where = np.unique(
    np.concatenate([found.begin, found.end + 1]), return_inverse=True
  )
  count = len(found.begin)
  begin, end = where[:count], where[count:]
  category = found.category[found.owner]
  share = found.share[found.owner]
  held = found.shares[:, tile][share]
  whole = found.shares.sum(1)[share]
  by_category = np.zeros((len(TENSORS), len(times)), np.int64)
  np.add.at(by_category, (category, begin), held)
  np.subtract.at(by_category, (category, end), held)
  total = np.zeros(len(times), np.int64)
  np.add.at(total, begin, whole)
  np.subtract.at(total, end, whole)
  return {
    "time": times,
    "tile": np.cumsum(by_category, axis=1),
    "total": np.cumsum(total) + int(code.sum()),
  }


def addresses(plan: MemoryPlan, entries: Array) -> dict[str, Any]:
  """Where everything is on the tiles.

  Args:
    entries: for each entry of the table of tensors the number of its tensor.

  Returns:
    `group` [tile], the group of tiles with common addresses; for each group
    `code`, the first byte after code, and `needed`, both in bytes; `address`
    and `size` [group, group] in bytes; `offsets` [group + 1] and `entries`, the
    entries of the table of tensors that share a group's address.
  """
  placed = plan.addresses
  tiles = np.zeros(len(plan.code.total), np.int64)
  for number, group in enumerate(placed.groups):
    tiles[group.tiles] = number
  buffers = int(np.count_nonzero(entries >= 0))
  where = {int(n): i for i, n in enumerate(entries) if n >= 0}
  times = {time: buffers + i for i, time in enumerate(plan.buffers)}
  members = [
    [where[n] for n in group.tensors if n in where]
    if group.tensors
    else [times[group.intervals[0][0]]]
    for group in placed.allocations
  ]
  return {
    "group": tiles,
    "code": _numbers(g.code for g in placed.groups),
    "needed": _numbers(g.needed for g in placed.groups),
    "address": np.array([g.addresses for g in placed.groups], np.int64),
    "size": np.array([g.sizes for g in placed.groups], np.int64),
    "offsets": np.cumsum([0, *map(len, members)]),
    "entries": _numbers(e for one in members for e in one),
  }


def _numbers(values: Any) -> Array:
  return np.array([*values], np.int64)


def intervals(found: Tensors, count: int) -> dict[str, Array]:
  """The times at which each entry is live, as columns grouped by entry."""
  order = np.argsort(found.owner, kind="stable")
  sizes = np.bincount(found.owner, minlength=count)
  return {
    "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    "begin": found.begin[order],
    "end": found.end[order],
  }
