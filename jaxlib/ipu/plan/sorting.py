"""Costs of a sort's exchanges, which merge sorted parts of rows."""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.codelets.sort import levels, merges
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.target import Target


def merge(
  target: Target,
  split: Layout,
  to: Layout,
  moved_bytes: int,
  row_bytes: int,
  keep: int,
) -> cost.Handed:
  """Brings sorted parts of rows together (see codelets/sort.py).

  Args:
    target: the machine.
    split: where the parts of rows are, the last factor's.
    to: where the results end.
    moved_bytes: of what is sorted at one place of a row.
    row_bytes: of the results there.
    keep: elements of a row that are kept.
  """
  row = split.factors[-1]
  length, parts = min(row.block, row.extent), row.parts
  rows = split.max_elements // length
  all_rows = split.num_elements // row.extent
  few = merges(keep, length, parts)
  total = cost.superstep(target)
  received = 0
  if parts > 1 and few:
    received = rows * keep * moved_bytes
    for pairs in _meetings(parts):
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
    # Of each pair of elements one goes to the other's tile, and one comes back.
    received = rows * -(-length // 2) * moved_bytes
    rounds = int(levels(parts))
    step = cost.superstep(
      target,
      bytes_in=received,
      bytes_out=received,
      total_bytes=split.num_elements // 2 * moved_bytes,
    )
    for _ in range(rounds * (rounds + 1)):
      total = cost.add(total, step)
  if to != split or (parts > 1 and few):
    kept = rows * keep if few else split.max_elements
    total = cost.add(
      total,
      cost.superstep(
        target,
        bytes_in=to.max_elements * row_bytes,
        bytes_out=kept * row_bytes,
        total_bytes=to.num_elements * row_bytes,
      ),
    )
  own = split.elements(np.arange(split.last_tile + 1))
  return cost.Handed(total, own * (moved_bytes - row_bytes) + received)


def _meetings(parts: int) -> list[int]:
  """How many pairs of tiles merge in each round until one has all."""
  pairs = []
  while parts > 1:
    pairs.append(parts // 2)
    parts -= parts // 2
  return pairs
