"""First fit, in the library (runtime/sram/first_fit.h): gives each piece of
memory the lowest address that is free for the piece's whole lifetime."""

from __future__ import annotations

import array
import ctypes
import itertools
from collections.abc import Sequence

from jaxlib.ipu import library
from jaxlib.ipu.tile_passes.lifetimes import Interval

_FIRST_FIT = (
  "ipu_first_fit", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
  ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t,
  ctypes.c_void_p,
)  # fmt: skip


class Lives:
  """The lifetimes of pieces of memory, which are placed several times.

  Attributes:
    lengths: the time from each piece's birth to its death.
  """

  def __init__(self, lives: Sequence[Sequence[Interval]]) -> None:
    """Lifetimes are closed intervals, ascending; at least one each."""
    self.lengths = [live[-1][1] - live[0][0] + 1 for live in lives]
    times = itertools.chain.from_iterable(itertools.chain.from_iterable(lives))
    self._times = array.array("q", times)
    self._intervals = array.array("q", map(len, lives))

  def place(
    self,
    sizes: Sequence[int],
    steps: Sequence[int],
    base: int,
    count: int,
    weights: Sequence[int],
    taken: Sequence[tuple[int, int]] = (),
  ) -> list[int]:
    """Assigns an address to each piece.

    Args:
      sizes: the bytes of each piece.
      steps: the alignment of each piece; a divisor of its size.
      base: the lowest address.
      count: how many pieces are placed in the order of their weights, which
        takes quadratic time; the others are placed in order of birth.
      weights: pieces of higher weight are placed first.
      taken: begin and end of the last pieces, which are already placed.

    Raises:
      MemoryError: the host is out of memory.
    """
    pieces = zip(sizes, steps, weights, strict=True)
    figures = array.array("q", itertools.chain(*pieces, *taken))
    addresses = array.array("q", bytes(8 * len(sizes)))
    if library.function(*_FIRST_FIT)(
      _address(self._times), _address(self._intervals), len(sizes), len(taken),
      _address(figures), base, count, _address(addresses),
    ):  # fmt: skip
      raise MemoryError
    return addresses.tolist()


def _address(numbers: array.array[int]) -> int:
  return numbers.buffer_info()[0]
