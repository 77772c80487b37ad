"""Charges for copies within a tile.

Whether a copy from root to root moves anything on a tile is known once storage
is assigned: source and destination may have been coalesced. Exchanges to placed
tensors are only charged for what they receive: vertices read the rest in place,
unless it is scattered (plan/messages.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

Copied = list[tuple[schema.Copy, npt.NDArray[np.int64]]]


def charge(target: Target, copied: Copied) -> None:
  """Adds what `within` has found to the costs of the copies."""
  for step, size in copied:
    own = cost.local_copy(target, int(size.max()))
    step.cost = cost.add(step.cost, own)


def within(
  builder: Builder, module: Module, arguments: list[int], results: list[int]
) -> Copied:
  """The builder's copies that move something within a tile, and the bytes that
  each tile moves."""
  tensors = builder.tensors
  aliased = {(arguments[i], results[j]) for i, j in module.aliases}

  def stays(move: schema.Move) -> bool:
    a, b = tensors[move.source], tensors[move.destination]
    same = (a.space, a.address) == (b.space, b.address)
    return (same or (move.source, move.destination) in aliased) and (
      move.source_offset == move.destination_offset
      and move.source_strides == move.destination_strides
    )

  found = []
  for step in copies(builder.steps):
    _, kept = builder.staying.get(id(step), (step, ()))
    moved = [
      x
      for x, move in zip(kept, step.moves)
      if x is not None and not stays(move)
    ]
    total = cost.together(moved)
    if total.any():
      found.append((step, total))
  return found


def copies(steps: list[Any]) -> Iterator[schema.Copy]:
  """The exchanges of a program, including those in loops and branches."""
  for step in steps:
    if isinstance(step, schema.Copy):
      yield step
    elif isinstance(step, schema.While):
      yield from copies(step.condition)
      yield from copies(step.body)
    elif isinstance(step, schema.Repeat):
      yield from copies(step.body)
    elif isinstance(step, schema.Switch):
      for branch in step.branches:
        yield from copies(branch.steps)
