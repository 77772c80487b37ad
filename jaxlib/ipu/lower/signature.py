"""Binds a program's arguments and results to roots during lowering.

Between programs, arrays stay on the device. Their layout follows from their
shape and type (`Builder.default_layout`), unless consumer_layouts.py finds a
better one, so the result of one program can usually be an argument of the next
one without moving. Transfers over the host link happen when an array is put on
the device or read from it, and are not part of a program's time.
"""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Module, Placement
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower import consumer_layouts
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.traffic import traffic
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.host import HostCopy
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import View


def bind_arguments(builder: Builder, module: Module) -> list[int]:
  """Makes a root for each argument, and returns the roots. Arguments in the
  host's memory are streamed to theirs."""
  roots = []
  if builder.choices.layouts:
    chosen = consumer_layouts.for_arguments(builder.target, module)
    builder.used.layouts = chosen
    if chosen and consumer_layouts.has_other_readers(
      module.graph, module.aliases, chosen
    ):
      builder.used.unpriced = True
  for i, value in enumerate(module.graph.parameters):
    placement = module.placements.get((False, i), Placement())
    order = _memory_order(placement, len(value.shape))
    root = builder.new_root(
      tuple(value.shape[d] for d in order),
      value.dtype,
      builder.used.layouts.get(i),
    )
    info = builder.tensors[root]
    info.space, info.address = schema.ARGUMENT, i
    view = builder.root_view(root)
    if placement.minor_to_major:
      view = view.transpose([order.index(d) for d in range(len(order))])
    builder.define(value, view)
    roots.append(root)
  _stream(builder, module, roots, to_device=True)
  return roots


def _memory_order(placement: Placement, rank: int) -> tuple[int, ...]:
  """The dimensions in memory order, outermost first. The dimension of the real
  and imaginary parts of complex numbers, which the caller does not see, stays
  innermost."""
  order = placement.minor_to_major[::-1]
  return (*order, *range(len(order), rank))


def _stream(
  builder: Builder, module: Module, roots: list[int], to_device: bool
) -> None:
  """Adds one stream of all arguments, or all results, in the host's memory.
  Each array has a step of its own; the first is charged for the begin and end
  of the stream."""
  target = builder.target
  begun = False
  for (is_result, i), placement in module.placements.items():
    if is_result == to_device or not placement.on_host:
      continue
    size = builder.tensors[roots[i]].bytes
    price = cost.host_stream(target, [size], not to_device)
    if begun:
      both = cost.host_stream(target, [size, size], not to_device)
      price = cost.beyond(both, price)
    begun = True
    builder.steps.append(
      HostCopy(
        tensor=roots[i],
        to_device=to_device,
        own=price,
        location=builder.location,
      )
    )


def bind_results(
  builder: Builder, module: Module, views: list[View]
) -> list[int]:
  """Makes each result a root of the result space, in the layout that the caller
  expects, by a copy if needed; returns the roots."""
  roots: list[int] = []
  copies = []
  replaced = {j: i for i, j in module.aliases}
  for j, view in enumerate(views):
    placement = module.placements.get((True, j), Placement())
    if placement.minor_to_major:
      view = view.transpose(_memory_order(placement, len(view.shape)))
    info = builder.tensors[view.root]
    layout = builder.used.layouts.get(replaced.get(j, -1))
    home = layout or builder.default_layout(view.shape, view.dtype)
    if (
      info.space == schema.ARENA
      and builder.is_identity(view)
      and info.shape == view.shape
      and _has_mapping(info, home)
    ):
      root = view.root
    else:
      root = builder.new_root(view.shape, view.dtype, home)
      copies.append((view, builder.root_view(root)))
    result = builder.tensors[root]
    result.space, result.address = schema.RESULT, j
    roots.append(root)
  builder.copy_to(copies)
  _stream(builder, module, roots, to_device=False)
  return roots


def _has_mapping(info: TensorInfo, mapping: Layout) -> bool:
  """Whether each tile already holds its part of an array under a mapping, even
  if the mapping is written differently."""
  if info.layout == mapping:
    return True
  strides = dense_strides(info.shape)
  source, to = MoveEnd(info.layout, 0, strides), MoveEnd(mapping, 0, strides)
  moved = traffic(source, to, info.shape, SIZE[info.dtype])
  return not moved.received.any()
