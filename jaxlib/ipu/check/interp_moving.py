"""Runs exchanges and host calls in the interpreter; what arrives is counted."""

from __future__ import annotations

import numpy as np

from jaxlib.ipu import host_functions
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import (
  Array,
  Elements,
  Mask,
  Trap,
  arriving,
  strided,
)
from jaxlib.ipu.dtypes import NUMPY, SIZE, DType
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.program import schema


def copy(machine: Machine, step: schema.Copy) -> None:
  """Runs the moves of an exchange; all read before any writes."""
  num_tiles = machine.program.target.num_tiles
  received = np.zeros(num_tiles, np.int64)
  sent = np.zeros(num_tiles, np.int64)
  total = 0
  writes: dict[int, tuple[Array, Mask]] = {}
  for move in step.moves:
    source = machine.memory[move.source]
    to = machine.writable(move.destination)
    start = strided(move.source_offset, move.shape, move.source_strides)
    end = strided(move.destination_offset, move.shape, move.destination_strides)
    start, end = start.reshape(-1), end.reshape(-1)
    values, defined = source.gather_all()
    if not defined[start].all():
      raise Trap(
        "undefined",
        f"element {start[~defined[start]][0]} moves but was never written",
        tensor=move.source,
      )
    machine.used(move.source)
    new, written = writes.setdefault(
      move.destination,
      (np.zeros(to.size, NUMPY[to.dtype]), np.zeros(to.size, np.bool_)),
    )
    twice = written[end].any() or len(np.unique(end)) != len(end)
    if twice:
      raise Trap("race", "two moves write one element", tensor=move.destination)
    new[end] = values[start].view(new.dtype)
    written[end] = True
    origin = np.full(to.size, -1, np.int64)
    origin[end] = start
    placed = machine.program.tensors[to.number].root != to.number
    item = SIZE[to.dtype]
    ins, outs = arriving(source, to, origin, num_tiles, once=placed)
    moved = Traffic(ins * item, outs * item, to.layout.pairs_alike)
    total += int(moved.received.sum())
    bytes_in, bytes_out = moved.load()
    received += bytes_in
    sent += bytes_out
  for tensor, (new, written) in writes.items():
    machine.memory[tensor].write_all(new, written)
    machine.wrote(tensor, written)
  busiest = max(received.max(), sent.max())
  machine.count(step.cost, float(total), float(busiest))


def move_to_host(machine: Machine, step: schema.HostMove) -> None:
  """Streams a root to the host's memory, or a part of that, or back."""
  tensors = machine.program.tensors
  to_host = tensors[step.destination].space == schema.HOST
  part = step.source if to_host else step.destination
  size = machine.memory[part].size
  place = np.arange(size)
  if step.index != schema.NONE:
    last = tensors[step.destination if to_host else step.source].shape[0] - 1
    place += size * min(max(machine.scalar(step.index), 0), last)
  if to_host:
    m = machine.writable(step.destination)
    values = np.zeros(m.size, NUMPY[m.dtype])
    values[place] = _sent(machine, step.source)
    written = np.zeros(m.size, np.bool_)
    written[place] = True
    m.write_all(values, written)
    machine.wrote(step.destination, written)
  else:
    values = _sent(machine, step.source, place)[place]
    _write(machine, step.destination, values)
  size *= SIZE[machine.memory[part].dtype]
  machine.host_bytes += size
  machine.count(step.cost, size)


def infeed(machine: Machine, step: schema.Infeed) -> None:
  """Streams the next item of a feed to the tiles; zeros after the last one."""
  number = step.feed if step.feed == schema.NONE else machine.scalar(step.feed)
  item = next(machine.feeds[number], None)
  if item is None and step.valid == schema.NONE:
    raise ValueError(f"feed {number} has ended")
  size = 0
  for i, array in enumerate(step.results):
    m = machine.writable(array.tensor)
    value = np.zeros(m.size, NUMPY[m.dtype])
    if item is not None:
      value = np.ascontiguousarray(item[i]).reshape(-1).view(value.dtype)
    size += _write(machine, array.tensor, value)
  if step.valid != schema.NONE:
    size += _write(machine, step.valid, np.array([item is not None]))
  machine.host_bytes += size
  machine.count(step.cost, size)


def outfeed(machine: Machine, step: schema.Outfeed) -> None:
  """Streams an item to the outfeed."""
  item = []
  for array in step.operands:
    shape = machine.memory[array.tensor].shape[: len(array.dims)]
    values = _sent(machine, array.tensor).view(NUMPY[DType(array.dtype)])
    item.append(values.reshape(shape))
  machine.outfeed.append(item)
  size = sum(v.nbytes for v in item)
  machine.host_bytes += size
  machine.count(step.cost, size)


def _sent(
  machine: Machine, tensor: int, place: Elements | None = None
) -> Array:
  """All elements of a root, of which a stream reads those at `place`."""
  values, defined = machine.memory[tensor].gather_all()
  read = defined if place is None else defined[place]
  if not read.all():
    raise Trap(
      "undefined",
      f"element {int(np.argmin(read))} is streamed but was never written",
      tensor=tensor,
    )
  machine.used(tensor)
  return values


def _write(machine: Machine, tensor: int, values: Array) -> int:
  """Writes what a stream brings to all of a root; returns its bytes."""
  m = machine.writable(tensor)
  everything = np.ones(m.size, np.bool_)
  m.write_all(values, everything)
  machine.wrote(tensor, everything)
  return values.nbytes


def call_host(machine: Machine, step: schema.HostCallback) -> None:
  """Calls a host function: operands stream there, results stream back."""
  operands = []
  for array in step.operands:
    shape = machine.memory[array.tensor].shape[: len(array.dims)]
    values = _sent(machine, array.tensor)
    values = values.view(NUMPY[DType(array.dtype)]).reshape(shape)
    operands.append(values.transpose(array.dims))
  types = []
  for array in step.results:
    m = machine.writable(array.tensor)
    shape = tuple(m.shape[d] for d in array.dims)
    types.append((NUMPY[DType(array.dtype)], shape))
  given = host_functions.call(step, operands, types)
  size = sum(v.nbytes for v in (*operands, *given))
  for array, value in zip(step.results, given, strict=True):
    dtype = NUMPY[machine.memory[array.tensor].dtype]
    place = [array.dims.index(d) for d in range(value.ndim)]
    value = np.ascontiguousarray(value.transpose(place)).reshape(-1)
    _write(machine, array.tensor, value.view(dtype))
  machine.host_bytes += size
  machine.count(step.cost, size)
