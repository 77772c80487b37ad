"""The types of a feed's items, and how they are split over devices.

Each device has a queue with its parts, so that an item reaches the tiles that
want it without the links between IPUs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import jax
from jax.ipu import _infeed
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Part:
  """What one queue gets of each item.

  Attributes:
    of: for messages, the device; empty if the item is not split.
    indices: of each array, a tuple of slices.
  """

  of: str
  indices: tuple[tuple[slice, ...], ...]

  def of_arrays(self, arrays: Sequence[Array]) -> list[Array]:
    return [x[index] for x, index in zip(arrays, self.indices, strict=True)]


@dataclasses.dataclass(frozen=True)
class Item:
  """What the items of a feed are.

  Attributes:
    shapes: the types of its arrays.
    tree: their tree.
    mesh: the devices, or None if items are not split.
    specs: how each array is split over them.
  """

  shapes: tuple[jax.core.ShapedArray, ...]
  tree: Any
  mesh: Mesh | None = None
  specs: tuple[P, ...] = ()

  def _shardings(self) -> list[NamedSharding]:
    assert self.mesh is not None
    return [NamedSharding(self.mesh, spec) for spec in self.specs]

  def parts(self) -> list[Part]:
    """What each of this process's devices gets, in the mesh's order."""
    if self.mesh is None:
      return [Part("", tuple((slice(None),) * s.ndim for s in self.shapes))]
    indices = [
      sharding.addressable_devices_indices_map(shape.shape)
      for sharding, shape in zip(self._shardings(), self.shapes, strict=True)
    ]
    return [
      Part(f" for {device}", tuple(of[device] or () for of in indices))
      for device in self.mesh.local_devices
    ]

  def numbers(self, queues: Sequence[int]) -> Any:
    """The leaf of a feed, uint32.

    Args:
      queues: the numbers of the queues of `parts()`.
    """
    if self.mesh is None:
      return np.uint32(queues[0])
    ones = (1,) * self.mesh.devices.ndim
    return jax.make_array_from_single_device_arrays(
      self.mesh.devices.shape,
      NamedSharding(self.mesh, P(*self.mesh.axis_names)),
      [
        jax.device_put(np.full(ones, number, np.uint32), device)
        for number, device in zip(queues, self.mesh.local_devices, strict=True)
      ],
    )

  def take(self, numbers: Any, may_end: bool) -> Any:
    """The arrays of the next item and, if it may end, whether there is one.

    Args:
      numbers: the leaf of the feed, or that of this device in `jax.shard_map`.
    """
    if self.mesh is None:
      return _infeed.feed_p.bind(numbers, shapes=self.shapes, may_end=may_end)
    shardings = self._shardings()
    parts = tuple(
      jax.core.ShapedArray(sharding.shard_shape(shape.shape), shape.dtype)
      for sharding, shape in zip(shardings, self.shapes, strict=True)
    )

    def take(number: Any) -> Any:
      return _infeed.feed_p.bind(
        number.reshape(()), shapes=parts, may_end=may_end
      )

    if math.prod(numbers.shape) == 1:
      return take(numbers)
    return jax.shard_map(
      take,
      mesh=self.mesh,
      in_specs=P(*self.mesh.axis_names),
      out_specs=[*self.specs, P()] if may_end else list(self.specs),
      check_vma=False,  # all queues end after the same item
    )(numbers)


def item_like(like: Any) -> Item:
  """The type of items like one.

  Args:
    like: a tree of arrays, or of types, which may have shardings.

  Raises:
    ValueError: the shardings are of several meshes.
    NotImplementedError: a sharding has no mesh of devices.
  """
  leaves, tree = jax.tree.flatten(like)
  shapes = tuple(_infeed.array_type(x) for x in leaves)
  found = [_split(x) for x in leaves]
  meshes = [mesh for mesh, _ in found if mesh is not None]
  if not meshes:
    return Item(shapes, tree)
  if any(mesh != meshes[0] for mesh in meshes):
    raise ValueError(
      "the arrays of an item of a feed are on different meshes: "
      + ", ".join(map(str, dict.fromkeys(meshes)))
    )
  return Item(shapes, tree, meshes[0], tuple(spec for _, spec in found))


def _split(x: Any) -> tuple[Mesh | None, P]:
  """How an array or type is split; no mesh means that it is not."""
  sharding = getattr(x, "sharding", None)
  if sharding is None or sharding.num_devices <= 1:  # 0: of no mesh
    return None, P()
  if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
    return sharding.mesh, sharding.spec
  raise NotImplementedError(
    f"a feed of items with {sharding}: use a jax.sharding.NamedSharding of a "
    "jax.sharding.Mesh"
  )
