"""Scalar regions (reducers, combiners) as register programs."""

from __future__ import annotations

import dataclasses

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, DType
from jaxlib.ipu.ir.graph import Graph, Value
from jaxlib.ipu.ir.map_program import make_source
from jaxlib.ipu.ir.registry import REGISTRY
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer

_MONOIDS = {
  "stablehlo.add": ReduceKind.SUM,
  "stablehlo.multiply": ReduceKind.PRODUCT,
  "stablehlo.maximum": ReduceKind.MAX,
  "stablehlo.minimum": ReduceKind.MIN,
  "stablehlo.and": ReduceKind.AND,
  "stablehlo.or": ReduceKind.OR,
  "stablehlo.xor": ReduceKind.XOR,
}
# Arithmetic on bool is logic.
_BOOL = {
  ReduceKind.SUM: ReduceKind.OR,
  ReduceKind.PRODUCT: ReduceKind.AND,
  ReduceKind.MAX: ReduceKind.OR,
  ReduceKind.MIN: ReduceKind.AND,
}

_SCALAR = (
  "combine elements by element-wise operations on the function's own arguments "
  "and constants"
)


@dataclasses.dataclass(frozen=True)
class Combiner:
  """A register program over a region's parameters, in their order."""

  code: Code
  outputs: tuple[int, ...]


def monoid(region: Graph) -> ReduceKind | None:
  """The kind of a region that is one commutative operation on two scalars."""
  if len(region.nodes) != 1 or len(region.parameters) != 2:
    return None
  (node,) = region.nodes
  if set(map(id, node.inputs)) != set(map(id, region.parameters)):
    return None
  if region.results[0] is not node.results[0]:
    return None
  kind = _MONOIDS.get(node.op)
  if kind is not None and node.results[0].dtype is DType.BOOL:
    kind = _BOOL.get(kind, kind)
  return kind


def argument_kind(region: Graph) -> ReduceKind | None:
  """ARGMAX or ARGMIN if the region selects as JAX's arg-reductions do.

  The larger (smaller) value wins, NaN before all, ties go to the smaller index.
  The region's register program is compared with that of JAX's reducer. An
  integer is never NaN, so the test for NaN is folded when a program is parsed,
  and may be missing.
  """
  if len(region.parameters) != 4:
    return None
  dtypes = [p.dtype for p in region.parameters]
  if dtypes[0] != dtypes[2] or dtypes[1] != dtypes[3]:
    return None
  if dtypes[1] not in INTEGERS:
    return None
  actual = combiner(region)
  for kind, opcode in (
    (ReduceKind.ARGMAX, Opcode.GT),
    (ReduceKind.ARGMIN, Opcode.LT),
  ):
    tests = (True,) if dtypes[0] in FLOATS else (True, False)
    if any(actual == _argument_combiner(opcode, dtypes, t) for t in tests):
      return kind
  return None


def _argument_combiner(
  opcode: Opcode, dtypes: list[DType], tests_nan: bool
) -> Combiner:
  code = Writer()
  value, index = REGISTER[dtypes[0]], REGISTER[dtypes[1]]
  old, old_index, new, new_index = (
    code.load(i, d) for i, d in enumerate(dtypes)
  )
  bool_ = REGISTER[DType.BOOL]
  keep = code.emit(opcode, value, old, new)
  if tests_nan:
    nan = code.emit(Opcode.NE, value, old, old)
    keep = code.emit(Opcode.OR, bool_, keep, nan)
  tie = code.emit(Opcode.EQ, value, old, new)
  first = code.emit(Opcode.LT, index, old_index, new_index)
  both = code.emit(Opcode.AND, bool_, tie, first)
  keep_index = code.emit(Opcode.OR, bool_, keep, both)
  a = code.emit(Opcode.SELECT, value, keep, old, new)
  b = code.emit(Opcode.SELECT, index, keep_index, old_index, new_index)
  return Combiner(code.finish(), (a, b))


def combiner(region: Graph) -> Combiner:
  """The register program of any scalar region.

  Raises:
    CompileError: the region holds an operation that is not element-wise.
  """
  code = Writer()
  parameters = [code.load(i, p.dtype) for i, p in enumerate(region.parameters)]
  outputs = inline(code, region, parameters)
  return Combiner(code.finish(), tuple(outputs))


def inline(code: Writer, region: Graph, inputs: list[int]) -> list[int]:
  """Writes a scalar region's instructions.

  Args:
    code: the program to write to.
    region: its parameters and results are scalars.
    inputs: the values of the region's parameters.

  Returns:
    The values of the region's results.

  Raises:
    CompileError: the region holds an operation that is not element-wise.
  """
  numbers = {id(p): i for p, i in zip(region.parameters, inputs, strict=True)}

  def number(value: Value) -> int:
    known = numbers.get(id(value))
    if known is None:
      known = make_source(code, value, ())
      if known is None:
        source = value.node.op if value.node else "an outer value"
        raise unimplemented(
          f"a scalar function that uses {source}", None, _SCALAR
        )
      numbers[id(value)] = known
    return known

  for node in region.nodes:
    if node.op == "stablehlo.constant":
      continue
    row = REGISTRY[node.op].elementwise
    if row is None:
      raise unimplemented(
        f"{node.op} inside a scalar function", node.location, _SCALAR
      )
    numbers[id(node.results[0])] = row.emit(
      code, [number(v) for v in node.inputs], node
    )
  return [number(v) for v in region.results]
