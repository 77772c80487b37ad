"""Finds loops with a known trip count, which need no condition.

`fori_loop` and `scan` count a scalar from a constant up to a constant by a
constant step; such a `while` becomes an `ipu.repeat`.
"""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.dtypes import NUMPY
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.ops.control_flow import REPEAT

# A limit of programs for counted loops, whose end no run reaches
# (runtime/program/validate_steps.cc).
_MOST_TRIPS = 1 << 62


def find_trip_counts(graph: Graph) -> Graph:
  """Rewrites such loops, regions included."""
  for node in graph.nodes:
    for region in node.regions:
      find_trip_counts(region)
    if node.op == "stablehlo.while":
      trips = trip_count(node)
      if trips is not None:
        node.op = REPEAT
        node.attributes = trips
        node.regions = node.regions[1:]
  return graph


def trip_count(node: Node) -> int | None:
  """How often the body of a `while` runs; None if data decide."""
  condition, body = node.regions
  (predicate,) = condition.results
  compare = predicate.node
  if compare is None or compare.op != "stablehlo.compare":
    return None
  if compare.attributes.opcode is not Opcode.LT:
    return None
  index, limit = compare.inputs
  if index.node is not None or not any(
    index is p for p in condition.parameters
  ):
    return None
  place = index.index
  parameter = body.parameters[place]
  start = integer(node.inputs[place])
  end = integer(limit)
  step = step_of(body.results[place], parameter)
  if start is None or end is None or step is None:
    return None
  trips = max(0, -(-(end - start) // step))
  if start + trips * step > np.iinfo(NUMPY[parameter.dtype]).max:
    return None  # it wraps past the limit and continues
  return min(trips, _MOST_TRIPS)


def step_of(value: Value, parameter: Value) -> int | None:
  """The positive constant that `value` adds to a parameter; None if not."""
  add = value.node
  if add is None or add.op != "stablehlo.add":
    return None
  a, b = add.inputs
  if b is parameter:
    a, b = b, a
  step = integer(b) if a is parameter else None
  return step if step is not None and step > 0 else None


def integer(value: Value) -> int | None:
  """The value of a constant integer scalar."""
  node = value.node
  if node is None or node.op != "stablehlo.constant" or value.shape:
    return None
  if node.attributes.dtype.kind not in "iu":
    return None
  return int(node.attributes)
