"""Checks of compute sets: accesses, and that operands are on the vertices'
tiles. Each codelet checks its own fields (`codelets/`)."""

from __future__ import annotations

import functools
import math

import numpy as np

from jaxlib.ipu.check import verify_constants
from jaxlib.ipu.check.verify_memory import dense
from jaxlib.ipu.check.verify_state import Verifier
from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.layout import Factor, Layout, overlap, project
from jaxlib.ipu.program import schema

# Maximum size to count element by element: a guess. It only decides whether a
# rare case is checked or left out.
_SMALL = 1 << 16


def check(v: Verifier, step: schema.Execute) -> None:
  """Checks one compute set."""
  shape = tuple(step.shape)
  v.require(all(n >= 0 for n in shape), f"iteration space {shape}")
  partition = v.layout(step.partition)
  size = math.prod(shape)
  v.require(
    partition.num_elements == size,
    f"a partition of {partition.num_elements} over {size} points",
  )
  codelet = CODELETS[type(step.fields)]
  codelet.check(step.fields, step, v)
  for access in (*step.operands, *step.results):
    _access(v, step, access)
  for access in step.operands:
    v.reads(access.tensor)
  verify_constants.check(v, step)
  if size:
    v.require(step.cost.compute_cycles > 0, "vertices that cost nothing")
    _residency(v, step, shape, partition)
  if codelet.updates(step.fields):
    v.reads(step.results[0].tensor)
  for access in step.results:
    written = v.tensor(access.tensor).root
    in_place = codelet.in_place and written == access.tensor
    for source in step.operands:
      if in_place and size == 1:
        continue  # its one element is read before any result is written
      t = v.tensor(source.tensor)
      same_index = (
        source.dims == access.dims
        and t.offset == 0
        and t.strides == dense(t.shape)
      )
      v.keeps_apart(t.root, written, in_place and same_index)
    if codelet.writes_parts and written != access.tensor:
      v.writes_part(access.tensor)
    else:
      v.writes(access.tensor)


# --- Accesses and residency ---------------------------------------------------


def _access(v: Verifier, step: schema.Execute, a: schema.Access) -> None:
  t = v.tensor(a.tensor)
  v.require(
    len(a.dims) == len(step.shape)
    and all(-1 <= k < len(t.shape) for k in a.dims),
    f"accesses tensor {a.tensor} of shape {t.shape} by {a.dims}",
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
  v: Verifier,
  step: schema.Execute,
  shape: tuple[int, ...],
  partition: Layout,
) -> None:
  codelet = CODELETS[type(step.fields)]
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
    if i or not codelet.serves:
      why = "is not whole on tile %d, which reads it"
      check(f"operand {i}", access, codelet.reads_whole, why)
  if codelet.writes_locally:
    for i, access in enumerate(step.results):
      why = "is not where tile %d computes it"
      check(f"result {i}", access, codelet.reads_whole, why)


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
  """The first tile that lacks an element its cell accesses, -1 if none does.

  None if the mappings do not tell and it is too large to count.
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
  """The accesses of each cell to a tensor, as a mapping of the tensor."""
  walked = [k for k in dims if k >= 0]
  if len(set(walked)) != len(walked):
    return None
  kept = tuple(dims.index(k) for k in range(len(tensor_shape)) if k in walked)
  for k, extent in enumerate(tensor_shape):
    if k in walked:
      if shape[dims.index(k)] != extent:
        return None  # only a part of it
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
  """Like `_missing`, element by element."""
  for tile in partition.tiles().tolist():
    points = np.unravel_index(partition.owned(tile), shape)
    number = np.zeros(1, np.int64)
    for k, extent in enumerate(tensor_shape):
      at = sum(p for p, to in zip(points, dims, strict=True) if to == k)
      number = number * extent + at
    if not np.isin(number, held.owned(tile)).all():
      return int(tile)
  return -1
