"""Replaces each complex value by two real ones.

They are separate planes, not interleaved pairs: element-wise work then needs no
shuffles, a product is real products of its operands in place, and fusion,
reductions and data movement need not support complex numbers. Arguments and
results are interleaved, as on the host: an argument is a real array with a last
dimension of 2, and its planes are strided views of it, moved to their tiles by
the exchange that any operand needs; a result is assembled by one copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import COMPLEX, PLANE, SIZE, DType
from jaxlib.ipu.ir.attributes import Comparison, DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.passes import complex_functions
from jaxlib.ipu.target import Target

Parts = tuple[Value, ...]

# Applied to each plane; real operands are used for both.
_MOVES = frozenset(
  f"stablehlo.{name}"
  for name in (
    "reshape", "broadcast_in_dim", "transpose", "slice", "reverse",
    "concatenate", "pad", "dynamic_slice", "dynamic_update_slice", "gather",
    "select",
  )
)  # fmt: skip
# Those whose first operand is all that they read.
_VIEWS = frozenset(
  f"stablehlo.{name}"
  for name in ("reshape", "broadcast_in_dim", "transpose", "slice", "reverse")
)
# Planes become further operands, results and parameters.
_FLAT = frozenset(
  f"stablehlo.{name}"
  for name in (
    "while", "case", "if", "sort", "reduce", "reduce_window", "scatter",
  )
)  # fmt: skip
# The host sees complex numbers as they are.
_AT_THE_HOST = frozenset(
  f"stablehlo.{name}"
  for name in ("custom_call", "infeed", "outfeed", "custom_call @ipu_feed")
)
# Of these, sums are applied to each plane.
_SUMS = frozenset(
  f"stablehlo.{name}" for name in ("reduce", "reduce_window", "scatter")
)
_MAP = "stablehlo.map"
_DOT = "stablehlo.dot_general"
_PRODUCTS = frozenset({_DOT, "stablehlo.convolution"})
# Planes of larger operands, in elements of a tile, are multiplied where they
# are. Measured: a copy is worth it up to 2048 elements, and costs as much as it
# saves at 4096, `python -m benchmarks --thresholds`.
_MOST_COPIED = 2048


def split_complex(graph: Graph, target: Target) -> Graph:
  """The graph without complex values, regions included."""
  return _Planes(target).entry(graph)


def handles(node: Node) -> bool:
  """Whether this pass rewrites a node, which has complex numbers; other nodes
  are decomposed first."""
  return node.op in _HANDLED and _is_complex(node)


def _is_complex(node: Node) -> bool:
  for v in (*node.inputs, *node.results):
    if v.dtype in COMPLEX:
      return True
  return False


class _Planes:
  def __init__(self, target: Target) -> None:
    self.new: dict[Value, Parts] = {}
    self.emitter = Emitter([], target=target)

  def entry(self, graph: Graph) -> Graph:
    """The entry graph, whose parameters and results are interleaved."""
    e = self.emitter

    def body(*parameters: Value) -> list[Value]:
      for old, value in zip(graph.parameters, parameters, strict=True):
        parts: Parts = (value,)
        if old.dtype in COMPLEX:
          parts = tuple(self._plane(value, k) for k in (0, 1))
        self.new[old] = parts
      self._nodes(graph)
      return [self._interleaved(self.new[v]) for v in graph.results]

    return e.region([_at_the_host(p) for p in graph.parameters], body)

  def _plane(self, value: Value, k: int) -> Value:
    e = self.emitter
    outer = value.shape[:-1]
    part = e.slice(value, (*(0,) * len(outer), k), (*outer, k + 1))
    return e.reshape(part, outer)

  def _interleaved(self, parts: Parts) -> Value:
    if len(parts) == 1:
      return parts[0]
    e = self.emitter
    columns = [e.reshape(p, (*p.shape, 1)) for p in parts]
    return e.concatenate(columns, len(parts[0].shape))

  def region(self, graph: Graph, group: int = 1) -> Graph:
    """A region whose complex parameters and results are replaced by two each.

    Parameters come in groups of one type: their real parts, then their
    imaginary ones. A sort compares two elements of each operand.
    """
    groups = [
      graph.parameters[i : i + group]
      for i in range(0, len(graph.parameters), group)
    ]

    def body(*parameters: Value) -> list[Value]:
      left = iter(parameters)
      for olds in groups:
        parts = [[next(left) for _ in olds] for _ in _types(olds[0])]
        self.new.update(zip(olds, zip(*parts)))
      self._nodes(graph)
      return [p for v in graph.results for p in self.new[v]]

    types = [t for olds in groups for t in _types(olds[0]) for _ in olds]
    return self.emitter.region(types, body)

  def _nodes(self, graph: Graph) -> None:
    for node in graph.nodes:
      self.emitter.location = node.location
      results = self.node(node)
      self.new.update(zip(node.results, results, strict=True))

  # --- Operations ----------------------------------------------------------

  def node(self, node: Node) -> Sequence[Parts]:
    """Rewrites a node; returns the parts of each of its results."""
    if not _is_complex(node):
      return self.flat(node) if node.regions else self.real(node)
    if node.op in _SUMS and self._combines(node):
      return self.by_plane(node)
    if node.op in _FLAT:
      return self.flat(node)
    if node.op == _MAP:
      return [self.mapped(node)]
    if node.op in _MOVES:
      return self.by_plane(node)
    if node.op in _PRODUCTS:
      return [self.product(node)]
    if node.op in _AT_THE_HOST:
      return self.host_call(node)
    inputs = [self.new[v] for v in node.inputs]
    function = complex_functions.FUNCTIONS.get(node.op)
    if function is not None:
      return [function(self.emitter, *inputs)]
    rule = _RULES.get(node.op)
    if rule is None:
      raise unimplemented(f"{node.op} of complex numbers", node.location)
    return [rule(self.emitter, node, inputs)]

  def real(self, node: Node) -> Sequence[Parts]:
    """The node, which has neither complex numbers nor regions."""
    new = self.new
    node.inputs = tuple([new[v][0] for v in node.inputs])
    self.emitter.nodes.append(node)
    return [(v,) for v in node.results]

  def flat(self, node: Node) -> Sequence[Parts]:
    """The same operation with two operands and results for each complex one."""
    group = 2 if node.op == "stablehlo.sort" else 1
    regions = [self.region(r, group) for r in node.regions]
    inputs = [p for v in node.inputs for p in self.new[v]]
    types = [t for v in node.results for t in _types(v)]
    made = iter(
      self.emitter.node(node.op, inputs, types, node.attributes, regions)
    )
    return [tuple(next(made) for _ in _types(v)) for v in node.results]

  def host_call(self, node: Node) -> Sequence[Parts]:
    """The same call on interleaved arrays, the host's format."""
    results = self.emitter.node(
      node.op,
      [self._interleaved(self.new[v]) for v in node.inputs],
      [_at_the_host(v) for v in node.results],
      node.attributes,
    )
    return [
      tuple(self._plane(new, k) for k in (0, 1))
      if old.dtype in COMPLEX
      else (new,)
      for old, new in zip(node.results, results, strict=True)
    ]

  def mapped(self, node: Node) -> Parts:
    """One map for each part, as a map has one result."""
    inputs = [p for v in node.inputs for p in self.new[v]]
    parts: list[Value] = []
    e, whole = self.emitter, self.region(node.regions[0])
    types = [(p.shape, p.dtype) for p in whole.parameters]
    for k, part in enumerate(_types(node.results[0])):
      own = lambda *values, k=k: e.call(whole, values)[k]
      region = e.region(types, own)
      parts += e.node(node.op, inputs, [part], node.attributes, [region])
    return tuple(parts)

  def by_plane(self, node: Node) -> Sequence[Parts]:
    """The same operation on real parts and on imaginary parts."""
    halves = []
    values = [self.new[v] for v in node.inputs]
    for k in (0, 1):
      inputs = [p[min(k, len(p) - 1)] for p in values]
      types = [_types(v)[0] for v in node.results]
      regions = [self._real_region(r) for r in node.regions]
      halves.append(
        self.emitter.node(node.op, inputs, types, node.attributes, regions)
      )
    return list(zip(*halves, strict=True))

  def _real_region(self, region: Graph) -> Graph:
    """One plane's region, given a region that works on parts separately."""
    dtypes = [PLANE[p.dtype] for p in region.parameters]
    types = [((), d) for d in dtypes]
    count = len(dtypes) // 2
    if region.nodes:
      return self.emitter.region(
        types, lambda *x: [self.emitter.add(*p) for p in zip(x, x[count:])]
      )
    return self.emitter.region(types, lambda *x: x[count:])

  def _combines(self, node: Node) -> bool:
    """Whether a region adds or replaces: parts are independent."""
    (region,) = node.regions
    count = len(region.results)
    old, new = region.parameters[:count], region.parameters[count:]
    if not all(p.dtype in COMPLEX for p in region.parameters):
      return False
    if list(region.results) == new:
      return not region.nodes
    return len(region.nodes) == count == 1 and (
      region.nodes[0].op == "stablehlo.add"
      and set(region.nodes[0].inputs) == {*old, *new}
      and region.results[0] is region.nodes[0].results[0]
    )

  def product(self, node: Node) -> Parts:
    """The sum of the products of planes, but for those that are zero."""
    e = self.emitter
    lhs, rhs = (
      {k: p for k, p in enumerate(self.new[v]) if not _is_zero(p)}
      for v in node.inputs
    )
    planes = (*lhs.values(), *rhs.values())
    copied = sum(math.prod(p.shape) for p in planes) / e.machine.num_tiles
    several = min(len(lhs), len(rhs)) > 0 and len(planes) > 2
    if node.op == _DOT and several and copied <= _MOST_COPIED:
      products = self._at_once(node, lhs, rhs)
    else:
      products = {
        (i, j): self._product(node, [a, b], node.attributes)
        for i, a in lhs.items()
        for j, b in rhs.items()
      }
    parts: list[Value] = []
    for first, second in (((0, 0), (1, 1)), ((0, 1), (1, 0))):
      x, y = products.get(first), products.get(second)
      if y is not None and not parts:
        parts.append(e.negate(y) if x is None else e.subtract(x, y))
      elif x is not None and y is not None:
        parts.append(e.add(x, y))
      else:
        found = y if x is None else x
        (shape, dtype), _ = _types(node.results[0])
        parts.append(e.constant(0, dtype, shape) if found is None else found)
    return tuple(parts)

  def _product(
    self, node: Node, operands: list[Value], attributes: object, *planes: int
  ) -> Value:
    """A real product, with further dimensions for `planes`."""
    (shape, dtype), _ = _types(node.results[0])
    (product,) = self.emitter.node(
      node.op, operands, [((*planes, *shape), dtype)], attributes
    )
    return product

  def _at_once(
    self, node: Node, lhs: dict[int, Value], rhs: dict[int, Value]
  ) -> dict[tuple[int, int], Value]:
    """The products of all planes of two operands, as one product."""
    e = self.emitter
    d: DotDimensions = node.attributes
    shape, lhs_rank = node.results[0].shape, len(node.inputs[0].shape)
    stacks = []
    for planes in (lhs, rhs):
      stacks.append(_stacked(e, list(planes.values())))
    # The planes' dimensions are the first of the result.
    first = len(d.lhs_batch)
    second = lhs_rank - len(d.lhs_contract) + 1
    order = [n for n in range(2 + len(shape)) if n not in (first, second)]
    order = [order[n] for n in d.result or range(len(shape))]
    up = lambda dims: tuple(n + 1 for n in dims)
    attributes = DotDimensions(
      up(d.lhs_batch),
      up(d.rhs_batch),
      up(d.lhs_contract),
      up(d.rhs_contract),
      (first, second, *order),
      d.f16_sums,
    )
    product = self._product(node, stacks, attributes, len(lhs), len(rhs))

    def one(i: int, j: int) -> Value:
      start = (i, j, *(0,) * len(shape))
      part = e.slice(product, start, (i + 1, j + 1, *shape))
      return e.reshape(part, shape)

    return {
      (k, l): one(i, j) for i, k in enumerate(lhs) for j, l in enumerate(rhs)
    }


