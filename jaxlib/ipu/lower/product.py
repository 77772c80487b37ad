"""Compute sets that may load one operand 128 bits at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target


class Product(NamedTuple):
  """The arguments of `cost.weights` for a compute set, and its operands."""

  step: tuple[Target, Any, Shape, Layout]
  dtypes: list[DType]
  hints: Hints
  operands: list[int]

  def weights(self) -> int | None:
    """The operand that is loaded 128 bits at a time, if one is."""
    number = cost.weights(*self.step, self.dtypes, self.hints)
    return None if number is None else self.operands[number]
