"""Functions of JAX 0.3 in terms of today's, for `jax.ipu.compat`."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax.extend import backend
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib.ipu import internals


class Flags:
  """`config.FLAGS`: the options of `jax.config` as attributes."""

  def __getattr__(self, name: str) -> Any:
    # Options with a context manager are attributes, others are not.
    if hasattr(jax.config, name):
      return getattr(jax.config, name)
    return jax.config.read(name)

  def __setattr__(self, name: str, value: Any) -> None:
    jax.config.update(name, value)


# --- Devices ------------------------------------------------------------------


class IpuTargetType(enum.Enum):
  """What a device is: hardware, or a model of it."""

  IPU = "ipu"
  IPU_MODEL = "ipu_model"


class IpuPjRtDevice:
  """The class of devices without infeeds and outfeeds, of which there are none:
  programs asked whether a device is one before they used feeds."""


def _target_type(device: jax.Device) -> IpuTargetType:
  """`device.target_type`, of IPUs alone."""
  if device.platform != internals.PLATFORM:
    raise AttributeError(f"{device} has no attribute 'target_type'")
  is_model = device.is_ipu_model
  return IpuTargetType.IPU_MODEL if is_model else IpuTargetType.IPU


target_type = property(_target_type)


# --- Arrays -------------------------------------------------------------------


def platform(array: jax.Array) -> str:
  """`array.platform()`."""
  (found,) = {device.platform for device in array.devices()}
  return found


def _device_buffers(array: jax.Array) -> list[jax.Array]:
  """`array.device_buffers`: the part on each device."""
  return [shard.data for shard in array.addressable_shards]


def _device_buffer(array: jax.Array) -> jax.Array:
  """`array.device_buffer`: the part on the first device."""
  return array.addressable_data(0)


device_buffers = property(_device_buffers)
device_buffer = property(_device_buffer)


def to_py(array: jax.Array) -> np.ndarray:
  """`array.to_py()`."""
  return np.asarray(array)


def _over(devices: Sequence[jax.Device]) -> NamedSharding:
  """One element of the leading dimension on each device."""
  return NamedSharding(Mesh(np.array(devices), ("i",)), PartitionSpec("i"))


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
  """Stacks trees of arrays, each on its device."""
  if len(shards) != len(devices):
    raise ValueError(
      f"{len(shards)} shards for {len(devices)} devices: expected one each"
    )
  sharding = _over(devices)
  return jax.tree.map(
    lambda *parts: jax.device_put(np.stack(parts), sharding), *shards
  )


def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
  """Stacks copies of a tree of arrays, one on each device."""
  return device_put_sharded([x] * len(devices), devices)


@jax.tree_util.register_pytree_node_class
class Shape:
  """`xla_client.shape_from_pyval(tree)`: the types of a tree of arrays, which
  `device.transfer_from_outfeed` takes."""

  def __init__(self, tree: Any) -> None:
    self._tree = tree

  def with_major_to_minor_layout_if_absent(self) -> Any:
    return self._tree

  def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
    return (self._tree,), None

  @classmethod
  def tree_unflatten(cls, _: None, children: Any) -> Any:
    return children[0]


def stop_outfeed_receiver() -> None:
  """`host_callback` took outfeeds, too, unless this was called."""


# --- Functions ----------------------------------------------------------------


def in1d(
  ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False
) -> jax.Array:
  ar1 = jnp.ravel(ar1)
  return jnp.isin(ar1, ar2, assume_unique=assume_unique, invert=invert)


def msort(a: Any) -> jax.Array:
  return jnp.sort(a, axis=0)


def shuffle(key: Any, x: Any, axis: int = 0) -> jax.Array:
  return jax.random.permutation(key, x, axis, independent=True)


def _shardings(resources: Any, mesh: Mesh) -> Any:
  """`None` meant replicated; today it leaves the choice to the compiler."""
  return jax.tree.map(
    lambda spec: NamedSharding(mesh, spec or PartitionSpec()),
    resources,
    is_leaf=lambda x: x is None or isinstance(x, PartitionSpec),
  )


def pjit(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
  """`pjit`, also with resources on the mesh of a `with` block around a call."""
  resources = {
    f"{side}_shardings": kwargs.pop(f"{side}_axis_resources")
    for side in ("in", "out")
    if f"{side}_axis_resources" in kwargs
  }
  if not resources:
    return jax.jit(fun, *args, **kwargs)

  @functools.cache
  def on(mesh: Mesh) -> Any:
    placed = {side: _shardings(r, mesh) for side, r in resources.items()}
    return jax.jit(fun, *args, **placed, **kwargs)

  @functools.wraps(fun)
  def call(*operands: Any, **named: Any) -> Any:
    mesh = internals.context_mesh()
    if mesh is None or mesh.empty:
      raise RuntimeError(
        "pjit with axis resources is called without a mesh: call it in "
        "`with mesh:`"
      )
    return on(mesh)(*operands, **named)

  return call


# --- Modules ------------------------------------------------------------------

xla_bridge = types.ModuleType("jax.lib.xla_bridge", "Where these once were.")
vars(xla_bridge).update(
  get_backend=backend.get_backend,
  device_count=jax.device_count,
  local_device_count=jax.local_device_count,
  devices=jax.devices,
  local_devices=jax.local_devices,
  process_index=jax.process_index,
  process_count=jax.process_count,
)
