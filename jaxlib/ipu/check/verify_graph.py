"""Checks of the graph, after the phases that create or change it."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.dtypes import STORED, DType
from jaxlib.ipu.ir import registry
from jaxlib.ipu.ir.graph import CALL, Graph, Module, Node, Value


class InvalidGraph(Exception):
  """An invalid graph; names the defect and its place."""


def verify(module: Module, lowerable: bool = False) -> None:
  """Checks a module.

  Args:
    module: of any phase.
    lowerable: operations that only decompose are errors, too.

  Raises:
    InvalidGraph: names the first defect.
  """
  graph = module.graph
  for function in module.functions:
    _graph(function.graph, set(), lowerable)
  _graph(graph, set(), lowerable)
  for argument, result in module.aliases:
    _require(
      argument < len(graph.parameters) and result < len(graph.results),
      f"argument {argument} aliases result {result}; one is missing",
    )
  for number in module.donors:
    _require(number < len(graph.parameters), f"there is no argument {number}")


def _require(condition: bool, message: str) -> None:
  if not condition:
    raise InvalidGraph(message)


def _graph(graph: Graph, outer: set[int], lowerable: bool) -> None:
  """Every value is defined once, before its uses; `outer` ones may be used."""
  known = set(outer)
  for i, parameter in enumerate(graph.parameters):
    _require(
      parameter.node is None and id(parameter) not in known,
      f"parameter {i}, {parameter}, is defined elsewhere too",
    )
    _value(parameter, f"parameter {i}", lowerable)
    known.add(id(parameter))
  for n, node in enumerate(graph.nodes):
    where = f"node {n}, {node}"
    for i, value in enumerate(node.inputs):
      _require(
        id(value) in known, f"{where}: input {i}, {value}, is not defined yet"
      )
    definition = registry.REGISTRY.get(node.op)
    _require(
      definition is not None and not (lowerable and definition.lower is None),
      f"{where}: nothing lowers {node.op}",
    )
    for region in node.regions:
      _graph(region, known, lowerable)
    _node(node, where)
    for i, value in enumerate(node.results):
      _require(
        value.node is node and value.index == i and id(value) not in known,
        f"{where}: its result {i} says that it is another's",
      )
      _value(value, where, lowerable)
      known.add(id(value))
  for i, value in enumerate(graph.results):
    _require(id(value) in known, f"result {i}, {value}, is not defined")


def _value(value: Value, where: str, lowerable: bool) -> None:
  _require(
    value.dtype in (STORED if lowerable else DType)
    and all(isinstance(n, int) and n >= 0 for n in value.shape),
    f"{where}: {value.shape} of {value.dtype} is no type",
  )


def _types(values: Sequence[Value]) -> list[str]:
  return [v.type for v in values]


def _node(node: Node, where: str) -> None:
  """Checks constraints of an operation's regions and shapes."""
  if node.op == "stablehlo.while":
    _require(len(node.regions) == 2, f"{where}: a condition and a body")
    condition, body = node.regions
    carried = _types(node.inputs)
    for name, types in (
      ("the condition takes", _types(condition.parameters)),
      ("the body takes", _types(body.parameters)),
      ("the body gives", _types(body.results)),
      ("it gives", _types(node.results)),
    ):
      _require(types == carried, f"{where}: {name} {types}, not {carried}")
    _require(
      _types(condition.results) == ["i1"],
      f"{where}: its condition gives {_types(condition.results)}",
    )
  elif node.op in ("stablehlo.case", "stablehlo.if"):
    wanted = _types(node.results)
    for i, region in enumerate(node.regions):
      types = _types(region.results)
      _require(types == wanted, f"{where}: branch {i} gives {types}")
  elif node.op == CALL:
    called = node.attributes.function.graph
    for name, given, wanted in (
      ("operands", node.inputs, called.parameters),
      ("results", node.results, called.results),
    ):
      types = _types(wanted)
      _require(
        _types(given) == types,
        f"{where}: its {name} are {_types(given)}, the function's {types}",
      )
  elif registry.is_elementwise(node):
    shape = node.results[0].shape
    for i, value in enumerate(node.inputs):
      # Scalars go with any shape: select's predicate, clamp's bounds.
      _require(
        value.shape in (shape, ()),
        f"{where}: input {i} is {value.type}, an element-wise result "
        f"{node.results[0].type}",
      )
