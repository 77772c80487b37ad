"""Runs codelets whose updates are applied by the result's owners.

Tiles apply the updates of their cells to the elements they own. A team of
tiles, whose cells differ only in lookups, shares a block: each adds up partial
results for all of it, which go to their elements' owners in a second superstep.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.check.interp_cells import all_boxes, first_point, operands
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Elements, Mask, TileMemory, Trap
from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets._kinds import UpdatingCodelet
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.registers import load, store
from jaxlib.ipu.layout import Layout, refine
from jaxlib.ipu.program import schema


class _Updates(NamedTuple):
  """A tile's updates in order: element numbers, values, and the update's index
  among all updates."""

  tile: int
  cell: tuple[int, ...]
  to: Elements
  values: Array
  which: Elements


def execute(
  machine: Machine, step: schema.Execute, codelet: UpdatingCodelet
) -> None:
  """Applies updates team by team."""
  (access,) = step.results
  m = machine.computed(access.tensor)
  teams = _teams(machine, step, codelet, m)
  _check_owners(m, teams)
  if codelet.is_unique(step.fields):
    _check_unique(m, teams)
  num_tiles = machine.program.target.num_tiles
  received = np.zeros(num_tiles, np.int64)
  sent = np.zeros(num_tiles, np.int64)
  held = np.zeros(num_tiles, np.int64)
  written = np.zeros(m.size, np.bool_)
  for team in teams:
    if len(team) == 1:
      _apply(step, codelet, m, team[0], written)
      continue
    size = codelet.partial_bytes(step.fields, m.dtype)
    block = sum(len(m.tiles.get(u.tile, ())) for u in team)
    for u in team:
      own = len(m.tiles.get(u.tile, ()))
      received[u.tile] += (len(team) - 1) * own * size
      sent[u.tile] += (block - own) * size
      held[u.tile] += (block + (len(team) - 1) * own) * size
    _apply_together(step, codelet, m, team, written)
  machine.wrote(m.number, written)
  if codelet.combines(step.fields):
    machine.used(m.number)
  machine.held_briefly(held)
  busiest = max(received.max(), sent.max())
  machine.count(step.cost, float(received.sum()), float(busiest))


def _teams(
  machine: Machine,
  step: schema.Execute,
  codelet: UpdatingCodelet,
  m: TileMemory,
) -> list[list[_Updates]]:
  """The updates of each team's vertices, for the elements of its block."""
  shape = tuple(step.shape)
  layout = machine.layouts[step.partition]
  walked = set(codelet.along(step.fields, shape, m.shape))
  numbers = np.arange(m.size).reshape(m.shape)
  teams: dict[int, list[_Updates]] = defaultdict(list)
  for tile, cell in all_boxes(machine, step):
    local = operands(machine, step, tile, cell, step.operands)
    to, values = codelet.vertex(step.fields, cell, [*local, numbers])
    updates = _Updates(
      tile, first_point(cell), to.reshape(-1), values.reshape(-1), _which(cell)
    )
    teams[tile - _place(layout, shape, walked, tile)].append(updates)
  return list(teams.values())


def _which(cell: Cell) -> Elements:
  """The row-major indices of a cell's points."""
  found: Elements = np.zeros((1,) * len(cell.shape), np.int64)
  for extent, index in zip(cell.shape, cell.coordinates, strict=True):
    found = found * extent + index
  return found.reshape(-1)


def _place(
  layout: Layout, shape: tuple[int, ...], walked: set[int], tile: int
) -> int:
  """A tile's place in its team: the distance to the team's first tile."""
  groups = refine(layout.factors, shape)
  assert groups is not None, "blocks keep to dimensions"
  flat = tuple(f for group in groups for f in group)
  parts, _ = Layout(flat, layout.replicas, layout.base).coordinates(
    np.array([tile])
  )
  dims = [d for d, group in enumerate(groups) for _ in group]
  return sum(
    int(part[0]) * f.stride
    for d, f, part in zip(dims, flat, parts, strict=True)
    if d not in walked
  )


def _block(m: TileMemory, team: list[_Updates]) -> Elements:
  """The elements of a team, ascending."""
  owned = [m.tiles[u.tile] for u in team if u.tile in m.tiles]
  return np.unique(np.concatenate([*owned, np.zeros(0, np.int64)]))


