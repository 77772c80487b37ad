"""Runs a sort, superstep by superstep.

Each tile sorts its own part of a row. Then pairs of tiles compare and swap in
rounds of a bitonic network or, if few elements are kept, merge in pairs;
finally the results go to their owners.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import numpy as np

from jaxlib.ipu.check.interp_cells import boxes, elements, first_point, operands
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, TileMemory, Trap
from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets.sort import (
  NUMBER_BYTES,
  SortCodelet,
  is_numbered,
  levels,
  merges,
)
from jaxlib.ipu.dtypes import NUMPY, SIZE
from jaxlib.ipu.program import schema


@dataclasses.dataclass
class _Part:
  """A tile's part of some rows.

  Attributes:
    values: of the operands and the elements' numbers, [rows..., elements].
    own: bytes that it holds throughout, besides the results.
  """

  tile: int
  cell: Cell
  values: list[Array]
  own: int

  @property
  def length(self) -> int:
    return self.values[0].shape[-1]


def execute(
  machine: Machine, step: schema.Execute, codelet: SortCodelet
) -> None:
  """Runs a sort on the machine's memories."""
  fields: Any = step.fields
  numbered = is_numbered(fields, len(step.results))
  rows: dict[tuple[int, ...], list[_Part]] = defaultdict(list)
  for tile, cell in boxes(machine, step):
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(fields, cell, [*local, cell.coordinates[-1]])
    own = values[0].size * NUMBER_BYTES if numbered else 0
    part = _Part(tile, cell, values, own)
    rows[first_point(cell)[:-1]].append(part)
  sorting = _Sorting(machine, step, fields, codelet)
  for parts in rows.values():
    sorting.row(parts)
  sorting.deliver()


