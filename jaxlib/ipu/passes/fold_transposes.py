"""Folds transposes into the matrix products that compute their operands.

A product can write its result's dimensions in any order; JAX's gradients of
weights come out of autodiff transposed and would otherwise be copied again.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.graph import Graph, Node, Users, users


def fold_transposes(graph: Graph) -> Graph:
  """Rewrites such pairs, regions included."""
  _fold(graph, users(graph))
  return graph


def _fold(graph: Graph, used_by: Users) -> None:
  # A product outside a loop stays outside, where it is computed once.
  here: set[int] = set()
  for index, node in enumerate(graph.nodes):
    for region in node.regions:
      _fold(region, used_by)
    here.add(id(node))
    if node.op != "stablehlo.transpose":
      continue
    dot = node.inputs[0].node
    if dot is None or dot.op != "stablehlo.dot_general" or id(dot) not in here:
      continue
    alone = used_by[id(dot.results[0])] == [node]
    if alone and _keeps_rows(dot, node.attributes):
      graph.nodes[index] = _permuted(dot, node)


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
