"""Checks of compute sets: fields, accesses, and that operands are where the
vertices are."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxlib.ipu.codelets._instructions import arguments, decode
from jaxlib.ipu.plan.layout import Factor, Layout, overlap, project
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import Opcode, ReduceKind
from jaxlib.ipu.program.verify_memory import dense

if TYPE_CHECKING:
  from jaxlib.ipu.program.verify import _Verifier

# What is small enough to be counted element by element.
_SMALL = 1 << 16


def check(v: _Verifier, step: schema.Execute) -> None:
  """Checks one compute set."""
  shape = tuple(step.shape)
  v.require(all(n >= 0 for n in shape), f"iteration space {shape}")
  partition = v.layout(step.partition)
  size = math.prod(shape)
  v.require(
    partition.num_elements == size,
    f"a partition of {partition.num_elements} over {size} points",
  )
  _fields(v, step)
  for access in (*step.operands, *step.results):
    _access(v, step, access)
  for access in step.operands:
    v.reads(access.tensor)
  if size:
    v.require(step.cost.compute_cycles > 0, "vertices that cost nothing")
    _residency(v, step, shape, partition)
  if schema.updates(step.fields):
    v.reads(step.results[0].tensor)
  in_place = isinstance(step.fields, schema.Map)
  for access in step.results:
    for source in step.operands:
      if in_place and size == 1:
        continue  # its one element is read before any result is written
      t = v.tensor(source.tensor)
      same_index = (
        source.dims == access.dims
        and t.offset == 0
        and t.strides == dense(t.shape)
      )
      v.keeps_apart(t.root, access.tensor, in_place and same_index)
    v.writes(access.tensor)


# --- Fields -------------------------------------------------------------------


def _fields(v: _Verifier, step: schema.Execute) -> None:
  rank, operands = len(step.shape), len(step.operands)
  results = len(step.results)
  match step.fields:
    case schema.Map() as f:
      _code(v, f.code, f.outputs, operands, rank)
      v.require(len(f.outputs) == results, "a result without its value")
    case schema.Reduce() as f:
      v.require(f.num_reduced <= rank, f"reduces {f.num_reduced} of {rank}")
      _code(v, f.code, f.outputs, operands, rank)
      _reduce(v, f, results)
    case schema.Dot() as f:
      v.require(
        (rank, operands, results) == (4, 2, 1),
        f"a product of {operands} operands over {rank} dimensions",
      )
      dtype = v.tensors[step.results[0].tensor].dtype
      v.require(
        not f.adds or dtype == f.accumulate_dtype,
        f"adds to element type {dtype} in {f.accumulate_dtype}",
      )
    case schema.Gather() as f:
      v.require((operands, results) == (2, 1), "a gather has two operands")
      _windows(v, step, f, step.operands[0], step.operands[1], f.slice_sizes)
    case schema.Scatter() as f:
      v.require((operands, results) == (2, 1), "a scatter has two operands")
      _windows(v, step, f, step.results[0], step.operands[0], f.window_sizes)
      _combine(v, f.kind, f.combine, f.combine_outputs, 1)
    case schema.DynamicSlice() as f:
      _dynamic(v, step, f.dynamic_dims, step.operands[0])
    case schema.DynamicUpdate() as f:
      _dynamic(v, step, f.dynamic_dims, step.results[0])


def _code(
  v: _Verifier,
  code: bytes,
  outputs: Sequence[int],
  operands: int,
  rank: int,
) -> None:
  """A register program reads what exists, earlier values only."""
  try:
    instructions = decode(code)
  except ValueError as e:
    v.fail(f"its register program is none: {e}")
    return
  for n, i in enumerate(instructions):
    v.require(
      all(a < n for a in arguments(i)),
      f"instruction {n} ({i.op.name}) reads a value that is not yet there",
    )
    if i.op == Opcode.LOAD:
      v.require(i.imm < operands, f"instruction {n} loads operand {i.imm}")
    if i.op == Opcode.IOTA:
      v.require(i.imm < rank, f"instruction {n} counts dimension {i.imm}")
  v.require(
    all(o < len(instructions) for o in outputs),
    f"outputs {list(outputs)} of {len(instructions)} values",
  )


def _reduce(v: _Verifier, f: schema.Reduce, results: int) -> None:
  v.require(
    f.kind in set(ReduceKind) and f.kind != ReduceKind.SET,
    f"unknown reduction {f.kind}",
  )
  n = len(f.outputs)
  _combine(v, f.kind, f.combine, f.combine_outputs, n)
  if f.kind == ReduceKind.GENERAL:
    v.require(
      len(f.init) == 8 * n and n == results,
      f"{n} values with {len(f.init)} bytes of start and {results} results",
    )
  elif f.kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN):
    v.require(
      n in (1, 2) and results in (1, 2),
      f"an arg-reduction of {n} values with {results} results",
    )
  else:
    v.require(n == results == 1, f"{n} values, {results} results")


def _combine(
  v: _Verifier, kind: int, code: bytes, outputs: Sequence[int], values: int
) -> None:
  if kind == ReduceKind.GENERAL:
    _code(v, code, outputs, 2 * values, 0)
    v.require(
      len(outputs) == values, f"combines {values} values to {len(outputs)}"
    )


def _windows(
  v: _Verifier,
  step: schema.Execute,
  f: schema.Gather | schema.Scatter,
  windowed: schema.Access,
  indices: schema.Access,
  sizes: Sequence[int],
) -> None:
  shape = v.tensor(windowed.tensor).shape
  rank, batch = len(shape), f.num_batch_dims
  v.require(
    len(sizes) == len(f.batch_dims) == len(f.window_dims) == rank,
    f"its maps are not of the windowed tensor's rank {rank}",
  )
  v.require(batch <= len(step.shape), f"{batch} batch dimensions")
  windows = len(step.shape) - batch
  for d in range(rank):
    v.require(
      0 <= sizes[d] <= shape[d] and -1 <= f.batch_dims[d] < batch,
      f"a window of {list(sizes)} in {shape}",
    )
    w = f.window_dims[d]
    extent = 1 if w < 0 else step.shape[batch + w] if w < windows else -1
    v.require(
      extent == sizes[d],
      f"dimension {d} of the window is {sizes[d]}, walked {extent} steps",
    )
  named = v.tensor(indices.tensor).shape
  depth = len(f.start_index_map)
  v.require(
    len(set(f.start_index_map)) == depth
    and all(0 <= d < rank for d in f.start_index_map),
    f"indices name the dimensions {f.start_index_map}",
  )
  v.require(
    bool(named) and named[-1] == depth,
    f"indices of shape {named} for {depth} components",
  )


def _dynamic(
  v: _Verifier,
  step: schema.Execute,
  dynamic_dims: Sequence[int],
  windowed: schema.Access,
) -> None:
  shape = v.tensor(windowed.tensor).shape
  v.require(
    len(shape) == len(step.shape)
    and all(a <= b for a, b in zip(step.shape, shape, strict=True)),
    f"a slice of {step.shape} in {shape}",
  )
  v.require(
    len(step.operands) == 1 + len(dynamic_dims)
    and all(0 <= d < len(shape) for d in dynamic_dims),
    f"{len(step.operands) - 1} starts for dimensions {dynamic_dims}",
  )


# --- Accesses and residency ---------------------------------------------------


def _access(v: _Verifier, step: schema.Execute, a: schema.Access) -> None:
  t = v.tensor(a.tensor)
  v.require(
    len(a.dims) == len(step.shape)
    and all(-1 <= k < len(t.shape) for k in a.dims),
    f"walks tensor {a.tensor} of shape {t.shape} by {a.dims}",
  )
  if 0 in step.shape:
    return
  for k, extent in enumerate(t.shape):
    last = sum(
      n - 1 for n, to in zip(step.shape, a.dims, strict=True) if to == k
    )
    v.require(
      last < extent or k not in a.dims,
      f"reaches index {last} of dimension {k} of tensor {a.tensor}, shape "
      f"{t.shape}",
    )


def _residency(
  v: _Verifier,
  step: schema.Execute,
  shape: tuple[int, ...],
  partition: Layout,
) -> None:
  served = isinstance(step.fields, schema.Gather | schema.DynamicSlice)
  indexed = isinstance(step.fields, schema.Gather | schema.Scatter)
  tiles = v.program.target.num_tiles

  def check(name: str, access: schema.Access, whole: bool, why: str) -> None:
    t = v.tensor(access.tensor)
    missing = _missing(
      v.layout(t.mapping), partition, shape, tuple(access.dims),
      tuple(t.shape), whole, tiles,
    )  # fmt: skip
    if missing is not None and missing >= 0:
      v.fail(f"{name}, tensor {access.tensor}, {why % missing}")

  for i, access in enumerate(step.operands):
    if i or not served:
      why = "is not whole on tile %d, which reads it"
      check(f"operand {i}", access, indexed, why)
  if isinstance(step.fields, schema.Map):
    for i, access in enumerate(step.results):
      check(f"result {i}", access, False, "is not where tile %d computes it")


@functools.lru_cache(maxsize=4096)
def _missing(
  held: Layout,
  partition: Layout,
  shape: tuple[int, ...],
  dims: tuple[int, ...],
  tensor_shape: tuple[int, ...],
  whole: bool,
  tiles: int,
) -> int | None:
  """The first tile that lacks an element its cell touches, -1 if none does.

  None where it can neither be told from the mappings nor counted.
  """
  needed = _needed(partition, shape, dims, tensor_shape, whole)
  if needed is not None:
    common = overlap(held, needed, tiles)
    if common is not None:
      lacking = needed.elements(np.arange(tiles)) > common
      return int(np.argmax(lacking)) if lacking.any() else -1
  if math.prod(shape) * partition.num_replicas > _SMALL or whole:
    return None
  return _count_missing(held, partition, shape, dims, tensor_shape)


def _needed(
  partition: Layout,
  shape: tuple[int, ...],
  dims: tuple[int, ...],
  tensor_shape: tuple[int, ...],
  whole: bool,
) -> Layout | None:
  """What each cell touches of a tensor, as a mapping of the tensor."""
  walked = [k for k in dims if k >= 0]
  if len(set(walked)) != len(walked):
    return None
  kept = tuple(dims.index(k) for k in range(len(tensor_shape)) if k in walked)
  for k, extent in enumerate(tensor_shape):
    if k in walked:
      if shape[dims.index(k)] != extent:
        return None  # a part of it only
    elif extent != 1 and not whole:
      return None
  found = project(partition, shape, kept)
  if found is None or not whole:
    return found
  still = [k for k in range(len(tensor_shape)) if k not in walked]
  if not still:
    return found
  if still != list(range(len(walked), len(tensor_shape))):
    return None
  extent = math.prod(tensor_shape[k] for k in still)
  factors = (*found.factors, Factor(extent, max(extent, 1), 0))
  return Layout(factors, found.replicas, found.base)


def _count_missing(
  held: Layout,
  partition: Layout,
  shape: tuple[int, ...],
  dims: tuple[int, ...],
  tensor_shape: tuple[int, ...],
) -> int:
  """The same, element by element."""
  for tile in partition.tiles().tolist():
    points = np.unravel_index(partition.owned(tile), shape)
    number = np.zeros(1, np.int64)
    for k, extent in enumerate(tensor_shape):
      at = sum(p for p, to in zip(points, dims, strict=True) if to == k)
      number = number * extent + at
    if not np.isin(number, held.owned(tile)).all():
      return int(tile)
  return -1
