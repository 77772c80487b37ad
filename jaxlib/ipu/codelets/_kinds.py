"""Kinds of codelets, by where their operands and results travel.

The interpreter has a module for each kind, `check/interp_<executor>.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jaxlib.ipu.codelets._codelet import Array, Codelet
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.dtypes import DType


class LocalCodelet(Codelet):
  """Vertices read their operands and write their results on their tiles."""

  executor: ClassVar[str] = "local"
  writes_locally: ClassVar[bool] = True


class ReducingCodelet(Codelet):
  """Vertices make partial results over the first, parallel dimensions; those of
  one result are combined, and move to the result's tiles.

  Attributes:
    many_partials: numbers of partials of an element from which on they are
      combined in one stage more (plan/combine.py).
    needs_boxes: whether a cell has to be a box. Otherwise it may be any run of
      parallel and any run of reduced points.
  """

  executor: ClassVar[str] = "reducing"
  many_partials: ClassVar[tuple[int, ...]]
  needs_boxes: ClassVar[bool] = False

  def num_kept(self, fields: Any, rank: int) -> int:
    """The number of parallel dimensions of the iteration space: all those that
    are independent are not reduced."""
    return int(fields.num_independent(rank))

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
    """The result of an empty reduction, as the results' registers."""

  @abc.abstractmethod
  def partial_bytes(self, fields: Any, dtype: DType) -> int:
    """Bytes of a partial result of a result of type `dtype`."""


class IndexedCodelet(Codelet):
  """A part of a tensor, operand 0 or result 0, is named by run-time indices:
  the windowed tensor."""

  @abc.abstractmethod
  def along(
    self, fields: Any, shape: Sequence[int], windowed: Sequence[int]
  ) -> tuple[int, ...]:
    """For each dimension of the windowed tensor the dimension of the iteration
    space with the same index, -1 if indices name it at run time."""


class SlicingCodelet(IndexedCodelet):
  """Each tile picks what it has of operand 0.

  The replicas of a cell of the partition, all of which have its indices, hold
  different parts of operand 0. In a second superstep they send what they picked
  to the one of them that owns it in result 0, which knows from the indices
  whose candidate to take. `vertex` gets the numbers of all of operand 0's
  elements and returns which one each point of its cell names.
  """

  executor: ClassVar[str] = "slicing"
  serves: ClassVar[bool] = True


class UpdatingCodelet(IndexedCodelet):
  """Each tile applies, in order, the updates to what it has of result 0.

  The replicas of a cell of the partition, all of which have its updates, hold
  different parts of result 0. Tiles whose cells differ only along dimensions
  that are not the result's (lookups) share a part: each adds up its own updates
  to all of the part, and in a second superstep the owners of its elements
  combine these partial results.

  `vertex` gets the numbers of the result's elements after its operands; it
  returns for each update the number of its element, -1 for none, and its value.
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

  @abc.abstractmethod
  def partial_bytes(self, fields: Any, dtype: DType) -> int:
    """Bytes of a partial result of elements of type `dtype`; 0 if updates of an
    element must not be combined in parts."""

  def cleared_bytes(self, fields: Any, dtype: DType) -> int:
    """Of these, bytes that are cleared before the first update."""
    return 0

  @abc.abstractmethod
  def combining(self, fields: Any, dtype: DType) -> Cycles:
    """A worker's cycles to combine one more partial result of an element."""

  def combine(self, fields: Any, old: Array, new: Array) -> Array:
    """Combines an old element and an update: registers in, registers out."""
    raise NotImplementedError(f"{type(self).__name__} only overwrites")
