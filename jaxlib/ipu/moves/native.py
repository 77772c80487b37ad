"""Calls the geometry of moves in the library (runtime/moves/functions.h).

Moves are passed as flat integers. The functions do not take the GIL, so other
threads compile meanwhile.
"""

from __future__ import annotations

import array
import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.library import LIBRARY
from jaxlib.ipu.moves.affine import MoveEnd

Array = npt.NDArray[np.int64]

# Figures of each tile: received, sent, kept; the lines of the destination and
# of the source (runtime/moves/moved_elements.h).
_FIGURES = 11
_SEGMENT_FIGURES = 8
# What a function returns if there is not enough memory; -1: no such move.
_NO_MEMORY = -2


@functools.cache
def _functions() -> Any:
  library = ctypes.CDLL(str(LIBRARY))
  library.ipu_moved_elements.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t,
    ctypes.c_void_p,
  ]  # fmt: skip
  library.ipu_moved_elements.restype = ctypes.c_int64
  library.ipu_segments.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p
  ]  # fmt: skip
  library.ipu_segments.restype = ctypes.c_int64
  return library


def moved_elements(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  once: bool,
  tiles: int,
) -> tuple[Array, int]:
  """Counts the elements that each tile sends, receives and keeps.

  Args:
    source: the mapping and access of the tensor that is read.
    destination: those of the tensor that is written, each element once.
    shape: the iteration space, without empty dimensions.
    once: whether a tile that needs an element in several places receives it
      only once.
    tiles: the number of tiles.

  Returns:
    An array [11, tiles]: elements received, sent and kept; the fields of
    `Lines` for the destination, then for the source. And the length of these
    lines: 0 if there are none, and then these rows are undefined.

  Raises:
    ValueError: a mapping has empty factors or blocks.
    MemoryError: the host is out of memory.
  """
  move = _flat(source, destination, shape)
  figures = np.empty((_FIGURES, tiles), np.int64)
  length = _functions().ipu_moved_elements(
    *move.buffer_info(), once, tiles, figures.ctypes.data
  )
  _check(length, source, destination, shape)
  return figures, length


def segments(
  one: MoveEnd, other: MoveEnd, shape: tuple[int, ...], item_bytes: int
) -> tuple[array.array[int], array.array[int]]:
  """The fields of `SegmentCounts` of both ends of a move.

  Args:
    one, other: the ends.
    shape: the iteration space.
    item_bytes: bytes per element.

  Raises:
    ValueError, MemoryError: see `moved_elements`.
  """
  move = _flat(one, other, shape)
  figures = array.array("q", bytes(2 * 8 * _SEGMENT_FIGURES))
  status = _functions().ipu_segments(
    *move.buffer_info(), item_bytes, figures.buffer_info()[0]
  )
  _check(status, one, other, shape)
  return figures[:_SEGMENT_FIGURES], figures[_SEGMENT_FIGURES:]


def _check(
  status: int, one: MoveEnd, other: MoveEnd, shape: tuple[int, ...]
) -> None:
  if status == _NO_MEMORY:
    raise MemoryError
  if status < 0:
    raise ValueError(f"no move: {one} to {other}, shape {shape}")


def _flat(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> array.array[int]:
  flat = array.array("q", (len(shape), *shape))
  for layout, offset, strides in (source, destination):
    flat.extend(layout.flat)
    flat.append(offset)
    flat.extend(strides)
  return flat
