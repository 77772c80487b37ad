"""The partition in which vertices read an operand in place."""

from __future__ import annotations

from jaxlib.ipu.layout import Factor, Layout, refine
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import View


def aligned(view: View, root: TensorInfo) -> Layout | None:
  """The mapping of a view's elements that moves the fewest of them: the root's
  blocks, in the order of the view's dimensions and clipped to its extents.

  Returns None if the view skips elements, goes backwards or accesses elements
  twice, as overlapping windows do; if it fixes the index along a dimension that
  is cut; or if the root has replicas or its blocks straddle dimensions.
  """
  if root.layout.replicas:
    return None
  groups = refine(root.layout.factors, root.shape)
  if groups is None:
    return None
  strides = dense_strides(root.shape)
  place = {s: d for d, (s, n) in enumerate(zip(strides, root.shape)) if n != 1}
  factors: list[Factor] = []
  walked = set()
  for extent, stride in zip(view.shape, view.strides):
    if extent == 1:
      continue
    d = place.get(stride)
    if d is None or d in walked:
      return None
    walked.add(d)
    group = groups[d]
    if extent != root.shape[d]:
      if len(group) != 1 or extent > root.shape[d]:
        return None
      (f,) = group
      block = min(f.block, extent)
      parts = -(-extent // block)
      group = (Factor(extent, block, f.stride if parts > 1 else 0),)
    factors += group
  for d, group in enumerate(groups):
    if d not in walked and any(f.parts > 1 for f in group):
      return None
  return Layout(tuple(factors) or (Factor(1, 1, 0),), base=root.layout.base)
