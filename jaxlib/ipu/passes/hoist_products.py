"""Computes products of slices for all iterations of a loop at once.

A scan over `xs` takes a slice in each iteration, and often multiplies it by an
array that does not change, as recurrent layers do with their inputs:
x[i] @ w is (x @ w)[i], whatever i is. One product of all slices spreads over
the machine as a small one cannot, needs the weights on each tile once, and does
not synchronise it in every iteration.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jaxlib.ipu.dtypes import NUMPY
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.passes.trip_counts import trip_count
from jaxlib.ipu.target import Target

_DOT = "stablehlo.dot_general"
# Movement, which an operand that does not change may have passed.
_MOVEMENT = frozenset(
  f"stablehlo.{name}"
  for name in ("reshape", "transpose", "broadcast_in_dim", "slice", "convert")
)
# The largest part of all SRAM that the products of all iterations may take: a
# guess; they stay until the loop has ended.
_LARGEST_PART = 1 / 16


def hoist_products(graph: Graph, target: Target) -> bool:
  """Rewrites the loops of a graph, regions included.

  Returns:
    Whether any product has left a loop: the program takes more SRAM.
  """
  nodes: list[Node] = []
  hoisted = False
  for node in graph.nodes:
    for region in node.regions:
      hoisted |= hoist_products(region, target)
    if node.op == "stablehlo.while":
      trips = trip_count(node)
      if trips is not None:
        moved = _Loop(node, trips, target).hoist()
        hoisted |= bool(moved)
        nodes += moved
    nodes.append(node)
  graph.nodes = nodes
  return hoisted


class _Loop:
  """A loop whose number of iterations is known."""

  def __init__(self, node: Node, trips: int, target: Target) -> None:
    self._body = node.regions[1]
    self._trips = trips
    self._most = target.num_tiles * target.bytes_per_tile * _LARGEST_PART
    # What changes: parameters, and what nodes of the body compute.
    self._changing = {*self._body.parameters}
    self._changing.update(v for n in self._body.nodes for v in n.results)
    self._moved: list[Node] = []

  def hoist(self) -> list[Node]:
    """The nodes that leave the loop."""
    body: list[Node] = []
    for node in self._body.nodes:
      place = self._sliced(node)
      if place is None:
        body.append(node)
      else:
        self._move(node.inputs[1 - place])
        _divide(node, place, self._moved, body)
    moved = {*self._moved}
    self._body.nodes = [n for n in body if n not in moved]
    return self._moved

  def _sliced(self, node: Node) -> int | None:
    """Which operand of a product is a slice, if the other one does not change,
    the products of all slices are no more than those of the loop, and they are
    not too large; None otherwise."""
    if node.op != _DOT or node.attributes.fourier is not None:
      return None
    (result,) = node.results
    size = NUMPY[result.dtype].itemsize * math.prod(result.shape)
    for place, value in enumerate(node.inputs):
      found = _slice(value)
      if found is None or found.inputs[0] in self._changing:
        continue
      count = found.inputs[0].shape[0]
      if 1 < count <= self._trips and size * count <= self._most:
        if self._is_fixed(node.inputs[1 - place]):
          return place
    return None

  def _is_fixed(self, value: Value) -> bool:
    """Whether a value does not change, or is a view of such a value."""
    if value not in self._changing:
      return True
    node = value.node
    return (
      node is not None
      and node.op in _MOVEMENT
      and all(self._is_fixed(v) for v in node.inputs)
    )

  def _move(self, value: Value) -> None:
    """Takes what a fixed value is a view of out of the loop."""
    node = value.node
    if node is None or value not in self._changing:
      return
    for operand in node.inputs:
      self._move(operand)
    self._changing.difference_update(node.results)
    self._moved.append(node)


def _slice(value: Value) -> Node | None:
  """The node that takes the slice `whole[i]` that a value is."""
  node = value.node
  if node is None or node.op != "stablehlo.reshape":
    return None
  inner = node.inputs[0].node
  if inner is None or inner.op != "stablehlo.dynamic_slice":
    return None
  (whole, first, *others) = inner.inputs
  sizes = inner.results[0].shape
  if sizes != (1, *whole.shape[1:]) or sizes[1:] != value.shape:
    return None
  return inner


def _divide(
  node: Node, place: int, outside: list[Node], inside: list[Node]
) -> None:
  """Adds the product of all slices to the nodes outside of a loop, and what
  takes the slice that `node` computes to those inside."""
  found = _slice(node.inputs[place])
  assert found is not None
  operands = list(node.inputs)
  operands[place] = found.inputs[0]
  whole = Emitter(outside, node.location).dot_general(
    operands[0],
    operands[1],
    _with_slices(node, place),
    node.results[0].dtype,
  )
  (result,) = node.results
  e = Emitter([], node.location)
  index = found.inputs[1]
  starts = [index, *[e.constant(0, index.dtype, ())] * len(result.shape)]
  part = e.dynamic_slice(whole, starts, (1, *result.shape))
  e.reshape(part, result.shape)
  # Keeping the old result avoids updating its users.
  e.nodes[-1].results = node.results
  result.node = e.nodes[-1]
  inside += e.nodes


def _with_slices(node: Node, place: int) -> DotDimensions:
  """The dimensions of a product if an operand has one more in front, which
  becomes the result's first."""
  d: DotDimensions = node.attributes
  batch, left = len(d.lhs_batch), len(node.inputs[0].shape)
  new = batch if place == 0 else left - len(d.lhs_contract)
  order = d.result or range(len(node.results[0].shape))
  result = (new, *(i + (i >= new) for i in order))
  if place == 0:
    return replace(
      d,
      lhs_batch=tuple(i + 1 for i in d.lhs_batch),
      lhs_contract=tuple(i + 1 for i in d.lhs_contract),
      result=result,
    )
  return replace(
    d,
    rhs_batch=tuple(i + 1 for i in d.rhs_batch),
    rhs_contract=tuple(i + 1 for i in d.rhs_contract),
    result=result,
  )
