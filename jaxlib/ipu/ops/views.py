"""Operations that only change the view of a tensor: no codelet, no bytes.

reshape, broadcast_in_dim, transpose, slice and reverse give views; if a reshape
is not strided (of a transposed tensor, say) the elements are first rearranged
by an exchange.
"""

from __future__ import annotations

from typing import Any

from jaxlib.ipu.ir.attributes import ints
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, Read, define
from jaxlib.ipu.lower.builder import Builder


def _reshape(builder: Builder, node: Node) -> None:
  view = builder.view(node.inputs[0])
  shape = node.results[0].shape
  reshaped = view.reshape(shape)
  if reshaped is None:
    reshaped = builder.materialise(view).reshape(shape)
    assert reshaped is not None
  builder.define(node.results[0], reshaped)


def _broadcast(builder: Builder, node: Node) -> None:
  view = builder.view(node.inputs[0])
  builder.define(
    node.results[0], view.broadcast(node.results[0].shape, node.attributes)
  )


def _transpose(builder: Builder, node: Node) -> None:
  view = builder.view(node.inputs[0])
  builder.define(node.results[0], view.transpose(node.attributes))


def _slice(builder: Builder, node: Node) -> None:
  view = builder.view(node.inputs[0])
  builder.define(node.results[0], view.slice(*node.attributes))


def _reverse(builder: Builder, node: Node) -> None:
  view = builder.view(node.inputs[0])
  builder.define(node.results[0], view.reverse(node.attributes))


def _ints(name: str) -> Read:
  return lambda operation: ints(operation.attributes[name])


def _read_slice(operation: Any) -> tuple[tuple[int, ...], ...]:
  a = operation.attributes
  return tuple(
    ints(a[n]) for n in ("start_indices", "limit_indices", "strides")
  )


for _name, _lower, _read in (
  ("reshape", _reshape, None),
  ("broadcast_in_dim", _broadcast, _ints("broadcast_dimensions")),
  ("transpose", _transpose, _ints("permutation")),
  ("slice", _slice, _read_slice),
  ("reverse", _reverse, _ints("dimensions")),
):
  define(Operation(f"stablehlo.{_name}", _lower, _read, is_view=True))
