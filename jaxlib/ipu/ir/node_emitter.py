"""Emitter methods of generic nodes and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.constants import MOST_DIMENSIONS
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.target import Target

Number = int | float | bool | np.generic
Operand = Value | Number
Type = tuple[Shape, DType]
# A region: values of its parameters -> values of its results.
Function = Callable[..., Value | Sequence[Value]]

_DTYPE = {numpy: dtype for dtype, numpy in NUMPY.items()}


class NodeEmitter:
  """Appends nodes to a list.

  Attributes:
    nodes: the graph's nodes, or the region's while one is being written.
    location: of the new nodes.
  """

  def __init__(
    self,
    nodes: list[Node],
    location: Any = None,
    target: Target | None = None,
  ) -> None:
    self.nodes = nodes
    self.location = location
    self._target = target
    self._known: dict[Any, Value] = {}  # nodes that `nodes` already has

  @property
  def machine(self) -> Target:
    """The target machine."""
    if self._target is None:
      raise internal("this emitter has no target machine", self.location)
    return self._target

  def node(
    self,
    op: str,
    inputs: Sequence[Value],
    types: Sequence[Type],
    attributes: Any = None,
    regions: Sequence[Graph] = (),
  ) -> tuple[Value, ...]:
    """Adds a node; returns its results.

    Args:
      op: its name, including `stablehlo.`.
      inputs: its operands.
      types: shape and element type of each result.
      attributes: the record that the operation's `read` makes.
      regions: see `region`.
    """
    node = Node(
      op, tuple(inputs), list(types), attributes, tuple(regions), self.location
    )
    self.nodes.append(node)
    return node.results

  def region(self, types: Sequence[Type], function: Function) -> Graph:
    """Writes a function of values of these types as a region."""
    parameters = [Value(None, i, s, d) for i, (s, d) in enumerate(types)]
    outer = self.nodes, self._known
    self.nodes, self._known = [], {}
    try:
      results = values_of(function(*parameters))
      return Graph(parameters, self.nodes, results)
    finally:
      self.nodes, self._known = outer

  def call(self, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
    """A copy of a region's nodes on other arguments; returns its results."""
    return self._copy(
      graph, dict(zip(graph.parameters, arguments, strict=True))
    )

  def _copy(self, graph: Graph, new: dict[Value, Value]) -> list[Value]:
    for node in graph.nodes:
      regions = []
      for region in node.regions:
        types = [type_of(p) for p in region.parameters]

        def body(*values: Value, region: Graph = region) -> list[Value]:
          return self._copy(region, new | dict(zip(region.parameters, values)))

        regions.append(self.region(types, body))
      results = self.node(
        node.op,
        [new.get(v, v) for v in node.inputs],
        [type_of(v) for v in node.results],
        node.attributes,
        regions,
      )
      new.update(zip(node.results, results))
    return [new.get(v, v) for v in graph.results]

  def _one(
    self,
    name: str,
    inputs: Sequence[Value],
    shape: Sequence[int],
    dtype: DType,
    attributes: Any = None,
    regions: Sequence[Graph] = (),
  ) -> Value:
    """A node of one result, or a constant if the result has no elements."""
    shape = tuple(shape)
    if 0 in shape:
      return self.constant(0, dtype, shape)
    op = f"stablehlo.{name}"
    key = (op, tuple(inputs), shape, dtype, attributes)
    result = None if regions else self._known.get(key)
    if result is None:
      (result,) = self.node(op, inputs, [(shape, dtype)], attributes, regions)
      if not regions:
        self._known[key] = result
    return result

  def constant(
    self,
    value: Number | np.ndarray,
    dtype: DType | None = None,
    shape: Sequence[int] | None = None,
  ) -> Value:
    """An array, or a scalar broadcast to `shape`.

    Args:
      value: a NumPy array or a number.
      dtype: its element type; None: that of the array.
      shape: None: that of the array.
    """
    array = np.asarray(value, None if dtype is None else NUMPY[dtype])
    if shape is not None and len(shape) > MOST_DIMENSIONS:
      type_ = (tuple(shape), _DTYPE[array.dtype])
      scalar = self.constant(array)
      return self.node("stablehlo.broadcast_in_dim", [scalar], [type_], ())[0]
    if shape is not None and array.shape != (to := tuple(shape)):
      array = np.broadcast_to(array, to)
    type_ = (array.shape, _DTYPE[array.dtype])
    if array.size != 1 and any(array.strides):
      return self.node("stablehlo.constant", [], [type_], array)[0]
    one = array[(slice(0, 1),) * array.ndim]
    key = (type_, one.tobytes())
    if key not in self._known:
      (result,) = self.node("stablehlo.constant", [], [type_], array)
      self._known[key] = result
    return self._known[key]

  def iota(self, dtype: DType, shape: Sequence[int], dimension: int) -> Value:
    """Each element's index along a dimension."""
    return self._one("iota", [], shape, dtype, dimension)

  def _as(self, operand: Operand, dtype: DType) -> Value:
    if isinstance(operand, Value):
      return operand
    return self.constant(operand, dtype, ())


def type_of(value: Value) -> Type:
  """Shape and element type."""
  return value.shape, value.dtype


def values_of(results: Value | Sequence[Value]) -> list[Value]:
  """The results of a region's function as a list."""
  return [results] if isinstance(results, Value) else list(results)
