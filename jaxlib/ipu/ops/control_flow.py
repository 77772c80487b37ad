"""while, case and if: steps around the steps of their regions.

A loop's carried values live in roots of their own. The loop starts with an
exchange from the initial values, and each turn ends with one from the new
values; where the allocator can give both the same storage it costs nothing.
"""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Graph, Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema


def _while(builder: Builder, node: Node) -> None:
  condition, body = node.regions
  views = [builder.view(v) for v in node.inputs]
  carried = [
    i for i, v in enumerate(body.results) if v is not body.parameters[i]
  ]
  starts = []
  roots: dict[int, View] = {}
  for i in carried:
    value = node.results[i]
    layout = None
    if builder.is_identity(views[i]):
      layout = builder.tensors[views[i].root].layout
    root = builder.new_root(value.shape, value.dtype, layout)
    roots[i] = builder.root_view(root)
    starts.append((views[i], roots[i]))
  builder.copy_to(starts)
  for i, result in enumerate(node.results):
    view = roots.get(i, views[i])
    builder.define(result, view)
    builder.define(condition.parameters[i], view)
    builder.define(body.parameters[i], view)

  outer = builder.enter()
  (predicate,) = builder.lower_graph(condition)
  predicate = builder.materialise(predicate)
  condition_steps = builder.leave(outer)

  outer = builder.enter()
  results = builder.lower_graph(body)
  builder.copy_to([(results[i], roots[i]) for i in carried])
  body_steps = builder.leave(outer)
  builder.steps.append(
    schema.While(
      condition_steps,
      predicate.root,
      body_steps,
      cost.branch(builder.target),
      builder.location,
    )
  )


def _switch(builder: Builder, node: Node) -> None:
  if len(node.regions) == 1:
    for result, view in zip(node.results, builder.lower_graph(node.regions[0])):
      builder.define(result, view)
    return
  selector = builder.materialise(builder.view(node.inputs[0]))
  roots = [
    builder.root_view(builder.new_root(v.shape, v.dtype)) for v in node.results
  ]
  branches = [_branch(builder, region, roots) for region in node.regions]
  builder.steps.append(
    schema.Switch(
      selector.root,
      branches,
      cost.branch(builder.target),
      builder.location,
    )
  )
  for result, view in zip(node.results, roots):
    builder.define(result, view)


def _branch(
  builder: Builder, region: Graph, roots: list[View]
) -> schema.Branch:
  outer = builder.enter()
  views = builder.lower_graph(region)
  builder.copy_to(list(zip(views, roots)))
  return schema.Branch(builder.leave(outer))


for _name, _lower in (
  ("while", _while),
  ("case", _switch),
  ("if", _switch),
):
  define(Operation(f"stablehlo.{_name}", _lower))
