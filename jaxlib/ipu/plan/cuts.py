"""Into how many parts dimensions are cut (runtime/plan/cuts.h)."""

from __future__ import annotations

import array
import ctypes
import functools

from jaxlib.ipu import library

_DISTRIBUTE = (
  "ipu_distribute", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def distribute(
  parts: int, extents: tuple[int, ...], num_tiles: int
) -> tuple[int, ...]:
  """Cuts several dimensions into at most `parts` parts with the smallest
  blocks; ties go to the split that cuts outer dimensions. The numbers of parts
  that are tried depend on `num_tiles`, the machine's number of tiles."""
  if len(extents) <= 1 or parts <= 1:
    return tuple(min(parts, max(e, 1)) for e in extents)
  given = array.array("q", (parts, num_tiles, *extents))
  found = array.array("q", bytes(8 * len(extents)))
  status = library.function(*_DISTRIBUTE)(
    *given.buffer_info(), found.buffer_info()[0]
  )
  library.checked(status, lambda: f"{parts} parts of {extents}")
  return tuple(found)
