"""Replaces values of narrow types by bytes (u8).

Operations that move elements move bytes. Those that compute do so on the wide
type (f32, i32, u32), between `ipu.decode` and `ipu.encode`; a scalar function
inside a reduction, a scatter or a sort works on wide numbers throughout, so
that a sum is rounded once. No phase after this pass sees narrow types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxlib.ipu.dtypes import (
  FLOATS,
  NARROW,
  NARROW_BITS,
  NARROW_INTEGERS,
  DType,
  bits,
)
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ops.host_memory import BUFFER, LOAD, STORE
from jaxlib.ipu.ops.narrow import DECODE, ENCODE, wide

# Operations that do not depend on their elements' type.
_MOVES = frozenset(
  {
    f"stablehlo.{name}"
    for name in (
      "reshape", "broadcast_in_dim", "transpose", "slice", "reverse",
      "concatenate", "pad", "dynamic_slice", "dynamic_update_slice",
      "gather", "select", "while", "case", "if", "custom_call",
      "all_gather", "all_to_all", "collective_permute",
      "collective_broadcast", "infeed", "outfeed", "custom_call @ipu_feed",
    )
  }
) | {BUFFER, LOAD, STORE}  # fmt: skip

# Operations that depend on the element's width, or on its sign bit.
_AS_UNSIGNED = frozenset(
  {
    "stablehlo.shift_right_logical",
    "stablehlo.popcnt",
    "stablehlo.count_leading_zeros",
  }
)
_AS_SIGNED = frozenset({"stablehlo.shift_right_arithmetic"})
_UNSIGNED = {2: DType.U2, 4: DType.U4}
_SIGNED = {2: DType.I2, 4: DType.I4}


def widen(graph: Graph) -> Graph:
  """The graph without values of narrow types, regions included."""
  return _Narrow().graph(graph)


def _stored(dtype: DType) -> DType:
  return DType.U8 if dtype in NARROW else dtype


def _wide(dtype: DType) -> DType:
  return wide(dtype) if dtype in NARROW else dtype


def _read_as(node: Node) -> DType | None:
  """The type as which an operation reads narrow integers, if another one."""
  dtype = node.results[0].dtype
  if dtype in NARROW_INTEGERS:
    if node.op in _AS_UNSIGNED:
      return _UNSIGNED[NARROW_BITS[dtype]]
    if node.op in _AS_SIGNED:
      return _SIGNED[NARROW_BITS[dtype]]
  return None


def _indices(node: Node) -> range:
  """The operands of a movement that are indices."""
  match node.op:
    case "stablehlo.dynamic_slice":
      return range(1, len(node.inputs))
    case "stablehlo.dynamic_update_slice":
      return range(2, len(node.inputs))
    case "stablehlo.gather":
      return range(1, 2)
    case "stablehlo.scatter":
      return range(len(node.results), len(node.results) + 1)
  return range(0, 0)


class _Narrow:
  def __init__(self) -> None:
    self.new: dict[Value, Value] = {}
    self.emitter = Emitter([])

  def graph(
    self, graph: Graph, to: Callable[[DType], DType] = _stored
  ) -> Graph:
    """A graph whose narrow values become bytes, or wide, as `to` says."""

    def body(*parameters: Value) -> list[Value]:
      self.new.update(zip(graph.parameters, parameters, strict=True))
      for node in graph.nodes:
        self.emitter.location = node.location
        results = self.bytes(node) if to is _stored else self.widened(node)
        self.new.update(zip(node.results, results, strict=True))
      return [self.new[v] for v in graph.results]

    types = [(p.shape, to(p.dtype)) for p in graph.parameters]
    return self.emitter.region(types, body)

  def rebuilt(
    self,
    node: Node,
    inputs: Sequence[Value],
    to: Callable[[DType], DType],
  ) -> Sequence[Value]:
    """The same operation on other types."""
    regions = [self.graph(r, to) for r in node.regions]
    types = [(v.shape, to(v.dtype)) for v in node.results]
    return self.emitter.node(node.op, inputs, types, node.attributes, regions)

  # --- Numbers -------------------------------------------------------------

  def decode(self, old: Value, as_: DType | None = None) -> Value:
    """The wide number of a value; values of other types are unchanged."""
    value = self.new[old]
    if old.dtype not in NARROW or value.dtype is not DType.U8:
      return value
    return self.number(value, as_ or old.dtype)

  def number(self, value: Value, dtype: DType) -> Value:
    """The wide number of bytes that hold `dtype`."""
    types = [(value.shape, wide(dtype))]
    return self.emitter.node(DECODE, [value], types, dtype)[0]

  def encode(self, value: Value, dtype: DType) -> Value:
    """The bytes of a number of the wide type, or of an f64."""
    types = [(value.shape, DType.U8)]
    return self.emitter.node(ENCODE, [value], types, dtype)[0]

  def converted(self, value: Value, dtype: DType) -> Value:
    """The bytes of a number of any type: floats saturate to integers."""
    if dtype in NARROW_INTEGERS and value.dtype in FLOATS:
      value = self.emitter.convert(value, wide(dtype))
      signed = wide(dtype) is DType.I32
      high = (1 << (NARROW_BITS[dtype] - signed)) - 1
      value = self.emitter.clamp(-high - 1 if signed else 0, value, high)
    elif dtype in NARROW_INTEGERS or value.dtype is not DType.F64:
      value = self.emitter.convert(value, wide(dtype))
    return self.encode(value, dtype)

  # --- Operations ----------------------------------------------------------

  def bytes(self, node: Node) -> Sequence[Value]:
    """Rewrites a node; narrow values are bytes."""
    if not any(v.dtype in NARROW for v in (*node.inputs, *node.results)):
      return self.moved(node)
    if node.op == "stablehlo.constant":
      return [self.emitter.constant(node.attributes.view(np.uint8))]
    if node.op in _MOVES:
      return self.moved(node)
    if node.op == "stablehlo.scatter":
      region = node.regions[0]
      if region.results == region.parameters[len(node.results) :]:
        return self.moved(node)
    if not node.results:  # a marker, such as dce_sink
      return self.moved(node)
    if node.op == "stablehlo.bitcast_convert":
      return [self.bitcast(node)]
    if node.op == "stablehlo.convert":
      value, to = self.decode(node.inputs[0]), node.results[0].dtype
      if to in NARROW:
        return [self.converted(value, to)]
      return [self.emitter.convert(value, to)]
    return self.computed(node)

  def moved(self, node: Node) -> Sequence[Value]:
    """The same operation on bytes. Indices are numbers."""
    at = _indices(node)
    inputs = [
      self.decode(v) if i in at else self.new[v]
      for i, v in enumerate(node.inputs)
    ]
    return self.rebuilt(node, inputs, _stored)

  def computed(self, node: Node) -> Sequence[Value]:
    """The operation on wide numbers, with its results as bytes."""
    as_ = _read_as(node)
    inputs = [self.decode(v, as_) for v in node.inputs]
    results = self.rebuilt(node, inputs, lambda d: _wide(as_ or d))
    out = []
    for old, value in zip(node.results, results, strict=True):
      if old.dtype in NARROW:
        if node.op == "stablehlo.count_leading_zeros":
          value = self.emitter.subtract(value, 32 - NARROW_BITS[old.dtype])
        value = self.encode(value, old.dtype)
      out.append(value)
    return out

  def widened(self, node: Node) -> Sequence[Value]:
    """Rewrites a node of a scalar function; narrow values are wide."""
    dtype = node.results[0].dtype
    if dtype in NARROW and node.op == "stablehlo.constant":
      (value,) = self.bytes(node)
      return [self.number(value, dtype)]
    inputs = [self.decode(v) for v in node.inputs]
    if dtype in NARROW and node.op == "stablehlo.convert":
      return [self.number(self.converted(inputs[0], dtype), dtype)]
    return self.rebuilt(node, inputs, _wide)

  # --- Bits ----------------------------------------------------------------

  def bitcast(self, node: Node) -> Value:
    """Bitcasts through bytes. Several elements of less than 8 bits make one
    byte, the first in the lowest bits."""
    e = self.emitter
    old, new = node.inputs[0], node.results[0]
    value = self.new[old]
    source, to = bits(old.dtype), bits(new.dtype)
    if source != to and source < 8:
      value = self.pack(value, source, min(to, 8) // source)
    if source != to and to < 8:
      if source >= 8:
        value = e.bitcast_convert(value, DType.U8)
      value = self.unpack(value, to, min(source, 8) // to)
      return e.reshape(value, new.shape)
    return e.reshape(e.bitcast_convert(value, _stored(new.dtype)), new.shape)

  def pack(self, value: Value, size: int, count: int) -> Value:
    """(..., n) of few bits to bytes (..., n / count)."""
    e = self.emitter
    *outer, last = value.shape
    shape = (*outer, last // count, count)
    value = e.and_(e.reshape(value, shape), (1 << size) - 1)
    index = e.iota(DType.U8, shape, len(shape) - 1)
    value = e.shift_left(value, e.multiply(index, size))
    packed = e.reduce(value, 0, [len(shape) - 1], "or")
    return e.reshape(packed, outer) if last == count else packed

  def unpack(self, value: Value, size: int, count: int) -> Value:
    """Bytes (...) to (..., count) of few bits."""
    e = self.emitter
    shape = (*value.shape, count)
    value = e.broadcast_in_dim(value, shape, range(len(value.shape)))
    index = e.iota(DType.U8, shape, len(shape) - 1)
    value = e.shift_right_logical(value, e.multiply(index, size))
    return e.and_(value, (1 << size) - 1)
