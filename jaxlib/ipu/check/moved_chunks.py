"""Divides a move's elements into chunks, which are counted together.

The elements of a chunk are consecutive in both tensors, are sent by one tile
and received by one tile. In a move without consecutive elements, such as a
transpose, each element is a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.check.tile_memory import strided
from jaxlib.ipu.layout import Array, Factor, Layout, sizes_of_parts
from jaxlib.ipu.moves.affine import MoveEnd

Mask = npt.NDArray[np.bool_]

# The number of chunks that are found at once: their arrays fit into a cache.
_AT_ONCE = 1 << 15


class Chunks(NamedTuple):
  """Chunks of a move, as arrays over chunks.

  Attributes:
    near: the receiver, in the first replica of the destination.
    to: where the chunk begins in the receiver's memory, in elements.
    sender: the sender, in the first replica of the source.
    at: where the chunk begins in the sender's memory, in elements.
    begin: the chunk's first element in the source tensor.
    length: number of elements.
  """

  near: Array
  to: Array
  sender: Array
  at: Array
  begin: Array
  length: Array

  def part(self, which: Array | Mask) -> Chunks:
    """The chunks that an index array or a mask selects."""
    return Chunks(*(x[which] for x in self))


class _Space(NamedTuple):
  """An iteration space.

  Attributes:
    begin, end: the first accessed elements of the source and of the
    destination. dims: for each dimension its extent, and its strides in both.
  """

  begin: int
  end: int
  dims: list[tuple[int, int, int]]

  @property
  def size(self) -> int:
    """The number of elements."""
    return math.prod(n for n, _, _ in self.dims)


def number_of_chunks(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> int:
  """An upper bound of the number of chunks that `chunks_of` finds."""
  space = _lines(source, destination, shape)
  length = space.dims[-1][0]
  blocks = 1
  for end in (source, destination):
    block, row = _block(end.layout)
    blocks += -(-length // block) + (length // row if row % block else 0)
  return space.size // length * min(length, blocks)


def chunks_of(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  chosen: Mask | None = None,
) -> Chunks:
  """The chunks of a move. If tiles are `chosen`, only those that any of them
  sends or receives."""
  first = chosen
  if chosen is not None:
    # The receivers in the first replica that stand for the chosen tiles.
    copies = Layout((), destination.layout.replicas).tiles()
    back = np.flatnonzero(chosen)[:, None] - copies
    first = np.zeros_like(chosen)
    first[back[back >= 0]] = True
  space = _lines(source, destination, shape)
  many = number_of_chunks(source, destination, shape)
  found = []
  for part in _parts(space, max(space.size * _AT_ONCE // many, 1)):
    *around, (length, _, _) = part.dims
    extents = [n for n, _, _ in around]
    begin = strided(part.begin, extents, [s for _, s, _ in around]).reshape(-1)
    end = strided(part.end, extents, [t for _, _, t in around]).reshape(-1)
    sizes = np.full_like(begin, length)
    if length > 1:
      begin, end, sizes = _cut(
        source.layout, destination.layout, begin, end, length
      )
    sender = _tile(source.layout, begin)
    near = _tile(destination.layout, end)
    if chosen is not None and first is not None:
      some = first[near] | chosen[sender]
      begin, end, sizes, sender, near = (
        x[some] for x in (begin, end, sizes, sender, near)
      )
    to, at = _place(destination.layout, end), _place(source.layout, begin)
    found.append(Chunks(near, to, sender, at, begin, sizes))
  return Chunks(*map(np.concatenate, zip(*found)))


def _lines(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> _Space:
  """A move's iteration space, in the destination's row-major order. The last
  dimension is a line: elements that are consecutive in both tensors."""
  begin, end, dims = source.offset, destination.offset, []
  for n, s, t in zip(shape, source.strides, destination.strides):
    if n == 1:
      continue
    if t < 0:
      begin, end, s, t = begin + (n - 1) * s, end + (n - 1) * t, -s, -t
    dims.append((n, s, t))
  dims.sort(key=lambda dim: -dim[2])
  length = 1
  while dims and dims[-1][1] == dims[-1][2] == length:
    length *= dims.pop()[0]
  return _Space(begin, end, [*dims, (length, 1, 1)])


def _parts(space: _Space, most: int) -> Iterator[_Space]:
  """Divides an iteration space into parts of at most so many elements."""
  if space.size <= most:
    yield space
    return
  begin, end, dims = space
  d = next(d for d, (n, _, _) in enumerate(dims) if n > 1)
  n, s, t = dims[d]
  half = n // 2
  for first, size in ((0, half), (half, n - half)):
    part = [*dims[:d], (size, s, t), *dims[d + 1 :]]
    yield from _parts(_Space(begin + first * s, end + first * t, part), most)


def _block(layout: Layout) -> tuple[int, int]:
  """The number of elements that are contiguous in the memory of a tile, a
  block; and the number of elements, a row, after which blocks begin anew."""
  unit = 1
  for f in reversed(layout.factors):
    if f.parts > 1:
      return f.block * unit, f.extent * unit
    unit *= f.extent
  return unit, unit


def _cut(
  source: Layout, destination: Layout, begin: Array, end: Array, length: int
) -> tuple[Array, Array, Array]:
  """Cuts lines of equal length where a block of either mapping ends; returns
  the first elements of the resulting chunks in both tensors, and their
  lengths."""
  # A line's number times its length, plus an index in it.
  cuts = [np.arange(len(begin)) * length]
  for layout, first in ((source, begin), (destination, end)):
    block, row = _block(layout)
    blocks = -(-row // block)  # of a row
    low, high = (
      x // row * blocks + x % row // block for x in (first, first + length - 1)
    )
    line, later = _counting(low + 1, high - low)
    edge = later // blocks * row + later % blocks * block
    cuts.append(line * length + edge - first[line])
  at = _distinct(np.concatenate(cuts))
  sizes = np.diff(at, append=len(begin) * length)
  line, index = at // length, at % length
  return begin[line] + index, end[line] + index, sizes


def alike(chunks: Chunks) -> Chunks:
  """Cuts chunks so that any two of them read either the same elements of the
  source or different ones."""
  behind = chunks.begin + chunks.length
  cuts = _distinct(np.concatenate((chunks.begin, behind)))
  low, high = np.searchsorted(cuts, chunks.begin), np.searchsorted(cuts, behind)
  chunk, k = _counting(low, high - low)
  begin, length = cuts[k], cuts[k + 1] - cuts[k]
  chunks = chunks.part(chunk)
  on = begin - chunks.begin
  return chunks._replace(
    to=chunks.to + on, at=chunks.at + on, begin=begin, length=length
  )


def _counting(first: Array, count: Array) -> tuple[Array, Array]:
  """The concatenation of range(f, f + c) for all pairs (f, c) of `first` and
  `count`; returns, for each number, the place of its pair, and the number."""
  place = np.repeat(np.arange(len(first)), count)
  before = np.cumsum(count) - count
  return place, np.arange(len(place)) + (first - before)[place]


def _distinct(numbers: Array) -> Array:
  """The different numbers, ascending. As most of them are already in order,
  this is much faster than `np.unique`, which hashes."""
  ordered = np.sort(numbers, kind="stable")
  return ordered[np.diff(ordered, prepend=-1) > 0]


def _digits(layout: Layout, elements: Array) -> Iterator[tuple[Factor, Array]]:
  """Yields the factors of a mapping, innermost first, each with the digits of
  the elements."""
  for f in reversed(layout.joined.factors):
    above = elements // f.extent
    yield f, elements - above * f.extent
    elements = above


def _tile(layout: Layout, elements: Array) -> Array:
  """The tile of each element, in the first replica."""
  tile = np.full_like(elements, layout.base)
  for f, digit in _digits(layout, elements):
    tile += digit // f.block * f.stride
  return tile


def _place(layout: Layout, elements: Array) -> Array:
  """The place of each element in its tile's memory."""
  at, size = np.zeros_like(elements), np.array(1)
  for f, digit in _digits(layout, elements):
    part = digit // f.block
    at += (digit - part * f.block) * size
    size = size * sizes_of_parts(f, part)
  return at
