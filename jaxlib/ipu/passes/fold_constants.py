"""The values of operations on constants.

Element-wise operations are evaluated by the definition of the instructions
that they would become, so that a folded value is the one that a program would
compute, if these are exact; movement by NumPy. Nothing else is folded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import FLOATS, NUMPY, SIZE, STORED, DType
from jaxlib.ipu.ir.constants import MOST_DIMENSIONS
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import REGISTRY, is_elementwise
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.registers import store
from jaxlib.ipu.kernel.writer import Writer

CONSTANT = "stablehlo.constant"
# Elements of a folded constant that is no splat; a guess, to limit compile time
# and the program's size.
_MOST_ELEMENTS = 1 << 16

_FRACTION_BITS = {DType.F16: 10, DType.BF16: 7, DType.F32: 23, DType.F64: 52}
# Their results are zero only if exact, whatever flushes denormals.
_EXACT_ZEROS = frozenset(
  f"stablehlo.{name}"
  for name in (
    "ceil", "clamp", "floor", "log", "maximum", "minimum", "round_nearest_afz",
    "round_nearest_even", "select",
  )
)  # fmt: skip


def constant(value: Value) -> np.ndarray | None:
  """A constant's elements; None for other values."""
  node = value.node
  if node is None or node.op != CONSTANT:
    return None
  array: np.ndarray = node.attributes
  return array


def is_splat(array: np.ndarray) -> bool:
  """Whether one element is stored for all."""
  return array.size > 0 and (array.size == 1 or not any(array.strides))


def splat(value: Value) -> Any | None:
  """The element of a constant of equal elements, as a NumPy scalar."""
  array = constant(value)
  if array is None or not is_splat(array):
    return None
  return array[(0,) * array.ndim]


def fold(node: Node) -> np.ndarray | None:
  """The result of a node whose inputs are all constants, if it can be known.

  Splats give splats. Arithmetic on NaN or denormals, or with such results, is
  left to the program: NumPy and the threads of the compiler, which flush
  denormals, may give other bits.
  """
  inputs = [constant(v) for v in node.inputs]
  if any(a is None for a in inputs):
    return None
  if len(node.results[0].shape) > MOST_DIMENSIONS:
    return None
  move = _MOVEMENT.get(node.op)
  result = None
  if move is not None:
    result = move(inputs, node)
  elif not node.regions and is_elementwise(node):
    result = _evaluate(inputs, node)
  return None if result is None else _compact(result)


def _evaluate(inputs: list[Any], node: Node) -> np.ndarray | None:
  (result,) = node.results
  dtypes = [v.dtype for v in node.inputs]
  if not {result.dtype, *dtypes} <= STORED:
    return None
  small = [a[(slice(0, 1),) * a.ndim].reshape(()) if is_splat(a) else a
           for a in inputs]  # fmt: skip
  if any(a.size > _MOST_ELEMENTS for a in small):
    return None
  row = REGISTRY[node.op].elementwise
  assert row is not None
  code = Writer()
  numbers = [code.load(i, dtype) for i, dtype in enumerate(dtypes)]
  number = row.emit(code, numbers, node)
  if not all(_is_plain(a, d) for a, d in zip(small, dtypes)):
    return None
  program = code.finish()
  if not _is_exact(program):
    return None
  (register,) = evaluate(program, [number], small)
  out = store(np.asarray(register), result.dtype)
  if not _is_plain(out, result.dtype):
    return None
  if result.dtype in FLOATS and node.op not in _EXACT_ZEROS:
    zero = out == 0
    exact = np.zeros(out.shape, bool)
    for array in small:
      exact |= array == 0
    if len(small) == 2 and small[0].dtype == small[1].dtype:
      exact |= np.abs(small[0]) == np.abs(small[1])
    if np.any(zero & ~exact):
      return None
  return np.broadcast_to(out, result.shape)


def _is_exact(code: Code) -> bool:
  """Whether the engine computes what NumPy does, to the last bit."""
  floats = (RegisterType.F32, RegisterType.F64)
  return not any(i.op.row.approximate and i.type in floats for i in code)


def _is_plain(array: np.ndarray, dtype: DType) -> bool:
  """Whether no element is NaN or denormal; by bits, since comparisons may
  treat denormals as zeros."""
  if dtype not in FLOATS:
    return True
  size = 8 * SIZE[dtype]
  bits = np.ascontiguousarray(array).view(f"u{SIZE[dtype]}")
  magnitude = bits & bits.dtype.type((1 << size - 1) - 1)
  least = 1 << _FRACTION_BITS[dtype]
  infinity = (1 << size - 1) - least
  return bool(
    np.all((magnitude == 0) | ((magnitude >= least) & (magnitude <= infinity)))
  )


def _compact(array: np.ndarray) -> np.ndarray:
  """The array, as a splat if all its elements have the same bits."""
  if is_splat(array) or not 0 < array.size <= _MOST_ELEMENTS:
    return array
  flat = np.ascontiguousarray(array).reshape(-1)
  data = flat.view(np.uint8).reshape(flat.size, -1)
  if (data == data[0]).all():
    return np.broadcast_to(flat[0], array.shape)
  return array


def _reshape(inputs: list[Any], node: Node) -> np.ndarray:
  (array,), shape = inputs, node.results[0].shape
  if is_splat(array):
    return np.broadcast_to(array[(0,) * array.ndim], shape)
  return np.reshape(array, shape)


def _broadcast(inputs: list[Any], node: Node) -> np.ndarray | None:
  (array,), shape = inputs, node.results[0].shape
  if is_splat(array):
    return np.broadcast_to(array[(0,) * array.ndim], shape)
  return None  # the constant would take more memory


def _view(
  take: Callable[[np.ndarray, Any], np.ndarray],
) -> Callable[[list[Any], Node], np.ndarray | None]:
  """A movement whose result has no more elements than its operand."""

  def move(inputs: list[Any], node: Node) -> np.ndarray | None:
    (array,) = inputs
    if is_splat(array):
      one = array[(0,) * array.ndim]
      return np.broadcast_to(one, node.results[0].shape)
    if array.size > _MOST_ELEMENTS:
      return None
    return np.ascontiguousarray(take(array, node.attributes))

  return move


def _concatenate(inputs: list[Any], node: Node) -> np.ndarray | None:
  shape = node.results[0].shape
  if np.prod(shape, dtype=object) > _MOST_ELEMENTS:
    return None
  return np.concatenate(inputs, node.attributes)


def _pad(inputs: list[Any], node: Node) -> np.ndarray | None:
  array, value = inputs
  shape, padding = node.results[0].shape, node.attributes
  if np.prod(shape, dtype=object) > _MOST_ELEMENTS:
    return None
  edges = (*padding.low, *padding.high)
  if any(n < 0 for n in edges):
    return None
  out = np.full(shape, value, NUMPY[node.results[0].dtype])
  if array.size:
    out[
      tuple(
        slice(low, low + (n - 1) * (between + 1) + 1, between + 1)
        for low, n, between in zip(padding.low, array.shape, padding.interior)
      )
    ] = array
  return out


_MOVEMENT: dict[str, Callable[[list[Any], Node], np.ndarray | None]] = {
  "stablehlo.reshape": _reshape,
  "stablehlo.broadcast_in_dim": _broadcast,
  "stablehlo.transpose": _view(np.transpose),
  "stablehlo.reverse": _view(np.flip),
  "stablehlo.slice": _view(
    lambda x, a: x[tuple(slice(*bounds) for bounds in zip(*a))]
  ),
  "stablehlo.concatenate": _concatenate,
  "stablehlo.pad": _pad,
}
