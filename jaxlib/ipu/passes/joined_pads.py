"""Sums of arrays that lie beside each other in zeros: a concatenation.

The gradient of taking an array apart, such as `q, k, v = qkv`, is the sum of
its parts' gradients, each padded with zeros to the whole. Padding writes the
whole once for each part, and the sum reads all of these.
"""

from __future__ import annotations

import numpy as np

from jaxlib.ipu.dtypes import FLOATS, INTEGERS, DType
from jaxlib.ipu.ir.attributes import Padding
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.passes.fold_constants import splat

_MOVEMENT = frozenset(
  f"stablehlo.{name}"
  for name in ("reshape", "transpose", "slice", "reverse", "concatenate")
)


def join(e: Emitter, node: Node) -> Value | None:
  """What equals a sum of two arrays padded with zeros that are neighbours in
  one dimension, and have the same place in the others; None for other sums.

  x + 0 is not x if x is -0, so parts that can be have a zero added, once for
  all of them.
  """
  a, b = (_padded(v) for v in node.inputs)
  if a is None or b is None:
    return None
  d = _neighbours(a, b)
  if d is None:
    return None
  if a.attributes.low[d] > b.attributes.low[d]:
    a, b = b, a
  first, second = (n.attributes for n in (a, b))
  parts = [_without_zero(n.inputs[0]) for n in (a, b)]
  both = e.concatenate(parts, d)
  if any(_may_be_negative_zero(v) for v in parts):
    both = e.add(both, 0)
  high = [*first.high]
  high[d] = second.high[d]
  return e.pad(both, a.inputs[1], first.low, high)


def _padded(value: Value) -> Node | None:
  """The node that pads with +0, outside alone; None for other values."""
  node = value.node
  if node is None or node.op != "stablehlo.pad":
    return None
  if value.dtype not in FLOATS and value.dtype not in INTEGERS:
    return None
  a: Padding = node.attributes
  if any(a.interior) or min((*a.low, *a.high), default=0) < 0:
    return None
  filling = splat(node.inputs[1])
  return node if filling is not None and _is_zero(filling) else None


def _is_zero(number: np.generic) -> bool:
  """Whether all bits are 0."""
  return not any(number.tobytes())


def _neighbours(a: Node, b: Node) -> int | None:
  """The dimension in which one padded array begins where the other ends."""
  (x, p), (y, q) = ((n.inputs[0].shape, n.attributes) for n in (a, b))
  apart = [
    d
    for d in range(len(x))
    if (p.low[d], x[d], p.high[d]) != (q.low[d], y[d], q.high[d])
  ]
  if len(apart) != 1:
    return None
  (d,) = apart
  touch = p.low[d] + x[d] == q.low[d] or q.low[d] + y[d] == p.low[d]
  return d if touch else None


def _without_zero(value: Value) -> Value:
  """x of a sum x + 0."""
  node = value.node
  if node is not None and node.op == "stablehlo.add":
    zero = splat(node.inputs[1])
    if zero is not None and _is_zero(zero):
      return node.inputs[0]
  return value


def _may_be_negative_zero(value: Value) -> bool:
  """Sums that begin with +0 cannot be, unless they are rounded."""
  if value.dtype in INTEGERS:
    return False
  node = value.node
  if node is None:
    return True
  if node.op in _MOVEMENT:
    return any(_may_be_negative_zero(v) for v in node.inputs)
  if value.dtype not in (DType.F32, DType.F64):
    return True
  if node.op == "stablehlo.dot_general":
    return node.attributes.f16_sums
  if node.op == "stablehlo.reduce" and len(node.inputs) == 2:
    start = splat(node.inputs[1])
    begins = start is not None and _is_zero(start)
    return not begins or monoid(node.regions[0]) is not ReduceKind.SUM
  return True
