"""Folds transposes into the products and concatenations that make their
operands.

A product can write its result's dimensions in any order; JAX's gradients of
weights come out of autodiff transposed and would otherwise be copied again. So
would the gradient of an array that was taken apart, such as the queries, keys
and values of attention: its parts are transposed instead, which moves nothing,
and concatenated in that order.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Users, users


def fold_transposes(graph: Graph) -> Graph:
  """Rewrites such pairs, regions included."""
  _fold(graph, users(graph))
  return graph


def _fold(graph: Graph, used_by: Users) -> None:
  # What is computed outside a loop stays outside, where it is computed once.
  here: set[int] = set()
  nodes: list[Node] = []
  for node in graph.nodes:
    for region in node.regions:
      _fold(region, used_by)
    here.add(id(node))
    nodes += _folded(node, used_by, here)
  graph.nodes = nodes


def _folded(node: Node, used_by: Users, here: set[int]) -> list[Node]:
  """What computes a node's results: itself, unless it is such a transpose."""
  if node.op != "stablehlo.transpose":
    return [node]
  source = node.inputs[0].node
  if (
    source is None
    or id(source) not in here
    or used_by[id(source.results[0])] != [node]
  ):
    return [node]
  if source.op == "stablehlo.concatenate":
    return _concatenated(source, node)
  if source.op == "stablehlo.dot_general":
    if _keeps_rows(source, node.attributes):
      return [_permuted(source, node)]
  return [node]


def _concatenated(source: Node, transpose: Node) -> list[Node]:
  """The concatenation of transposed parts, and these."""
  e = Emitter([], source.location)
  permutation = transpose.attributes
  parts = [e.transpose(v, permutation) for v in source.inputs]
  (result,) = transpose.results
  e.node(
    source.op,
    parts,
    [(result.shape, result.dtype)],
    permutation.index(source.attributes),
  )
  # Reusing the values avoids updating their users.
  e.nodes[-1].results = transpose.results
  result.node = e.nodes[-1]
  return e.nodes


def _order(dot: Node) -> tuple[int, ...]:
  d: DotDimensions = dot.attributes
  return d.result or tuple(range(len(dot.results[0].shape)))


def _keeps_rows(dot: Node, permutation: tuple[int, ...]) -> bool:
  """Whether the innermost dimension of either operand stays innermost, so that
  the product is written in rows."""
  d: DotDimensions = dot.attributes
  batch = len(d.lhs_batch)
  rows = len(dot.inputs[0].shape) - batch - len(d.lhs_contract)
  rank = len(permutation)
  innermost = {batch + rows - 1} if rows else set()
  innermost |= {rank - 1} if rank > batch + rows else set()
  return bool(permutation) and _order(dot)[permutation[-1]] in innermost


def _permuted(dot: Node, transpose: Node) -> Node:
  order = _order(dot)
  merged = Node(
    dot.op,
    dot.inputs,
    [],
    dataclasses.replace(
      dot.attributes, result=tuple(order[p] for p in transpose.attributes)
    ),
    location=dot.location,
  )
  # Reusing the values avoids updating their users.
  merged.results = transpose.results
  for value in merged.results:
    value.node = merged
  return merged
