"""StableHLO to graph.

jaxlib's own MLIR passes run first (composites and CHLO legalised, calls
inlined, common subexpressions); then one traversal creates
the nodes. Each operation reads its own attributes (`ops/`).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from jaxlib.ipu import internals
from jaxlib.ipu.diagnostics import (
  CompileError,
  invalid_argument,
  unimplemented,
)
from jaxlib.ipu.dtypes import (
  MLIR_NAME,
  NAME,
  UNBUFFERED,
  DType,
)
from jaxlib.ipu.ir import (
  arguments,
  async_operations,
  canonical,
  detached_arrays,
  registry,
)
from jaxlib.ipu.ir.bytecode import Bytes
from jaxlib.ipu.ir.bytecode_strings import Strings
from jaxlib.ipu.ir.constants import MOST_DIMENSIONS, read_constant
from jaxlib.ipu.ir.graph import (
  Graph,
  Module,
  Node,
  Shape,
  Value,
)
from jaxlib.ipu.ir.partitions import num_partitions
from jaxlib.ipu.ir.refusals import instead_of, instead_of_type
from jaxlib.ipu.program import schema
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# In the name of the producer with which an artifact begins; the module in a
# program is bytecode of MLIR's own.
_ARTIFACT = b"StableHLO"


def parse(code: Bytes, strings: Strings | None = None) -> ir.Module:
  """The canonical StableHLO module of a portable artifact; `strings` are its
  own, if they have been read.

  Raises:
    CompileError: the bytes are not StableHLO that this jaxlib can read, or have
      a string that is not UTF-8.
  """
  strings = strings or Strings(code)
  strings.check()
  try:
    with canonical.passes(len(code)) as passes:
      if _ARTIFACT not in bytes(code[:32]):
        internals.allow_functions(passes.context)
      # The bindings read nothing but bytes; the copy is freed at once.
      module = stablehlo.deserialize_portable_artifact(
        passes.context, bytes(code)
      )
      with passes.context:
        if strings.mentions(b"async_start"):
          async_operations.make_synchronous(module)
        passes.run(module, strings)
  except (ir.MLIRError, ValueError) as e:
    raise invalid_argument(
      f"the IPU compiler cannot read this StableHLO module: {e}"
    ) from e
  return module


class ArrayLost(Exception):
  """The mark of a detached array is not in the module."""


def import_module(
  module: ir.Module, arrays: detached_arrays.Arrays | None = None
) -> Module:
  """The graph of a canonical module's `main`.

  `arrays` take the places of their marks.

  The module must outlive the graph, which reads locations lazily.

  Raises:
    CompileError: an operation or an element type is not supported; names it,
      the user's line, and what to do instead.
    ArrayLost: of no use any more, or of a type whose marks cannot be read.
  """
  functions = {}
  for op in module.body.operations:
    name = op.operation.name
    if name == "func.func":
      functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
    elif name != "sdy.mesh":
      raise _unimplemented(f"{name} beside @main", op.location)
  main = functions.get("main")
  if main is None or not main.regions[0].blocks:
    raise invalid_argument("the StableHLO module has no function @main")
  block = main.regions[0].blocks[0]
  walk = _Importer(functions, arrays or {})
  graph = walk.graph(block)
  if walk.attached != walk.arrays.keys():
    raise ArrayLost
  signature = (
    [(v.shape, v.dtype) for v in graph.parameters],
    [(v.shape, v.dtype) for v in graph.results],
  )
  for value in (*graph.parameters, *graph.results):
    if value.dtype in UNBUFFERED:
      raise unimplemented(
        f"arguments and results of type {NAME[value.dtype]}, for which PJRT "
        "has no buffers",
        value.node.location if value.node else None,
        "convert it inside the program",
      )
  aliases, donors = arguments.donations(main, signature)
  placements = arguments.placements(main, signature)
  for i, j in list(aliases) if placements else ():
    if placements.get((False, i)) != placements.get((True, j)):
      aliases.remove((i, j))  # their memory layouts differ
      donors.append(i)
  return Module(
    module_name(module),
    graph,
    aliases,
    sorted(donors),
    signature,
    walk.dtypes,
    placements,
    functools.partial(arguments.names, main),
    num_partitions(module.operation),
  )


def module_name(module: ir.Module) -> str:
  """The module's name: `jit_` and the function's, as given by JAX."""
  attributes = module.operation.attributes
  if "sym_name" in attributes:
    return ir.StringAttr(attributes["sym_name"]).value
  return "program"


class _Importer:
  """Traverses a function; regions see the values of enclosing graphs."""

  def __init__(
    self, functions: dict[str, Any], arrays: detached_arrays.Arrays
  ) -> None:
    self._functions = functions
    self.arrays = arrays
    self.attached: set[bytes] = set()
    self._depth = 0
    self._values: dict[Any, Value] = {}
    self._types: dict[Any, tuple[Shape, DType]] = {}

  def graph(self, block: Any) -> Graph:
    """The graph of a function's or a region's only block."""
    parameters = []
    if self._depth > _MOST_NESTED:
      raise unimplemented(
        f"control flow nested more than {_MOST_NESTED} deep",
        block.owner.location,
        "let inner functions return before outer ones continue",
      )
    self._depth += 1
    for argument in block.arguments:
      shape, dtype = self._type(argument.type, argument.owner)
      value = Value(None, len(parameters), shape, dtype)
      self._values[argument] = value
      parameters.append(value)
    nodes: list[Node] = []
    results: list[Value] = []
    for op in block.operations:
      operation = op.operation
      name = operation.name
      if name in ("func.return", "stablehlo.return"):
        results = [self._values[v] for v in operation.operands]
        break
      if name == _CONSTANT and operation.results[0].type.rank > MOST_DIMENSIONS:
        nodes += self._flat_constant(operation)
        continue
      node = self._node(name, operation)
      if node is not None:
        nodes.append(node)
    self._depth -= 1
    return Graph(parameters, nodes, results)

  def _node(self, name: str, operation: Any) -> Node | None:
    inputs = tuple([self._values[v] for v in operation.operands])
    results = list(operation.results)
    if name == _IDENTITY:
      for result, value in zip(results, inputs):
        self._values[result] = value
      return None
    called = ()
    if name == "stablehlo.custom_call":
      name = _custom_call(operation)
      if _CALLED in operation.attributes:
        called = operation.attributes[_CALLED]
    definition = registry.REGISTRY.get(name)
    if definition is None:
      raise _unimplemented(name, operation.location)
    known = self._types
    types = [
      known.get(t) or self._type(t, operation)
      for t in [r.type for r in results]
    ]
    bodies = []
    if len(operation.regions):
      bodies = [r.blocks[0] for r in operation.regions]
    for symbol in called:  # a custom call's functions become its regions
      function = self._functions.get(ir.FlatSymbolRefAttr(symbol).value)
      if function is None or not function.regions[0].blocks:
        raise invalid_argument(
          f"{name} calls {symbol}, which the module does not define",
          operation.location,
        )
      bodies.append(function.regions[0].blocks[0])
    regions = tuple([self.graph(body) for body in bodies])
    attributes = definition.read(operation) if definition.read else None
    if isinstance(attributes, np.ndarray):  # a constant
      attributes = self._attach(attributes)
    node = Node(name, inputs, types, attributes, regions, operation.location)
    if definition.check is not None and (expected := definition.check(node)):
      raise invalid_argument(
        f"{name} of {[v.type for v in inputs]} with results "
        f"{[v.type for v in node.results]}: expected {expected}",
        operation.location,
      )
    for result, value in zip(results, node.results):
      self._values[result] = value
    return node

  def _flat_constant(self, operation: Any) -> list[Node]:
    """A constant of more dimensions than an array of NumPy may have: one of
    one dimension, and its reshape; a splat is a broadcast scalar."""
    (result,) = operation.results
    shape, dtype = self._type(result.type, operation)
    array = self._attach(read_constant(operation, (math.prod(shape),), dtype))
    name, attributes = "stablehlo.reshape", None
    if array.size and not any(array.strides):
      array = array[0:1].reshape(())
      name, attributes = "stablehlo.broadcast_in_dim", ()
    where = operation.location
    types = [(array.shape, dtype)]
    constant = Node(_CONSTANT, (), types, array, location=where)
    node = Node(
      name, constant.results, [(shape, dtype)], attributes, location=where
    )
    self._values[result] = node.results[0]
    return [constant, node]

  def _attach(self, array: np.ndarray) -> np.ndarray:
    """The array itself for the mark of a detached one."""
    if not self.arrays or not array.size or any(array.strides):
      return array
    mark = array[(0,) * array.ndim].tobytes()
    bits = self.arrays.get(mark, b"")
    if len(bits) != array.nbytes:
      return array
    self.attached.add(mark)
    return np.frombuffer(bits, array.dtype).reshape(array.shape)

  @property
  def dtypes(self) -> frozenset[DType]:
    """All element types so far."""
    return frozenset([dtype for _, dtype in self._types.values()])

  def _type(self, type_: Any, where: Any) -> tuple[Shape, DType]:
    known = self._types.get(type_)
    if known is None:
      known = self._types[type_] = _read_type(type_, where)
    return known


# A limit of how deep regions may be nested: the decoder of programs allows for
# twice as many records within each other, and stacks of threads are small.
_MOST_NESTED = 90
# Of the module's arrays. The iteration space of an operation over windows has
# up to twice as many dimensions, and a complex array is a real one of one more.
_HIGHEST_RANK = schema.HIGHEST_RANK // 2 - 1
_CONSTANT = "stablehlo.constant"
_CALLED = "called_computations"
# It computes nothing: a barrier only orders, and the order is already fixed.
_IDENTITY = "stablehlo.optimization_barrier"


def _read_type(type_: Any, where: Any) -> tuple[Shape, DType]:
  location = getattr(where, "location", None)
  if str(type_) == "!stablehlo.token":
    return (0,), DType.BOOL
  if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
    raise unimplemented(
      f"values of type {type_}", location, instead_of_type(str(type_))
    )
  if type_.rank > _HIGHEST_RANK:
    raise unimplemented(
      f"an array of {type_.rank} dimensions ({type_})",
      location,
      f"at most {_HIGHEST_RANK} are supported: leave out those of one element, "
      "or reshape adjacent ones into one",
    )
  dtype = MLIR_NAME.get(str(type_.element_type))
  if dtype is None:
    raise unimplemented(
      f"element type {type_.element_type} (of a {type_})",
      location,
      "convert such arrays with astype before they reach the IPU, to one of "
      + ", ".join(MLIR_NAME),
    )
  return tuple(type_.shape), dtype


def _custom_call(operation: Any) -> str:
  """The registered name of a custom call, including its target unless it is a
  host function."""
  target = ir.StringAttr(operation.attributes["call_target_name"]).value
  name = f"{registry.CUSTOM_CALL}{target}"
  return name if name in registry.REGISTRY else "stablehlo.custom_call"


def _unimplemented(operation: str, location: Any) -> CompileError:
  return unimplemented(
    f"operation {operation}", location, instead_of(operation)
  )
