"""The base class of codelets' Python halves: costs, definition, and checks of
fields."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
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
      varies along axis d only (as from `np.ix_`). A cell that is no box, a run
      of row-major indices, lists its points along one axis.
  """

  shape: tuple[int, ...]
  coordinates: tuple[Array, ...]

  @functools.cached_property
  def extents(self) -> tuple[int, ...]:
    """The shape of the points that the cell computes."""
    return np.broadcast_shapes(*(c.shape for c in self.coordinates))

  @property
  def is_box(self) -> bool:
    """Whether the coordinates are those of a box."""
    return len(self.extents) == len(self.shape)

  def require_box(self, what: str) -> None:
    """Raises ValueError, naming `what`, unless it is a box."""
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
  `check` what the verifier accepts. Instances have no state. Most codelets
  are of one of the kinds in `_kinds.py`.

  Attributes:
    record: its fields.
    hints: the type of its hints.
    executor: the module of the interpreter that runs its compute sets,
      `check/interp_<executor>.py`.
    in_place: whether a result may take the memory of an operand that is read
      at the same indices.
    writes_parts: whether a result may be a view of a root, without repeated
      elements.
    writes_locally: whether results are on the tiles that compute them.
    serves: whether operand 0 stays with its owners, who send what is requested.
    reads_whole: whether a vertex reads, and if it writes locally writes, all
      of the dimensions that are not in the iteration space; otherwise index 0
      of them.
    has_weights: whether `weights` may return an operand.
    reads_apart: whether vertices read non-contiguous elements no slower, or
      `cycles` accounts for it.
    one_order: whether vertices access all operands and results together, a
      vector at a time.
  """

  record: ClassVar[type]
  hints: ClassVar[type[Hints]] = Hints
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
    hints: Any = NO_HINTS,
  ) -> Cycles:
    """Cycles of the tile with the largest cell, launch included, with their
    sources.

    Args:
      cell: the cell's extent along each dimension of the iteration space;
        arrays to cost many candidates at once, but not of a product.
      hints: of the type `Codelet.hints`.

    Raises:
      CompileError: no cost is known for an instruction and a type.
    """

  def weights(
    self,
    target: Target,
    fields: Any,
    operand_dtypes: Sequence[DType],
    cell: Extents,
    hints: Any = NO_HINTS,
  ) -> int | None:
    """The operand whose elements the matrix unit loads 128 bits at a time, as
    charged by `cycles` for targets with such loads; None if there is none. It
    has to be in interleaved memory."""
    return None

  @abc.abstractmethod
  def vertex(
    self, fields: Any, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """What one tile computes from its private copies of the operands.

    Each operand comes with the axes of `cell.extents`, of size 1 where it is
    broadcast; axes that are not in the iteration space come last. Returns
    register values, before they are stored as the results' element types.
    """

  @abc.abstractmethod
  def check(self, fields: Any, step: schema.Execute, v: Checker) -> None:
    """Checks the fields, their operands and results with `v`. Accesses and
    costs are checked for all codelets alike."""

  @abc.abstractmethod
  def example(self) -> tuple[Any, int]:
    """Fields for f32 operands, and the rank of their iteration space: for the
    tests that every codelet has to pass."""

  def updates(self, fields: Any) -> bool:
    """Whether a compute set reads the old values of its result."""
    return False

  def described(self, fields: Any, shape: Sequence[int]) -> dict[int, Array]:
    """The elements that operands have according to the fields, up to rounding:
    by the operand's number, over the iteration space or broadcast along it."""
    return {}

  def flops(self, fields: Any, shape: Sequence[int]) -> float:
    """Arithmetic operations on the whole iteration space."""
    return 0.0

  def state_bytes(self, n_operands: int) -> int:
    """Estimated bytes of a vertex: four per pointer and some scalars [G]."""
    return 16 + 4 * n_operands

  def code_bytes(self, fields: Any) -> int:
    """Estimated bytes of its code, which each tile has once: a typical size of
    PopLibs' assembly codelets [G]."""
    del fields
    return self._CODE

  _CODE: ClassVar[int] = 512


def volume(extents: Extents) -> Any:
  """The product of extents, as float so that arrays cannot overflow."""
  result: Any = 1.0
  for extent in extents:
    result = result * extent
  return result