def _check_owners(m: TileMemory, teams: list[list[_Updates]]) -> None:
  """Checks that every update is applied where its element is, and only once."""
  applied: dict[tuple[int, ...], Elements] = {}
  named: dict[tuple[int, ...], Elements] = {}
  for team in teams:
    block = _block(m, team)
    if len(team) > 1 and m.copies > 1:
      raise Trap(
        "replica", "a team's elements are on other tiles, too", tensor=m.number
      )
    for u in team:
      named[u.cell] = u.to
      count = applied.setdefault(u.cell, np.zeros(u.to.size, np.int64))
      count += np.isin(u.to, block)
  for cell, to in named.items():
    bad = (to >= 0) & (applied[cell] != m.copies)
    if bad.any():
      i = int(np.argmax(bad))
      raise Trap(
        "absent",
        f"an update of element {to[i]}, which is on {m.copies} tiles, reaches "
        f"{applied[cell][i]} of them",
        tensor=m.number,
      )


def _check_unique(m: TileMemory, teams: list[list[_Updates]]) -> None:
  """Checks that no element is updated twice."""
  seen: dict[tuple[int, ...], Elements] = {}
  for team in teams:
    for u in team:
      seen[u.cell] = u.to[u.to >= 0]
  everything = np.concatenate([*seen.values(), np.zeros(0, np.int64)])
  elements, times = np.unique(everything, return_counts=True)
  if (times > 1).any():
    raise Trap(
      "race",
      f"two updates of element {elements[times > 1][0]}, which are "
      "declared unique",
      tensor=m.number,
    )


def _apply(
  step: schema.Execute,
  codelet: UpdatingCodelet,
  m: TileMemory,
  u: _Updates,
  written: Mask,
) -> None:
  """Applies a tile's updates to its own elements, in order."""
  here = (u.to >= 0) & m.has(u.tile, u.to)
  to, values = u.to[here], u.values[here]
  written[to] = True
  register = REGISTER[m.dtype]
  for turn in _turns(to):
    value = values[turn]
    if codelet.combines(step.fields):
      old = load(m.read(u.tile, to[turn]), register)
      value = codelet.combine(step.fields, old, load(value, register))
      value = store(value, m.dtype)
    m.write(u.tile, to[turn], value)


def _apply_together(
  step: schema.Execute,
  codelet: UpdatingCodelet,
  m: TileMemory,
  team: list[_Updates],
  written: Mask,
) -> None:
  """Applies a team's partial results, combined by the elements' owners."""
  fields = step.fields
  combines = codelet.combines(fields)
  if not codelet.partial_bytes(fields, m.dtype):
    raise Trap(
      "partition",
      "several tiles take lookups of one block, whose updates have an order",
      tensor=m.number,
    )
  register = REGISTER[m.dtype]
  block = _block(m, team)
  total: Array | None = None
  has = np.zeros(block.size, np.bool_)
  last = np.full(block.size, -1)  # the last update of each element
  for u in team:
    here = (u.to >= 0) & np.isin(u.to, block)
    at = np.searchsorted(block, u.to[here])
    values = load(u.values[here], register)
    partial = np.zeros(block.size, values.dtype)
    some = np.zeros(block.size, np.bool_)
    for turn in _turns(at):
      _join(codelet, fields, partial, some, at[turn], values[turn])
    if total is None:
      total = np.zeros_like(partial)
    if not combines:
      which = np.full(block.size, -1)
      np.maximum.at(which, at, u.which[here])
      some = which > last
      last[some] = which[some]
    mine = np.flatnonzero(some)
    _join(codelet, fields, total, has, mine, partial[mine])
  assert total is not None
  for u in team:
    owned = m.tiles.get(u.tile, np.zeros(0, np.int64))
    at = np.searchsorted(block, owned)
    to, value = owned[has[at]], total[at][has[at]]
    if combines:
      value = codelet.combine(fields, load(m.read(u.tile, to), register), value)
    m.write(u.tile, to, store(value, m.dtype))
    written[to] = True


def _join(
  codelet: UpdatingCodelet,
  fields: object,
  total: Array,
  has: Mask,
  at: Elements,
  values: Array,
) -> None:
  """Combines values of distinct elements with the existing ones."""
  old = has[at]
  if old.any() and codelet.combines(fields):
    both = codelet.combine(fields, total[at[old]], values[old])
    values = values.copy()
    values[old] = both
  total[at] = values
  has[at] = True


def _turns(to: Elements) -> list[Mask]:
  """Splits updates, in order, into turns with each element at most once."""
  by_value = np.argsort(to, kind="stable")
  ordered = to[by_value]
  first = np.searchsorted(ordered, ordered)
  nth = np.empty(len(to), np.int64)
  nth[by_value] = np.arange(len(to)) - first
  return [nth == n for n in range(int(nth.max(initial=-1)) + 1)]
