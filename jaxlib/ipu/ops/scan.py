"""Running totals such as cumsum, in linear work.

JAX writes them as a reduce_window whose window is as long as the dimension,
which would combine each element n times. `ipu.scan` keeps the total of each
sequence instead. A long sequence is cut into blocks: each block's total is
reduced, the totals are scanned in turn, and each block starts from the total
before it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets.reduce import cell_cycles
from jaxlib.ipu.codelets.scan import CODELET, per_element
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.attributes import Reduction, Window
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.region import combiner, monoid
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.layout import grid, project
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.plan import cost, cuts
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

SCAN = "ipu.scan"

# Minimum length of blocks [G].
_SHORTEST_BLOCK = 8
# What blocks add, in synchronisations: their totals are reduced, scanned and
# passed to the blocks, and each of these supersteps has an exchange, which
# takes about as long as its synchronisation [D].
_MORE_SUPERSTEPS = 3 * 2
_WIDER = {DType.F16: DType.F32, DType.BF16: DType.F32}


@dataclasses.dataclass(frozen=True)
class ScanAttributes:
  """The attributes of `ipu.scan`.

  Input 0 has the elements, input 1 the start values: a scalar, or one number
  for each sequence.
  """

  dimension: int
  reverse: bool


def running_total(e: Emitter, node: Node, w: Window) -> Value | None:
  """A reduce_window as a scan; None if it is not a running total."""
  dims = [d for d, n in enumerate(w.sizes) if n != 1]
  if len(node.results) != 1 or len(dims) != 1:
    return None
  (d,) = dims
  operand, init = node.inputs
  reach = w.sizes[d] - 1
  if reach < operand.shape[d] - 1 or any(
    n != 1 for n in (*w.strides, *w.base_dilations, *w.window_dilations)
  ):
    return None
  ends = {(reach, 0): False, (0, reach): True}
  reverse = ends.get((w.low[d], w.high[d]))
  if reverse is None or any(
    w.low[i] or w.high[i] for i in range(len(w.sizes)) if i != d
  ):
    return None
  (region,) = node.regions
  if not _absorbs(region, init):
    return None
  kind = monoid(region)
  wide = _WIDER.get(operand.dtype)
  if wide and kind in (ReduceKind.SUM, ReduceKind.PRODUCT):
    # Narrow floats are summed in f32, as in reductions.
    name = "add" if kind is ReduceKind.SUM else "multiply"
    region = e.region([((), wide)] * 2, lambda a, b: e.elementwise(name, a, b))
    operand, init = e.convert(operand, wide), e.convert(init, wide)
  total = _scan(e, operand, init, d, reverse, region)
  return e.convert(total, node.results[0].dtype)


def _absorbs(region: Graph, init: Value) -> bool:
  """Whether the start value combined with itself is itself: padding that a
  window reads before the first element then changes nothing."""
  node = init.node
  if node is None or node.op != "stablehlo.constant":
    return False
  start = np.asarray(node.attributes).reshape(1)
  function = combiner(region)
  (both,) = evaluate(function.code, function.outputs, [start, start])
  return both.astype(start.dtype).tobytes() == start.tobytes()


def _scan(
  e: Emitter, x: Value, start: Value, d: int, reverse: bool, region: Graph
) -> Value:
  types = [(p.shape, p.dtype) for p in region.parameters]
  own = e.region(types, lambda *values: e.call(region, values))
  (total,) = e.node(
    SCAN, [x, start], [(x.shape, x.dtype)], ScanAttributes(d, reverse), [own]
  )
  return total


def _decompose(e: Emitter, node: Node) -> list[Value] | None:
  """Splits a few long sequences into many short ones."""
  x, start = node.inputs
  a: ScanAttributes = node.attributes
  (region,) = node.regions
  d, n = a.dimension, x.shape[a.dimension]
  sequences = math.prod(x.shape) // max(n, 1)
  if start.shape or n <= _SHORTEST_BLOCK:
    return None
  function = combiner(region)
  sums = _Sums(function.code, function.outputs[0], x.dtype)
  steps, _ = _cheapest(e.machine, sums, sequences, n)
  if steps is None:
    return None
  blocks = -(-n // steps)
  surplus = blocks * steps - n
  low, high = [0] * len(x.shape), [0] * len(x.shape)
  (low if a.reverse else high)[d] = surplus
  whole = e.pad(x, start, low, high)
  cut = e.reshape(whole, (*x.shape[:d], blocks, steps, *x.shape[d + 1 :]))
  types = [(p.shape, p.dtype) for p in region.parameters]
  (totals,) = e.node(
    "stablehlo.reduce",
    [cut, start],
    [((*x.shape[:d], blocks, *x.shape[d + 1 :]), x.dtype)],
    Reduction((d + 1,)),
    [e.region(types, lambda *values: e.call(region, values))],
  )
  ends = _scan(e, totals, start, d, a.reverse, region)
  # Each block's start: the end of the block before it.
  first, last = [0] * len(x.shape), [0] * len(x.shape)
  first[d], last[d] = (-1, 1) if a.reverse else (1, -1)
  before = e.pad(ends, start, first, last)
  scanned = _scan(e, cut, before, d + 1, a.reverse, region)
  joined = e.reshape(scanned, whole.shape)
  return [
    e.slice(joined, low, [i + n for i, n in zip(low, x.shape, strict=True)])
  ]


class _Sums(NamedTuple):
  """How two elements are combined, and their type."""

  combine: Code
  output: int
  dtype: DType


@functools.lru_cache(maxsize=4096)
def _cheapest(
  target: Target, sums: _Sums, sequences: int, n: int
) -> tuple[int | None, float]:
  """The cheapest block length, None for whole sequences; and its cycles."""
  size = SIZE[sums.dtype]
  each = per_element(*sums)
  fields = schema.Scan(sums.combine, sums.output, 0)

  def tile(sequences: int) -> int:
    return -(-sequences // target.num_tiles)

  def scanned(sequences: int, n: int) -> float:
    cell = tile(sequences), n
    vertices = CODELET.cycles(target, fields, [sums.dtype], [], cell)
    moving = cost.exchange_cycles(target, math.prod(cell) * size, 0)
    return float(vertices.total) + moving

  best, least = None, scanned(sequences, n)
  lengths = [_SHORTEST_BLOCK << i for i in range(n.bit_length())]
  # One block for each worker.
  lengths.append(-(-sequences * n // (target.num_tiles * target.num_workers)))
  for length in lengths:
    if not _SHORTEST_BLOCK <= length <= n // 2:
      continue
    steps = _block(n, length)
    blocks = -(-n // steps)
    cycles = scanned(sequences * blocks, steps)
    totals = cell_cycles(target, tile(sequences * blocks), steps, each)
    cycles += float(totals.total) + _MORE_SUPERSTEPS * target.sync_cycles
    if cycles < least:
      cycles += _cheapest(target, sums, sequences, blocks)[1]
    if cycles < least:
      best, least = steps, cycles
  return best, least


def _block(n: int, least: int) -> int:
  """The length of a block: one that divides n, if there is any nearby."""
  for steps in range(least, min(2 * least, n) + 1):
    if n % steps == 0:
      return steps
  return least


def _lower(builder: Builder, node: Node) -> None:
  a: ScanAttributes = node.attributes
  (region,) = node.regions
  x, start = (builder.view(v) for v in node.inputs)
  rank = len(x.shape)
  kept = [d for d in range(rank) if d != a.dimension]
  shape = (*(x.shape[d] for d in kept), x.shape[a.dimension])
  tiles = builder.target.num_tiles
  parts = cuts.distribute(tiles, shape[:-1], tiles)
  partition = grid(shape, (*parts, 1))
  # The iteration dimension of each of the array's.
  behind = tuple([*kept, a.dimension].index(d) for d in range(rank))
  function = combiner(region)
  layout = project(partition, shape, behind) if 0 not in shape else None
  root = builder.result(node, layout)
  sequences = tuple(range(rank - 1)) if start.shape else (-1,) * (rank - 1)
  builder.execute(
    schema.Scan(function.code, function.outputs[0], int(a.reverse)),
    shape,
    partition,
    [
      Operand(x, (*kept, a.dimension)),
      Operand(start, (*sequences, -1)),
    ],
    [Written(root, (*kept, a.dimension))],
  )


define(Operation(SCAN, _lower, decompose=_decompose))
