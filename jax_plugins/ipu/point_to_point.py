"""`jax.lax.psend`, `precv` and `pbroadcast`, which JAX has for GPUs alone.

All devices run the same program, so that a send and its receive are one
permutation: it is made where the program sends, and the token leads to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlib.ipu import internals
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_PERMUTE = "stablehlo.collective_permute"
_PAIRS = "source_target_pairs"

Pairs = Callable[..., Any]


def register() -> None:
  """Registers the rules; the platform must be registered."""
  internals.register_point_to_point(_send, _receive)


def _send(
  pairs: Pairs, ctx: Any, x: Any, *, axis_name: Any, perm: Any
) -> list[Any]:
  found, handle = pairs(ctx, axis_name=axis_name, perm=perm, op_name="psend")
  stablehlo.CollectivePermuteOp(x, ir.DenseIntElementsAttr.get(found), **handle)
  return [stablehlo.create_token()]


def _receive(
  pairs: Pairs,
  ctx: Any,
  token: Any,
  *,
  out_shape: Any,
  axis_name: Any,
  perm: Any,
) -> list[Any]:
  sent = _before(token.owner)
  if sent is None:
    raise NotImplementedError(
      "precv on IPUs needs the token of the psend from which it receives, in "
      "the same function"
    )
  found, _ = pairs(ctx, axis_name=axis_name, perm=perm, op_name="precv")
  sends = np.array(sent.attributes[_PAIRS])
  type_ = ir.RankedTensorType(sent.results[0].type)
  if not np.array_equal(sends, found):
    raise ValueError(
      f"precv of {perm} does not match its psend, of device pairs "
      f"{sends.tolist()}: devices would wait for each other forever"
    )
  if tuple(type_.shape) != out_shape.shape:
    raise ValueError(
      f"precv of shape {out_shape.shape}, but its psend sends "
      f"{tuple(type_.shape)}"
    )
  return [sent.results[0]]


def _before(owner: Any) -> Any:
  """The permutation right before the operation that made a token."""
  if not hasattr(owner, "operation"):
    return None  # an argument's owner is a block
  before = None
  for operation in owner.operation.block.operations:
    if operation.operation == owner.operation:
      break
    before = operation.operation
  if before is None or before.name != _PERMUTE:
    return None
  return before
