"""Recognises comparators of sorts that compare keys lexicographically."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxlib.ipu.codelets.sort import KEY_DTYPES
from jaxlib.ipu.dtypes import FLOATS
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.program import schema


def sort_keys(region: Graph) -> list[schema.SortKey] | None:
  """The keys of a comparator, the most significant first.

  Recognises comparisons by LT or GT of two elements of one operand, directly or
  as JAX makes floats comparable (-0 equals 0, all NaNs are equal), and their
  lexicographic combinations: first or (equal and rest). Returns None for any
  other comparator.
  """
  return _less(region, region.results[0])


def _less(region: Graph, value: Value) -> list[schema.SortKey] | None:
  node = value.node
  if node is None:
    return None
  if node.op == "stablehlo.compare":
    key = _key(region, node)
    return None if key is None else [key]
  if node.op != "stablehlo.or":
    return None
  for first, rest in (node.inputs, node.inputs[::-1]):
    if first.node is None or first.node.op != "stablehlo.compare":
      continue
    if rest.node is None or rest.node.op != "stablehlo.and":
      continue
    key = _key(region, first.node)
    if key is None:
      continue
    for equal, deeper in (rest.node.inputs, rest.node.inputs[::-1]):
      if _is_equality(equal, first.node):
        keys = _less(region, deeper)
        if keys is not None:
          return [key, *keys]
  return None


def _is_equality(value: Value, less: Node) -> bool:
  """Whether a value compares the operands of `less` for equality."""
  node = value.node
  return (
    node is not None
    and node.op == "stablehlo.compare"
    and node.attributes.opcode == Opcode.EQ
    and node.attributes.total_order == less.attributes.total_order
    and set(map(id, node.inputs)) == set(map(id, less.inputs))
  )


class _Side(NamedTuple):
  """One side of a comparison: a parameter, and which of its values were made
  equal before the comparison."""

  parameter: int
  zeros_equal: bool
  nans_equal: bool


def _key(region: Graph, node: Node) -> schema.SortKey | None:
  opcode = node.attributes.opcode
  a, b = (_side(region, v) for v in node.inputs)
  if opcode not in (Opcode.LT, Opcode.GT) or a is None or b is None:
    return None
  operand = a.parameter // 2
  dtype = region.parameters[a.parameter].dtype
  if b != a._replace(parameter=a.parameter ^ 1) or dtype not in KEY_DTYPES:
    return None
  # Without a total order, zeros are equal, and NaN may be ordered anywhere.
  partial = dtype in FLOATS and not node.attributes.total_order
  return schema.SortKey(
    operand,
    int((opcode == Opcode.GT) != bool(a.parameter % 2)),
    int(a.zeros_equal or partial),
    int(a.nans_equal or partial),
  )


def _side(region: Graph, value: Value) -> _Side | None:
  nans_equal = zeros_equal = False
  chosen = _chosen(value, Opcode.NE)
  if chosen is not None:
    (left, right), constant, value = chosen
    nans_equal = True
    tested = left
    if left is not right or not np.isnan(constant) or np.signbit(constant):
      return None
  chosen = _chosen(value, Opcode.EQ)
  if chosen is not None:
    (left, right), constant, value = chosen
    zeros_equal = True
    zero = _scalar(right)
    if left is not value or zero is None or zero != 0:
      return None
    if constant != 0 or np.signbit(constant):
      return None
  if nans_equal and tested is not value:
    return None
  for number, parameter in enumerate(region.parameters):
    if parameter is value:
      return _Side(number, zeros_equal, nans_equal)
  return None


def _chosen(
  value: Value, opcode: Opcode
) -> tuple[tuple[Value, ...], np.ndarray, Value] | None:
  """select(compare(a, b), constant, c) as ((a, b), constant, c)."""
  select = value.node
  if select is None or select.op != "stablehlo.select":
    return None
  test, on_true, on_false = select.inputs
  compare = test.node
  constant = _scalar(on_true)
  if compare is None or compare.op != "stablehlo.compare" or constant is None:
    return None
  if compare.attributes.opcode != opcode:
    return None
  return compare.inputs, constant, on_false


def _scalar(value: Value) -> np.ndarray | None:
  """A constant scalar; floats as float64, whose signs NumPy supports."""
  node = value.node
  if node is None or node.op != "stablehlo.constant" or value.shape != ():
    return None
  array: np.ndarray = node.attributes
  return array.astype(np.float64) if value.dtype in FLOATS else array
