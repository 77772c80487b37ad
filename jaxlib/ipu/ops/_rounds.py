"""Slices at places known at run time, in rounds.

Whoever has an element has to find out for itself that it is wanted
(plan/indexed.py): all tiles that share the dimension along which a slice can
move see the whole of it there. A large one goes piece by piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value

# More bytes than this go in rounds, each of so many; and how many tiles an IPU
# has [G]: in one go they would leave little of the SRAM to large arrays.
_LARGE, _ROUND = 2 << 20, 1 << 18
# Of lookups, which are split over tiles as well.
_LARGE_LOOKUPS, _ROUND_LOOKUPS = 4 * _LARGE, 2 * _ROUND
_TILES = 1472


def _pieces(extent: int, count: float) -> Iterator[tuple[int, int]]:
  """(begin, end) of about so many pieces of a dimension."""
  block = -(-extent // math.ceil(count))
  for begin in range(0, extent, block):
    yield begin, min(begin + block, extent)


def _moved(
  e: Emitter,
  shape: Shape,
  operand: Value,
  starts: Sequence[Value],
) -> tuple[int, list[tuple[int, int]], list[Value]] | None:
  """How a slice is cut: the dimension, its pieces, and the slice's starts as
  they are once clamped. None if it is small."""
  moves = [d for d, n in enumerate(shape) if n != operand.shape[d]]
  stay = math.prod(n for d, n in enumerate(shape) if d not in moves)
  moved = math.prod(shape[d] for d in moves) * SIZE[operand.dtype]
  bytes_ = moved * -(-stay // _TILES)
  if not moves or bytes_ <= _LARGE:
    return None
  d = max(moves, key=lambda d: shape[d])
  if shape[d] == 1:
    return None
  wide = DType.I32 if starts[0].dtype is DType.I32 else DType.I64
  limits = [n - m for n, m in zip(operand.shape, shape)]
  clamped = [
    e.clamp(0, e.convert(start, wide), limit)
    for start, limit in zip(starts, limits, strict=True)
  ]
  count = min(bytes_ / _ROUND, shape[d])
  return d, list(_pieces(shape[d], count)), clamped


def _from(
  e: Emitter, starts: Sequence[Value], d: int, begin: int
) -> list[Value]:
  return [e.add(s, begin) if k == d else s for k, s in enumerate(starts)]


def dynamic_slice(e: Emitter, node: Node) -> list[Value] | None:
  """Several slices that adjoin, if it is a large one."""
  operand, *starts = node.inputs
  shape = node.results[0].shape
  cut = _moved(e, shape, operand, starts)
  if cut is None:
    return None
  d, pieces, starts = cut
  parts = []
  for begin, end in pieces:
    sizes = [end - begin if k == d else n for k, n in enumerate(shape)]
    parts.append(e.dynamic_slice(operand, _from(e, starts, d, begin), sizes))
  return [e.concatenate(parts, d)]


def dynamic_update_slice(e: Emitter, node: Node) -> list[Value] | None:
  """Several updates that adjoin, if it is a large one."""
  operand, update, *starts = node.inputs
  cut = _moved(e, update.shape, operand, starts)
  if cut is None:
    return None
  d, pieces, starts = cut
  for begin, end in pieces:
    some = e.slice_in_dim(update, begin, end, d)
    operand = e.dynamic_update_slice(operand, some, _from(e, starts, d, begin))
  return [operand]


def gather(e: Emitter, node: Node) -> list[Value] | None:
  """The lookups in several parts, if they are many of little each."""
  operand, indices = node.inputs
  indexing: Indexing = node.attributes
  shape = node.results[0].shape
  counted = [
    d for d in range(len(indices.shape)) if d != indexing.index_vector_dim
  ]
  lookups = math.prod(indices.shape[d] for d in counted)
  window = math.prod(shape) // max(lookups, 1)
  walked = math.prod(
    n
    for d, n in enumerate(indexing.slice_sizes)
    if d not in indexing.index_map and d not in indexing.operand_batch
  )
  # Of a lookup on a tile: what is not split with the operand's own dimensions.
  each = window // max(walked, 1) * -(-walked // _TILES) * SIZE[operand.dtype]
  index = math.prod(indices.shape) // max(lookups, 1) * SIZE[indices.dtype]
  bytes_ = lookups * (each + index)
  free = [d for d in counted if d not in indexing.index_batch]
  if bytes_ <= _LARGE_LOOKUPS or not free:
    return None
  d = max(free, key=lambda d: indices.shape[d])
  to = indexing.batch_dims(len(shape))[counted.index(d)]
  extent = indices.shape[d]
  if extent == 1:
    return None
  parts = [
    e.gather(operand, e.slice_in_dim(indices, begin, end, d), indexing)
    for begin, end in _pieces(extent, min(bytes_ / _ROUND_LOOKUPS, extent))
  ]
  return [e.concatenate(parts, to)]
