"""Values in the host's memory: streamed there, and back when they are needed.

passes/host_memory.py makes these operations. In between, a value takes no SRAM.
A stack of values, such as the residuals of a scan, is written and read by
parts, as Poplar's remote buffers are.
"""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.host import HostMove

# () -> memory of the host; its attribute is a number of its own, as equal nodes
# without an effect are one.
BUFFER = "ipu.host_buffer"
# (memory, value, index?) -> (): writes all of it, or the part at an index of
# its first dimension.
STORE = "ipu.host_store"
# (memory, index?) -> value
LOAD = "ipu.host_load"


def _buffer(builder: Builder, node: Node) -> None:
  builder.tensors[builder.result(node)].space = schema.HOST


def _store(builder: Builder, node: Node) -> None:
  buffer, value, *index = node.inputs
  source = builder.materialise(builder.view(value)).root
  _stream(builder, source, builder.view(buffer).root, index, to_device=False)


def _load(builder: Builder, node: Node) -> None:
  buffer, *index = node.inputs
  to = builder.result(node)
  _stream(builder, builder.view(buffer).root, to, index, to_device=True)


def _stream(
  builder: Builder, source: int, to: int, index: list, to_device: bool
) -> None:
  number = schema.NONE
  if index:
    number = builder.materialise(builder.view(index[0])).root
  size = builder.tensors[to if to_device else source].bytes
  if not size:
    return
  builder.steps.append(
    HostMove(
      source=source,
      destination=to,
      to_device=to_device,
      index=number,
      own=cost.host_stream(builder.target, [size], not to_device),
      location=builder.location,
    )
  )


def _always(node: Node) -> bool:
  return True


define(Operation(BUFFER, _buffer))
define(Operation(STORE, _store, has_effect=_always))
define(Operation(LOAD, _load, has_effect=_always))
