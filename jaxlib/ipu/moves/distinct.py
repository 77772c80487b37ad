"""Whether a view has elements more than once, and how many distinct ones each
tile holds of it."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from jaxlib.ipu.layout import Array, Layout, refine, sizes_of_parts


@functools.lru_cache(maxsize=4096)
def overlapping(
  shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
  """Groups of dimensions of a view whose strides do not nest, so that different
  indices may lead to the same element: overlapping windows. Along dimensions of
  different groups, or of no group, different indices always lead to different
  elements."""
  order = sorted(
    (d for d, n in enumerate(shape) if n > 1 and strides[d]),
    key=lambda d: abs(strides[d]),
  )
  groups: list[list[int]] = []
  reach = 0
  for d in order:
    if abs(strides[d]) > reach:
      groups.append([d])
    else:
      groups[-1].append(d)
    reach += (shape[d] - 1) * abs(strides[d])
  return tuple(tuple(g) for g in groups if len(g) > 1)


@functools.lru_cache(maxsize=4096)
def repeats(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
  """Whether different indices of a view may lead to the same element."""
  broadcast = any(n > 1 and not s for n, s in zip(shape, strides, strict=True))
  return broadcast or bool(overlapping(shape, strides))


@functools.lru_cache(maxsize=4096)
def distinct(
  layout: Layout,
  shape: tuple[int, ...],
  strides: tuple[int, ...],
  num_tiles: int,
) -> Array:
  """The number of different root elements that each tile holds of a view.

  A tile that holds overlapping windows stores the elements that they cover
  once, and vertices access them by the view's strides. The count is exact for
  groups of two dimensions of which a tile holds consecutive indices. For other
  groups, and where blocks straddle the view's dimensions, it counts every
  index, which is an upper bound.
  """
  tiles = np.arange(num_tiles)
  groups = overlapping(shape, strides)
  refined = refine(layout.factors, shape) if groups else None
  if refined is None:
    return layout.elements(tiles)
  flat = tuple(f for factors in refined for f in factors)
  parts, active = dataclasses.replace(layout, factors=flat).coordinates(tiles)
  part = iter(parts)
  sizes = []
  runs = []  # whether a tile's indices are consecutive
  for factors in refined:
    size = np.ones(num_tiles, np.int64)
    for f in factors:
      size *= sizes_of_parts(f, next(part))
    sizes.append(size)
    inner = [f.parts > 1 for f in factors[1:]]
    runs.append(not any(inner))
  count = active.astype(np.int64)
  for d, size in enumerate(sizes):
    if not any(d in g for g in groups):
      count *= size
  for group in groups:
    if len(group) == 2 and runs[group[0]] and runs[group[1]]:
      i, j = group
      unit = math.gcd(strides[i], strides[j])
      a, b = abs(strides[i]) // unit, abs(strides[j]) // unit
      # i * a + j * b equals (i - b) * a + (j + a) * b: count it only where
      # there is no such index.
      again = np.maximum(sizes[i] - b, 0) * np.maximum(sizes[j] - a, 0)
      count *= sizes[i] * sizes[j] - again
    else:
      count *= functools.reduce(np.multiply, [sizes[d] for d in group])
  return count
