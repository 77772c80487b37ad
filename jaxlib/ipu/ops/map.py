"""`ipu.map`: a group of element-wise operations (see passes/fuse.py)."""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._codelet import broadcast
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.align import aligned
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.lower.map_program import MAP, MapProgram
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.spread import spread
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import INSTRUCTION


def lower(builder: Builder, node: Node) -> None:
  """One compute set; its partition is the layout of all its results."""
  program: MapProgram = node.attributes
  shape = program.shape
  views = [builder.view(v) for v in node.inputs]
  dims = tuple(range(len(shape)))
  operands = [
    Operand(v, dims if v.shape == shape else (-1,) * len(shape)) for v in views
  ]
  fields = schema.Map(program.code, list(program.outputs))
  partition = choose_partition(builder, node, views)
  partition = _cheapest(builder, node, fields, operands, partition)
  results = [
    Written(builder.result(node, partition, i), dims)
    for i in range(len(node.results))
  ]
  builder.execute(fields, shape, partition, operands, results)


def choose_partition(builder: Builder, node: Node, views: list[View]) -> Layout:
  """Computes where most of the operands' bytes already are.

  An operand's layout counts only if it spreads the work as well as the
  default does: an exchange is cheaper than idle tiles.
  """
  result = node.results[0]
  default = builder.default_layout(result.shape, result.dtype)
  votes: dict[Layout, int] = {default: 0}
  for view in views:
    info = builder.tensors[view.root]
    if view.shape == result.shape and builder.is_identity(view):
      if not info.layout.replicas:
        size = view.size * SIZE[view.dtype]
        votes[info.layout] = votes.get(info.layout, 0) + size
  broadcast = any(not v.is_dense() for v in views)
  best, most = default, votes.pop(default)
  for layout, size in votes.items():
    if size <= most or layout.max_elements > _COARSER * default.max_elements:
      continue
    if broadcast and layout.over(result.shape) is None:
      continue
    best, most = layout, size
  return best


def _cheapest(
  builder: Builder,
  node: Node,
  fields: schema.Map,
  operands: list[Operand],
  known: Layout,
) -> Layout:
  """A known partition, or one in which parts and transposes of large tensors
  are where they are, if that is clearly cheaper."""
  result = node.results[0]
  shape, size = result.shape, math.prod(result.shape)
  if size < _SMALL:
    return known
  candidates = [known]
  if known.max_elements * builder.target.num_tiles > 4 * size and (
    len(node.attributes.code) > _LONG
  ):
    finer = spread(builder.target, shape, SIZE[result.dtype], _SMALLEST_BYTES)
    candidates.append(finer)
  for operand in operands:
    view = operand.view
    if view.shape != shape or builder.is_identity(view):
      continue
    found = aligned(view, builder.tensors[view.root])
    if (
      found is not None
      and found not in candidates
      and found.max_elements <= _COARSER * known.max_elements
      and found.over(shape) is not None
    ):
      candidates.append(found)
  if len(candidates) == 1:
    return known
  hints = {
    "scalars": tuple(
      i for i, o in enumerate(operands) if all(d < 0 for d in o.dims)
    ),
    "walks": broadcast(shape, (o.dims for o in operands)),
  }

  def cycles(partition: Layout) -> float:
    computing = cost.compute_set(
      builder.target,
      fields,
      shape,
      partition,
      [o.view.dtype for o in operands],
      [v.dtype for v in node.results],
      **hints,
    )
    moving = builder.exchange_cost(shape, partition, operands)
    return cost.cycles(computing) + cost.cycles(moving)

  costs = [cycles(c) for c in candidates]
  best = min(costs)
  return known if best > _CLEARLY * costs[0] else candidates[costs.index(best)]


# Smaller tensors are not looked at again.
_SMALL = 4096
# Longer programs are worth more tiles than a tensor's default layout has, down
# to so many bytes on each.
_LONG = 20 * INSTRUCTION.size
_SMALLEST_BYTES = 32
# Cells may be so much larger than those of a partition that spreads evenly.
_COARSER = 1.25
# What follows is not looked at, so a gain has to be more than a trifle.
_CLEARLY = 0.95


define(Operation(MAP, lower))
