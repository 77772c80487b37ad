"""Moves products of scanned operands out of loops.

A scan over `xs` that multiplies each of them by a loop-invariant matrix, such
as a recurrent layer's inputs by its weights, computes a small product in each
iteration: tiles load the weights again for a few rows, exchange and wait.
All of the products are one large one, of which an iteration takes its slice.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ops.control_flow import REPEAT
from jaxlib.ipu.passes.trip_counts import integer, step_of
from jaxlib.ipu.target import Target

# The largest part of a machine's SRAM that such a product may take; a guess:
# it is live during the whole loop.
_LARGEST_SHARE = 1 / 32


def hoist_products(graph: Graph, target: Target) -> bool:
  """Rewrites counted loops, regions included.

  Returns:
    Whether any product was moved: the program takes more SRAM.
  """
  nodes: list[Node] = []
  moved = False
  for node in graph.nodes:
    for region in node.regions:
      moved |= hoist_products(region, target)
    before = _hoisted(node, target) if node.op == REPEAT else []
    moved |= bool(before)
    nodes += [*before, node]
  graph.nodes = nodes
  return moved


class _Loop(NamedTuple):
  """A counted loop.

  Attributes:
    node: the loop.
    counters: parameters that count iterations from 0, by their ids.
    inside: ids of values that may change from iteration to iteration.
    same: values before the loop of parameters that do not change.
  """

  node: Node
  counters: set[int]
  inside: set[int]
  same: dict[int, Value]

  def before(self, value: Value) -> Value | None:
    """The value as it is before the loop; None if iterations compute it."""
    value = self.same.get(id(value), value)
    return None if id(value) in self.inside else value


def _loop(node: Node) -> _Loop:
  (body,) = node.regions
  same = {
    id(p): x
    for p, x, y in zip(body.parameters, node.inputs, body.results, strict=True)
    if p is y
  }
  inside = {id(v) for n in body.nodes for v in n.results}
  inside |= {id(p) for p in body.parameters if id(p) not in same}
  counters = {
    id(p)
    for p, x, y in zip(body.parameters, node.inputs, body.results, strict=True)
    if integer(x) == 0 and step_of(y, p) == 1
  }
  return _Loop(node, counters, inside, same)


def _hoisted(node: Node, target: Target) -> list[Node]:
  """Products of all iterations; the body takes slices of them instead."""
  loop = _loop(node)
  if not loop.counters or node.attributes < 2:
    return []
  (body,) = node.regions
  outer: list[Node] = []
  nodes: list[Node] = []
  for inner in body.nodes:
    if inner.op == "stablehlo.dot_general":
      for side in (0, 1):
        scanned = _scanned(loop, inner.inputs[side])
        other = loop.before(inner.inputs[1 - side])
        if scanned is None or other is None:
          continue
        if not _worthwhile(loop, inner, target):
          continue
        nodes += _replace(inner, side, scanned, other, outer)
        break
    nodes.append(inner)
  body.nodes = nodes
  return outer


class _Scanned(NamedTuple):
  """The array that a loop scans along its first dimension, and its counter."""

  array: Value
  counter: Value


def _scanned(loop: _Loop, value: Value) -> _Scanned | None:
  """What `value` is an element of; None if it is none of a scanned array."""
  reshape = value.node
  if reshape is None or reshape.op != "stablehlo.reshape":
    return None
  taken = reshape.inputs[0].node
  if taken is None or taken.op != "stablehlo.dynamic_slice":
    return None
  array = loop.before(taken.inputs[0])
  index = taken.inputs[1]
  if array is None or id(index) not in loop.counters:
    return None
  sizes = taken.results[0].shape
  if sizes != (1, *value.shape) or array.shape[1:] != value.shape:
    return None
  if array.shape[0] != loop.node.attributes:
    return None
  return _Scanned(array, index)


def _worthwhile(loop: _Loop, node: Node, target: Target) -> bool:
  """Whether a product is of a form that can be moved, and not too large."""
  d: DotDimensions = node.attributes
  if d.lhs_batch or d.result or d.fourier is not None:
    return False
  (result,) = node.results
  size = loop.node.attributes * math.prod(result.shape) * SIZE[result.dtype]
  sram = target.num_tiles * target.bytes_per_tile
  return size <= _LARGEST_SHARE * sram


def _replace(
  node: Node, side: int, scanned: _Scanned, other: Value, outer: list[Node]
) -> list[Node]:
  """Makes a product a slice of one of whole arrays.

  Args:
    node: the product in the loop; it becomes a reshape.
    side: which of its operands is scanned.
    scanned: the array that has it.
    other: the other operand.
    outer: gets the nodes before the loop.

  Returns:
    The nodes of the loop that have to precede `node`.
  """
  d: DotDimensions = node.attributes
  (result,) = node.results
  if side == 0:
    lhs, rhs, place = scanned.array, other, 0
    contract = tuple(i + 1 for i in d.lhs_contract)
    d = dataclasses.replace(d, lhs_contract=contract)
  else:
    lhs, rhs = other, scanned.array
    place = len(lhs.shape) - len(d.lhs_contract)
    contract = tuple(i + 1 for i in d.rhs_contract)
    d = dataclasses.replace(d, rhs_contract=contract)
  whole = Emitter(outer, node.location).dot_general(lhs, rhs, d, result.dtype)
  nodes: list[Node] = []
  e = Emitter(nodes, node.location)
  sizes = list(whole.shape)
  sizes[place] = 1
  starts = [e.constant(0, scanned.counter.dtype, ()) for _ in sizes]
  starts[place] = scanned.counter
  piece = e.dynamic_slice(whole, starts, sizes)
  node.op, node.inputs, node.attributes = "stablehlo.reshape", (piece,), None
  return nodes
