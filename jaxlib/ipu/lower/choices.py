"""What a lowering may do to save cycles at the price of SRAM, or the reverse.

Whether it pays shows only when the whole program is lowered and its SRAM is
planned. So a program may be lowered several times (pipeline.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from jaxlib.ipu.plan.layout import Layout

# Loops of fewer iterations do not gain from another mapping of what they carry,
# which costs something before and after the loop. [G]
LEAST_TRIPS = 3

# By a loop's id and the number of a value that it carries.
Carried = dict[tuple[int, int], Layout]


@dataclasses.dataclass(frozen=True)
class Choices:
  """What a lowering may do.

  Attributes:
    hoists: loops may take more SRAM to exchange less: loop-invariant exchanges
      are made before the loop, and their copies stay; arrays that are written
      slice by slice need not be spread evenly.
    keeps: copies that exchanges have made stay for later operations.
    boxes: loops may lay out stencils in boxes.
    carried: other mappings than the usual of values that loops carry.
    wide: the matrix unit may load 128 bits of weights at a time, which then
      have to be in interleaved memory.
    divides: copies may be made in several, whatever it costs
      (lower/assembled.py).
    frugal: steps whose places are known at run time take as little SRAM as
      they can, in more rounds.
  """

  hoists: bool = True
  keeps: bool = True
  boxes: bool = True
  carried: Carried = dataclasses.field(default_factory=dict)
  wide: bool = True
  divides: bool = False
  frugal: bool = False


@dataclasses.dataclass(slots=True)
class Used:
  """What a lowering did.

  Attributes:
    hoists, keeps, boxes: whether it did what it might.
    indexes: whether there are steps whose places are known at run time.
    divisible: whether a copy was not made in several, for it costs too much.
    leaves: where bodies of loops leave what they carry, if it costs much to
      move it back to where an iteration finds it.
  """

  hoists: bool = False
  keeps: bool = False
  boxes: bool = False
  indexes: bool = False
  divisible: bool = False
  leaves: Carried = dataclasses.field(default_factory=dict)


def smaller(choices: Choices, used: Used) -> Iterator[Choices]:
  """What takes less SRAM than a lowering that did not fit, the most cycles
  last."""
  if used.divisible:
    yield dataclasses.replace(choices, divides=True)
  for other in _smaller(choices, used):
    yield other
    if used.divisible:
      yield dataclasses.replace(other, divides=True)


def _smaller(choices: Choices, used: Used) -> Iterator[Choices]:
  if used.keeps:
    choices = dataclasses.replace(choices, keeps=False)
    yield choices
  least = Choices(hoists=False, keeps=False, boxes=False, wide=choices.wide)
  if used.hoists or used.boxes or choices.carried:
    yield least
  if used.indexes:
    frugal = dataclasses.replace(least, frugal=True)
    yield dataclasses.replace(frugal, hoists=True)
    yield frugal
