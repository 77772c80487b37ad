"""Costs of a sort's exchanges, which merge sorted parts of rows."""

from __future__ import annotations

from jaxlib.ipu.codelets.sort import levels, merges
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.target import Target


def merge(
  target: Target,
  split: Layout,
  to: Layout,
  row_bytes: int,
  keep: int,
  parts: int,
) -> cost.Handed:
  """Brings sorted parts of rows together (see codelets/sort.py).

  A step that pairs elements of different tiles sends half of them to the
  other; a merge of the few that are kept sends these.

  Args:
    target: the machine.
    split: where the parts of rows are.
    to: where the results end.
    row_bytes: bytes of all operands' elements at one place of a row.
    keep: elements of a row that are kept.
    parts: tiles that share a row.
  """
  length = min(split.factors[-1].block, split.factors[-1].extent)
  rounds = int(levels(parts))
  total = cost.superstep(target)
  if parts > 1:
    if merges(keep, length, parts):
      count, elements = rounds, split.max_elements // length * keep
      total_elements = split.num_elements // split.factors[-1].extent * keep
      total_elements *= parts // 2
    else:
      count = rounds * (rounds + 1) // 2
      elements = (split.max_elements + 1) // 2
      total_elements = split.num_elements // 2
    step = cost.superstep(
      target,
      bytes_in=elements * row_bytes,
      bytes_out=elements * row_bytes,
      total_bytes=total_elements * row_bytes,
    )
    for _ in range(count):
      total = cost.add(total, step)
  if parts > 1 or to != split:
    total = cost.add(total, _deliver(target, to, row_bytes))
  return cost.Handed(total)


def _deliver(target: Target, layout: Layout, item: int) -> cost.Sourced:
  """Brings what is sorted to the tiles of `layout`; `item` bytes each."""
  per_tile = layout.max_elements * item
  return cost.superstep(
    target,
    bytes_in=per_tile,
    bytes_out=per_tile,
    total_bytes=layout.num_elements * item,
  )
