"""while, case and if: steps around the steps of their regions.

A loop's carried values have roots of their own. The loop starts with an
exchange from the initial values, and each iteration ends with one from the new
values; if the allocator gives both the same storage it is free.
"""

from __future__ import annotations

from jaxlib.ipu.ir.attributes import RARE_LOOP
from jaxlib.ipu.ir.graph import Graph, Node, users
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower import consumer_layouts
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.stacked import stacked
from jaxlib.ipu.lower.stencil import boxes
from jaxlib.ipu.plan import cost
from jaxlib.ipu.tile.choices import LEAST_TRIPS
from jaxlib.ipu.tile.control_flow import Repeat, Switch, While
from jaxlib.ipu.tile.copy import Copy
from jaxlib.ipu.tile.step import Region
from jaxlib.ipu.tile.totals import totals
from jaxlib.ipu.tile.view import View

REPEAT = "ipu.repeat"


def _while(builder: Builder, node: Node) -> None:
  condition, body = node.regions
  roots = _carry(builder, node, [condition, body], 1)
  builder.enter(1, _written(roots))
  (predicate,) = builder.lower_graph(condition)
  predicate = builder.materialise(predicate)
  condition_steps = builder.leave()
  builder.steps.append(
    While(
      condition=condition_steps,
      predicate=predicate.root,
      body=_iteration(builder, node, roots, 1),
      rare=node.attributes == RARE_LOOP,
      own=cost.branch(builder.target),
      location=builder.location,
    )
  )


def _repeat(builder: Builder, node: Node) -> None:
  """A loop of `node.attributes` iterations (passes/trip_counts.py)."""
  (body,) = node.regions
  roots = _carry(builder, node, [body], node.attributes)
  steps = _iteration(builder, node, roots, node.attributes)
  if steps:  # a step that moves nothing: the loop's control overhead
    steps.append(
      Copy(
        moves=[], own=cost.iteration(builder.target), location=builder.location
      )
    )
  builder.steps.append(
    Repeat(count=node.attributes, body=steps, location=builder.location)
  )


def _carry(
  builder: Builder, node: Node, regions: list[Graph], trips: int
) -> dict[int, View]:
  """Roots of loop-carried values, with the initial values; loop-invariant ones
  stay in place."""
  body = regions[-1]
  used = users(body)
  roots: dict[int, View] = {}
  starts = []
  wanted = {}
  if builder.choices.layouts and trips >= LEAST_TRIPS:
    wanted = consumer_layouts.for_loop(builder.target, body)
    builder.used.carries |= bool(wanted)
    if wanted and consumer_layouts.has_other_readers(
      body, [(i, i) for i in wanted], wanted
    ):
      builder.used.unpriced = True
  for i, value in enumerate(node.results):
    view = builder.view(node.inputs[i])
    if body.results[i] is not body.parameters[i]:
      layout = builder.default_layout(value.shape, value.dtype)
      if builder.is_identity(view):
        layout = builder.tensors[view.root].layout
        layout = boxes(builder, body.parameters[i], used, layout, trips)
      layout = stacked(builder, body, i, used, layout, trips)
      layout = wanted.get(i, layout)
      layout = builder.choices.carried.get((id(node), i), layout)
      root = builder.new_root(value.shape, value.dtype, layout)
      roots[i] = builder.root_view(root)
      starts.append((view, roots[i]))
      view = roots[i]
    builder.define(value, view)
    for region in regions:
      builder.define(region.parameters[i], view)
  builder.copy_to(starts)
  return roots


def _written(roots: dict[int, View]) -> set[int]:
  return {view.root for view in roots.values()}


def _iteration(
  builder: Builder, node: Node, roots: dict[int, View], trips: int
) -> Region:
  """The steps of an iteration, which ends with the new values in place."""
  builder.enter(trips, _written(roots))
  results = builder.lower_graph(node.regions[-1], _written(roots))
  pairs = [(results[i], root) for i, root in roots.items()]
  if pairs and trips >= LEAST_TRIPS:
    back = cost.cycles(builder.copy_cost(pairs))
    if (
      back
      > _LEAST_SHARE
      * totals(builder.target, builder.steps, builder.tensors).cycles
    ):
      _note_mappings(builder, node, roots, results)
  builder.copy_to(pairs)
  return builder.leave()


def _note_mappings(
  builder: Builder, node: Node, roots: dict[int, View], results: list[View]
) -> None:
  """Records the mappings in which an iteration has computed its carried values,
  where these are not the ones in which the loop carries them. The program may
  be lowered again with them (tile/choices.py)."""
  for i, root in roots.items():
    view = results[i]
    made = builder.tensors[view.root]
    if (
      builder.is_identity(view)
      and made.layout != builder.tensors[root.root].layout
      and not made.layout.replicas
    ):
      builder.used.leaves[id(node), i] = made.layout


# Moving carried values back at the end of an iteration justifies another
# mapping only above this share of the iteration's cycles. [G]
_LEAST_SHARE = 0.015


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
    Switch(
      selector=selector.root,
      branches=branches,
      own=cost.branch(builder.target),
      location=builder.location,
    )
  )
  for result, view in zip(node.results, roots):
    builder.define(result, view)


def _branch(builder: Builder, region: Graph, roots: list[View]) -> Region:
  builder.enter()
  views = builder.lower_graph(region)
  builder.copy_to(list(zip(views, roots)))
  return builder.leave()


for _name, _lower in (
  ("while", _while),
  ("case", _switch),
  ("if", _switch),
):
  define(Operation(f"stablehlo.{_name}", _lower))
define(Operation(REPEAT, _repeat))
