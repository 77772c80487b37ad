"""The compiler's graph: StableHLO in static single assignment, in Python.

A `Graph` is a list of nodes in topological order. Regions (loop bodies,
branches, reducers) are graphs; they may use values of enclosing graphs. The
importer's pipeline has inlined all calls; those that there are have been found
by passes/share_repeats.py.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxlib.ipu.dtypes import DType, type_text
from jaxlib.ipu.program import schema

Shape = tuple[int, ...]
Type = tuple[Shape, DType]
Signature = tuple[list[Type], list[Type]]


class Value:
  """A node's result, or a graph's parameter (`node` is None)."""

  __slots__ = ("node", "index", "shape", "dtype")

  def __init__(
    self, node: Node | None, index: int, shape: Shape, dtype: DType
  ) -> None:
    self.node = node
    self.index = index
    self.shape = shape
    self.dtype = dtype

  @property
  def type(self) -> str:
    """The type as MLIR writes it, without the `tensor<>` around it."""
    return type_text(self.shape, self.dtype)

  def __repr__(self) -> str:
    return f"Value({self.type})"


class Origin(NamedTuple):
  """An operation that a fused node comes from.

  Attributes:
    location: of the operation, as in `Node`.
    op: the operation.
    weight: its part of the node's cost, in any unit.
  """

  location: Any
  op: str
  weight: float


class Node:
  """An operation; `attributes` is what its `read` returned, `origins` the
  operations of a fused node (passes/origins.py)."""

  __slots__ = (
    "op", "inputs", "results", "attributes", "regions", "location", "origins",
  )  # fmt: skip

  def __init__(
    self,
    op: str,
    inputs: tuple[Value, ...],
    types: list[tuple[Shape, DType]],
    attributes: Any = None,
    regions: tuple[Graph, ...] = (),
    location: schema.Location | None = None,
  ) -> None:
    self.op = op
    self.inputs = inputs
    if len(types) == 1:  # nearly always
      self.results: tuple[Value, ...] = (Value(self, 0, *types[0]),)
    else:
      self.results = tuple(
        [Value(self, i, s, d) for i, (s, d) in enumerate(types)]
      )
    self.attributes = attributes
    self.regions = regions
    self.location = location
    self.origins: tuple[Origin, ...] = ()

  def __repr__(self) -> str:
    types = ", ".join(v.type for v in self.results)
    return f"Node({self.op} -> {types})"


@dataclasses.dataclass(slots=True)
class Graph:
  """Parameters, nodes in order, results."""

  parameters: list[Value]
  nodes: list[Node]
  results: list[Value]


@dataclasses.dataclass(slots=True, eq=False)
class Function:
  """Operations that several calls run.

  Attributes:
    number: of the function.
    graph: its operations, which use no other values than its parameters.
    fixed: the numbers of parameters that are the same values in all calls.
  """

  number: int
  graph: Graph
  fixed: frozenset[int] = frozenset()


# The operation of a call, whose operands are the function's parameters.
CALL = "ipu.call"


@dataclasses.dataclass(slots=True, eq=False)
class Callee:
  """The attributes of a call.

  Attributes:
    function: that it calls.
    locations: of the operations that the call stands for, by those of the
      function's, where they differ.
  """

  function: Function
  locations: dict[Any, Any]

  def __str__(self) -> str:
    return f"function {self.function.number}"


class Placement(NamedTuple):
  """The caller's layout of an argument or a result.

  Attributes:
    minor_to_major: its dimensions from the innermost in memory; empty if
      row-major.
    on_host: it is in the host's memory (JAX's "pinned_host").
  """

  minor_to_major: tuple[int, ...] = ()
  on_host: bool = False


@dataclasses.dataclass(slots=True)
class Module:
  """A program's entry graph and its signature.

  Attributes:
    name: the module's.
    graph: the entry function.
    aliases: (argument, result) pairs of `tf.aliasing_output`.
    donors: arguments that the caller donates without an alias.
    signature: the types of arguments and of results as the caller sees them,
      whatever passes change in the graph.
    dtypes: all element types of the imported graph.
    placements: of arguments, (False, number), and results, (True, number),
      that are not row-major on the device.
    names: the user's names of the arguments and of the results.
    num_partitions: the number of devices that run it together.
    functions: that the graph calls.
  """

  name: str
  graph: Graph
  aliases: list[tuple[int, int]]
  donors: list[int]
  signature: Signature = dataclasses.field(default_factory=lambda: ([], []))
  dtypes: frozenset[DType] = frozenset()
  placements: dict[tuple[bool, int], Placement] = dataclasses.field(
    default_factory=dict
  )
  names: Callable[[], tuple[list[str], list[str]]] = lambda: ([], [])
  num_partitions: int = 1
  functions: list[Function] = dataclasses.field(default_factory=list)

  @property
  def donated(self) -> set[int]:
    """All arguments that the caller donates."""
    return {i for i, _ in self.aliases} | set(self.donors)


def used_values(node: Node) -> list[Value]:
  """The values that a node and those in its regions use, among them regions'
  own."""
  found = [*node.inputs]
  for region in node.regions:
    for inner in region.nodes:
      found += used_values(inner)
    found += region.results
  return found


def replace_values(nodes: Iterable[Node], new: Mapping[Value, Value]) -> None:
  """Makes nodes, and those in their regions, use new values for others."""
  for node in nodes:
    node.inputs = tuple([new.get(v, v) for v in node.inputs])
    for region in node.regions:
      replace_values(region.nodes, new)
      region.results = [new.get(v, v) for v in region.results]


Users = dict[int, list[Node | None]]


def users(graph: Graph) -> Users:
  """The users of each value, by its id; None stands for the results of a graph.

  Includes regions, and functions once. A node that uses a value twice is listed
  twice.
  """
  found: Users = defaultdict(list)
  todo = [graph]
  called: set[int] = set()
  while todo:
    inner = todo.pop()
    for value in inner.results:
      found[id(value)].append(None)
    for node in inner.nodes:
      for value in node.inputs:
        found[id(value)].append(node)
      todo.extend(node.regions)
      if node.op == CALL:
        function = node.attributes.function
        if function.number not in called:
          called.add(function.number)
          todo.append(function.graph)
  return found
