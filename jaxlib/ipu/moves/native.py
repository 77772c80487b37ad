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


@functools.cache
def _functions() -> Any:
  library = ctypes.CDLL(str(LIBRARY))
  library.ipu_moved_elements.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t,
    ctypes.c_void_p,
  ]  # fmt: skip
  library.ipu_moved_elements.restype = ctypes.c_int64
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
  """
  move = _flat(source, destination, shape)
  figures = np.empty((_FIGURES, tiles), np.int64)
  length = _functions().ipu_moved_elements(
    *move.buffer_info(), once, tiles, figures.ctypes.data
  )
  if length < 0:
    raise ValueError(f"no move: {source} to {destination}, shape {shape}")
  return figures, length


def _flat(
  source: MoveEnd, destination: MoveEnd, shape: tuple[int, ...]
) -> array.array[int]:
  flat = array.array("q", (len(shape), *shape))
  for layout, offset, strides in (source, destination):
    flat.extend(layout.flat)
    flat.append(offset)
    flat.extend(strides)
  return flat
