"""The custom call of `lax.approx_max_k` and `approx_min_k`: an exact sort that
keeps as many elements as the caller asks for."""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops.sort import SORT, Sorting
from jaxlib.mlir import ir


def _read(operation: Any) -> int:
  """The dimension that is searched."""
  attributes = operation.attributes
  portable = "mhlo.backend_config"  # the name in portable artifacts
  name = portable if portable in attributes else "backend_config"
  config = attributes[name] if name in attributes else None
  found = None
  if isinstance(config, ir.DictAttr) and "reduction_dim" in config:
    found = config["reduction_dim"]
  rank = ir.RankedTensorType(operation.operands[0].type).rank
  if not isinstance(found, ir.IntegerAttr) or not 0 <= found.value < rank:
    raise invalid_argument(
      f"ApproxTopK with reduction_dim = {found} in its backend_config: expected"
      f" one of the {rank} dimensions of its operands",
      operation.location,
    )
  return found.value


def _check(node: Node) -> str | None:
  count = len(node.results)
  if len(node.inputs) != 2 * count or len(node.regions) != 1:
    return "an operand and its padding for each result, and a comparison"
  whole, kept = node.inputs[0].shape, node.results[0].shape
  d: int = node.attributes
  fits = (*whole[:d], *whole[d + 1 :]) == (*kept[:d], *kept[d + 1 :])
  if not fits or kept[d] > whole[d]:
    return f"results of its operands' shape, or shorter along dimension {d}"
  if any(v.shape != whole for v in node.inputs[:count]) or any(
    v.shape != kept for v in node.results
  ):
    return "operands of one shape, and results of one shape"
  return None


def _decompose(e: Emitter, node: Node) -> list[Value]:
  dimension: int = node.attributes
  # Padding values follow the operands: a sort needs none.
  operands = node.inputs[: len(node.results)]
  sorted_ = e.node(
    SORT,
    operands,
    [(v.shape, v.dtype) for v in operands],
    Sorting(dimension),
    node.regions,
  )
  shape = node.results[0].shape
  return [e.slice(v, [0] * len(shape), shape) for v in sorted_]


define(
  Operation(
    "stablehlo.custom_call @ApproxTopK",
    read=_read,
    check=_check,
    decompose=_decompose,
  )
)
