"""Operations that give one of their operands, or are a simpler operation.

Each rule holds for every value: of floats too, where x + 0 is not x (-0 + 0 is
+0), nor is x - x zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import FLOATS, INTEGERS, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import has_effect
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.passes import joined_pads
from jaxlib.ipu.passes.fold_constants import constant, splat
from jaxlib.ipu.passes.signs import never_negative

Rule = Callable[[Emitter, Node], Value | None]


def simpler(e: Emitter, node: Node) -> Value | None:
  """A value that equals the node's only result; None if no rule applies."""
  if 0 in node.results[0].shape and not has_effect(node):
    return e.constant(0, node.results[0].dtype, node.results[0].shape)
  rule = _RULES.get(node.op)
  return None if rule is None else rule(e, node)


def without_elements(e: Emitter, node: Node) -> list[Value] | None:
  """The results of a node with regions if it has nothing to do: no results,
  nothing to reduce or to scatter, or no dimensions to reduce (where XLA applies
  no initial value either)."""
  if has_effect(node):
    return None
  if all(0 in v.shape for v in node.results):
    return [e.constant(0, v.dtype, v.shape) for v in node.results]
  half = len(node.inputs) // 2
  if node.op == "stablehlo.reduce" and 0 in node.inputs[0].shape:
    return [
      e.broadcast_in_dim(init, v.shape, ())
      for v, init in zip(node.results, node.inputs[half:])
    ]
  if node.op == "stablehlo.reduce" and not node.attributes.dimensions:
    return list(node.inputs[:half])
  if node.op == "stablehlo.scatter" and 0 in node.inputs[-1].shape:
    return list(node.inputs[:half])
  return None


def _made_by(value: Value, name: str) -> Node | None:
  node = value.node
  return node if node is not None and node.op == f"stablehlo.{name}" else None


# --- Movement ----------------------------------------------------------------


def _reshape(e: Emitter, node: Node) -> Value | None:
  (x,), shape = node.inputs, node.results[0].shape
  if x.shape == shape:
    return x
  inner = _made_by(x, "reshape")
  return e.reshape(inner.inputs[0], shape) if inner else None


def _broadcast(e: Emitter, node: Node) -> Value | None:
  (x,), shape, dims = node.inputs, node.results[0].shape, node.attributes
  if math.prod(x.shape) == math.prod(shape) and 0 not in shape:
    # Only dimensions of one element are new.
    kept = [d for d, n in zip(dims, x.shape) if n != 1]
    if kept == sorted(kept):
      return e.reshape(x, shape)
    if len(dims) == len(shape):
      return e.transpose(x, [dims.index(d) for d in range(len(shape))])
    return None
  inner = _made_by(x, "broadcast_in_dim")
  if inner is None:
    return _broadcast_twice(e, node)
  merged = [dims[d] for d in inner.attributes]
  return e.broadcast_in_dim(inner.inputs[0], shape, merged)


def _broadcast_twice(e: Emitter, node: Node) -> Value | None:
  """Broadcasts once instead of twice with a reshape in between, as `jnp.repeat`
  along two dimensions does, if the reshape only merges dimensions and the
  second broadcast widens none of them."""
  (x,), shape, dims = node.inputs, node.results[0].shape, node.attributes
  reshape = _made_by(x, "reshape")
  inner = reshape and _made_by(reshape.inputs[0], "broadcast_in_dim")
  if not inner or any(n != shape[d] for d, n in zip(dims, x.shape)):
    return None
  groups = _merged(inner.results[0].shape, x.shape)
  if groups is None:
    return None
  parts: list[Sequence[int]] = [(n,) for n in shape]
  for d, group in zip(dims, groups):
    parts[d] = group
  begins = [0, *itertools.accumulate(map(len, parts))]
  places = [
    begins[d] + i for d, group in zip(dims, groups) for i in range(len(group))
  ]
  wide = e.broadcast_in_dim(
    inner.inputs[0],
    [*itertools.chain(*parts)],
    [places[d] for d in inner.attributes],
  )
  return e.reshape(wide, shape)


