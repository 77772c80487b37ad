"""Runs exchanges and host calls in the interpreter; what arrives is counted."""

from __future__ import annotations

import numpy as np

from jaxlib.ipu import host_functions
from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Mask, Trap, arriving, strided
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


def call_host(machine: Machine, step: schema.HostCallback) -> None:
  """Calls a host function: operands stream there, results stream back."""
  operands = []
  for array in step.operands:
    m = machine.memory[array.tensor]
    values, defined = m.gather_all()
    if not defined.all():
      raise Trap(
        "undefined",
        f"element {int(np.argmin(defined))} is sent to the host but was "
        "never written",
        tensor=array.tensor,
      )
    machine.used(array.tensor)
    shape = m.shape[: len(array.dims)]
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
    m = machine.writable(array.tensor)
    everything = np.ones(m.size, np.bool_)
    place = [array.dims.index(d) for d in range(value.ndim)]
    value = np.ascontiguousarray(value.transpose(place)).reshape(-1)
    m.write_all(value.view(NUMPY[m.dtype]), everything)
    machine.wrote(array.tensor, everything)
  machine.host_bytes += size
  machine.count(step.cost, size)
