"""The steps of a program as a table, with what each tile does in them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile import totals
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo

Array = npt.NDArray[Any]


class Rows:
  """Distinct figures by tile: most steps of a program share a few."""

  def __init__(self, tiles: int) -> None:
    self._tiles = tiles
    self._numbers: dict[bytes, int] = {}
    self._rows: list[Array] = []
    self._known: dict[int, tuple[Array, int]] = {}

  def add(self, row: Array) -> int:
    """The number of a row, which covers all tiles or the first ones."""
    known = self._known.get(id(row))
    if known is not None:
      return known[1]
    whole = np.zeros(self._tiles, np.float32)
    whole[: len(row)] = row
    key = whole.tobytes()
    number = self._numbers.setdefault(key, len(self._rows))
    if number == len(self._rows):
      self._rows.append(whole)
    self._known[id(row)] = row, number  # which keeps its id unique
    return number

  def array(self) -> Array:
    """All rows, f32[row, tile]."""
    if not self._rows:
      return np.zeros((0, self._tiles), np.float32)
    return np.stack(self._rows)


class Placed(NamedTuple):
  """A step in its program.

  Attributes:
    step: the step.
    parent: the number of the step that contains it; -1 if none does.
    depth: number of steps around it.
    times: how often a run goes through it, as `ipu cycles` counts it: branches
      that are not the costliest 0 times, loops of unknown length once.
  """

  step: Step
  parent: int
  depth: int
  times: float


def placed(
  target: Target, steps: Region, tensors: Sequence[TensorInfo]
) -> list[Placed]:
  """All steps, in program order, nested ones after those around them."""
  out: list[Placed] = []

  def add(region: Region, parent: int, depth: int, times: float) -> None:
    for step in region:
      number = len(out)
      out.append(Placed(step, parent, depth, times))
      regions = step.regions
      inner = times * (1 if step.trips is None else step.trips)
      each = [inner] * len(regions)
      if step.exclusive and regions:
        cycles = [totals.totals(target, r, tensors).cycles for r in regions]
        longest = cycles.index(max(cycles))
        each = [inner * (i == longest) for i in range(len(regions))]
      for region_, count in zip(regions, each, strict=True):
        add(region_, number, depth + 1, min(count, totals.MOST))

  add(steps, -1, 0, 1.0)
  return out


def table(
  target: Target, every: Sequence[Placed], tensors: Sequence[TensorInfo]
) -> tuple[dict[str, Array], dict[str, Array]]:
  """The table of steps, and the distinct rows that it refers to.

  Returns:
    Columns with an entry for each step, and `busy` f32[row, tile] in cycles,
    `received` and `sent` in bytes. Cycles, bytes and flops are of one pass
    through the step, without the steps in it. Row -1 says that no tile takes
    part, or that figures by tile are not known (exchanges between the
    supersteps of one compute set).
  """
  count = len(every)
  names = (
    "compute", "exchange", "link", "sync", "host", "derived", "guessed",
    "flops", "bytes", "syncs",
  )  # fmt: skip
  figures = {name: np.zeros(count) for name in names}
  numbers = {
    name: np.full(count, -1, np.int64)
    for name in ("slowest", "busy_row", "received_row", "sent_row")
  }
  tiles = np.zeros(count, np.int64)
  kinds, codelets, shapes = (np.full(count, "", object) for _ in range(3))
  rows = {n: Rows(target.num_tiles) for n in ("busy", "received", "sent")}
  for i, (step, *_) in enumerate(every):
    price = cost.sourced(step.price(target))
    kinds[i] = step.words
    figures["compute"][i] = price.compute_cycles
    figures[_stream(step)][i] = price.exchange_cycles
    figures["sync"][i] = price.sync_cycles
    figures["derived"][i] = price.derived
    figures["guessed"][i] = price.guessed
    figures["flops"][i] = price.flops
    figures["bytes"][i] = price.exchange_bytes
    figures["syncs"][i] = price.syncs
    vertices = step.vertices(target, tensors)
    if vertices is not None:
      codelets[i] = vertices.codelet
      shapes[i] = "x".join(map(str, vertices.shape))
      _note(numbers, tiles, i, rows["busy"], vertices.cycles)
    elif step.moves:
      found = _exchanged(target, step, tensors)
      if price.compute_cycles:
        _note(numbers, tiles, i, rows["busy"], found.copying)
      some = (found.received > 0) | (found.sent > 0)
      tiles[i] = max(tiles[i], np.count_nonzero(some))
      if found.received.any():
        numbers["received_row"][i] = rows["received"].add(found.received)
        numbers["sent_row"][i] = rows["sent"].add(found.sent)
        if numbers["slowest"][i] < 0:
          busiest = np.maximum(found.received, found.sent)
          numbers["slowest"][i] = busiest.argmax()
    elif (
      step.on_host or step.on_links or price.compute_cycles or price.sync_cycles
    ):
      tiles[i] = target.num_tiles  # decisions, loops and streams are of all
  columns = {
    "kind": kinds,
    "codelet": codelets,
    "shape": shapes,
    "parent": np.array([p.parent for p in every], np.int64),
    "depth": np.array([p.depth for p in every], np.int64),
    "times": np.array([p.times for p in every], np.float64),
    "time": np.array([p.step.time for p in every], np.int64),
    "trips": np.array([_trips(p.step) for p in every], np.float64),
    "tiles": tiles,
    **numbers,
    **figures,
  }
  return columns, {name: found.array() for name, found in rows.items()}


def _stream(step: Step) -> str:
  """Where a step's data go."""
  if step.on_links:
    return "link"
  return "host" if step.on_host else "exchange"