def _merged(
  shape: Sequence[int], into: Sequence[int]
) -> list[Sequence[int]] | None:
  """The dimensions of `shape` that each one of `into` merges; None if a reshape
  splits some."""
  groups, at = [], 0
  for size in into:
    begin, product = at, 1
    while at < len(shape) and product * shape[at] <= size:
      product *= shape[at]
      at += 1
    if product != size:
      return None
    groups.append(shape[begin:at])
  return groups if at == len(shape) else None


def _transpose(e: Emitter, node: Node) -> Value | None:
  (x,), order = node.inputs, node.attributes
  shape = node.results[0].shape
  moved = [d for d in order if x.shape[d] != 1]
  if moved == sorted(moved):
    return e.reshape(x, shape)
  inner = _made_by(x, "transpose")
  if inner is not None:
    return e.transpose(inner.inputs[0], [inner.attributes[d] for d in order])
  inner = _made_by(x, "broadcast_in_dim")
  if inner is not None:
    dims = [order.index(d) for d in inner.attributes]
    return e.broadcast_in_dim(inner.inputs[0], shape, dims)
  return None


def _slice(e: Emitter, node: Node) -> Value | None:
  (x,), (starts, limits, strides) = node.inputs, node.attributes
  if node.results[0].shape == x.shape:
    return x
  inner = _made_by(x, "concatenate")
  if inner is None:
    return None
  d, first = inner.attributes, 0
  for part in inner.inputs:
    after = first + part.shape[d]
    if first <= starts[d] and limits[d] <= after and starts[d] < limits[d]:
      new_starts, new_limits = list(starts), list(limits)
      new_starts[d] -= first
      new_limits[d] -= first
      return e.slice(part, new_starts, new_limits, strides)
    first = after
  return None


def _reverse(e: Emitter, node: Node) -> Value | None:
  (x,) = node.inputs
  dims = [d for d in node.attributes if x.shape[d] != 1]
  return e.reverse(x, dims) if len(dims) < len(node.attributes) else None


def _concatenate(e: Emitter, node: Node) -> Value | None:
  d = node.attributes
  parts: list[Value] = []
  for value in node.inputs:
    inner = _made_by(value, "concatenate")
    flat = inner is not None and inner.attributes == d
    parts += inner.inputs if inner is not None and flat else [value]
  parts = [v for v in parts if v.shape[d]] or parts[:1]
  if len(parts) > 1 and len(parts) == len(node.inputs):
    return None
  return e.concatenate(parts, d)


def _pad(e: Emitter, node: Node) -> Value | None:
  a = node.attributes
  return None if any((*a.low, *a.high, *a.interior)) else node.inputs[0]


def _starts(values: tuple[Value, ...], most: list[int]) -> list[int] | None:
  """Constant start indices, clamped; None if any is not constant."""
  found = []
  for value, limit in zip(values, most):
    array = constant(value)
    if limit and array is None:
      return None
    at = int(array.reshape(())) if limit and array is not None else 0
    found.append(min(max(at, 0), limit))
  return found


def _dynamic_slice(e: Emitter, node: Node) -> Value | None:
  operand, *indices = node.inputs
  sizes = node.results[0].shape
  most = [n - size for n, size in zip(operand.shape, sizes)]
  starts = _starts(tuple(indices), most)
  if starts is None:
    return None
  limits = [start + size for start, size in zip(starts, sizes)]
  return e.slice(operand, starts, limits)


def _dynamic_update_slice(e: Emitter, node: Node) -> Value | None:
  operand, update = node.inputs[:2]
  if 0 in update.shape:
    return operand
  return update if update.shape == operand.shape else None


def _iota(e: Emitter, node: Node) -> Value | None:
  (result,) = node.results
  if not result.shape or result.shape[node.attributes] != 1:
    return None
  return e.constant(0, result.dtype, result.shape)


# --- Element-wise ------------------------------------------------------------


def _convert(e: Emitter, node: Node) -> Value | None:
  (x,) = node.inputs
  return x if x.dtype is node.results[0].dtype else None