def _stacked(e: Emitter, planes: list[Value]) -> Value:
  """Planes along a new first dimension; as they are if they are all parts of
  such an array."""
  first, *others = (_array_of(p, k, len(planes)) for k, p in enumerate(planes))
  if first is not None and all(other is first for other in others):
    return first
  return e.concatenate([e.reshape(p, (1, *p.shape)) for p in planes], 0)


def _array_of(plane: Value, k: int, count: int) -> Value | None:
  """The array [count, ...] of which this is part k, if there is one."""
  outer = plane.node
  if outer is None or outer.op != "stablehlo.reshape":
    return None
  part = outer.inputs[0].node
  if part is None or part.op != "stablehlo.slice":
    return None
  array, (starts, limits, _) = part.inputs[0], part.attributes
  found = array.shape == (count, *plane.shape)
  return array if found and (starts[0], limits[0]) == (k, k + 1) else None


def _types(value: Value) -> list[tuple[tuple[int, ...], DType]]:
  if value.dtype in COMPLEX:
    return [(value.shape, PLANE[value.dtype])] * 2
  return [(value.shape, value.dtype)]


def _at_the_host(value: Value) -> tuple[tuple[int, ...], DType]:
  """The type of an interleaved value."""
  if value.dtype in COMPLEX:
    return (*value.shape, 2), PLANE[value.dtype]
  return value.shape, value.dtype


