"""Folds transposes into the matrix products that make what they transpose.

The product of swapped operands is the transposed product; JAX's gradients of
weights come out of autodiff transposed and would otherwise be moved once more.
"""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.graph import Graph, Node, Users, users


def fold(graph: Graph) -> Graph:
  """The graph with such pairs rewritten, regions included."""
  _fold(graph, users(graph))
  return graph


def _fold(graph: Graph, used_by: Users) -> None:
  # A product outside a loop stays outside, where it is made once.
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
    if alone and _swaps(dot, node.attributes):
      graph.nodes[index] = _swapped(dot, node)


def _swaps(dot: Node, permutation: tuple[int, ...]) -> bool:
  """Whether a permutation exchanges a product's free dimensions in whole."""
  d: DotDimensions = dot.attributes
  batch = len(d.lhs_batch)
  rows = len(dot.inputs[0].shape) - batch - len(d.lhs_contract)
  rank = len(dot.results[0].shape)
  expected = (
    *range(batch),
    *range(batch + rows, rank),
    *range(batch, batch + rows),
  )
  return tuple(permutation) == expected


def _swapped(dot: Node, transpose: Node) -> Node:
  d: DotDimensions = dot.attributes
  swapped = dataclasses.replace(
    d,
    lhs_batch=d.rhs_batch,
    rhs_batch=d.lhs_batch,
    lhs_contract=d.rhs_contract,
    rhs_contract=d.lhs_contract,
  )
  merged = Node(
    dot.op,
    (dot.inputs[1], dot.inputs[0]),
    [],
    swapped,
    location=dot.location,
  )
  # The same values, so that their users need not be told.
  merged.results = transpose.results
  for value in merged.results:
    value.node = merged
  return merged
