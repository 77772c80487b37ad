"""Warns of values that a program puts into host memory while it runs.

Arguments and results may be there, and are streamed. Other values stay on the
tiles, so that `jax.device_put` inside a program, and checkpoint policies that
offload residuals, free no SRAM.
"""

from __future__ import annotations

import logging

from jaxlib.ipu.ir.graph import Graph, Module, Node, users
from jaxlib.ipu.location import resolve
from jaxlib.ipu.ops.markers import PLACEMENT
from jaxlib.ipu.program.text import location_text

logger = logging.getLogger("jaxlib.ipu")

_NAMED = 5  # lines in a warning


def warn(module: Module) -> None:
  """Logs one warning with the user's lines, if there are such values."""
  used = users(module.graph)
  ignored = [
    node
    for node, outer in _placements(module.graph)
    if any(user is not None or not outer for user in used[id(node.results[0])])
  ]
  if not ignored:
    return
  lines = dict.fromkeys(
    location_text(resolve(node.location)) for node in ignored
  )
  shown = "".join(f"\n  {line}" for line in list(lines)[:_NAMED])
  if len(lines) > _NAMED:
    shown += f"\n  and {len(lines) - _NAMED} more"
  logger.warning(
    "program %s puts values into host memory while it runs, which is not "
    "supported yet: they stay in SRAM. Only arguments and results of a program "
    "can be in host memory.%s",
    module.name,
    shown,
  )


def _placements(graph: Graph) -> list[tuple[Node, bool]]:
  """All nodes that put a value into host memory, and whether each is in the
  entry graph."""
  found = []
  todo = [(graph, True)]
  while todo:
    inner, outer = todo.pop()
    for node in inner.nodes:
      if node.op == PLACEMENT and node.attributes.endswith("host"):
        found.append((node, outer))
      todo += [(region, False) for region in node.regions]
  return found
