"""Reductions of a few arrays that are stacked only for that: `jnp.select` finds
the first of its conditions as an argmax of their stack, and
`jnp.stack(parts).max(0)` is how a maximum of several arrays is written.

Combining the parts one after the other copies nothing, and is fused with what
computes them.
"""

from __future__ import annotations

from jaxlib.ipu.codelets._monoids import identity
from jaxlib.ipu.codelets.sort import NUMBER_DTYPES
from jaxlib.ipu.dtypes import FLOATS, INTEGERS, NARROW, NUMPY, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.region import argument_kind, monoid
from jaxlib.ipu.ir.registry import is_elementwise
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.ops.reduce import REDUCE, starts_empty
from jaxlib.ipu.passes.fold_constants import CONSTANT, splat
from jaxlib.ipu.passes.partial_sorts import counts

# The most parts. A guess: so many still fit into one map.
_MOST_PARTS = 16
# An arg-reduction of floats has vertices of its own, which take less time if
# there are more. Measured (100,000 f32, cycles): 2 take 0.52, 4 1.06 and 8 1.66
# times those of the reduction.
_MOST_FLOATS = 3
# As in `any`: what others use of the stack, too, is computed again.
_CHEAP = ("stablehlo.compare", "stablehlo.convert")
# Maxima of shorter integers take up to 1.35 times the cycles of the reduction.
_SHORT = NARROW | {DType.I8, DType.U8, DType.I16, DType.U16}


def unstack(e: Emitter, node: Node) -> list[Value] | None:
  """What equals a reduction of arrays that are stacked along its dimension;
  None for other reductions."""
  if node.op != REDUCE or len(node.attributes.dimensions) != 1:
    return None
  count, (d,) = len(node.results), node.attributes.dimensions
  data, inits = node.inputs[:count], node.inputs[count:]
  if data[0].shape[d] > _MOST_PARTS or 0 in data[0].shape:
    return None
  if not any(_is_stack(v, d) for v in data):
    return None
  if not all(_is_stack(v, d) or _is_known(v, d) for v in data):
    return None
  if not _SHORT.isdisjoint(v.dtype for v in data):
    return None
  (region,) = node.regions
  if not all(n.op == CONSTANT or is_elementwise(n) for n in region.nodes):
    return None
  arg = argument_kind(region) if count == 2 else None
  in_order = arg is not None and _counts(data[1], d) and starts_empty(node, arg)
  empty = in_order or (count == 1 and _is_identity(node))
  few = _MOST_FLOATS if data[0].dtype in FLOATS else _MOST_PARTS
  if in_order and data[0].shape[d] > few:
    return None
  if count == 1 and _is_rounded_once(node):
    return None
  rows = [[_part(e, v, d, k) for v in data] for k in range(data[0].shape[d])]
  if in_order and data[0].dtype is DType.BOOL:
    first = _first_true if arg is ReduceKind.ARGMAX else _first_false
    return _filled(e, first(e, rows), node)
  totals = rows.pop(0) if empty else list(inits)
  for row in rows:
    if in_order:
      totals = _first_extreme(e, arg, totals, row)
    else:
      totals = _apply(e, region, [*totals, *row])
  return _filled(e, totals, node)


def _filled(e: Emitter, totals: list[Value], node: Node) -> list[Value]:
  """Totals that are one number for all elements become arrays."""
  return [
    e.broadcast_in_dim(v, r.shape, ()) if v.shape != r.shape else v
    for v, r in zip(totals, node.results, strict=True)
  ]


def _is_stack(value: Value, d: int) -> bool:
  """Whether it is stacked along a dimension, or cheap to compute of a stack."""
  node = value.node
  if node is None:
    return False
  if node.op in _CHEAP:
    stacks = [_is_stack(v, d) for v in node.inputs]
    return any(stacks) and all(
      a or _is_known(v, d) for a, v in zip(stacks, node.inputs, strict=True)
    )
  return (
    node.op == "stablehlo.concatenate"
    and node.attributes == d
    and value.dtype not in _SHORT
    and all(v.shape[d] == 1 for v in node.inputs)
  )


def _is_known(value: Value, d: int) -> bool:
  return _counts(value, d) or splat(value) is not None


def _counts(value: Value, d: int) -> bool:
  # Narrow integers wrap.
  return value.dtype in NUMBER_DTYPES and counts(value, d)


def _part(e: Emitter, value: Value, d: int, k: int) -> Value:
  """The elements at an index, or the number that all of them are."""
  if _is_stack(value, d):
    node = value.node
    assert node is not None
    if node.op in _CHEAP:
      parts = [_part(e, v, d, k) for v in node.inputs]
      return _element_by_element(e, node, parts)
    part = node.inputs[k]
    return e.reshape(part, part.shape[:d] + part.shape[d + 1 :])
  if _counts(value, d):
    return e.constant(k, value.dtype)
  number = splat(value)
  assert number is not None
  return e.constant(number, value.dtype)


def _is_identity(node: Node) -> bool:
  """Whether the start value changes nothing: 0 makes +0 of -0."""
  kind, start = monoid(node.regions[0]), splat(node.inputs[-1])
  dtype = node.results[0].dtype
  if kind is None or start is None or dtype not in NUMPY:
    return False
  if kind is ReduceKind.SUM and dtype not in INTEGERS:
    return False
  return bool(start == identity(kind, NUMPY[dtype]))


def _is_rounded_once(node: Node) -> bool:
  """Whether a reduction computes in a wider type than that of its results."""
  dtype = node.results[0].dtype
  kind = monoid(node.regions[0])
  sums = kind in (ReduceKind.SUM, ReduceKind.PRODUCT)
  return sums and dtype in (DType.F16, DType.BF16)


def _first_true(e: Emitter, rows: list[list[Value]]) -> list[Value]:
  """An argmax of booleans: the first that is true, or the first of all."""
  some, index = rows[0]
  for value, number in reversed(rows):
    some = e.or_(some, value)
    index = e.select(value, number, index)
  return [some, index]


def _first_false(e: Emitter, rows: list[list[Value]]) -> list[Value]:
  every, index = rows[0]
  for value, number in reversed(rows):
    every = e.and_(every, value)
    index = e.select(value, index, number)
  return [every, index]


def _first_extreme(
  e: Emitter, kind: ReduceKind | None, old: list[Value], new: list[Value]
) -> list[Value]:
  """One step of an arg-reduction in the order of the indices: what comes first
  stays if both are equal, and so does a NaN."""
  order = "GE" if kind is ReduceKind.ARGMAX else "LE"
  keep = e.compare(old[0], new[0], order)
  if old[0].dtype in FLOATS:
    keep = e.or_(keep, e.compare(old[0], old[0], "NE"))
  return [e.select(keep, a, b) for a, b in zip(old, new, strict=True)]


def _apply(e: Emitter, region: Graph, inputs: list[Value]) -> list[Value]:
  """A scalar function of each element."""
  known = dict(zip(region.parameters, inputs, strict=True))
  for node in region.nodes:
    if node.op == CONSTANT:
      known[node.results[0]] = e.constant(
        node.attributes[()], node.results[0].dtype
      )
      continue
    inputs = [known.get(v, v) for v in node.inputs]
    known[node.results[0]] = _element_by_element(e, node, inputs)
  return [known.get(v, v) for v in region.results]


def _element_by_element(e: Emitter, node: Node, inputs: list[Value]) -> Value:
  return e.elementwise(
    node.op.removeprefix("stablehlo."),
    *inputs,
    dtype=node.results[0].dtype,
    attributes=node.attributes,
  )
