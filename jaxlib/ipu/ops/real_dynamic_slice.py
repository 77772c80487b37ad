"""real_dynamic_slice of a known size: a dynamic slice, then a strided one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops.elementwise import left_outside


def _decompose(e: Emitter, node: Node) -> Sequence[Value]:
  operand, starts, _, strides = node.inputs
  if strides.node is None or strides.node.op != "stablehlo.constant":
    raise unimplemented(
      "real_dynamic_slice with strides that are not constant", node.location
    )
  steps = [int(n) for n in np.asarray(strides.node.attributes).reshape(-1)]
  shape = node.results[0].shape
  # The specification requires the slice to be inside, so nothing is clamped.
  spans = [max((n - 1) * step + 1, 0) for n, step in zip(shape, steps)]
  at = [
    e.reshape(e.slice(starts, (d,), (d + 1,)), ()) for d in range(len(shape))
  ]
  part = e.dynamic_slice(operand, at, spans)
  return [e.slice(part, (0,) * len(shape), tuple(spans), tuple(steps))]


define(
  Operation("stablehlo.real_dynamic_slice", left_outside, decompose=_decompose)
)
