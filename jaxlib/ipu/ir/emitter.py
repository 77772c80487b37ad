"""Writes StableHLO into a graph; used by decompositions.

A rule, `registry.Operation.decompose`, gets an `Emitter` and the node that it
replaces, and returns a value for each of the node's results:

    def _batch_norm_inference(e: Emitter, node: Node) -> list[Value]:
      x, scale, offset, mean, variance = node.inputs
      inverse = e.rsqrt(e.add(variance, node.attributes.epsilon))
      ...

- There is a method per operation, named as in StableHLO, with StableHLO's
  argument order. Result types are inferred, dimensions count from 0.
- Element-wise methods take Python and NumPy scalars for splat constants of
  the other operand's type, and scalar values beside arrays. Nothing else is
  broadcast or converted implicitly.
- Regions are Python functions of values. They call the same emitter, which
  then writes into the region. Loop bodies and branches may use values of
  enclosing graphs; scalar functions (`reduce`, `scatter`) only their
  parameters and constants.
- No-ops add no node: a reshape to the same shape, a full slice, operations on
  arrays without elements, and nodes that the same graph or region already has.
- Nodes get the location of the node that is replaced. Emitted nodes may have
  rules of their own.
- `node` adds any other operation, `call` a copy of an existing region.

Compilation runs on threads that flush float32 denormals: pass those as bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.attributes import (
  RARE_LOOP,
  DotDimensions,
  Indexing,
  Reduction,
)
from jaxlib.ipu.ir.element_emitter import ElementEmitter
from jaxlib.ipu.ir.graph import Graph, Value
from jaxlib.ipu.ir.movement_emitter import MovementEmitter
from jaxlib.ipu.ir.node_emitter import Function, Operand, type_of, values_of


class Emitter(ElementEmitter, MovementEmitter):
  """All operations; this class adds products and those with regions."""

  def dot_general(
    self,
    lhs: Value,
    rhs: Value,
    dimension_numbers: DotDimensions,
    dtype: DType | None = None,
  ) -> Value:
    """A batched product; `dtype` None: that of lhs."""
    d = dimension_numbers
    rows = [
      n
      for i, n in enumerate(lhs.shape)
      if i not in d.lhs_batch and i not in d.lhs_contract
    ]
    columns = [
      n
      for i, n in enumerate(rhs.shape)
      if i not in d.rhs_batch and i not in d.rhs_contract
    ]
    shape = [lhs.shape[i] for i in d.lhs_batch] + rows + columns
    shape = [shape[i] for i in d.result or range(len(shape))]
    return self._one("dot_general", [lhs, rhs], shape, dtype or lhs.dtype, d)

  def matmul(
    self,
    lhs: Value,
    rhs: Value,
    *,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
  ) -> Value:
    """The product of matrices [..., m, k] and [..., k, n]; transposed ones are
    [..., k, m] and [..., n, k]. Leading dimensions must be equal."""
    rank = len(lhs.shape)
    batch = tuple(range(rank - 2))
    dims = DotDimensions(
      batch,
      batch,
      (rank - 2 if transpose_lhs else rank - 1,),
      (rank - 1 if transpose_rhs else rank - 2,),
    )
    return self.dot_general(lhs, rhs, dims)

  def reduce(
    self,
    operand: Value,
    init_value: Operand,
    dimensions: Sequence[int],
    body: str | Function,
  ) -> Value:
    """Reduces one operand.

    Args:
      operand: any array.
      init_value: the start value; it may be omitted from the computation if it
        is a named body's identity.
      dimensions: the reduced ones.
      body: "add", "maximum" and so on, or a function of two scalars.
    """
    init = self._as(init_value, operand.dtype)
    return self.reduce_several([operand], [init], dimensions, body)[0]

  def reduce_several(
    self,
    inputs: Sequence[Value],
    init_values: Sequence[Value],
    dimensions: Sequence[int],
    body: str | Function,
  ) -> list[Value]:
    """A variadic reduction; `body` takes accumulators, then elements."""
    dims = tuple(dimensions)
    shape = tuple(n for d, n in enumerate(inputs[0].shape) if d not in dims)
    region = self._scalar_region([v.dtype for v in inputs], body)
    types = [(shape, v.dtype) for v in inputs]
    return list(
      self.node(
        "stablehlo.reduce",
        [*inputs, *init_values],
        types,
        Reduction(dims),
        [region],
      )
    )

  def _scalar_region(self, dtypes: list[DType], body: str | Function) -> Graph:
    if isinstance(body, str):
      name = body
      body = lambda a, b: self.elementwise(name, a, b)
    return self.region([((), d) for d in 2 * dtypes], body)

  def scatter(
    self,
    operand: Value,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: Indexing,
    update_computation: str | Function,
  ) -> Value:
    """Scatters updates; `update_computation`: as `body` of `reduce`, or
    "set"."""
    if 0 in updates.shape:
      return operand
    body = update_computation
    if body == "set":
      body = lambda old, new: new
    region = self._scalar_region([operand.dtype], body)
    inputs = [operand, scatter_indices, updates]
    return self._one(
      "scatter",
      inputs,
      operand.shape,
      operand.dtype,
      dimension_numbers,
      [region],
    )

  def while_loop(
    self,
    operand: Sequence[Value],
    cond: Function,
    body: Function,
    rare: bool = False,
  ) -> list[Value]:
    """Passes values through `body` while `cond` is true; `rare` says that the
    cost analysis is to count no iteration, since few data need any."""
    types = [type_of(v) for v in operand]
    regions = [self.region(types, cond), self.region(types, body)]
    attributes = RARE_LOOP if rare else None
    return list(
      self.node("stablehlo.while", operand, types, attributes, regions)
    )

  def fori_loop(
    self, count: int, operand: Sequence[Value], body: Function
  ) -> list[Value]:
    """Passes values through `body(i, *values)` for i in 0 ... count - 1."""
    start = self.constant(0, DType.I32)

    def cond(i: Value, *values: Value) -> Value:
      return self.compare(i, count, "LT")

    def step(i: Value, *values: Value) -> list[Value]:
      return [self.add(i, 1), *values_of(body(i, *values))]

    return self.while_loop([start, *operand], cond, step)[1:]

  def case(self, index: Value, branches: Sequence[Function]) -> list[Value]:
    """The results of one of several functions without parameters; an index
    out of range selects the last."""
    regions = [self.region([], branch) for branch in branches]
    types = [type_of(v) for v in regions[0].results]
    return list(self.node("stablehlo.case", [index], types, None, regions))
