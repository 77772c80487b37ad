"""Kinds of codelets, by where their operands and results travel.

Each kind has its way through the interpreter, `program/interp_<executor>.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jaxlib.ipu.codelets._codelet import Array, Codelet
from jaxlib.ipu.dtypes import DType


class LocalCodelet(Codelet):
  """Vertices find their operands and leave their results on their tiles."""

  executor: ClassVar[str] = "local"
  writes_locally: ClassVar[bool] = True


class ReducingCodelet(Codelet):
  """Vertices make partial results over the first, kept dimensions; what lies
  in one place is combined, and travels to where the results are.

  Attributes:
    needs_boxes: whether a cell has to be a box. Otherwise it may be any run of
      kept and any run of reduced points.
  """

  executor: ClassVar[str] = "reducing"
  needs_boxes: ClassVar[bool] = False

  @abc.abstractmethod
  def num_kept(self, fields: Any, rank: int) -> int:
    """How many dimensions of the iteration space are not reduced."""

  @abc.abstractmethod
  def combine(
    self, fields: Any, left: list[Array], right: list[Array]
  ) -> list[Array]:
    """Merges the partial results of two parts, `left` the earlier one."""

  @abc.abstractmethod
  def initial(
    self,
    fields: Any,
    registers: Sequence[np.dtype[Any]],
    shape: tuple[int, ...],
  ) -> list[Array]:
    """What a reduction of nothing gives, as the results' registers."""

  @abc.abstractmethod
  def partial_bytes(self, fields: Any, dtype: DType) -> int:
    """Bytes of a partial result on its way to a result of type `dtype`."""


class SlicingCodelet(Codelet):
  """The owners of operand 0 serve what the vertices' indices name.

  `vertex` gets all of operand 0 and picks from it.
  """

  executor: ClassVar[str] = "slicing"
  serves: ClassVar[bool] = True


class UpdatingCodelet(Codelet):
  """Updates travel to the owners of result 0 and are applied in order.

  `vertex` gets the numbers of the result's elements after its operands; it
  gives for each update the number of its element, -1 for none, and its value.
  """

  executor: ClassVar[str] = "updating"

  def updates(self, fields: Any) -> bool:
    return True

  def is_unique(self, fields: Any) -> bool:
    """Whether no element is updated twice."""
    return True

  def combines(self, fields: Any) -> bool:
    """Whether an update reads the old element; `combine` is called then."""
    return False

  def combine(self, fields: Any, old: Array, new: Array) -> Array:
    """An old element and an update: registers in, registers out."""
    raise NotImplementedError(f"{type(self).__name__} only overwrites")