def _note(
  numbers: dict[str, Array], tiles: Array, i: int, rows: Rows, row: Array
) -> None:
  """Notes what each tile computes in step i."""
  numbers["busy_row"][i] = rows.add(row)
  numbers["slowest"][i] = row.argmax()
  tiles[i] = np.count_nonzero(row)


def _trips(step: Step) -> float:
  """How often a loop runs its body: -1 if only data decide, 0 if it is none."""
  if not step.regions or step.exclusive or step.callee is not None:
    return 0.0
  return float(step.trips) if step.trips else -1.0


# --- Exchanges --------------------------------------------------------------


class TileTraffic(NamedTuple):
  """What each tile does in an exchange: bytes, and cycles of copying."""

  received: Array
  sent: Array
  copying: Array


def _exchanged(
  target: Target, step: Step, tensors: Sequence[TensorInfo]
) -> TileTraffic:
  found = _summed(target, step, tensors, True)
  if found.copying.max() <= step.price(target).compute_cycles:
    return found
  # Vertices that read single elements need no copy of what stays on a tile. The
  # step does not say so, but its price does.
  return _summed(target, step, tensors, False)


def _summed(
  target: Target, step: Step, tensors: Sequence[TensorInfo], gathers: bool
) -> TileTraffic:
  """The moves of an exchange together; `gathers` says whether placed tensors
  also get copies of what lies on a tile already."""
  tiles = target.num_tiles
  received, sent = np.zeros(tiles, np.int64), np.zeros(tiles, np.int64)
  packed, unpacked = [], []
  for moved in _traffic(step, tensors, gathers):
    received[: len(moved.received)] += moved.received
    sent[: len(moved.sent)] += moved.sent
    packed.append(moved.packed)
    unpacked.append(moved.unpacked)
  copying = np.zeros(tiles)
  for copies in (packed, unpacked, [step.within]):
    some = [x for x in copies if x is not None]
    if some:
      size = cost.together(some)
      copying[: len(size)] += _copy_cycles(target, size)
  return TileTraffic(received, sent, copying)


def _copy_cycles(target: Target, size: Array) -> Array:
  """Cycles of copying so many bytes on each tile."""
  vectors = np.ceil(size / target.data_path_bytes)
  return np.where(size > 0, cost.copies(target, vectors), 0.0)


# Layers of a model repeat their exchanges.
_move = functools.lru_cache(maxsize=4096)(move_traffic)


def _traffic(
  step: Step, tensors: Sequence[TensorInfo], gathers: bool
) -> Iterator[Traffic]:
  """The traffic of each move of an exchange, as it was priced."""
  for m in step.moves:
    source, to = tensors[m.source], tensors[m.destination]
    placed = to.root != m.destination
    yield _move(
      MoveEnd(source.layout, m.source_offset, tuple(m.source_strides)),
      MoveEnd(to.layout, m.destination_offset, tuple(m.destination_strides)),
      tuple(m.shape),
      SIZE[source.dtype],
      placed,
      gathers and placed,
      step.word_price,
    )
