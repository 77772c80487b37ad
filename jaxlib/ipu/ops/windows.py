"""Windows along some dimensions, as a view, and reductions over them.

`ipu.windows` moves nothing: neighbouring windows overlap in the root. A
reduce_window is a reduction over the places in each window of the padded
operand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxlib.ipu.codelets._monoids import identity
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.attributes import Reduction, Window, read_window
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.region import monoid
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.ops import scan
from jaxlib.ipu.tile.view import positions

WINDOWS = "ipu.windows"


@dataclasses.dataclass(frozen=True)
class WindowAttributes:
  """The attributes of `ipu.windows`; see `View.windows`."""

  dimensions: tuple[int, ...]
  sizes: tuple[int, ...]
  steps: tuple[int, ...]
  dilations: tuple[int, ...]


def windows(
  e: Emitter,
  operand: Value,
  dimensions: Sequence[int],
  sizes: Sequence[int],
  steps: Sequence[int],
  dilations: Sequence[int],
) -> Value:
  """All windows of a value: dimension d counts them, a new dimension for each
  of `dimensions`, after all others, is the place in the window."""
  if not dimensions:
    return operand
  shape = list(operand.shape)
  for d, size, step, dilation in zip(dimensions, sizes, steps, dilations):
    shape[d] = positions(operand.shape[d], size, step, dilation)
  attributes = WindowAttributes(
    tuple(dimensions), tuple(sizes), tuple(steps), tuple(dilations)
  )
  type_ = ((*shape, *sizes), operand.dtype)
  return e.node(WINDOWS, [operand], [type_], attributes)[0]


def _windows(builder: Builder, node: Node) -> None:
  a: WindowAttributes = node.attributes
  view = builder.view(node.inputs[0])
  builder.define(
    node.results[0], view.windows(a.dimensions, a.sizes, a.steps, a.dilations)
  )


def _reduce_window(e: Emitter, node: Node) -> list[Value]:
  w: Window = node.attributes
  count = len(node.results)
  operands, inits = node.inputs[:count], node.inputs[count:]
  shape = node.results[0].shape
  if 0 in shape:
    return [e.constant(0, v.dtype, shape) for v in node.results]
  total = scan.running_total(e, node, w)
  if total is not None:
    return [total]
  dims = [d for d, n in enumerate(w.sizes) if (n, w.strides[d]) != (1, 1)]
  between = [n - 1 for n in w.base_dilations]
  kind = monoid(node.regions[0])
  if kind is not None:
    (init,) = inits
    filling = [e.constant(identity(kind, NUMPY[init.dtype]), init.dtype, ())]
    region = node.regions[0]
  elif any((*w.low, *w.high, *between)):
    operands = (*operands, e.constant(1, DType.BOOL, operands[0].shape))
    inits = (*inits, e.constant(1, DType.BOOL, ()))
    filling = [*inits[:-1], e.constant(0, DType.BOOL, ())]
    region = _without_padding(e, node.regions[0], inits)
  else:
    filling, region = list(inits), node.regions[0]
  views = [
    windows(
      e,
      e.pad(x, fill, w.low, w.high, between),
      dims,
      *([s[d] for d in dims] for s in (w.sizes, w.strides, w.window_dilations)),
    )
    for x, fill in zip(operands, filling, strict=True)
  ]
  rank = len(shape)
  reduced = tuple(range(rank, rank + len(dims)))
  results = e.node(
    "stablehlo.reduce",
    [*views, *inits],
    [(shape, v.dtype) for v in inits],
    Reduction(reduced),
    [region],
  )
  return list(results[:count])


def _without_padding(
  e: Emitter, function: Graph, inits: Sequence[Value]
) -> Graph:
  """A general function that ignores padding: as in XLA:CPU, padding does not
  count even where the start value does.

  The last of `inits` tells whether the others are in the operand.
  """

  def body(*values: Value) -> list[Value]:
    *ours, here = values[: len(inits)]
    *theirs, there = values[len(inits) :]
    both = e.and_(here, there)
    merged = e.call(function, [*ours, *theirs])
    only = [e.select(here, a, b) for a, b in zip(ours, theirs)]
    return [
      *(e.select(both, a, b) for a, b in zip(merged, only)),
      e.or_(here, there),
    ]

  return e.region([((), v.dtype) for v in inits] * 2, body)


define(Operation(WINDOWS, _windows, is_view=True))
define(
  Operation(
    "stablehlo.reduce_window", read=read_window, decompose=_reduce_window
  )
)
