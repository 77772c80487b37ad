"""Choices of a lowering that trade cycles for SRAM.

Whether they pay is only known after the whole program is lowered and its SRAM
is planned, so a program may be lowered several times (fitting.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.plan.alternatives import Planned

# Loops of fewer iterations do not gain from another mapping of carried values,
# which costs cycles before and after the loop; and fewer serial steps have less
# code than a loop. [G]
LEAST_TRIPS = 3

# Shares of the SRAM that products otherwise may use. [G]
_SHARES = (3 / 4, 1 / 2, 1 / 4)
# The same for loops over serial steps, which also have copies of operands. [G]
_SHARES_OF_LOOPS = (1.0, 7 / 8, 3 / 4, 1 / 2)
# If there are fewer serial steps, loops hardly save code. [G]
_LEAST_STEPS = 8

# By a loop's id and the index of a carried value.
Carried = dict[tuple[int, int], Layout]


@dataclasses.dataclass(frozen=True)
class Choices:
  """What a lowering may do.

  Attributes:
    hoists: loops may take more SRAM to exchange less: loop-invariant exchanges
      are hoisted, and their copies stay; arrays that are written slice by slice
      need not be distributed evenly.
    keeps: copies made by exchanges stay for later operations.
    boxes: loops may lay out stencils in boxes.
    layouts: arguments and loop state may have the mappings that products want
      (lower/consumer_layouts.py).
    carried: mappings of loop-carried values other than the usual ones.
    wide: the matrix unit may load 128 bits of weights at a time, which then
      have to be in interleaved memory.
    divides: copies may be divided at any cost (tile_passes/assembled.py).
    frugal: steps with run-time indices take as little SRAM as they can, in more
      rounds.
    products: the share of the SRAM that products may otherwise use
      (`Target.bytes_for_products`) that they may use.
    repeats: the serial steps of products, and the exchanges of factorisations,
      are loops, which have less code.
  """

  hoists: bool = True
  keeps: bool = True
  boxes: bool = True
  layouts: bool = True
  carried: Carried = dataclasses.field(default_factory=dict)
  wide: bool = True
  divides: bool = False
  frugal: bool = False
  products: float = 1.0
  repeats: bool = False


@dataclasses.dataclass(slots=True)
class Used:
  """What a lowering did.

  Attributes:
    hoists, keeps, boxes: whether it made use of these choices.
    recurs: whether equal sequences of steps were found, where code had no room
      (tile_passes/outline.py).
    indexes: whether there are steps with run-time indices.
    divisible: whether a copy was not divided because of the cost.
    products: the share of the SRAM for products that the largest one takes.
    steps: the most serial steps of a product's sums.
    shares_rows: whether tiles share the rows of a matrix that is factored.
    carries: whether loops carry state in mappings that products want.
    layouts: the arguments that are not in their default layout, by number.
    unpriced: whether operations whose cycles were not compared read arrays that
      are laid out for products.
    planned: products and their splits, for reports (plan/alternatives.py).
    leaves: mappings in which loop bodies leave carried values, if it costs much
      to move them back.
  """

  hoists: bool = False
  keeps: bool = False
  boxes: bool = False
  recurs: bool = False
  indexes: bool = False
  divisible: bool = False
  products: float = 0.0
  steps: int = 1
  shares_rows: bool = False
  carries: bool = False
  layouts: dict[int, Layout] = dataclasses.field(default_factory=dict)
  unpriced: bool = False
  planned: list[Planned] = dataclasses.field(default_factory=list)
  leaves: Carried = dataclasses.field(default_factory=dict)


def smaller(choices: Choices, used: Used) -> Iterator[Choices]:
  """Choices that take less SRAM than a lowering that did not fit, those with
  most cycles last."""
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
  least = Choices(
    hoists=False, keeps=False, boxes=False, layouts=False, wide=choices.wide
  )
  used_layouts = used.layouts or used.carries or choices.carried
  both = [choices]
  if used.hoists or used.boxes or used_layouts:
    both.append(least)
    yield least
  shares = [share for share in _SHARES if share < used.products]
  loops = _SHARES_OF_LOOPS if used.steps >= _LEAST_STEPS else ()
  for share in sorted({*shares, *loops}, reverse=True):
    for repeats in (False, True):
      if share in (loops if repeats else shares):
        for other in both:
          yield dataclasses.replace(other, products=share, repeats=repeats)
  if used.indexes:
    frugal = dataclasses.replace(
      least, frugal=True, products=min(shares, default=1.0)
    )
    yield dataclasses.replace(frugal, hoists=True)
    yield frugal
