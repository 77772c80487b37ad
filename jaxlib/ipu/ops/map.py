"""`ipu.map`: a group of element-wise operations (see passes/fuse.py)."""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder, Operand, Written
from jaxlib.ipu.lower.map_program import MAP, MapProgram
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.program import schema


def lower(builder: Builder, node: Node) -> None:
  """One compute set; its partition is the layout of all its results."""
  program: MapProgram = node.attributes
  shape = program.shape
  views = [builder.view(v) for v in node.inputs]
  partition = choose_partition(builder, node, views)
  dims = tuple(range(len(shape)))
  operands = [
    Operand(v, dims if v.shape == shape else (-1,) * len(shape)) for v in views
  ]
  results = [
    Written(builder.result(node, partition, i), dims)
    for i in range(len(node.results))
  ]
  fields = schema.Map(program.code, list(program.outputs))
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
    if size <= most or layout.max_elements > 1.25 * default.max_elements:
      continue
    if broadcast and layout.over(result.shape) is None:
      continue
    best, most = layout, size
  return best


define(Operation(MAP, lower))
