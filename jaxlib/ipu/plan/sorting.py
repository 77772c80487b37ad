"""The cost of the exchanges of a sort, by which tiles merge sorted parts of
rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.codelets.sort import (
  NUMBER_BYTES,
  is_numbered,
  levels,
  merges,
)
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves import messages
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.segments import count_segments
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


def merge(
  target: Target,
  fields: schema.Sort,
  split: Layout,
  to: Layout,
  operand_dtypes: Sequence[DType],
  result_dtypes: Sequence[DType],
) -> cost.Epilogue:
  """The supersteps that merge sorted parts of rows (see codelets/sort.py).

  Args:
    target: the machine.
    fields: the codelet's record.
    split: the mapping of the operands, whose last factor cuts the rows.
    to: the results' mapping.
    operand_dtypes: types of the sorted operands.
    result_dtypes: the same, with one more for the elements' numbers, if any.
  """
  keep = fields.keep
  row_bytes = sum(SIZE[d] for d in result_dtypes)
  numbers = NUMBER_BYTES * is_numbered(fields, len(result_dtypes))
  moved_bytes = sum(SIZE[d] for d in operand_dtypes) + numbers
  row = split.factors[-1]
  length, parts = min(row.block, row.extent), row.parts
  rows = split.max_elements // length
  all_rows = split.num_elements // row.extent
  few = merges(fields, length, parts)
  total = cost.superstep(target)
  # Two tiles that merge exchange one message for each row and each array.
  num_messages = rows * (len(operand_dtypes) + bool(numbers))
  received = exchanges = words = 0
  if parts > 1 and few:
    received = rows * keep * moved_bytes
    for pairs in _meetings(parts):
      exchanges += 1
      words += messages.row_words(num_messages, num_messages)
      total = cost.add(
        total,
        cost.superstep(
          target,
          bytes_in=received,
          bytes_out=received,
          total_bytes=all_rows * pairs * keep * moved_bytes,
        ),
      )
  elif parts > 1:
    # Of each two elements that are compared, one goes to the other tile, and
    # one of another two comes from there.
    received = rows * -(-length // 2) * moved_bytes
    rounds = int(levels(parts))
    step = cost.superstep(
      target,
      bytes_in=received,
      bytes_out=received,
      total_bytes=split.num_elements // 2 * moved_bytes,
    )
    for _ in range(rounds * (rounds + 1)):
      exchanges += 1
      words += messages.row_words(num_messages, num_messages)
      total = cost.add(total, step)
  if to != split or (parts > 1 and few):
    kept = rows * (keep if few else min(keep, length))
    exchanges += 1
    words += _leaving(split, to) * len(result_dtypes)
    total = cost.add(
      total,
      cost.superstep(
        target,
        bytes_in=to.max_elements * row_bytes,
        bytes_out=kept * row_bytes,
        total_bytes=to.num_elements * row_bytes,
      ),
    )
  own = split.elements(np.arange(split.last_tile + 1)) * numbers
  return cost.Epilogue(total, own + received, exchanges, words)


def _leaving(split: Layout, to: Layout) -> int:
  """A tile's words of exchange code that moves sorted rows to their owners."""
  ends = MoveEnd(split, 0, (1,)), MoveEnd(to, 0, (1,))
  shape = (to.num_elements,)
  sends, receives = count_segments(*ends, shape, messages.WORD)
  return messages.row_words(sends.segments, receives.segments)


def _meetings(parts: int) -> list[int]:
  """For each round, the number of pairs of tiles that merge; after the last
  one, a single tile has everything."""
  pairs = []
  while parts > 1:
    pairs.append(parts // 2)
    parts -= parts // 2
  return pairs