def _inverse(name: str) -> Rule:
  """Twice gives the operand."""

  def rule(e: Emitter, node: Node) -> Value | None:
    inner = _made_by(node.inputs[0], name)
    return inner.inputs[0] if inner else None

  return rule


_OPPOSITE = {
  Opcode.EQ: "NE",
  Opcode.NE: "EQ",
  Opcode.LT: "GE",
  Opcode.LE: "GT",
  Opcode.GT: "LE",
  Opcode.GE: "LT",
}


def _not(e: Emitter, node: Node) -> Value | None:
  """Twice gives the operand; once, of a comparison of integers, the opposite
  comparison."""
  compared = _made_by(node.inputs[0], "compare")
  if compared is None or compared.inputs[0].dtype not in INTEGERS:
    return _inverse("not")(e, node)
  x, y = compared.inputs
  return e.compare(x, y, _OPPOSITE[compared.attributes.opcode])


def _select(e: Emitter, node: Node) -> Value | None:
  predicate, x, y = node.inputs
  if x is y:
    return x
  known = splat(predicate)
  if known is None:
    return None
  return x if known else y


def _compare(e: Emitter, node: Node) -> Value | None:
  x, y = node.inputs
  if x.dtype not in INTEGERS and x.dtype is not DType.BOOL:
    return None
  if x is not y:
    compared = _compare_bool if x.dtype is DType.BOOL else _compare_sign
    return compared(e, node)
  equal = node.attributes.opcode in (Opcode.EQ, Opcode.LE, Opcode.GE)
  return e.constant(equal, DType.BOOL, node.results[0].shape)


def _compare_bool(e: Emitter, node: Node) -> Value | None:
  """Whether a boolean is a known one: the boolean, or its opposite."""
  opcode = node.attributes.opcode
  if opcode not in (Opcode.EQ, Opcode.NE):
    return None
  for known, other in (node.inputs, node.inputs[::-1]):
    value = splat(known)
    if value is not None:
      return other if bool(value) == (opcode is Opcode.EQ) else e.not_(other)
  return None


def _compare_sign(e: Emitter, node: Node) -> Value | None:
  """Whether an integer that never is negative is less than 0; whether the sign
  of an integer differs from 1 or -1: quotients that are rounded down ask for
  it."""
  direction = node.attributes.opcode
  if direction in (Opcode.LT, Opcode.GE):
    (x, n), shape = node.inputs, node.results[0].shape
    limit = splat(n)
    if limit is None or limit > 0 or not never_negative(x):
      return None
    return e.constant(direction is Opcode.GE, DType.BOOL, shape)
  sign, known = _made_by(node.inputs[0], "sign"), splat(node.inputs[1])
  if node.attributes.opcode is not Opcode.NE or sign is None or known is None:
    return None
  direction = {1: "LE", -1: "GE"}.get(int(known))
  return e.compare(sign.inputs[0], 0, direction) if direction else None


def _complex(e: Emitter, node: Node) -> Value | None:
  real, imag = (
    _made_by(v, name) for v, name in zip(node.inputs, ("real", "imag"))
  )
  if real is None or imag is None or real.inputs[0] is not imag.inputs[0]:
    return None
  whole = real.inputs[0]
  return whole if whole.dtype is node.results[0].dtype else None


def _part(place: int) -> Rule:
  def rule(e: Emitter, node: Node) -> Value | None:
    inner = _made_by(node.inputs[0], "complex")
    return inner.inputs[place] if inner else None

  return rule


_ONES = -1  # all bits


