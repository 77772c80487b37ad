"""`ipu.map`: a fused group of element-wise operations in the graph."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxlib.ipu.ir.graph import Shape, Value
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.layout import Layout

MAP = "ipu.map"


@dataclasses.dataclass(frozen=True)
class MapProgram:
  """The attributes of an `ipu.map` node.

  Attributes:
    shape: the iteration space.
    code: the register program; LOAD k reads the node's input k.
    outputs: the value of each result.
    partition: the tiles that compute it, if that is not up to the lowering.
  """

  shape: Shape
  code: Code
  outputs: tuple[int, ...]
  partition: Layout | None = None

  def __str__(self) -> str:
    return "; ".join([*self.code.lines(), f"outputs {list(self.outputs)}"])


def make_source(code: Writer, value: Value, shape: Shape) -> int | None:
  """A value as an instruction, if it is a splat constant or an index.

  Args:
    code: the program that gets the instruction.
    value: any value.
    shape: the iteration space of the program.
  """
  node = value.node
  if node is None:
    return None
  if node.op == "stablehlo.constant":
    array: np.ndarray = node.attributes
    if array.size and (array.size == 1 or not any(array.strides)):
      return code.constant(array[(0,) * array.ndim], REGISTER[value.dtype])
    return None
  dims = tuple(range(len(shape)))
  if node.op == "stablehlo.broadcast_in_dim" and node.inputs[0].node:
    dims = node.attributes
    node = node.inputs[0].node
    if node.results[0].shape != tuple(shape[d] for d in dims):
      return None
  if node.op == "stablehlo.iota" and value.shape == shape:
    return code.iota(dims[node.attributes], value.dtype)
  return None
