"""Charges for copies within a tile.

Whether a copy from root to root moves anything on a tile is known once storage
is assigned: source and destination may have been coalesced. Exchanges to placed
tensors are only charged for what they receive: vertices read the rest in place,
unless it is scattered (plan/messages.py).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.walk import walk

Copied = list[tuple[Step, npt.NDArray[np.int64]]]


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
  for step in walk(builder.steps):
    if step.staying is None:
      continue
    moved = [
      x
      for x, move in zip(step.staying, step.moves, strict=True)
      if x is not None and not stays(move)
    ]
    total = cost.together(moved)
    if total.any():
      found.append((step, total))
  return found
