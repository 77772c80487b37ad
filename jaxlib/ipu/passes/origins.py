"""Where fused nodes come from: the operations that they compute.

A fused node has one location, but its cycles belong to all lines whose
operations it computes. They are shared by the cost of each operation, in simple
instructions, which is what it adds to the inner loop of the node's vertices.
Only reports read this (`reporting/collect.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib.ipu.ir.graph import Node, Origin

# Rough costs of operations beside that of an addition [G]. They share out what
# a step costs, which the codelets define.
_WEIGHT = {
  **dict.fromkeys(
    (
      "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic",
      "tanh", "sine", "cosine", "tan", "cbrt", "remainder",
    ),
    10.0,
  ),
  **dict.fromkeys(("sqrt", "rsqrt", "divide"), 4.0),
  **dict.fromkeys(("power", "atan2"), 20.0),
}  # fmt: skip


def of(node: Node) -> tuple[Origin, ...]:
  """The operations that a node comes from: itself, if it is not fused."""
  if node.origins:
    return node.origins
  name = node.op.removeprefix("stablehlo.")
  return (Origin(node.location, node.op, _WEIGHT.get(name, 1.0)),)


def joined(nodes: Iterable[Node]) -> tuple[Origin, ...]:
  """The operations that several nodes come from; those of one location and kind
  are one origin."""
  found: dict[tuple[int, str], Origin] = {}
  for node in nodes:
    for origin in of(node):
      key = id(origin.location), origin.op
      before = found.get(key)
      if before is not None:
        origin = before._replace(weight=before.weight + origin.weight)
      found[key] = origin
  return tuple(found.values())
