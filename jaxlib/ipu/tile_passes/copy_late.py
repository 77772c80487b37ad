"""Computes results that would overwrite a donated argument too early in the
arena, and copies them over the argument at the end of the program, when nothing
reads it any more."""

from __future__ import annotations

from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.copy import copy_views
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import whole_view
from jaxlib.ipu.tile_passes.lifetimes import lifetimes, overlap, union


def run(program: TileProgram) -> None:
  """Adds one exchange that copies all such results, if there are any."""
  if not program.aliases:
    return
  line, reserved = lifetimes(program)
  pairs = []
  for j, made in enumerate(program.results):
    free = made not in reserved or not overlap(
      reserved[made], union(line.intervals.get(made, []), [])
    )
    if free:
      continue
    info = program.tensors[made]
    info.space, info.address = schema.ARENA, 0
    program.results[j] = root = len(program.tensors)
    program.tensors.append(
      TensorInfo(
        info.dtype, info.shape, info.layout, root, 0,
        dense_strides(info.shape), schema.RESULT, j, program.location,
      )
    )  # fmt: skip
    pairs.append(
      (whole_view(program.tensors, made), whole_view(program.tensors, root))
    )
  if not pairs:
    return
  program.analysis = None
  target, tensors = program.target, program.tensors
  step = copy_views(target, tensors, pairs, program.location)
  if step is not None:
    program.steps.append(step)
