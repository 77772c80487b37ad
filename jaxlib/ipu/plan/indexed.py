"""Costs of moving slices whose place is only known at run time.

The owners of an indexed tensor cannot be scheduled to the tiles that want
the slices before the indices are known, so each slice goes through a second
superstep. The bound charged is that of a balanced all-to-all: every tile
receives what it wants, and sends as much as the busiest owner may have to.
"""

from __future__ import annotations

from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


def deliver(target: Target, layout: Layout, item: int) -> schema.Cost:
  """Brings slices to (or updates from) the tiles of `layout`.

  Args:
    target: the machine.
    layout: where the slices end (or start).
    item: bytes per element.
  """
  per_tile = layout.max_elements * item
  return cost.superstep(
    target,
    bytes_in=per_tile,
    bytes_out=per_tile,
    total_bytes=layout.num_elements * item,
  )
