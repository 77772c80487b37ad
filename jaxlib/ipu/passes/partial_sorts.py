"""Shortens sorts whose first elements alone are used, and drops operands that
are the elements' own indices from sorts and arg-reductions.

`lax.top_k` arrives as a sort of values and an iota, and a slice of each; so do
a median or the best ten of a ranking. `jnp.argmax` is a reduction of values and
an iota.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.codelets.sort import NUMBER_DTYPES
from jaxlib.ipu.ir.graph import Graph, Node, Value, users
from jaxlib.ipu.ir.region import argument_kind
from jaxlib.ipu.ir.sort_keys import sort_keys
from jaxlib.ipu.ops.reduce import REDUCE, starts_empty
from jaxlib.ipu.ops.sort import SORT, Sorting
from jaxlib.ipu.passes import dce


def shorten_sorts(graph: Graph) -> Graph:
  """Rewrites such sorts and reductions, regions included."""
  sorts: list[Node] = []
  reductions: list[Node] = []
  _find(graph, sorts, reductions)
  if not sorts and not reductions:
    return graph
  if sorts:
    used_by = users(graph)
    for node in sorts:
      _shorten(node, [u for v in node.results for u in used_by[id(v)]])
  fewer = [_number(n) for n in sorts] + [_position(n) for n in reductions]
  return dce.eliminate(graph) if any(fewer) else graph


def _find(graph: Graph, sorts: list[Node], reductions: list[Node]) -> None:
  """All sorts, and all reductions of pairs."""
  for node in graph.nodes:
    if node.op == SORT:
      sorts.append(node)
    elif node.op == REDUCE and len(node.results) == 2:
      reductions.append(node)
    for region in node.regions:
      _find(region, sorts, reductions)


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


def _number(node: Node) -> bool:
  """Drops an operand that is each element's index in its row, if it is no key:
  the sort computes it."""
  sorting: Sorting = node.attributes
  (region,) = node.regions
  keys = sort_keys(region)
  if keys is None or node.inputs[0].shape[sorting.dimension] < 2:
    return False
  compared = {key.operand for key in keys}
  for j, value in enumerate(node.inputs):
    if (
      j not in compared
      and value.dtype in NUMBER_DTYPES
      and counts(value, sorting.dimension)
    ):
      node.inputs = (*node.inputs[:j], *node.inputs[j + 1 :])
      del region.parameters[2 * j : 2 * j + 2]
      node.attributes = dataclasses.replace(node.attributes, number=j)
      return True
  return False


def _position(node: Node) -> bool:
  """Drops the indices of an arg-reduction along one dimension, if each is its
  element's: the reduction computes them."""
  values, indices = node.inputs[:2]
  long = [d for d in node.attributes.dimensions if values.shape[d] != 1]
  if len(long) != 1 or not counts(indices, long[0]):
    return False
  if indices.dtype not in NUMBER_DTYPES:
    return False  # narrow ones wrap, floats are no indices
  kind = argument_kind(node.regions[0])
  if kind is None or not starts_empty(node, kind):
    return False
  node.inputs = (values, *node.inputs[2:])
  return True


def counts(value: Value, dimension: int) -> bool:
  """Whether each element is its index along a dimension."""
  node = value.node
  if node is None:
    return False
  if node.op == "stablehlo.broadcast_in_dim":
    (inner,) = node.inputs
    return any(
      d == dimension and n == value.shape[d] and counts(inner, i)
      for i, (d, n) in enumerate(zip(node.attributes, inner.shape, strict=True))
    )
  return node.op == "stablehlo.iota" and node.attributes == dimension
