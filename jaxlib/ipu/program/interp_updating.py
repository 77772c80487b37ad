"""How the interpreter runs codelets whose updates the result's owners apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxlib.ipu.codelets._instructions import load, register_type, store
from jaxlib.ipu.codelets._kinds import UpdatingCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.interp_cells import boxes, operands
from jaxlib.ipu.program.tile_memory import Array, Elements, TileMemory, Trap

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


def execute(
  machine: Machine, step: schema.Execute, codelet: UpdatingCodelet
) -> None:
  """Updates travel to the owners of result 0 and are applied in order."""
  (access,) = step.results
  m = machine.computed(access.tensor)
  numbers = np.arange(m.size).reshape(m.shape)
  # (order, target, value)
  updates: list[tuple[Elements, Elements, Array]] = []
  actual = 0
  for tile, cell in boxes(machine, step):
    local = operands(machine, step, tile, cell, step.operands)
    to, values = codelet.vertex(step.fields, cell, [*local, numbers])
    to = to.reshape(-1)
    order = np.zeros((1,) * len(cell.shape), np.int64)
    for extent, along in zip(cell.shape, cell.coordinates, strict=True):
      order = order * extent + along
    fits = to >= 0
    updates.append(
      (order.reshape(-1)[fits], to[fits], values.reshape(-1)[fits])
    )
    here = m.has(tile, to[fits])
    actual += int(here.size * m.copies - here.sum()) * SIZE[m.dtype]
  if updates:
    order, to, values = map(np.concatenate, zip(*updates, strict=True))
    by_order = np.argsort(order)
    _apply(machine, step, codelet, m, to[by_order], values[by_order])
  machine.count(step.cost, actual)


def _apply(
  machine: Machine,
  step: schema.Execute,
  codelet: UpdatingCodelet,
  m: TileMemory,
  to: Elements,
  values: Array,
) -> None:
  """Applies updates to elements, those of one element in the given order."""
  fields = step.fields
  nth = _occurrence(to)
  if codelet.is_unique(fields) and nth.any():
    raise Trap(
      "race",
      f"two updates of element {to[nth > 0][0]}, which are said to be unique",
      tensor=m.number,
    )
  current, defined = m.gather_all()
  new = current.copy()
  combines = codelet.combines(fields)
  if combines and not defined[to].all():
    raise Trap(
      "undefined",
      f"element {to[~defined[to]][0]} is updated but was never written",
      tensor=m.number,
    )
  register = register_type(m.dtype)
  for n in range(int(nth.max(initial=-1)) + 1):
    now = nth == n
    value = values[now]
    if combines:
      old = load(new[to[now]], register)
      value = codelet.combine(fields, old, load(value, register))
      value = store(value, m.dtype)
    new[to[now]] = value
  written = np.zeros(m.size, np.bool_)
  written[to] = True
  m.write_all(new, written)
  machine.wrote(m.number, written)
  if combines:
    machine.used(m.number)


def _occurrence(values: Elements) -> Elements:
  """How often each value has come before."""
  by_value = np.argsort(values, kind="stable")
  ordered = values[by_value]
  first = np.searchsorted(ordered, ordered)
  nth = np.empty(len(values), np.int64)
  nth[by_value] = np.arange(len(values)) - first
  return nth
