"""The two ends of a move."""

from __future__ import annotations

from typing import NamedTuple

from jaxlib.ipu.layout import Layout


class MoveEnd(NamedTuple):
  """The source or the destination of a move.

  Element (i, j, ...) of the move's iteration space is element
  `offset + i*strides[0] + j*strides[1] + ...` of a tensor with this mapping.
  """

  layout: Layout
  offset: int
  strides: tuple[int, ...]
