"""The steps of a program as a table, with what each tile does in them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.layout import Layout, refine, sizes_of_parts
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile import totals
from jaxlib.ipu.tile.execute import Execute
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo

Array = npt.NDArray[Any]

# What kinds of steps are called in reports; others by the name of their class.
_KINDS = {"Execute": "compute", "Copy": "exchange"}


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
    kinds[i] = _kind(step)
    figures["compute"][i] = price.compute_cycles
    figures[_stream(step)][i] = price.exchange_cycles
    figures["sync"][i] = price.sync_cycles
    figures["derived"][i] = price.derived
    figures["guessed"][i] = price.guessed
    figures["flops"][i] = price.flops
    figures["bytes"][i] = price.exchange_bytes
    figures["syncs"][i] = price.syncs
    if isinstance(step, Execute):
      codelets[i] = type(step.fields).__name__
      shapes[i] = "x".join(map(str, step.shape))
      row = _busy(target, step, tensors, price.compute_cycles)
      _note(numbers, tiles, i, rows["busy"], row)
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


def _kind(step: Step) -> str:
  name = type(step).__name__
  if name == "Copy" and not step.moves:
    return "loop counter"
  return _KINDS.get(name, _words(name))


@functools.cache
def _words(name: str) -> str:
  """`HostCallback` as "host callback"."""
  return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _trips(step: Step) -> float:
  """How often a loop runs its body: -1 if only data decide, 0 if it is none."""
  if not step.regions or step.exclusive or step.callee is not None:
    return 0.0
  return -1.0 if step.trips is None else float(step.trips)


# --- Compute sets -----------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _cells(
  partition: Layout, shape: tuple[int, ...], num_tiles: int
) -> tuple[Array, list[tuple[int, ...]]]:
  """The cell of each tile.

  Returns:
    For each tile the number of its cell's extents, -1 without a cell, and the
    distinct extents: for each dimension of the iteration space, or the number
    of elements where blocks straddle dimensions.
  """
  tiles = np.arange(num_tiles)
  groups = refine(partition.factors, shape)
  if groups is None:
    held = partition.elements(tiles)
    distinct, numbers = np.unique(held, return_inverse=True)
    kept = [int(n) for n in distinct]
    shift = int(kept[0] == 0)
    return numbers - shift, [(n,) for n in kept[shift:]]
  flat = tuple(f for group in groups for f in group)
  layout = Layout(flat, partition.replicas, partition.base)
  parts, active = layout.coordinates(tiles)
  # Of each factor a tile has a whole block, or the last one, which is short.
  code = np.zeros(num_tiles, np.int64)
  sizes = [sizes_of_parts(f, p) for f, p in zip(flat, parts, strict=True)]
  for bit, (f, size) in enumerate(zip(flat, sizes, strict=True)):
    code |= (size < min(f.block, f.extent)).astype(np.int64) << bit
  code[~active] = -1
  distinct, first, numbers = np.unique(
    code, return_index=True, return_inverse=True
  )
  shift = int(distinct[0] < 0)
  extents = []
  for tile in first[shift:]:
    own = iter([int(size[tile]) for size in sizes])
    extents.append(
      tuple(math.prod(next(own) for _ in group) for group in groups)
    )
  return numbers - shift, extents


def _busy(
  target: Target,
  step: Execute,
  tensors: Sequence[TensorInfo],
  compute: float,
) -> Array:
  """Cycles of each tile in a compute set: of its vertices, by the extents of
  its cell. What comes with them (copies in another order, the stages that
  combine partial results) is charged to all tiles that take part, as on the
  slowest one."""
  where = step.partition, step.shape, target.num_tiles
  numbers, extents = _cells(*where)
  largest = _largest_cell(*where[:2])
  if all(cell == largest for cell in extents):
    return _level(*where, compute)
  codelet = step.codelet
  operands = [tensors[a.tensor].dtype for a in step.operands]
  results = [tensors[a.tensor].dtype for a in step.results]
  hints = codelet.hints() if step.hints is None else step.hints

  def of(cell: tuple[int, ...]) -> float:
    taken = codelet.cycles(target, step.fields, operands, results, cell, hints)
    return float(taken.total)

  rest = compute - of(largest)
  each = [of(cell) + rest for cell in extents]
  return np.array([*each, 0.0])[numbers]  # -1: no cell


_largest_cell = functools.lru_cache(maxsize=4096)(cost.largest_cell)


@functools.lru_cache(maxsize=4096)
def _level(
  partition: Layout, shape: tuple[int, ...], num_tiles: int, compute: float
) -> Array:
  """The same cycles on each tile that has a cell."""
  numbers, _ = _cells(partition, shape, num_tiles)
  return np.where(numbers >= 0, compute, 0.0)


# --- Exchanges --------------------------------------------------------------


class Exchanged(NamedTuple):
  """What each tile does in an exchange: bytes, and cycles of copying."""

  received: Array
  sent: Array
  copying: Array


def _exchanged(
  target: Target, step: Step, tensors: Sequence[TensorInfo]
) -> Exchanged:
  tiles = target.num_tiles
  received, sent = np.zeros(tiles, np.int64), np.zeros(tiles, np.int64)
  copying = np.zeros(tiles)
  for moved in _traffic(step, tensors):
    received[: len(moved.received)] += moved.received
    sent[: len(moved.sent)] += moved.sent
    for copied in (moved.packed, moved.unpacked):
      if copied is not None:
        copying[: len(copied)] += _copy_cycles(target, copied)
  if step.within is not None:
    copying[: len(step.within)] += _copy_cycles(target, step.within)
  return Exchanged(received, sent, copying)


def _copy_cycles(target: Target, size: Array) -> Array:
  """Cycles of copying so many bytes on each tile."""
  vectors = np.ceil(size / target.data_path_bytes)
  return np.where(size > 0, cost.copies(target, vectors), 0.0)


# Layers of a model repeat their exchanges.
_move = functools.lru_cache(maxsize=4096)(move_traffic)


def _traffic(step: Step, tensors: Sequence[TensorInfo]) -> Iterator[Traffic]:
  """The traffic of each move of an exchange, as it was priced."""
  for m in step.moves:
    source, to = tensors[m.source], tensors[m.destination]
    yield _move(
      MoveEnd(source.layout, m.source_offset, tuple(m.source_strides)),
      MoveEnd(to.layout, m.destination_offset, tuple(m.destination_strides)),
      tuple(m.shape),
      SIZE[source.dtype],
      to.root != m.destination,
    )
