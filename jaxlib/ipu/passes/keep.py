"""Sorts of which only the first elements are used give no others.

`lax.top_k` arrives as a sort of values and indices and a slice of each; a
median or the best ten of a ranking look alike.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.graph import Graph, Node, users
from jaxlib.ipu.ops.sort import SORT, Sorting


def keep(graph: Graph) -> Graph:
  """The graph with such sorts shortened, regions included."""
  if any(_sorts(graph)):
    used_by = users(graph)
    for node in _sorts(graph):
      _shorten(node, [u for v in node.results for u in used_by[id(v)]])
  return graph


def _sorts(graph: Graph) -> list[Node]:
  found = []
  for node in graph.nodes:
    if node.op == SORT:
      found.append(node)
    for region in node.regions:
      found += _sorts(region)
  return found


def _shorten(node: Node, used_by: list[Node | None]) -> None:
  sorting: Sorting = node.attributes
  dimension = sorting.dimension
  most = 1
  for user in used_by:
    if user is None or user.op != "stablehlo.slice":
      return
    most = max(most, user.attributes[1][dimension])
  if most >= node.results[0].shape[dimension]:
    return
  node.attributes = dataclasses.replace(sorting, keep=most)
  for value in node.results:
    shape = list(value.shape)
    shape[dimension] = most
    value.shape = tuple(shape)
