"""The cost of supersteps: exchange, sync, vertices, host streams.

A superstep is a synchronisation, an exchange, and the vertices of a compute
set, whose cycles the codelets define. All estimates are of the slowest tile, in
tile cycles.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets.dot import CODELET as DOT
from jaxlib.ipu.codelets.dot import DotHints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.traffic import Traffic
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


@dataclasses.dataclass(slots=True)
class Sourced(schema.Cost):
  """A cost that records the sources of its cycles.

  Attributes:
    derived: cycles derived from published figures.
    guessed: cycles that rest on guesses. All others are read in public sources
      or measured.
    syncs: number of synchronisations of all tiles, or with the host.
  """

  derived: float = 0.0
  guessed: float = 0.0
  syncs: float = 0.0


def sourced(cost: schema.Cost) -> Sourced:
  """A cost with its sources; one without any counts as guessed."""
  if isinstance(cost, Sourced):
    return cost
  found = Sourced(*_FIGURES(cost))
  found.guessed = cycles(cost)
  return found


class Epilogue(NamedTuple):
  """The supersteps after a step's vertices, e.g. to combine partial results.

  Attributes:
    cost: of all supersteps.
    buffers: bytes that each tile needs for them; None if not counted.
    exchanges: number of exchanges for which a tile has code.
    words: upper bound of this code (moves/messages.py).
    loops: number of loops around these exchanges.
  """

  cost: schema.Cost
  buffers: npt.NDArray[np.int64] | None = None
  exchanges: int = 0
  words: int = 0
  loops: int = 0


def exchange_cycles(
  target: Target, max_bytes_in: Any, max_bytes_out: Any
) -> Any:
  """Cycles in which the busiest tile has sent and received its share.

  Four bytes per cycle each way at once: PopLibs' popops/ExchangeEstimator.cpp
  [S]; plus the latency of the last word (`Target.route_cycles`). Takes numbers
  or arrays.
  """
  rate = target.exchange_bytes_per_cycle
  if isinstance(max_bytes_in, np.ndarray):
    busiest = np.ceil(np.maximum(max_bytes_in, max_bytes_out) / rate)
    return busiest + target.route_cycles * (busiest > 0)
  words = float(math.ceil(max(max_bytes_in, max_bytes_out) / rate))
  return words + target.route_cycles if words else 0.0


def superstep(
  target: Target,
  *,
  compute: Cycles | None = None,
  bytes_in: float = 0.0,
  bytes_out: float = 0.0,
  total_bytes: float = 0.0,
  flops: float = 0.0,
) -> Sourced:
  """A synchronisation, an exchange and the compute set after it.

  Args:
    compute: cycles of the slowest tile's vertices, launch included.
    bytes_in: bytes that the busiest receiver receives.
    bytes_out: bytes that the busiest sender sends.
    total_bytes: bytes that all tiles receive. If 0, there is no exchange and
      no synchronisation.
    flops: arithmetic operations of all tiles.
  """
  exchanged = exchange_cycles(target, bytes_in, bytes_out)
  sync = float(target.sync_cycles if total_bytes else 0)
  taken = compute or Cycles(0.0)
  return Sourced(
    compute_cycles=float(taken.total),
    exchange_cycles=exchanged,
    sync_cycles=sync,
    exchange_bytes=float(total_bytes),
    flops=float(flops),
    derived=float(taken.derived)
    + sync
    + (target.route_cycles if exchanged else 0),
    guessed=float(taken.guessed),
    syncs=float(bool(total_bytes)),
  )


def exchange(target: Target, moves: Sequence[Traffic]) -> Sourced:
  """One exchange of several moves. The result must not be modified."""
  return _exchange(target, tuple(moves))


@functools.lru_cache(maxsize=1024)
def _exchange(target: Target, moves: tuple[Traffic, ...]) -> Sourced:
  if not moves:
    return superstep(target)
  shared = target.tiles_per_bus > 1
  loads = [t.load() if shared else (t.received, t.sent) for t in moves]
  received, sent = loads[0]
  if len(moves) > 1:
    num_tiles = max(len(bytes_in) for bytes_in, _ in loads)
    received = np.zeros(num_tiles, np.int64)
    sent = np.zeros(num_tiles, np.int64)
    for bytes_in, bytes_out in loads:
      received[: len(bytes_in)] += bytes_in
      sent[: len(bytes_out)] += bytes_out
  total = sum(int(t.received.sum()) for t in moves)
  found = superstep(
    target,
    bytes_in=int(received.max()),
    bytes_out=int(sent.max()),
    total_bytes=total,
  )
  copying = packing(target, moves)
  return found if copying is None else add(found, copying)


def packing(
  target: Target, moves: Sequence[Traffic], share: float = 1.0
) -> Sourced | None:
  """The copies that pack messages before an exchange and unpack them after it.

  Returns None if no tile copies anything. Where the iterations of a loop share
  an exchange, only the fraction `share` of its copies is charged.
  """
  cycles = 0.0
  for copied in (t.packed for t in moves), (t.unpacked for t in moves):
    some = [x for x in copied if x is not None]
    cycles += share * local_copies(target, some).compute_cycles
  if not cycles:
    return None
  return Sourced(cycles, 0.0, 0.0, 0.0, 0.0, derived=cycles)


def copies(target: Target, vectors: Any) -> Any:
  """Cycles of a tile-local copy of so many vectors.

  All workers take part, or one worker does all of a short copy: it issues a
  vector in the time in which all six issue one each [D]. Takes numbers or
  arrays.
  """
  shared = target.copy_call_cycles + vectors
  alone = target.short_copy_cycles + target.num_workers * vectors
  return np.minimum(shared, alone)


def together(
  sizes: Sequence[npt.NDArray[np.int64]],
) -> npt.NDArray[np.int64]:
  """Sums several copies tile by tile."""
  total = np.zeros(max((len(x) for x in sizes), default=1), np.int64)
  for x in sizes:
    total[: len(x)] += x
  return total


def local_copies(
  target: Target, sizes: Sequence[npt.NDArray[np.int64]]
) -> Sourced:
  """The cost of tile-local copies that are done together; zero if there are
  none. Each of `sizes` has the bytes that every tile copies, in vectors."""
  size = int(together(sizes).max())
  return local_copy(target, size) if size else Sourced(*[0.0] * 5)


def local_copy(target: Target, size: float) -> Sourced:
  """A tile-local copy of so many bytes."""
  cycles = float(copies(target, math.ceil(size / target.data_path_bytes)))
  return Sourced(cycles, 0.0, 0.0, 0.0, 0.0, derived=cycles)


def compute_set(
  target: Target,
  fields: schema.Fields,
  shape: tuple[int, ...],
  partition: Layout,
  operand_dtypes: Sequence[DType],
  result_dtypes: Sequence[DType],
  hints: Hints | None = None,
) -> Sourced:
  """A compute set whose operands are in place.

  Args:
    target: the machine.
    fields: the codelet's record.
    shape: the iteration space.
    partition: how its elements are split over tiles.
    operand_dtypes: types that its vertices read.
    result_dtypes: types that they write.
    hints: of the type `Codelet.hints`; none by default.

  Raises:
    TypeError: the hints are another codelet's.
  """
  codelet = CODELETS[type(fields)]
  if hints is None:
    hints = codelet.hints()
  elif type(hints) is not codelet.hints:
    raise TypeError(
      f"a {type(fields).__name__} takes {codelet.hints.__name__}, "
      f"not {type(hints).__name__}"
    )
  cell = largest_cell(partition, shape)
  taken = codelet.cycles(
    target, fields, operand_dtypes, result_dtypes, cell, hints
  )
  return superstep(target, compute=taken, flops=codelet.flops(fields, shape))


def has_weights(target: Target, fields: schema.Fields) -> bool:
  """Whether `weights` can find an operand: whether the target has interleaved
  memory, loads coefficients faster from it, and the codelet uses such loads."""
  return (
    target.has_regions
    and target.coefficient_load_bytes > target.data_path_bytes
    and CODELETS[type(fields)].has_weights
  )


def weights(
  target: Target,
  fields: schema.Fields,
  shape: tuple[int, ...],
  partition: Layout,
  operand_dtypes: Sequence[DType],
  hints: Hints,
) -> int | None:
  """The number of the operand that has to be in interleaved memory, as the
  cycles of `compute_set` assume; None if there is no such operand."""
  if not has_weights(target, fields):
    return None
  codelet = CODELETS[type(fields)]
  cell = largest_cell(partition, shape)
  return codelet.weights(target, fields, operand_dtypes, cell, hints)


def casts(
  target: Target,
  fields: schema.Dot,
  shape: tuple[int, ...],
  partition: Layout,
  operand_dtypes: Sequence[DType],
  hints: DotHints,
) -> bool:
  """Whether a product's vertices leave their sums in a buffer, from which other
  vertices cast them to the result's type. Takes the arguments of
  `compute_set`."""
  cell = largest_cell(partition, shape)
  return DOT.casts(target, fields, operand_dtypes, cell, hints)


def largest_cell(partition: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
  """The extent of the largest cell along each dimension of the iteration space;
  if blocks straddle dimensions, only its number of elements."""
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


def iteration(target: Target) -> Sourced:
  """The overhead of one iteration of a loop of known trip count. Each tile
  counts iterations by itself, as ForLoopCounter does, without a synchronisation
  [D]."""
  cycles = float(target.branch_cycles)
  return Sourced(cycles, 0.0, 0.0, 0.0, 0.0, derived=cycles)


def branch(target: Target) -> schema.Cost:
  """The cost of a branch or a loop's condition: all tiles decide by a word that
  one of them holds, so they synchronise."""
  sync = float(target.sync_cycles)
  return Sourced(
    float(target.branch_cycles), 0.0, sync, 0.0, 0.0, derived=sync, syncs=1.0
  )


def host_stream(
  target: Target, sizes: Iterable[int], to_host: bool = False
) -> Sourced:
  """The cost of one stream of arrays from the host, or to it; `sizes` in bytes.

  The cost covers the begin and end of the stream, a fixed part for each array,
  and all packets over the host link. After each window of bytes, tiles and host
  synchronise again. The measured cycles of begin and end include the first of
  these synchronisations. Transfers are stored in the fields of an exchange;
  whether a step exchanges with the host is known from its kind
  (emit/cost_analysis.py). The cost is zero if there are no arrays.
  """
  given = list(sizes)
  if not given:
    return Sourced(0.0, 0.0, 0.0, 0.0, 0.0)
  packet = (
    target.packet_to_host_bytes if to_host else target.packet_from_host_bytes
  )
  packets = sum(-(-size // packet) for size in given)
  headers = packets * target.host_link_header_bytes
  rate = target.host_bytes_per_second
  seconds = target.host_stream_seconds + (sum(given) + headers) / rate
  again = max(
    -(-sum(given) // (target.num_tiles * target.host_window_bytes)) - 1, 0
  )
  cycles = (
    len(given) * target.host_copy_cycles + again * target.host_command_cycles
  )
  cycles += math.ceil(seconds * target.clock_hz)
  return Sourced(
    0.0,
    float(max(cycles - target.host_sync_cycles, 0)),
    float((1 + again) * target.host_sync_cycles),
    float(sum(given)),
    0.0,
    derived=headers / rate * target.clock_hz,
    syncs=1.0 + again,
  )


def host_callback(
  target: Target, sent: Iterable[int], received: Iterable[int]
) -> schema.Cost:
  """The cost of calling a function on the host.

  A stream carries the arguments (of `sent` bytes each) to the host, the host
  answers, and a stream carries the results (of `received` bytes each) back.
  Without arguments or results, one word signals the call or its completion. The
  run time of the function itself is not charged.
  """
  there = host_stream(target, list(sent) or [0], to_host=True)
  answer = math.ceil(target.host_call_seconds * target.clock_hz)
  there.exchange_cycles += answer
  there.guessed += answer
  return add(there, host_stream(target, list(received) or [0]))


_FIGURES, _SOURCED_FIGURES = (
  operator.attrgetter(*[f.name for f in dataclasses.fields(record)])
  for record in (schema.Cost, Sourced)
)


def add(a: schema.Cost, b: schema.Cost) -> Sourced:
  """The sum of two costs."""
  both = _SOURCED_FIGURES(sourced(a)), _SOURCED_FIGURES(sourced(b))
  return Sourced(*map(operator.add, *both))


def beyond(a: schema.Cost, b: schema.Cost) -> Sourced:
  """The cost `a` without `b`, which is a part of it."""
  both = _SOURCED_FIGURES(sourced(a)), _SOURCED_FIGURES(sourced(b))
  return Sourced(*map(operator.sub, *both))


def cycles(cost: schema.Cost) -> float:
  """All cycles of a cost."""
  return cost.compute_cycles + cost.exchange_cycles + cost.sync_cycles
