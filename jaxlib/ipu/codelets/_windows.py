"""Windows of a tensor named by indices: shared by the codelets with run-time
indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import Array, Cell
from jaxlib.ipu.program import schema


def clamp_start(start: Array, limit: int) -> Array:
  """Start indices clamped to [0, limit], as int64, from any integer type."""
  kind = start.dtype.type
  info = np.iinfo(start.dtype)
  low = kind(0)
  high = kind(min(max(limit, 0), info.max))
  return np.clip(start, low, high).astype(np.int64)


def in_range(start: Array, limit: int) -> Array:
  """Which start indices are in [0, limit]; exact for any integer type."""
  info = np.iinfo(start.dtype)
  below = (
    start > start.dtype.type(limit) if limit <= info.max else start != start
  )
  return (start >= 0) & ~below


def starts(
  indices: Array, rank: int, start_index_map: Sequence[int]
) -> list[Array | None]:
  """The start index for each of a tensor's `rank` dimensions, or None.

  Args:
    indices: on the axes of the iteration space, the components last.
  """
  found: list[Array | None] = [None] * rank
  for component, d in enumerate(start_index_map):
    found[d] = indices[..., component]
  return found


def positions(
  f: schema.Gather | schema.Scatter, start: Sequence[Array | None], cell: Cell
) -> list[Any]:
  """For each dimension of the windowed tensor, the index of each point of the
  cell: the window's start, its batch, and the step inside the window."""
  found: list[Any] = []
  for d, s in enumerate(start):
    at: Any = 0 if s is None else s
    if f.batch_dims[d] >= 0:
      at = at + cell.coordinates[f.batch_dims[d]]
    if f.window_dims[d] >= 0:
      at = at + cell.coordinates[f.num_batch_dims + f.window_dims[d]]
    found.append(at)
  return found


def moved(
  dynamic_dims: Sequence[int],
  start: Sequence[Array],
  cell: Cell,
  shape: Sequence[int],
) -> tuple[Array, ...]:
  """The indices of a slice's points in a tensor of `shape`; starts are clamped
  so that the whole slice is inside."""
  at = list(cell.coordinates)
  for d, s in zip(dynamic_dims, start, strict=True):
    at[d] = at[d] + clamp_start(s, shape[d] - cell.shape[d])
  return tuple(np.broadcast_arrays(*at)) if at else ()


def along(
  f: schema.Gather | schema.Scatter,
  shape: Sequence[int],
  windowed: Sequence[int],
) -> tuple[int, ...]:
  """For each dimension of a windowed tensor the dimension of the iteration
  space that always has the same index; -1 if indices name it."""
  found = []
  for d, extent in enumerate(windowed):
    to = f.batch_dims[d]
    if to < 0 and f.window_dims[d] >= 0:
      to = f.num_batch_dims + f.window_dims[d]
    found.append(to if to >= 0 and shape[to] == extent else -1)
  return tuple(found)


def along_dynamic(
  shape: Sequence[int], windowed: Sequence[int]
) -> tuple[int, ...]:
  """Like `along`, for a slice that moves where its tensor is larger."""
  return tuple(
    d if n == m else -1
    for d, (n, m) in enumerate(zip(shape, windowed, strict=True))
  )


def check(
  v: Checker,
  step: schema.Execute,
  f: schema.Gather | schema.Scatter,
  windowed: schema.Access,
  indices: schema.Access,
  sizes: Sequence[int],
) -> None:
  """Checks that the maps of a gather or a scatter fit its tensors."""
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
      f"dimension {d} of the window is {sizes[d]}, its extent is {extent}",
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


def check_dynamic(
  v: Checker,
  step: schema.Execute,
  dynamic_dims: Sequence[int],
  windowed: schema.Access,
) -> None:
  """Checks that a slice that moves along `dynamic_dims` fits its tensor."""
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
