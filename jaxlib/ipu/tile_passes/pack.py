"""Packs messages where exchange code has no room.

A tile sets its pointer for each contiguous destination that it receives, and
sends each segment on its own, which takes cycles of nothing but words of code.
Where messages are packed instead, at one end or both, there are fewer of them,
and the tiles copy (moves/messages.py). Which of the two is cheaper depends on
the price of a word of code, in bytes copied in a run: 0 in a program that fits.
In one that has too much code (`TileProgram.code_room`), all exchanges get the
lowest price with which every tile has room for its code; those of loops and
functions, which are copied in each iteration and call, a part of it.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from jaxlib.ipu.layout import Array
from jaxlib.ipu.tile.code import COPIES, CodeCount, Mask
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Step

# Prices to try: a quarter of a power of two apart, up to more bytes than a tile
# has, in the most trips that are worth it. [G]
_PRICES = sorted({0, *(round(2 ** (i / 4)) for i in range(4 * 30))})

# By place in the code: the exchanges there, which are several in a function,
# and how often a run comes to any of them.
_Places = dict[tuple[int, ...], tuple[list[Step], list[int]]]


def run(program: TileProgram) -> None:
  """Packs the messages of a program until every tile has room for its code. If
  packing cannot do that (`TileProgram.packed`), it stays as it is."""
  room = program.code_room
  if room is None:
    return
  places = [(copies, sum(times)) for copies, times in _places(program)]
  program.packed = False
  if not places:
    return
  before = [copies[0].word_price for copies, _ in places]

  def prices(number: int) -> Iterator[int]:
    """The prices at each place, in the order in which they are tried."""
    rung, further = divmod(number, len(places))
    for i, (_, times) in enumerate(places):
      price = _PRICES[rung + (i < further)] // times
      yield max(price, before[i])

  code = _Code(program, [copies[0] for copies, _ in places])

  def has_room(number: int) -> bool:
    return bool((code.at(prices(number)) <= room).all())

  most = (len(_PRICES) - 1) * len(places)
  chosen: Iterable[int] = before
  program.packed = has_room(most)
  if program.packed:
    first = bisect.bisect_left(range(most), True, key=has_room)
    chosen = [*prices(first)]
  for (copies, _), price in zip(places, chosen, strict=True):
    for copy in copies:
      copy.set_word_price(program.target, program.tensors, price)
  _counted(program)  # sets the buffers for these prices


def undo(program: TileProgram) -> None:
  """Undoes all earlier calls of `run`."""
  for copies, _ in _places(program):
    for copy in copies:
      copy.set_word_price(program.target, program.tensors, 0)
  program.packed = False


class _Code:
  """The executable code of a program, by the prices of its exchanges.

  Attributes:
    exchanges: those whose prices vary; of a function's calls those of one.
  """

  def __init__(self, program: TileProgram, exchanges: Sequence[Step]) -> None:
    self.exchanges = exchanges
    self._program = program
    # By what copies of an exchange have in common, and its price.
    self._known: dict[tuple[int, int], tuple[Array, Mask]] = {}
    count = _counted(program)
    self._copying = count.copying
    self._fixed = count.finish().executable - COPIES * self._copying
    for i, step in enumerate(exchanges):
      self._fixed -= self._of(i, step.word_price)[0]

  def at(self, prices: Iterable[int]) -> Array:
    """Bytes on each tile; an upper bound where only messages that are packed
    now make a tile copy."""
    total, copying = self._fixed.copy(), self._copying.copy()
    for i, price in enumerate(prices):
      own, where = self._of(i, price)
      total += own
      copying |= where
    return total + COPIES * copying

  def _of(self, i: int, price: int) -> tuple[Array, Mask]:
    """The code of an exchange's messages, and the tiles that copy for it."""
    step = self.exchanges[i]
    key = id(step.common), price
    found = self._known.get(key)
    if found is None:
      before = step.word_price, step.within
      step.word_price, step.within = price, None
      count = CodeCount(self._program.target, self._program.tensors)
      count.step(step)
      step.word_price, step.within = before
      found = self._known[key] = count.own_code(), count.copying
    return found


def _counted(program: TileProgram) -> CodeCount:
  count = CodeCount(program.target, program.tensors)
  count.steps(program.steps)
  return count


def _places(program: TileProgram) -> Iterable[tuple[list[Step], list[int]]]:
  """The exchanges of a program, those that share code together, each with how
  often a run comes to it."""
  found: _Places = defaultdict(lambda: ([], []))
  _collect(program.steps, 1, (), found)
  return found.values()


def _collect(
  steps: Sequence[Step], times: int, place: tuple[int, ...], found: _Places
) -> None:
  """Adds the exchanges of steps that a run comes to so many times."""
  for number, step in enumerate(steps):
    if step.has_messages:
      copies, each = found[(*place, number)]
      copies.append(step)
      each.append(times)
    for i, region in enumerate(step.regions):
      # Those of a function are in one place for all of its calls.
      callee = step.callee
      inner = (*place, number, i) if callee is None else (-1 - callee,)
      _collect(region, times * (step.trips or 1), inner, found)
