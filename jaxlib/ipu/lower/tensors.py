"""The tensors of a program, and the views of values."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.location import UNKNOWN, resolve
from jaxlib.ipu.plan.default_layout import default_layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides
from jaxlib.ipu.tile.view import View, whole_view


class Tensors:
  """The tensors of a program under construction.

  Attributes:
    target: the machine.
    tensors: all tensors, by number.
    layouts: the tile mappings in use, with their numbers.
    constants: the bytes of constant roots, as buffers that follow each other
      in memory. Large ones are not copied: they may belong to the module.
    locations: the locations of steps, with their numbers; the keys are the
      fields of `schema.Location`.
    location: the number of the location that new steps and tensors get.
  """

  def __init__(self, target: Target) -> None:
    self.target = target
    self.tensors: list[TensorInfo] = []
    self.layouts: dict[Layout, int] = {}
    self.constants: list[bytes | memoryview] = []
    self._constant_bytes = 0
    self.locations: dict[tuple[str, str, str, int], int] = {}
    self._located: dict[tuple[Any, str], tuple[Any, int]] = {}
    self._values: dict[int, View] = {}
    self._keep: list[Value] = []
    self._constant_roots: dict[Any, int] = {}
    self.location = self._intern(UNKNOWN)

  def view(self, value: Value) -> View:
    """The view of a value."""
    return self._values[id(value)]

  def define(self, value: Value, view: View) -> None:
    """Defines the view of a value."""
    self._values[id(value)] = view
    self._keep.append(value)  # keeps its id unique

  def undefine(self, value: Value) -> None:
    """Forgets a value of a graph that was lowered before."""
    self._values.pop(id(value), None)

  def is_defined(self, value: Value) -> bool:
    """Whether a value has a view."""
    return id(value) in self._values

  def root_view(self, root: int) -> View:
    """The view of a whole root."""
    return whole_view(self.tensors, root)

  def default_layout(self, shape: Shape, dtype: DType) -> Layout:
    """The default layout of a tensor (plan/default_layout.py)."""
    return default_layout(self.target, shape, SIZE[dtype])

  def new_root(
    self, shape: Shape, dtype: DType, layout: Layout | None = None
  ) -> int:
    """A new root in the arena."""
    if layout is None:
      layout = self.default_layout(shape, dtype)
    number = len(self.tensors)
    self.tensors.append(
      TensorInfo(
        dtype, shape, layout, number, 0, dense_strides(shape),
        location=self.location,
      )
    )  # fmt: skip
    return number

  def result(
    self, node: Node, layout: Layout | None = None, index: int = 0
  ) -> int:
    """A new root for a node's result."""
    value = node.results[index]
    root = self.new_root(value.shape, value.dtype, layout)
    self.define(value, self.root_view(root))
    return root

  def constant(self, array: np.ndarray, dtype: DType) -> View:
    """The view of a constant. A splat is stored as one element, and equal
    constants share a root."""
    splat = array.size > 0 and not any(array.strides)
    data = np.ascontiguousarray(array[(0,) * array.ndim] if splat else array)
    raw = data.reshape(-1).view(np.uint8).data
    shape = () if splat else array.shape
    key = (dtype, hashlib.sha256(raw).digest(), shape)
    root = self._constant_roots.get(key)
    if root is None:
      root = self._constant_roots[key] = self.new_root(shape, dtype)
      info = self.tensors[root]
      gap = bytes(-self._constant_bytes % 64)
      self.constants += [gap, raw]
      info.space = schema.CONSTANT
      info.address = self._constant_bytes + len(gap)
      self._constant_bytes = info.address + len(raw)
    if not splat:
      return self.root_view(root)
    return View(root, 0, (0,) * array.ndim, array.shape, dtype)

  def is_identity(self, view: View) -> bool:
    """Whether a view is the whole root, in the root's order."""
    return (
      view.offset == 0
      and view.size == self.tensors[view.root].size
      and view.is_dense()
    )

  def mapping(self, layout: Layout) -> int:
    """A layout's number in the program."""
    return self.layouts.setdefault(layout, len(self.layouts))

  def locate(self, node: Node, operation: str = "") -> None:
    """Sets the location of new steps and tensors to this node's; `operation`
    is what the user knows it as, if that is not its name."""
    location = node.location
    if location is None:
      return
    # Equal layers have equal locations, but each its own object of MLIR's.
    operation = operation or node.op
    key = getattr(location, "attr", id(location)), operation
    if key not in self._located:
      number = self._intern(resolve(location, operation))
      self._located[key] = location, number
    self.location = self._located[key][1]

  def relocated(self, number: int, location: Any) -> int:
    """The number of the operation that is known as that of location `number`,
    at another location."""
    operation = [*self.locations][number][0]
    return self._intern(resolve(location, operation))

  def _intern(self, location: schema.Location) -> int:
    key = (location.operation, location.name, location.file, location.line)
    return self.locations.setdefault(key, len(self.locations))
