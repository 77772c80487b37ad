"""Charges for copies within a tile.

A copy from root to root also copies what stays on its tile, unless source and
destination have one address, which is known once storage is assigned. An
exchange to a placed tensor is only charged for what tiles receive: vertices
read the rest in its root, unless it lies there in segments smaller than a
vector (moves/messages.py).
"""

from __future__ import annotations

from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.walk import exchanges


def run(program: TileProgram) -> None:
  """Sets what each copy moves within each tile (`Step.within`)."""
  tensors = program.tensors
  aliased = {
    (program.arguments[i], program.results[j]) for i, j in program.aliases
  }

  def stays(move: schema.Move) -> bool:
    """Whether source and destination are the same memory."""
    a, b = tensors[move.source], tensors[move.destination]
    same = (a.space, a.address) == (b.space, b.address)
    return (same or (move.source, move.destination) in aliased) and (
      move.source_offset == move.destination_offset
      and move.source_strides == move.destination_strides
    )

  for step in exchanges(program.steps):
    if step.staying is None:
      continue
    moved = [
      x
      for x, move in zip(step.staying, step.moves, strict=True)
      if x is not None and not stays(move)
    ]
    total = cost.together(moved)
    step.within = total if total.any() else None
