"""The serial steps of a matrix product as loops over one body.

An exchange has the same addresses in every iteration, so a step's part of an
operand has to be in one place. Tiles that have the parts of all steps slice
them there, if these are long. Any other operand is copied before the loop, so
that each tile has its share of every step's part in one piece, as poplin
rearranges the operands of serial splits. If there is no room for all of that
copy, there are several loops, each with a copy of some of the steps' parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets.dynamic_slice import copy_cycles
from jaxlib.ipu.dtypes import NUMPY, SIZE, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.ops._counters import plus, variable
from jaxlib.ipu.ops._dot_sums import Block, Sums
from jaxlib.ipu.ops._indexing import moving_windows
from jaxlib.ipu.ops._parts import Parts, resized, slice_part, stack
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.indexed_split import slices_in_place
from jaxlib.ipu.plan.matmul import MOST_LOOPS
from jaxlib.ipu.tile.control_flow import Repeat
from jaxlib.ipu.tile.copy import Copy
from jaxlib.ipu.tile.view import View

# Slices of whole rows of a root may have this multiple of the elements that the
# product reads. [G]
_MOST_UNREAD = 2


class _Sliced(NamedTuple):
  """How an operand is sliced along one dimension.

  Attributes:
    operand: all of it.
    along: its dimension that is sliced.
    base: what is sliced: a root, or the operand's elements.
    dim: the dimension of `base` that is sliced.
    at: where the operand begins along it.
    row: elements of `base` for each index before `dim`; 0 if `base` has the
      operand's elements alone.
    stays: whether each tile slices what it has; otherwise `base` is copied
      first.
  """

  operand: Operand
  along: int
  base: View
  dim: int
  at: int
  row: int
  stays: bool

  def of(self, some: View, size: int) -> Operand:
    """The operand of a step, given the slice for it."""
    view = self.operand.view
    shape = resized(view.shape, self.along, size)
    if not self.row:
      return Operand(some._replace(shape=shape), self.operand.dims)
    inner = view.strides[self.along]
    short = size * inner  # the slice's elements for each row
    strides = [s // self.row * short if s > inner else s for s in view.strides]
    strides[self.along] = inner
    offset = view.offset // self.row * short + view.offset % inner
    return Operand(
      some._replace(offset=offset, strides=tuple(strides), shape=shape),
      self.operand.dims,
    )


def add_terms(sums: Sums, terms: Sequence[Block]) -> None:
  """Adds all steps' terms to the sums.

  Args:
    sums: without a value so far.
    terms: the steps. The dimension along which there are most becomes the
      loop's, steps along others have loops of their own.
  """
  builder, product = sums.builder, sums.product
  zero = np.zeros((), NUMPY[sums.dtype])
  builder.fill(builder.constant(zero, sums.dtype), sums.root)
  shape, first = product.shape, sums.choice.first
  dims = range(product.outer, len(shape))
  d = max(dims, key=lambda d: -(-shape[d] // first[d]))
  for block in terms:
    if block.begins[d] == 0:
      _add_along(sums, _along(block, d, 0, shape[d]), d, first[d])


def _add_along(sums: Sums, block: Block, d: int, size: int) -> None:
  """Adds the steps of a block, of `size` indices along dimension d each."""
  extent = block.ends[d]
  count = extent // size
  found = [_sliced(sums.builder, o, d, size) for o in sums.operands(block)]
  sources = [source for source in found if source is not None]
  done = 0
  if len(sources) == len(found):
    most = _most_trips(sums, sources, size, count)
    while count - done > 1:
      trips = min(most, count - done)
      _repeat(sums, block, d, size, done, trips, sources)
      done += trips
  for begin in range(done * size, extent, size):
    sums.add(_along(block, d, begin, min(begin + size, extent)))


def _most_trips(
  sums: Sums, sources: Sequence[_Sliced], size: int, count: int
) -> int:
  """The iterations of each loop, all about the same, so that there is room for
  the copies that they slice."""
  copied = sum(size * _bytes_each(s) for s in sources if not s.stays)
  each = copied / sums.builder.target.num_tiles
  most = int(sums.choice.room // each) if each else count
  loops = min(-(-count // max(most, 1)), MOST_LOOPS)
  return -(-count // loops)


def _repeat(
  sums: Sums,
  block: Block,
  d: int,
  size: int,
  done: int,
  trips: int,
  sources: Sequence[_Sliced],
) -> None:
  """Adds a loop over `trips` steps after `done` steps."""
  builder = sums.builder
  parts = [_parts(builder, s, size, done, trips) for s in sources]
  counters: dict[tuple[int, int], View] = {}
  numbers = []
  for source, (_, _, stacked) in zip(sources, parts, strict=True):
    key = (0, 1) if stacked else (source.at + done * size, size)
    if key not in counters:
      begin = builder.constant(np.array(key[0], np.int32), DType.I32)
      counters[key] = variable(builder, begin)
    numbers.append(counters[key])
  written = {v.root for v in counters.values()} | {sums.root}
  builder.enter(trips, written)
  operands = [
    source.of(slice_part(builder, part, n, n, size), size)
    for source, part, n in zip(sources, parts, numbers, strict=True)
  ]
  sums.add(_along(block, d, 0, size), operands)
  builder.copy_to(
    [(plus(builder, v, by), v) for (_, by), v in counters.items()]
  )
  body = builder.leave()
  own = cost.iteration(builder.target)
  body.append(Copy(moves=[], own=own, location=builder.location))
  builder.steps.append(
    Repeat(count=trips, body=body, location=builder.location)
  )


def _along(block: Block, d: int, begin: int, end: int) -> Block:
  """A block with other indices along dimension d."""
  begins, ends = list(block.begins), list(block.ends)
  begins[d], ends[d] = begin, end
  return Block(tuple(begins), tuple(ends))


def _sliced(
  builder: Builder, operand: Operand, d: int, size: int
) -> _Sliced | None:
  """How an operand is sliced along the iteration space's dimension d, `size`
  indices at a time; None if it has overlapping windows along it."""
  view, along = operand.view, operand.dims[d]
  found = _rows(builder, operand, along)
  if found is None:
    if overlapping(view.shape, view.strides):
      return None
    return _Sliced(operand, along, view, along, 0, 0, False)
  row, inner = found
  info = builder.tensors[view.root]
  at = view.offset % row // inner
  for dim, extent in enumerate(info.shape):
    after = math.prod(info.shape[dim + 1 :])
    if (extent, after) == (row // inner, inner):
      base = builder.root_view(view.root)
      stays = _stays(builder, base, info.layout, dim, size)
      return _Sliced(operand, along, base, dim, at, row, stays)
  shape = info.size // row, row // inner, inner
  base = View(view.root, 0, (row, inner, 1), shape, view.dtype)
  return _Sliced(operand, along, base, 1, at, row, False)


def _rows(
  builder: Builder, operand: Operand, along: int
) -> tuple[int, int] | None:
  """If slicing an operand means slicing the rows of its root, each row seen as
  (indices, inner elements): the elements of a row, and the inner ones."""
  view = operand.view
  inner, extent = view.strides[along], view.shape[along]
  others = [
    (s, n)
    for i, (s, n) in enumerate(zip(view.strides, view.shape, strict=True))
    if i != along and n > 1 and s
  ]
  if inner <= 0 or any(s < 0 or s == inner for s, _ in others):
    return None
  size = builder.tensors[view.root].size
  row = math.gcd(size, *(s for s, _ in others if s > inner))
  reach = sum((n - 1) * s for s, n in others if s < inner)
  if (
    row % inner
    or view.offset % inner + reach >= inner
    or view.offset % row // inner + extent > row // inner
    or size // (row // inner) * extent > _MOST_UNREAD * view.size
  ):
    return None
  return row, inner


def _stays(
  builder: Builder, base: View, layout: Layout, dim: int, size: int
) -> bool:
  """Whether each tile has the parts of all steps of what it has of any, and
  slices them in no more cycles than contiguous parts, once copied."""
  target, shape = builder.target, resized(base.shape, dim, size)
  windows = moving_windows(shape, base.shape, base.dtype, target.num_tiles)
  plan = slices_in_place(windows, layout)
  if plan is None or plan.parts > 1:
    return False
  cell = cost.largest_cell(plan.partition, shape)
  elements, rows = math.prod(cell), cell[dim]
  here, apart = (
    copy_cycles(target, (0,), base.dtype, (n, elements // n)).total
    for n in (rows, 1)
  )
  copying = elements * SIZE[base.dtype] / target.data_path_bytes
  return here <= apart + copying


def _bytes_each(source: _Sliced) -> int:
  """The bytes of one index of the sliced dimension."""
  base = source.base
  return base.size // base.shape[source.dim] * SIZE[base.dtype]


def _parts(
  builder: Builder, source: _Sliced, size: int, done: int, trips: int
) -> Parts:
  """The parts of `trips` steps after `done` steps."""
  base, dim = source.base, source.dim
  if source.stays:
    return Parts(base, dim, False)
  shape = resized(base.shape, dim, size)
  root = stack(builder, trips, shape, base.dtype)
  stride = base.strides[dim]
  some = base._replace(
    offset=base.offset + (source.at + done * size) * stride,
    shape=(trips, *shape),
    strides=(size * stride, *base.strides),
  )
  builder.copy_to([(some, root)])
  return Parts(root, 0, True)
