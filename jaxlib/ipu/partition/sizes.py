"""The sizes of arrays in MLIR."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir import ir


def bytes_of(type_: Any) -> int:
  """The bytes of an array, of which an element has at least one; 0 for what is
  no array."""
  if not isinstance(type_, ir.RankedTensorType):
    return 0
  element: Any = type_.element_type
  parts = 1
  if isinstance(element, ir.ComplexType):
    parts, element = 2, element.element_type
  return math.prod(type_.shape) * parts * max(int(element.width) // 8, 1)