def _arithmetic(
  right: tuple[int, ...] = (),
  left: tuple[int, ...] = (),
  absorbs: tuple[int, ...] = (),
  itself: int | None = None,
  floats: float | None = None,
  commutes: bool = False,
) -> Rule:
  """A binary operation's rules.

  Args:
    right: x op these is x, for integers.
    left: these op x is x.
    absorbs: x op these, and these op x, is the number itself.
    itself: x op x is this, for integers.
    floats: x op this is x, for floats, in the bits of its sign too.
    commutes: `floats` holds on the left as well.
  """

  def rule(e: Emitter, node: Node) -> Value | None:
    x, y = node.inputs
    a, b = splat(x), splat(y)
    if x.dtype in INTEGERS:
      if itself is not None and x is y:
        return e.constant(itself, x.dtype, x.shape)
      if b is not None and _is_one_of(b, right):
        return x
      if a is not None and _is_one_of(a, left):
        return y
      if b is not None and _is_one_of(b, absorbs):
        return y
      return x if a is not None and _is_one_of(a, absorbs) else None
    if x.dtype not in FLOATS or floats is None:
      return None
    if b is not None and _is_number(b, floats):
      return x
    return y if commutes and a is not None and _is_number(a, floats) else None

  return rule


def _is_one_of(value: Any, numbers: tuple[int, ...]) -> bool:
  ones = ~value.dtype.type(0)
  return any(bool(value == (ones if n == _ONES else n)) for n in numbers)


def _is_number(value: np.generic, number: float) -> bool:
  """Compares signs too; a denormal is not taken for zero."""
  wanted = np.asarray(number).astype(value.dtype)
  return value.tobytes() == wanted.tobytes()


_add_zero = _arithmetic((0,), (0,), floats=-0.0, commutes=True)


def _add(e: Emitter, node: Node) -> Value | None:
  found = _add_zero(e, node)
  return joined_pads.join(e, node) if found is None else found


def _bits(right: int, absorbs: int) -> Rule:
  """`and` and `or`, of booleans too."""
  of_integers = _arithmetic((right,), (right,), (absorbs,))

  def rule(e: Emitter, node: Node) -> Value | None:
    x, y = node.inputs
    if x is y:
      return x
    if x.dtype is not DType.BOOL:
      return of_integers(e, node)
    for known, other in ((x, y), (y, x)):
      value = splat(known)
      if value is not None:
        return other if bool(value) == bool(right) else known
    return _implied(e, node) if right else None

  return rule


def _implied(e: Emitter, node: Node) -> Value | None:
  """Of `x < n and x != n`, which remainders that are rounded down ask for with
  n = 0, the first; `x <= n and x != n` is `x < n`."""
  first, second = (_made_by(v, "compare") for v in node.inputs)
  if first is None or second is None:
    return None
  if first.attributes.total_order or second.attributes.total_order:
    return None  # in which -0 is less than +0
  for order, differs in ((first, second), (second, first)):
    if differs.attributes.opcode is not Opcode.NE or not all(
      _is_same(a, b) for a, b in zip(order.inputs, differs.inputs)
    ):
      continue
    if order.attributes.opcode in (Opcode.LT, Opcode.GT):
      return order.results[0]
    strict = {Opcode.LE: "LT", Opcode.GE: "GT"}.get(order.attributes.opcode)
    if strict and order.inputs[0].dtype in INTEGERS:
      x, n = order.inputs
      return e.compare(x, n, strict)
  return None


def _is_same(a: Value, b: Value) -> bool:
  known, other = splat(a), splat(b)
  return a is b or (
    known is not None
    and other is not None
    and a.dtype is b.dtype
    and known.tobytes() == other.tobytes()
  )


_RULES: dict[str, Rule] = {
  f"stablehlo.{name}": rule
  for name, rule in {
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "iota": _iota,
    "convert": _convert,
    "not": _not,
    "negate": _inverse("negate"),
    "select": _select,
    "compare": _compare,
    "complex": _complex,
    "real": _part(0),
    "imag": _part(1),
    "add": _add,
    "subtract": _arithmetic((0,), itself=0, floats=0.0),
    "multiply": _arithmetic((1,), (1,), (0,), floats=1.0, commutes=True),
    "divide": _arithmetic((1,), floats=1.0),
    "and": _bits(_ONES, 0),
    "or": _bits(0, _ONES),
    "xor": _arithmetic((0,), (0,), itself=0),
    "shift_left": _arithmetic((0,)),
    "shift_right_logical": _arithmetic((0,)),
    "shift_right_arithmetic": _arithmetic((0,)),
  }.items()
}