class _Sorting:
  """The supersteps after the first. All rows share them; they count what every
  tile sends and receives."""

  def __init__(
    self,
    machine: Machine,
    step: schema.Execute,
    fields: schema.Sort,
    codelet: SortCodelet,
  ) -> None:
    self._machine = machine
    self._step = step
    self._codelet = codelet
    self._fields = fields
    self._tiles = machine.program.target.num_tiles
    self._memories = [machine.computed(a.tensor) for a in step.results]
    operands = (machine.memory[a.tensor] for a in step.operands)
    self._item = sum(SIZE[m.dtype] for m in operands)
    self._item += NUMBER_BYTES * is_numbered(fields, len(step.results))
    # Of each superstep, by name: bytes received and sent by each tile.
    self._traffic: dict[tuple[int, ...], Array] = defaultdict(
      lambda: np.zeros((2, self._tiles), np.int64)
    )
    self._held = np.zeros(self._tiles, np.int64)
    # The tile of each result's elements, and their values.
    self._found: list[tuple[Array, Array]] = [
      (np.full(m.size, -1, np.int64), np.zeros(m.size, NUMPY[m.dtype]))
      for m in self._memories
    ]

  def row(self, parts: list[_Part]) -> None:
    """Sorts rows that the same tiles share."""
    parts.sort(key=lambda p: int(p.cell.coordinates[-1].reshape(-1)[0]))
    length = parts[0].length
    if any(p.length != length for p in parts[:-1]):
      raise Trap("partition", "a sort's rows are not cut into equal parts")
    for p in parts:
      self._hold(p, 0)
    if merges(self._fields, length, len(parts)):
      self._collect(parts)
    else:
      self._network(parts)
    begin = 0
    for p in parts:
      self._note(p, begin)
      begin += p.length

  # --- Few elements are kept -------------------------------------------------

  def _collect(self, parts: list[_Part]) -> None:
    keep = self._fields.keep
    for p in parts:
      p.values = [v[..., :keep] for v in p.values]
    left, round_ = list(parts), 0
    while len(left) > 1:
      for a, b in zip(left[::2], left[1::2], strict=False):
        self._send((round_,), b, a, b.values[0].size)
        self._hold(a, b.values[0].size)
        both = zip(a.values, b.values, strict=True)
        merged = [np.concatenate(pair, -1) for pair in both]
        merged = self._codelet.sorted(self._fields, merged)
        a.values = [v[..., :keep] for v in merged]
        b.values = [v[..., :0] for v in b.values]
      left, round_ = left[::2], round_ + 1

  # --- All of the row is sorted ----------------------------------------------

  def _network(self, parts: list[_Part]) -> None:
    """Runs a bitonic sort in which lower tiles get the lower elements, so that
    missing tiles and places need no exchange."""
    for round_ in range(1, int(levels(len(parts))) + 1):
      for bit in reversed(range(round_)):
        first = bit == round_ - 1
        apart = (1 << round_) - 1 if first else 1 << bit
        for i, a in enumerate(parts):
          j = i ^ apart
          if i < j < len(parts):
            self._compare((round_, -bit), a, parts[j], mirrored=first)
      for p in parts:
        p.values = self._codelet.sorted(self._fields, p.values)

  def _compare(
    self, name: tuple[int, int], a: _Part, b: _Part, mirrored: bool
  ) -> None:
    """Moves the lower of each pair to `a`; each tile compares half of them."""
    places = np.arange(a.length)
    others = a.length - 1 - places if mirrored else places
    there = others < b.length
    places, others = places[there], others[there]
    pairs = [
      np.stack([x[..., places], y[..., others]], -1)
      for x, y in zip(a.values, b.values, strict=True)
    ]
    for x, y, pair in zip(
      a.values, b.values, self._codelet.sorted(self._fields, pairs), strict=True
    ):
      x[..., places], y[..., others] = pair[..., 0], pair[..., 1]
    rows = a.values[0].size // a.length
    lower = int((places < (a.length + 1) // 2).sum())
    upper = places.size - lower
    for back, (to_a, to_b) in enumerate([(lower, upper), (upper, lower)]):
      self._send((*name, back), b, a, rows * to_a)
      self._send((*name, back), a, b, rows * to_b)
    self._hold(a, rows * lower)
    self._hold(b, rows * upper)

  # --- Exchange --------------------------------------------------------------

  def _send(
    self, name: tuple[int, ...], source: _Part, to: _Part, count: int
  ) -> None:
    received, sent = self._traffic[name]
    received[to.tile] += count * self._item
    sent[source.tile] += count * self._item

  def _hold(self, part: _Part, count: int) -> None:
    """Records what arrives in addition to a tile's own elements."""
    needed = part.own + count * self._item
    self._held[part.tile] = max(self._held[part.tile], needed)

  def _note(self, part: _Part, begin: int) -> None:
    """Records where a part's elements, from place `begin` on, belong."""
    count = min(part.length, self._fields.keep - begin)
    if count <= 0:
      return
    places = np.arange(begin, begin + count)
    *rows, _ = part.cell.coordinates
    start = np.zeros((1,) * len(part.cell.shape), np.int64)
    cell = Cell(part.cell.shape, (*rows, start))
    for (tiles, values), m, access, mine in zip(
      self._found, self._memories, self._step.results, part.values, strict=False
    ):
      first = elements(access, m.shape, cell, True)[..., 0]
      to = first + places
      tiles[to] = part.tile
      values[to] = np.broadcast_to(mine[..., :count], to.shape)

  def deliver(self) -> None:
    """The last superstep: sends results to their owners."""
    name = (np.iinfo(np.int64).max,)
    for m, (tiles, values) in zip(self._memories, self._found, strict=True):
      self._deliver(name, m, tiles, values)
      written = tiles >= 0
      self._machine.wrote(m.number, written)
    steps = self._traffic.values()
    self._machine.held_briefly(self._held)
    self._machine.count(
      self._step.cost,
      float(sum(step[0].sum() for step in steps)),
      float(sum(step.max() for step in steps)),
    )

  def _deliver(
    self, name: tuple[int, ...], m: TileMemory, tiles: Array, values: Array
  ) -> None:
    received, sent = self._traffic[name]
    item = SIZE[m.dtype]
    asked = np.zeros(m.size, np.bool_)
    for tile, owned in m.tiles.items():
      mine = owned[tiles[owned] >= 0]
      m.write(tile, mine, values[mine])
      missing = mine[tiles[mine] != tile]
      received[tile] += len(missing) * item
      asked[missing] = True
    senders = np.bincount(tiles[asked], minlength=self._tiles)
    sent += senders * item
