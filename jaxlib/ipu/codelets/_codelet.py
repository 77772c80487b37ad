"""What every codelet's Python half offers: its costs, its definition, what is
right for its fields."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

Array = npt.NDArray[Any]
Extents = Sequence[Any]  # ints, or arrays of equal shape


@dataclasses.dataclass(frozen=True)
class Cell:
  """The part of an iteration space that one tile computes.

  Attributes:
    shape: the extents of the whole iteration space.
    coordinates: one array per dimension. They broadcast against each other;
      element p of the broadcast is one point of the cell. In a box, array d
      varies along axis d alone (as `np.ix_` makes them). A cell that is no
      box, a run of row-major indices, lists its points along one axis.
  """

  shape: tuple[int, ...]
  coordinates: tuple[Array, ...]

  @functools.cached_property
  def extents(self) -> tuple[int, ...]:
    """The shape of what the cell computes."""
    return np.broadcast_shapes(*(c.shape for c in self.coordinates))

  @property
  def is_box(self) -> bool:
    """Whether the coordinates are those of a box."""
    return len(self.extents) == len(self.shape)

  def require_box(self, what: str) -> None:
    """Raises ValueError, in the name of `what`, unless it is a box."""
    if not self.is_box:
      raise ValueError(
        f"{what} needs cells that are boxes of its iteration space "
        f"{self.shape}; this partition's blocks straddle dimensions"
      )

  @staticmethod
  def whole(shape: Sequence[int]) -> Cell:
    """The cell of a tile that computes everything."""
    return Cell(tuple(shape), tuple(np.ix_(*(np.arange(n) for n in shape))))


class Codelet(abc.ABC):
  """The Python half of a codelet; its kernel is the other half.

  `cycles` costs a compute set, `vertex` defines what one tile computes,
  `check` what the verifier accepts. An instance has no state. Most codelets
  are of a kind of `_kinds.py`.

  Attributes:
    record: its fields.
    executor: how the interpreter runs its compute sets: the module
      `program/interp_<executor>.py`.
    in_place: whether a result may take the memory of an operand that is read
      at the same indices.
    writes_parts: whether a result may be a view of a root, none of whose
      elements it has twice.
    writes_locally: whether results lie where they are computed.
    serves: whether operand 0 stays with its owners, who send what is asked.
    reads_whole: whether a vertex reads, and if it writes locally writes, all
      of the dimensions that the iteration space does not walk; otherwise index
      0 of them.
    has_weights: whether `weights` may say that an operand is.
    reads_apart: whether vertices take elements that lie apart no slower, or
      `cycles` says how much.
    one_order: whether vertices go through all operands and results side by
      side, a vector at a time.
  """

  record: ClassVar[type]
  executor: ClassVar[str]
  in_place: ClassVar[bool] = False
  writes_parts: ClassVar[bool] = False
  writes_locally: ClassVar[bool] = False
  serves: ClassVar[bool] = False
  reads_whole: ClassVar[bool] = False
  has_weights: ClassVar[bool] = False
  reads_apart: ClassVar[bool] = False
  one_order: ClassVar[bool] = False

  @abc.abstractmethod
  def cycles(
    self,
    target: Target,
    fields: Any,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> Cycles:
    """Cycles of the tile with the largest cell, launch included, and what they
    rest on.

    Args:
      cell: the cell's extent along each dimension of the iteration space;
        arrays to cost many candidates at once.
      **extra: what a codelet's own docstring names.

    Raises:
      CompileError: no cost is known for an instruction and a type.
    """

  def weights(
    self,
    target: Target,
    fields: Any,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> int | None:
    """The operand whose elements the matrix unit loads 128 bits at a time, as
    `cycles` charges it where the target's loads are so wide; None if there is
    none. It takes interleaved memory."""
    return None

  @abc.abstractmethod
  def vertex(
    self, fields: Any, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """What one tile computes from its private copies of the operands.

    Each operand comes with the axes of `cell.extents`, size 1 where it stands
    still; axes that no iteration dimension walks come last. Gives register
    values, before they are stored as the results' element types.
    """

  @abc.abstractmethod
  def check(self, fields: Any, step: schema.Execute, v: Checker) -> None:
    """Requires of `v` what must hold of the fields, their operands and
    results. Accesses and costs are checked for all codelets alike."""

  @abc.abstractmethod
  def example(self) -> tuple[Any, int]:
    """Some fields, of f32 operands, and the rank of their iteration space: for
    the tests that every codelet has to pass."""

  def updates(self, fields: Any) -> bool:
    """Whether a compute set reads what its result holds, and may keep some."""
    return False

  def flops(self, fields: Any, shape: Sequence[int]) -> float:
    """Arithmetic operations on the whole iteration space."""
    return 0.0

  def state_bytes(self, n_operands: int) -> int:
    """Estimated bytes of a vertex: four per pointer and some scalars [G]."""
    return 16 + 4 * n_operands

  def code_bytes(self, fields: Any) -> int:
    """Estimated bytes of its code, which is there once per tile: a typical
    size of PopLibs' assembly codelets [G]."""
    del fields
    return self._CODE

  _CODE: ClassVar[int] = 512


def volume(extents: Extents) -> Any:
  """The product of extents, as float so that arrays cannot overflow."""
  result: Any = 1.0
  for extent in extents:
    result = result * extent
  return result


def broadcast(
  shape: Sequence[int], accesses: Iterable[Sequence[int]]
) -> tuple[tuple[bool, ...], ...]:
  """How operands are read that are broadcast along some dimensions, not all:
  for each dimension of the iteration space whether they move on.

  Args:
    shape: the iteration space.
    accesses: for each of an operand's dimensions of the iteration space its
      own, or -1 where it is broadcast.
  """
  found = []
  for dims in accesses:
    if -1 not in dims:
      continue
    moves = tuple(d >= 0 for d in dims)
    still = any(n > 1 and not m for n, m in zip(shape, moves, strict=True))
    if still and any(moves):
      found.append(moves)
  return tuple(found)
