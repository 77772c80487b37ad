"""Calls the geometry of moves in the library (runtime/moves/functions.h).

Moves are passed as flat integers. The functions do not take the GIL, so other
threads compile meanwhile.
"""

from __future__ import annotations

import array
import ctypes

import numpy as np
import numpy.typing as npt

from jaxlib.ipu import library
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.affine import MoveEnd

Array = npt.NDArray[np.int64]

# The fields of FullestEnds and of SegmentCounts in C++.
_END_FIGURES, _SEGMENT_FIGURES = 13, 8
_ELEMENTS = (
  "ipu_elements", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
  ctypes.c_void_p,
)  # fmt: skip
_MOVED_BYTES = (
  "ipu_moved_bytes", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
  ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_SEGMENTS = (
  "ipu_segments", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
  ctypes.c_void_p,
)  # fmt: skip
_CONTIGUOUS_DESTINATIONS = (
  "ipu_contiguous_destinations", ctypes.c_void_p, ctypes.c_size_t,
  ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
)  # fmt: skip


def elements(layout: Layout, tiles: int) -> Array:
  """How many elements of a mapping that is not empty each tile holds.

  Raises:
    ValueError, MemoryError: see `moved_bytes`.
  """
  mapping = array.array("q", layout.flat)
  found = np.empty(tiles, np.int64)
  status = library.function(*_ELEMENTS)(
    *mapping.buffer_info(), tiles, found.ctypes.data
  )
  library.checked(status, lambda: f"no mapping: {layout}")
  return found


def moved_bytes(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  item_bytes: int,
  once: bool,
  tiles: int,
) -> tuple[Array, list[int]]:
  """Counts the bytes that each tile receives, sends and keeps.

  Args:
    source: the mapping and access of the tensor that is read.
    destination: those of the tensor that is written, each element once.
    shape: the iteration space, without empty dimensions.
    item_bytes: bytes per element.
    once: whether a tile that needs an element in several places receives it
      only once.
    tiles: the number of tiles.

  Returns:
    An array [3, tiles]: bytes received, sent and kept. And the fields of
    `FullestEnds` (runtime/moves/fullest_ends.h).

  Raises:
    ValueError: a mapping has empty factors or blocks.
    MemoryError: the host is out of memory.
  """
  move = _flat(source, destination, shape)
  figures = np.empty((3, tiles), np.int64)
  ends = array.array("q", bytes(8 * _END_FIGURES))
  status = library.function(*_MOVED_BYTES)(
    *move.buffer_info(), once, item_bytes, tiles, figures.ctypes.data,
    ends.buffer_info()[0],
  )  # fmt: skip
  _checked(status, source, destination, shape)
  return figures, ends.tolist()


def segments(
  one: MoveEnd, other: MoveEnd, shape: tuple[int, ...], item_bytes: int
) -> tuple[array.array[int], array.array[int]]:
  """The fields of `SegmentCounts` of both ends of a move.

  Args:
    one, other: the ends.
    shape: the iteration space.
    item_bytes: bytes per element.

  Raises:
    ValueError, MemoryError: see `moved_bytes`.
  """
  move = _flat(one, other, shape)
  figures = array.array("q", bytes(2 * 8 * _SEGMENT_FIGURES))
  status = library.function(*_SEGMENTS)(
    *move.buffer_info(), item_bytes, figures.buffer_info()[0]
  )
  _checked(status, one, other, shape)
  return figures[:_SEGMENT_FIGURES], figures[_SEGMENT_FIGURES:]


def contiguous_destinations(
  near: MoveEnd, far: MoveEnd, shape: tuple[int, ...], elements: int, grain: int
) -> tuple[int, bool]:
  """The maximum number of intervals of a tile at the end `near` whose elements
  are on one tile at the end `far`; and whether they begin and end at words,
  provided that the tile's contiguous blocks do.

  Args:
    near: the receivers' end, for contiguous destinations; the senders' end to
      count the intervals that go to one peer.
    far: the end of their peers.
    shape: the iteration space.
    elements: number of elements on the fullest tile, or an upper bound.
    grain: elements in a word.

  Raises:
    ValueError, MemoryError: see `moved_bytes`.
  """
  move = _flat(near, far, shape)
  figures = array.array("q", bytes(2 * 8))
  status = library.function(*_CONTIGUOUS_DESTINATIONS)(
    *move.buffer_info(), elements, grain, figures.buffer_info()[0]
  )
  _checked(status, near, far, shape)
  count, even = figures
  return count, bool(even)


def _checked(
  status: int, one: MoveEnd, other: MoveEnd, shape: tuple[int, ...]
) -> None:
  library.checked(status, lambda: f"no move: {one} to {other}, shape {shape}")


def _flat(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> array.array[int]:
  flat = array.array("q", (len(shape), *shape))
  for layout, offset, strides in (source, destination):
    flat.extend(layout.flat)
    flat.append(offset)
    flat.extend(strides)
  return flat
