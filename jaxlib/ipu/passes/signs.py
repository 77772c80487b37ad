"""Which integers are known not to be negative.

`x[i % n]` normalises an index that needs no normalising: neither does one that
comes from an iota, a mask of bits or a clamp.
"""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIGNED, SIZE, UNSIGNED, DType
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.passes.fold_constants import constant, splat

# How far operands are followed: a guess. Indices are few operations.
_MOST = 6

_MOVES = {
  f"stablehlo.{name}"
  for name in ("reshape", "broadcast_in_dim", "transpose", "slice", "reverse")
}
# Not negative if no operand is, and if at least one is not.
_OF_ALL = {
  f"stablehlo.{name}" for name in ("minimum", "or", "xor", "concatenate")
}
_OF_ANY = {f"stablehlo.{name}" for name in ("maximum", "and")}


def never_negative(value: Value, most: int = _MOST) -> bool:
  """Whether a value is of integers or booleans, none of them negative."""
  if value.dtype not in SIGNED:
    return value.dtype in UNSIGNED or value.dtype is DType.BOOL
  known = constant(value)
  if known is not None:
    return bool((known >= 0).all())
  node = value.node
  if node is None or most == 0:
    return False
  is_one = lambda v: never_negative(v, most - 1)
  if node.op in _MOVES:
    return is_one(node.inputs[0])
  if node.op in _OF_ALL:
    return all(map(is_one, node.inputs))
  if node.op in _OF_ANY:
    return any(map(is_one, node.inputs))
  match node.op.removeprefix("stablehlo."):
    case "iota":
      last = value.shape[node.attributes] - 1
      return last < 1 << (8 * SIZE[value.dtype] - 1)
    case "convert":
      return _is_wider(node.inputs[0], value) and is_one(node.inputs[0])
    case "remainder" | "shift_right_arithmetic":
      return is_one(node.inputs[0])
    case "divide":  # x / 0 is -1
      divisor = splat(node.inputs[1])
      return divisor is not None and divisor > 0 and is_one(node.inputs[0])
    case "clamp":
      return is_one(node.inputs[0]) and is_one(node.inputs[2])
    case "select":
      return _is_modulus(node) or all(map(is_one, node.inputs[1:]))
    case "popcnt" | "count_leading_zeros":
      return True
  return False


def _is_wider(before: Value, after: Value) -> bool:
  """Whether a type has all numbers of another that are not negative."""
  if before.dtype is DType.BOOL or before.dtype is after.dtype:
    return True
  signed = before.dtype in SIGNED
  if not signed and before.dtype not in UNSIGNED:
    return False
  return SIZE[after.dtype] >= SIZE[before.dtype] + (not signed)


def _is_modulus(node: Node) -> bool:
  """Whether a SELECT is a remainder that is rounded down, of a positive
  divisor: `r < 0 ? r + n : r`."""
  chosen, other, rest = (v.node for v in node.inputs)
  if chosen is None or other is None or rest is None:
    return False
  names = [n.op for n in (chosen, other, rest)]
  if names != [f"stablehlo.{n}" for n in ("compare", "add", "remainder")]:
    return False
  remainder, divisor = node.inputs[2], splat(rest.inputs[1])
  zero, added = splat(chosen.inputs[1]), splat(other.inputs[1])
  return (
    chosen.attributes.opcode is Opcode.LT
    and chosen.inputs[0] is remainder
    and zero is not None
    and zero == 0
    and other.inputs[0] is remainder
    and divisor is not None
    and divisor > 0
    and added is not None
    and added == divisor
  )
