"""Charges what copies move within a tile.

Whether a copy of a root to another moves anything on a tile is known when
storage is given out: source and destination may have become one place. What an
exchange brings to vertices (placed tensors) is charged for what it receives
alone: vertices read the rest where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema


def charge(
  builder: Builder, module: Module, arguments: list[int], results: list[int]
) -> None:
  """Adds them to the costs of the builder's copies."""
  tensors = builder.tensors
  aliased = {(arguments[i], results[j]) for i, j in module.aliases}

  def stays(move: schema.Move) -> bool:
    a, b = tensors[move.source], tensors[move.destination]
    same = (a.space, a.address) == (b.space, b.address)
    return (same or (move.source, move.destination) in aliased) and (
      move.source_offset == move.destination_offset
      and move.source_strides == move.destination_strides
    )

  for step in _copies(builder.steps):
    _, kept = builder.staying.get(id(step), (step, ()))
    moved = [
      x
      for x, move in zip(kept, step.moves)
      if x is not None and not stays(move)
    ]
    if not moved:
      continue
    total = np.zeros(max(len(x) for x in moved), np.int64)
    for x in moved:
      total[: len(x)] += x
    if total.any():
      own = cost.local_copy(builder.target, int(total.max()))
      step.cost = cost.add(step.cost, own)


def _copies(steps: list[Any]) -> Iterator[schema.Copy]:
  for step in steps:
    if isinstance(step, schema.Copy):
      yield step
    elif isinstance(step, schema.While):
      yield from _copies(step.condition)
      yield from _copies(step.body)
    elif isinstance(step, schema.Repeat):
      yield from _copies(step.body)
    elif isinstance(step, schema.Switch):
      for branch in step.branches:
        yield from _copies(branch.steps)
