"""What supersteps cost: exchange, sync, vertices, host streams.

A superstep is a synchronisation, an exchange, and the vertices of a compute
set, whose cycles the codelets know. All estimates are of the slowest tile, in
tile cycles.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.plan.layout import Layout, overlap
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# ForLoopCounter, the vertex that ends a loop (popopsCycleEstimators.cpp) [S].
# A condition is tested in the same way: a word is read, then all tiles learn
# of it by a synchronisation [D].
_BRANCH_CYCLES = 43


class Traffic(NamedTuple):
  """What an exchange moves.

  Attributes:
    bytes: that reach a tile which did not have them, over all tiles.
    max_in: of the tile that receives most.
    max_out: of the tile that sends most. What several tiles listen to is
      sent once: the exchange is a broadcast medium.
  """

  bytes: float
  max_in: float
  max_out: float


NOTHING = Traffic(0.0, 0.0, 0.0)


def exchange_cycles(
  target: Target, max_bytes_in: Any, max_bytes_out: Any
) -> Any:
  """Cycles in which the busiest tile has sent and received its share.

  Four bytes per cycle each way at once, no latency: PopLibs'
  popops/ExchangeEstimator.cpp [S]. Takes numbers or arrays.
  """
  rate = target.exchange_bytes_per_cycle
  if isinstance(max_bytes_in, np.ndarray):
    return np.ceil(np.maximum(max_bytes_in, max_bytes_out) / rate)
  return float(math.ceil(max(max_bytes_in, max_bytes_out) / rate))


@functools.lru_cache(maxsize=4096)
def moved(
  source: Layout | None,
  destination: Layout,
  item_bytes: int,
  num_tiles: int,
  elements: int | None = None,
) -> Traffic:
  """What must move so that `destination` holds what `source` has.

  Args:
    source: where the elements are, by the same numbering as `destination`;
      None where they are a view whose places have no closed form. Then, as
      where the two mappings have no common factors, all of it is taken to
      move: an upper bound.
    destination: where they have to be.
    item_bytes: bytes per element.
    num_tiles: of the machine.
    elements: how many of the destination's elements are written, if not all.
  """
  total = destination.num_elements
  wanted = total if elements is None else min(elements, total)
  if not wanted or num_tiles == 1:
    return NOTHING
  copies = destination.num_replicas
  most = min(wanted, destination.max_elements)
  if source is None or wanted < total:
    # Whoever has them sends each once.
    sent = most if source is None else source.max_elements
    return Traffic(
      float(wanted * copies * item_bytes),
      float(most * item_bytes),
      float(max(sent, most) * item_bytes),
    )
  common = overlap(source, destination, num_tiles)
  if common is None:
    return Traffic(
      float(wanted * copies * item_bytes),
      float(most * item_bytes),
      float(source.max_elements * item_bytes),
    )
  missing = destination.elements(np.arange(num_tiles)) - common
  count = int(missing.sum())
  if not count:
    return NOTHING
  sent = min(source.max_elements, count)
  return Traffic(
    float(count * item_bytes),
    float(int(missing.max()) * item_bytes),
    float(sent * item_bytes),
  )


def moved_windows(
  source: Layout, held: npt.NDArray[np.int64], item_bytes: int
) -> Traffic:
  """What must move to tiles that hold `held` elements each of a view whose
  windows overlap: all of it, an upper bound. Its owner sends an element once,
  whoever listens.

  Args:
    source: where the view's root is.
    held: elements of the view that each tile holds (`layout.distinct`).
    item_bytes: bytes per element.
  """
  if len(held) == 1:
    return NOTHING
  return Traffic(
    float(int(held.sum()) * item_bytes),
    float(int(held.max()) * item_bytes),
    float(source.max_elements * item_bytes),
  )


def superstep(
  target: Target,
  *,
  compute_cycles: float = 0.0,
  bytes_in: float = 0.0,
  bytes_out: float = 0.0,
  total_bytes: float = 0.0,
  flops: float = 0.0,
) -> schema.Cost:
  """A synchronisation, an exchange and the compute set after it.

  Args:
    compute_cycles: of the slowest tile's vertices, launch included.
    bytes_in: what the busiest receiver receives.
    bytes_out: what the busiest sender sends.
    total_bytes: what all tiles receive. Where nothing moves there is no
      exchange, and no synchronisation either.
    flops: arithmetic operations of all tiles.
  """
  return schema.Cost(
    compute_cycles=float(compute_cycles),
    exchange_cycles=exchange_cycles(target, bytes_in, bytes_out),
    sync_cycles=float(target.sync_cycles if total_bytes else 0),
    exchange_bytes=float(total_bytes),
    flops=float(flops),
  )


def exchange(target: Target, traffic: Iterable[Traffic]) -> schema.Cost:
  """One exchange of several tensors.

  Their busiest tiles are taken to be the same: an upper bound.
  """
  parts = list(traffic)
  return superstep(
    target,
    bytes_in=sum(t.max_in for t in parts),
    bytes_out=sum(t.max_out for t in parts),
    total_bytes=sum(t.bytes for t in parts),
  )


def compute_set(
  target: Target,
  fields: schema.Fields,
  shape: tuple[int, ...],
  partition: Layout,
  operand_dtypes: Sequence[DType],
  result_dtypes: Sequence[DType],
  **hints: Any,
) -> schema.Cost:
  """A compute set whose operands are in place.

  Args:
    target: the machine.
    fields: the codelet's record.
    shape: the iteration space.
    partition: how its elements are split over tiles.
    operand_dtypes: what its vertices read.
    result_dtypes: what they write.
    **hints: what the codelet's `cycles` wants to know beside.
  """
  codelet = CODELETS[type(fields)]
  cell = _largest_cell(partition, shape)
  return superstep(
    target,
    compute_cycles=codelet.cycles(
      target, fields, operand_dtypes, result_dtypes, cell, **hints
    ),
    flops=codelet.flops(fields, shape),
  )


def _largest_cell(partition: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
  """The largest cell's extent along each dimension of the iteration space;
  its size alone where blocks straddle dimensions."""
  refined = partition.over(shape)
  if refined is None:
    return (partition.max_elements,)
  extents = []
  factors = list(refined.factors)
  for extent in shape:
    inner, left = 1, extent
    while left > 1 and factors:
      f = factors.pop(0)
      inner *= min(f.block, f.extent)
      left //= f.extent
    extents.append(inner if extent else 0)
  return tuple(extents)


def branch(target: Target) -> schema.Cost:
  """Deciding once, on all tiles, by a word on one of them."""
  return schema.Cost(
    float(_BRANCH_CYCLES), 0.0, float(target.sync_cycles), 0.0, 0.0
  )


def host_stream(target: Target, sizes: Iterable[int]) -> schema.Cost:
  """Arrays of so many bytes that go to the host, or come from it, together.

  The stream's begin and end, a fixed part for each array, and the bytes over
  the host link. They stand in the fields of an exchange: a step's kind says
  that it is with the host (lower/totals.py). No arrays, no stream.
  """
  given = list(sizes)
  if not given:
    return schema.Cost(0.0, 0.0, 0.0, 0.0, 0.0)
  seconds = target.host_stream_seconds
  seconds += sum(given) / target.host_bytes_per_second
  cycles = len(given) * target.host_copy_cycles
  cycles += math.ceil(seconds * target.clock_hz)
  return schema.Cost(
    0.0, float(cycles), float(target.sync_cycles), float(sum(given)), 0.0
  )


def host_callback(
  target: Target, sent: Iterable[int], received: Iterable[int]
) -> schema.Cost:
  """A round trip to the host: streams of arrays of so many bytes there and
  back, and the host's answer.

  Without arrays, a word says that it is time, or done. What the function
  itself takes is the host's affair.
  """
  there = host_stream(target, list(sent) or [0])
  there.exchange_cycles += math.ceil(target.host_call_seconds * target.clock_hz)
  return add(there, host_stream(target, list(received) or [0]))


def add(a: schema.Cost, b: schema.Cost) -> schema.Cost:
  """Both, one after the other."""
  return schema.Cost(
    *(
      getattr(a, f.name) + getattr(b, f.name)
      for f in dataclasses.fields(schema.Cost)
    )
  )


def beyond(a: schema.Cost, b: schema.Cost) -> schema.Cost:
  """What `a` costs more than `b`, which is a part of it."""
  return schema.Cost(
    *(
      getattr(a, f.name) - getattr(b, f.name)
      for f in dataclasses.fields(schema.Cost)
    )
  )


def cycles(cost: schema.Cost) -> float:
  """All cycles of a cost."""
  return cost.compute_cycles + cost.exchange_cycles + cost.sync_cycles
