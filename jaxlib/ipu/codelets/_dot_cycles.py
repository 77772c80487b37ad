"""Cycles of the vertices for a block of a matrix product.

Those for floats are PopLibs', in the library (runtime/plan/dot_cycles.h), which
the planner asks about thousands of blocks.
"""

from __future__ import annotations

import array
import ctypes
import functools
from typing import NamedTuple

from jaxlib.ipu import library
from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._cycles import (
  MULTI_VERTEX,
  Cycles,
  all_derived,
  derived,
  up,
)
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.target import Target

_DOT_CYCLES = (
  "ipu_dot_cycles", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)  # fmt: skip

# The cycles of a worker of `loop_cycles` to store an output, and before its
# loop.
LOOP_OUTPUT, LOOP_START = 8, 26


class Block(NamedTuple):
  """The extents of a tile's block.

  Attributes:
    batch: number of products.
    rows: rows of the left operands, a vertex's field.
    columns: columns of the right operands, its output channels.
    depth: terms of a sum, its input channels.
  """

  batch: int
  rows: int
  columns: int
  depth: int


class Vertices(NamedTuple):
  """The cycles of each vertex, of a block and of the transposed one.

  Attributes:
    amp, amp_turned: the matrix unit.
    hmac, hmac_turned: dot products on the vector unit.
    outer, outer_turned: products of one term; infinite if there are more.
    shared: dot products that the workers share, if a side is a vector.
    chain: the terms that the matrix unit takes at a time.
  """

  amp: float
  amp_turned: float
  hmac: float
  hmac_turned: float
  outer: float
  outer_turned: float
  shared: float
  chain: float


def unit(target: Target, dtype: DType, accumulate: DType) -> tuple[float, ...]:
  """The fields of `DotUnit` in C++, for operands and partial sums of these
  types."""
  return (
    dtype == DType.F16, accumulate == DType.F16,
    _inner_loops.VECTOR[accumulate], target.num_workers, target.fp32_macs,
    target.fp16_macs, target.coefficient_load_bytes,
  )  # fmt: skip


def vertices(
  target: Target, dtype: DType, accumulate: DType, block: Block
) -> Vertices:
  """The cycles of the vertices for floats, f16 or f32."""
  given = array.array("d", (*unit(target, dtype, accumulate), *block))
  cycles = array.array("d", bytes(8 * len(Vertices._fields)))
  status = library.function(*_DOT_CYCLES)(
    *given.buffer_info(), cycles.buffer_info()[0]
  )
  library.checked(status, lambda: f"no block: {block}")
  return Vertices(*cycles)


@functools.cache
def loop_step(dtype: DType) -> Cycles:
  """The cycles of `loop_cycles` for a term: two loads, the two operations' own
  cycles, and two for the loop."""
  step = Cycles(2 * _inner_loops.LOAD[dtype] + 2)
  for op in (Opcode.MUL, Opcode.ADD):
    step += _inner_loops.work(op, dtype).inside
  return step


def loop_cycles(target: Target, dtype: DType, block: Block) -> Cycles:
  """A loop of multiplications and additions, the outputs shared, that starts
  like a binary operation (codelets/map.py) [D]."""
  outputs = up(block.batch * block.rows * block.columns / target.num_workers)
  worker = (loop_step(dtype) * block.depth + LOOP_OUTPUT) * outputs + LOOP_START
  return all_derived(target.num_workers * worker + MULTI_VERTEX)


class Way(NamedTuple):
  """A vertex for a block.

  Attributes:
    cycles: of the vertex.
    weights: which operand has the matrix unit's weights, if it is used.
    partials: whether it can only store sums in the type of partials.
    casts: whether these are cast after it.
  """

  cycles: float | Cycles
  weights: int | None = None
  partials: bool = False
  casts: bool = False


@functools.lru_cache(maxsize=4096)
def ways_of(
  target: Target, dtype: DType, accumulate: DType, block: Block, vector: bool
) -> list[Way]:
  """The vertices for a block. The result must not be modified."""
  found = vertices(target, dtype, accumulate, block)
  ways = [
    Way(found.amp, 1, True),
    Way(found.amp_turned, 0, True),
    Way(found.hmac, partials=True),
    Way(found.hmac_turned, partials=True),
  ]
  if block.depth == 1:
    ways += [Way(found.outer), Way(found.outer_turned)]
  if vector:
    ways.append(Way(derived(found.shared)))
  return ways


def rounding_once(target: Target, block: Block) -> list[Way]:
  """The vertices of f16 partials, for a block that they round once: the vector
  unit takes all terms at a time, the matrix unit those of a chain. Both add up
  in f32 until they store [D]."""
  found = vertices(target, DType.F16, DType.F16, block)
  ways = []
  for weights, hmac, amp in (
    (1, found.hmac, found.amp),
    (0, found.hmac_turned, found.amp_turned),
  ):
    ways.append(Way(derived(hmac)))
    if block.depth <= found.chain:
      ways.append(Way(derived(amp), weights))
  return ways