def _is_zero(value: Value) -> bool:
  """Whether a plane is a zero constant, as that of a real number is."""
  node = value.node
  while node is not None and node.op in _VIEWS:
    node = node.inputs[0].node
  if node is None or node.op != "stablehlo.constant":
    return False
  array: np.ndarray = node.attributes
  splat = array.size == 1 or not any(array.strides)
  return splat and array.size > 0 and array[(0,) * array.ndim] == 0


# --- Between complex and real numbers ----------------------------------------


def _constant(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  array: np.ndarray = node.attributes
  return e.constant(array.real), e.constant(array.imag)


def _iota(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  value = node.results[0]
  dtype = PLANE[value.dtype]
  index = e.iota(dtype, value.shape, node.attributes)
  return index, e.constant(0, dtype, value.shape)


def _complex(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  return inputs[0][0], inputs[1][0]


def _real(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  return (inputs[0][0],)


def _imag(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  return (inputs[0][1],)


def _abs(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  return (complex_functions.magnitude(e, (inputs[0][0], inputs[0][1])),)


def _convert(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  """Adds an imaginary part of 0 to real numbers, drops that of complex ones."""
  value = node.results[0]
  if value.dtype not in COMPLEX:
    return (e.convert(inputs[0][0], value.dtype),)
  dtype = PLANE[value.dtype]
  parts = [e.convert(p, dtype) for p in inputs[0]]
  return parts[0], (
    parts[1] if len(parts) > 1 else e.constant(0, dtype, value.shape)
  )


def _bitcast(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  """Bitcasts interleaved parts, the host's format."""
  to = node.results[0]
  shape, dtype = (*to.shape, 2), PLANE[to.dtype]
  columns = [e.reshape(p, (*p.shape, 1)) for p in inputs[0]]
  pairs = e.concatenate(columns, len(columns[0].shape) - 1)
  ratio = SIZE[dtype] // SIZE[pairs.dtype]
  if ratio > 1:
    pairs = e.reshape(pairs, (*shape, ratio))
  bits = e.reshape(e.bitcast_convert(pairs, dtype), shape)
  start = (0,) * len(to.shape)
  return tuple(
    e.reshape(e.slice(bits, (*start, k), (*to.shape, k + 1)), to.shape)
    for k in (0, 1)
  )


def _compare(e: Emitter, node: Node, inputs: Sequence[Parts]) -> Parts:
  comparison: Comparison = node.attributes
  direction = comparison.opcode.name
  same = [e.compare(x, y, direction) for x, y in zip(*inputs)]
  if direction == "EQ":
    return (e.and_(*same),)
  if direction == "NE":
    return (e.or_(*same),)
  raise unimplemented(
    f"compare {direction} of complex numbers, which have no order",
    node.location,
    "compare their parts or magnitudes",
  )


_RULES: dict[str, Callable[[Emitter, Node, Sequence[Parts]], Parts]] = {
  "stablehlo.constant": _constant,
  "stablehlo.iota": _iota,
  "stablehlo.complex": _complex,
  "stablehlo.real": _real,
  "stablehlo.imag": _imag,
  "stablehlo.abs": _abs,
  "stablehlo.convert": _convert,
  "stablehlo.bitcast_convert": _bitcast,
  "stablehlo.compare": _compare,
}
_HANDLED = (
  _MOVES | _FLAT | _PRODUCTS | {_MAP, *_RULES, *complex_functions.FUNCTIONS}
)
