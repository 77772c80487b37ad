"""Writes StableHLO into a graph; decompositions are written with it.

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
  then writes into the region. Loop bodies and branches may use values of the
  graphs around them; functions of scalars (`reduce`, `scatter`) only their
  parameters and constants.
- What computes nothing adds no node: a reshape to the same shape, a full
  slice, operations on arrays without elements; nor does what the same graph
  or region has already.
- Nodes get the location of the node that is replaced. What a rule emits may
  have rules of its own.
- `node` adds any other operation, `call` a copy of an existing region.

Compilation runs on threads that flush float32 denormals: give those as bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import NUMPY, PLANE, SIZE, DType
from jaxlib.ipu.ir.attributes import (
  Comparison,
  DotDimensions,
  Indexing,
  Padding,
  Reduction,
)
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.program.isa import Opcode
from jaxlib.ipu.target import Target

Number = int | float | bool | np.generic
Operand = Value | Number
Type = tuple[Shape, DType]
# A region: values of its parameters -> values of its results.
Function = Callable[..., Value | Sequence[Value]]

_DTYPE = {numpy: dtype for dtype, numpy in NUMPY.items()}


def _unary(name: str) -> Callable[[Emitter, Value], Value]:
  return lambda e, operand: e.elementwise(name, operand)


def _binary(name: str) -> Callable[[Emitter, Operand, Operand], Value]:
  return lambda e, lhs, rhs: e.elementwise(name, lhs, rhs)


class Emitter:
  """Appends nodes to a list; see the module's docstring.

  Attributes:
    nodes: the list: the graph's, or, while a region is made, the region's.
    location: what the new nodes get.
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
    self._known: dict[Any, Value] = {}  # what `nodes` has already

  @property
  def machine(self) -> Target:
    """The machine to write for."""
    if self._target is None:
      raise internal("this emitter was told no machine", self.location)
    return self._target

  # --- Anything ------------------------------------------------------------

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
      op: its name, `stablehlo.` included.
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
    """The region of a function of values of these types."""
    parameters = [Value(None, i, s, d) for i, (s, d) in enumerate(types)]
    outer = self.nodes, self._known
    self.nodes, self._known = [], {}
    try:
      results = _values(function(*parameters))
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
        types = [_type(p) for p in region.parameters]

        def body(*values: Value, region: Graph = region) -> list[Value]:
          return self._copy(region, new | dict(zip(region.parameters, values)))

        regions.append(self.region(types, body))
      results = self.node(
        node.op,
        [new.get(v, v) for v in node.inputs],
        [_type(v) for v in node.results],
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
    """A node of one result, which is a constant if it has no elements."""
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

  # --- Constants -----------------------------------------------------------

  def constant(
    self,
    value: Number | np.ndarray,
    dtype: DType | None = None,
    shape: Sequence[int] | None = None,
  ) -> Value:
    """An array, or a scalar in every element of `shape`.

    Args:
      value: a NumPy array or a number.
      dtype: its element type; None: that of the array.
      shape: None: that of the array.
    """
    array = np.asarray(value, None if dtype is None else NUMPY[dtype])
    if shape is not None:
      array = np.broadcast_to(array, tuple(shape))
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

  # --- Element-wise --------------------------------------------------------

  def elementwise(
    self,
    name: str,
    *operands: Operand,
    dtype: DType | None = None,
    attributes: Any = None,
  ) -> Value:
    """An element-wise operation on operands of one type.

    Args:
      name: the operation's, without `stablehlo.`.
      *operands: values of one shape or scalars, and numbers, at least one
        value among them.
      dtype: the result's; None: the operands'.
      attributes: see `node`.
    """
    like = next(v for v in operands if isinstance(v, Value))
    values = [self._as(v, like.dtype) for v in operands]
    return self._elements(name, values, dtype or like.dtype, attributes)

  def _as(self, operand: Operand, dtype: DType) -> Value:
    if isinstance(operand, Value):
      return operand
    return self.constant(operand, dtype, ())

  def _elements(
    self, name: str, values: list[Value], dtype: DType, attributes: Any = None
  ) -> Value:
    shapes = {v.shape for v in values} - {()}
    if len(shapes) > 1:
      types = ", ".join(v.type for v in values)
      raise internal(f"{name} of {types}", self.location)
    shape = shapes.pop() if shapes else ()
    return self._one(name, values, shape, dtype, attributes)

  negate = _unary("negate")
  sign = _unary("sign")
  sqrt = _unary("sqrt")
  rsqrt = _unary("rsqrt")
  cbrt = _unary("cbrt")
  exponential = _unary("exponential")
  exponential_minus_one = _unary("exponential_minus_one")
  log = _unary("log")
  log_plus_one = _unary("log_plus_one")
  logistic = _unary("logistic")
  sine = _unary("sine")
  cosine = _unary("cosine")
  tan = _unary("tan")
  tanh = _unary("tanh")
  floor = _unary("floor")
  ceil = _unary("ceil")
  round_nearest_afz = _unary("round_nearest_afz")
  round_nearest_even = _unary("round_nearest_even")
  not_ = _unary("not")
  popcnt = _unary("popcnt")
  count_leading_zeros = _unary("count_leading_zeros")

  add = _binary("add")
  subtract = _binary("subtract")
  multiply = _binary("multiply")
  divide = _binary("divide")
  remainder = _binary("remainder")
  power = _binary("power")
  atan2 = _binary("atan2")
  maximum = _binary("maximum")
  minimum = _binary("minimum")
  and_ = _binary("and")
  or_ = _binary("or")
  xor = _binary("xor")
  shift_left = _binary("shift_left")
  shift_right_logical = _binary("shift_right_logical")
  shift_right_arithmetic = _binary("shift_right_arithmetic")

  def real(self, operand: Value) -> Value:
    """The real parts; of real numbers, these."""
    dtype = PLANE.get(operand.dtype)
    return self.elementwise("real", operand, dtype=dtype) if dtype else operand

  def imag(self, operand: Value) -> Value:
    """The imaginary parts of complex numbers."""
    dtype = PLANE[operand.dtype]
    return self.elementwise("imag", operand, dtype=dtype)

  def complex(self, lhs: Value, rhs: Value) -> Value:
    """Complex numbers of their real and imaginary parts."""
    wide = lhs.dtype is DType.F64
    dtype = DType.C128 if wide else DType.C64
    return self.elementwise("complex", lhs, rhs, dtype=dtype)

  def abs(self, operand: Value) -> Value:
    """Magnitudes, real ones of complex numbers."""
    dtype = PLANE.get(operand.dtype, operand.dtype)
    return self.elementwise("abs", operand, dtype=dtype)

  def is_finite(self, operand: Value) -> Value:
    """Neither infinite nor NaN, as a bool."""
    return self.elementwise("is_finite", operand, dtype=DType.BOOL)

  def compare(
    self,
    lhs: Operand,
    rhs: Operand,
    direction: str,
    *,
    total_order: bool = False,
  ) -> Value:
    """`direction`: EQ, NE, LT, LE, GT or GE."""
    comparison = Comparison(Opcode[direction], total_order)
    return self.elementwise(
      "compare", lhs, rhs, dtype=DType.BOOL, attributes=comparison
    )

  def select(self, pred: Value, on_true: Operand, on_false: Operand) -> Value:
    """on_true where pred, else on_false; one of them must be a value."""
    like = on_true if isinstance(on_true, Value) else on_false
    assert isinstance(like, Value), "a select of two numbers has no type"
    values = [
      pred,
      self._as(on_true, like.dtype),
      self._as(on_false, like.dtype),
    ]
    return self._elements("select", values, like.dtype)

  def clamp(self, min: Operand, operand: Value, max: Operand) -> Value:
    """The operand between its bounds."""
    values = [self._as(v, operand.dtype) for v in (min, operand, max)]
    return self._elements("clamp", values, operand.dtype)

  def convert(self, operand: Value, dtype: DType) -> Value:
    """The operand as another element type."""
    if operand.dtype is dtype:
      return operand
    return self.elementwise("convert", operand, dtype=dtype)

  def reduce_precision(
    self, operand: Value, exponent_bits: int, mantissa_bits: int
  ) -> Value:
    """The operand rounded to fewer bits."""
    bits = (exponent_bits, mantissa_bits)
    return self.elementwise("reduce_precision", operand, attributes=bits)

  def bitcast_convert(self, operand: Value, dtype: DType) -> Value:
    """The same bits; between widths the last dimension comes or goes."""
    shape = operand.shape
    if SIZE[operand.dtype] > SIZE[dtype]:
      shape = (*shape, SIZE[operand.dtype] // SIZE[dtype])
    elif SIZE[operand.dtype] < SIZE[dtype]:
      shape = shape[:-1]
    elif operand.dtype is dtype:
      return operand
    return self._one("bitcast_convert", [operand], shape, dtype)

  # --- Data movement -------------------------------------------------------

  def reshape(self, operand: Value, shape: Sequence[int]) -> Value:
    """The elements, in row-major order, in another shape."""
    if operand.shape == tuple(shape):
      return operand
    return self._one("reshape", [operand], shape, operand.dtype)

  def broadcast_in_dim(
    self,
    operand: Value,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
  ) -> Value:
    """Dimension i of the operand is `broadcast_dimensions[i]` of the result."""
    dims = tuple(broadcast_dimensions)
    if operand.shape == tuple(shape) and dims == tuple(range(len(shape))):
      return operand
    return self._one("broadcast_in_dim", [operand], shape, operand.dtype, dims)

  def transpose(self, operand: Value, permutation: Sequence[int]) -> Value:
    """Dimension i of the result is `permutation[i]` of the operand."""
    order = tuple(permutation)
    if order == tuple(range(len(order))):
      return operand
    shape = [operand.shape[d] for d in order]
    return self._one("transpose", [operand], shape, operand.dtype, order)

  def slice(
    self,
    operand: Value,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
  ) -> Value:
    """Elements from start to before limit, in steps, per dimension."""
    starts, limits = tuple(start_indices), tuple(limit_indices)
    steps = tuple(strides or (1,) * len(starts))
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, steps))
    if shape == operand.shape:
      return operand
    attributes = (starts, limits, steps)
    return self._one("slice", [operand], shape, operand.dtype, attributes)

  def slice_in_dim(
    self, operand: Value, start_index: int, limit_index: int, axis: int
  ) -> Value:
    """Elements from start to before limit along one dimension."""
    starts, limits = [0] * len(operand.shape), list(operand.shape)
    starts[axis], limits[axis] = start_index, limit_index
    return self.slice(operand, starts, limits)

  def reverse(self, operand: Value, dimensions: Sequence[int]) -> Value:
    """The elements in the other order along some dimensions."""
    dims = tuple(d for d in dimensions if operand.shape[d] != 1)
    if not dims:
      return operand
    return self._one("reverse", [operand], operand.shape, operand.dtype, dims)

  def concatenate(self, inputs: Sequence[Value], dimension: int) -> Value:
    """The inputs one after the other along a dimension."""
    parts = [v for v in inputs if v.shape[dimension]] or list(inputs[:1])
    if len(parts) == 1:
      return parts[0]
    shape = list(parts[0].shape)
    shape[dimension] = sum(v.shape[dimension] for v in parts)
    return self._one("concatenate", parts, shape, parts[0].dtype, dimension)

  def pad(
    self,
    operand: Value,
    padding_value: Operand,
    edge_padding_low: Sequence[int],
    edge_padding_high: Sequence[int],
    interior_padding: Sequence[int] | None = None,
  ) -> Value:
    """Elements before, after and between; negative edges cut."""
    low, high = tuple(edge_padding_low), tuple(edge_padding_high)
    between = tuple(interior_padding or (0,) * len(low))
    if not any((*low, *high, *between)):
      return operand
    shape = [
      a + n + max(n - 1, 0) * i + b
      for a, n, i, b in zip(low, operand.shape, between, high)
    ]
    inputs = [operand, self._as(padding_value, operand.dtype)]
    padding = Padding(low, high, between)
    return self._one("pad", inputs, shape, operand.dtype, padding)

  def dynamic_slice(
    self,
    operand: Value,
    start_indices: Sequence[Operand],
    slice_sizes: Sequence[int],
  ) -> Value:
    """A slice whose start is only known at run time; clamped to the operand."""
    sizes = tuple(slice_sizes)
    if sizes == operand.shape:
      return operand
    starts = [self._as(i, DType.I32) for i in start_indices]
    inputs = [operand, *starts]
    return self._one("dynamic_slice", inputs, sizes, operand.dtype)

  def dynamic_update_slice(
    self, operand: Value, update: Value, start_indices: Sequence[Operand]
  ) -> Value:
    """The operand with a slice replaced; its start is clamped likewise."""
    if update.shape == operand.shape:
      return update
    if 0 in update.shape:
      return operand
    starts = [self._as(i, DType.I32) for i in start_indices]
    inputs = [operand, update, *starts]
    return self._one(
      "dynamic_update_slice", inputs, operand.shape, operand.dtype
    )

  def gather(
    self, operand: Value, start_indices: Value, dimension_numbers: Indexing
  ) -> Value:
    """Slices of sizes `dimension_numbers.slice_sizes`."""
    d = dimension_numbers
    dropped = (*d.collapsed, *d.operand_batch)
    window = iter(n for i, n in enumerate(d.slice_sizes) if i not in dropped)
    batch = iter(
      n for i, n in enumerate(start_indices.shape) if i != d.index_vector_dim
    )
    rank = len(operand.shape) - len(dropped) + len(start_indices.shape)
    rank -= d.index_vector_dim < len(start_indices.shape)
    shape = [next(window if i in d.window_dims else batch) for i in range(rank)]
    inputs = [operand, start_indices]
    return self._one("gather", inputs, shape, operand.dtype, d)

  def scatter(
    self,
    operand: Value,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: Indexing,
    update_computation: str | Function,
  ) -> Value:
    """`update_computation`: as `body` of `reduce`, or "set"."""
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

  # --- Products and reductions ---------------------------------------------

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
      init_value: what the reduction starts with; a name's identity lets it run
        without.
      dimensions: those that are reduced.
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

  # --- Control flow --------------------------------------------------------

  def while_loop(
    self, operand: Sequence[Value], cond: Function, body: Function
  ) -> list[Value]:
    """Carries values through `body` as long as `cond` gives true."""
    types = [_type(v) for v in operand]
    regions = [self.region(types, cond), self.region(types, body)]
    return list(self.node("stablehlo.while", operand, types, None, regions))

  def fori_loop(
    self, count: int, operand: Sequence[Value], body: Function
  ) -> list[Value]:
    """Carries values through `body(i, *values)` for i in 0 ... count - 1."""
    start = self.constant(0, DType.I32)

    def cond(i: Value, *values: Value) -> Value:
      return self.compare(i, count, "LT")

    def step(i: Value, *values: Value) -> list[Value]:
      return [self.add(i, 1), *_values(body(i, *values))]

    return self.while_loop([start, *operand], cond, step)[1:]

  def case(self, index: Value, branches: Sequence[Function]) -> list[Value]:
    """The results of one of several functions without parameters; an index
    out of range takes the last."""
    regions = [self.region([], branch) for branch in branches]
    types = [_type(v) for v in regions[0].results]
    return list(self.node("stablehlo.case", [index], types, None, regions))


def _type(value: Value) -> Type:
  return value.shape, value.dtype


def _values(results: Value | Sequence[Value]) -> list[Value]:
  return [results] if isinstance(results, Value) else list(results)
