"""How the interpreter runs what takes indices at run time: owners serve slices
of the operand, or apply updates to the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets import scatter as scatter_codelet
from jaxlib.ipu.codelets._instructions import load, register_type, store
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.interp_cells import boxes, operands, targets
from jaxlib.ipu.program.isa import ReduceKind
from jaxlib.ipu.program.tile_memory import (
  Array,
  Elements,
  TileMemory,
  Trap,
  arriving,
)

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


def serve(machine: Machine, step: schema.Execute) -> None:
  """The owners of operand 0 serve what the indices name.

  The vertices run on the numbers of the operand's elements, which says where
  each element of the result comes from.
  """
  codelet = CODELETS[type(step.fields)]
  operand, *others = step.operands
  (access,) = step.results
  served = machine.memory[operand.tensor]
  m = machine.computed(access.tensor)
  for tile, owned in served.tiles.items():
    machine.fresh(tile, operand.tensor, owned)
  numbers = np.arange(served.size).reshape(served.shape)
  origin = np.full(m.size, -1, np.int64)
  for tile, cell in boxes(machine, step):
    local = operands(machine, step, tile, cell, others)
    (named,) = codelet.vertex(step.fields, cell, [numbers, *local])
    origin[targets(m, access, cell)] = named.reshape(-1)
  written = origin >= 0
  values, defined = served.gather_all()
  if not defined[origin[written]].all():
    raise Trap(
      "undefined",
      "a slice holds elements that were never written",
      tensor=operand.tensor,
    )
  if m.size:
    m.write_all(values[origin], written)
  machine.wrote(access.tensor, written)
  machine.count(step.cost, arriving(served, m, origin) * SIZE[m.dtype])


def update(machine: Machine, step: schema.Execute) -> None:
  """Updates travel to the owners of result 0 and are applied in order."""
  codelet = CODELETS[type(step.fields)]
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
    _apply(machine, step, m, to[by_order], values[by_order])
  machine.count(step.cost, actual)


def _apply(
  machine: Machine,
  step: schema.Execute,
  m: TileMemory,
  to: Elements,
  values: Array,
) -> None:
  """Applies updates to elements, those of one element in the given order."""
  fields = step.fields
  nth = _occurrence(to)
  once = not isinstance(fields, schema.Scatter) or fields.unique_indices
  if once and nth.any():
    raise Trap(
      "race",
      f"two updates of element {to[nth > 0][0]}, which are said to be unique",
      tensor=m.number,
    )
  current, defined = m.gather_all()
  new = current.copy()
  combines = (
    isinstance(fields, schema.Scatter) and fields.kind != ReduceKind.SET
  )
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
      assert isinstance(fields, schema.Scatter)
      old = load(new[to[now]], register)
      value = scatter_codelet.update(fields, old, load(value, register))
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
