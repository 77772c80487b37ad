"""Ranks the splits of a product by lower bounds of their cycles, in the library
(runtime/plan/product_splits.h)."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxlib.ipu import library
from jaxlib.ipu.codelets.dot import CODELET, DotHints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.plan.combine import PRODUCTS
from jaxlib.ipu.plan.partials import adding_bound
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

_PRODUCT_SPLITS = (
  "ipu_product_splits", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
  ctypes.c_size_t,
)  # fmt: skip
_FIGURES = 7  # of a split
# Splits that are asked for at first. Of 235 plans of the benchmarks' and of
# drawn programs, 227 price three or fewer, as measured.
_FEW = 8


class Split(NamedTuple):
  """A candidate.

  Attributes:
    parts: blocks along (b, m, n, k).
    number: its number among all candidates.
    cycles: a lower bound of the cycles of its operands' exchange, vertices and
      partials.
    bytes: of the fullest tile.
  """

  parts: tuple[int, int, int, int]
  number: int
  cycles: float
  bytes: float


class Candidates:
  """The candidates of a product.

  Attributes:
    room: bytes of a tile that they may take.
  """

  def __init__(
    self,
    target: Target,
    space: Sequence[int],
    grains: Sequence[int],
    fields: schema.Dot,
    operand_dtypes: Sequence[DType],
    hints: DotHints,
    sizes: Sequence[float],
    charged: Sequence[float],
    further: float,
    room: float,
  ) -> None:
    """Makes the question.

    Args:
      target: the machine.
      space: the extents (b, m, n, k).
      grains: multiples of which the blocks of m, n and k are.
      fields: the codelet's record.
      operand_dtypes: the types of the operands.
      hints: of a tile that has all terms of its sums.
      sizes: the bytes of an element of either operand, of a partial sum, and of
        a cast result, 0 if there is none.
      charged: the bytes of an element of either operand that its exchange is
        charged for.
      further: further bytes of a tile.
      room: bytes of a tile that all of these may take.
    """
    self.room = room
    dtype = DType(fields.accumulate_dtype)
    self._product = array.array(
      "d",
      (
        target.num_tiles, *space, *grains, *sizes, fields.adds, further, room,
        *charged, target.tiles_per_bus, target.exchange_bytes_per_cycle,
        target.route_cycles, target.sync_cycles,
        *CODELET.bound(target, fields, operand_dtypes, hints),
        *adding_bound(target, dtype), *PRODUCTS,
      ),
    )  # fmt: skip

  def _ranked(self, size: int) -> tuple[array.array[float], int]:
    """The figures of the first `size` candidates, and the number of all."""
    figures = array.array("d", bytes(8 * _FIGURES * size))
    count = library.function(*_PRODUCT_SPLITS)(
      *self._product.buffer_info(), figures.buffer_info()[0], size
    )
    library.checked(count, lambda: f"no product: {self._product}")
    return figures, count

  def first(self, size: int) -> tuple[list[Split], int]:
    """The first `size` candidates, and the number of all: first those that fit,
    by their cycles, then the others, by their bytes."""
    figures, count = self._ranked(size)
    return [_split(figures, i) for i in range(min(count, size))], count

  def __iter__(self) -> Iterator[Split]:
    """All candidates, in the order of `first`."""
    figures, count = self._ranked(_FEW)
    for i in range(min(count, _FEW)):
      yield _split(figures, i)
    if count > _FEW:
      figures, _ = self._ranked(count)
      for i in range(_FEW, count):
        yield _split(figures, i)


def _split(figures: array.array[float], number: int) -> Split:
  at = number * _FIGURES
  b, m, n, k, place, cycles, size = figures[at : at + _FIGURES]
  return Split((int(b), int(m), int(n), int(k)), int(place), cycles, size)
