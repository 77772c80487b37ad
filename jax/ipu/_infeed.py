"""Primitives that take items from feeds, and add some.

On an IPU these are streams of the program. On the CPU the same queues are
served by a callback. A token is a boolean, so that loops carry it: what depends
on an array of no elements is in no order on XLA:CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.ipu import internals
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_NO_FEEDS = "feeds (lax.infeed, lax.outfeed, jax.ipu.feed)"

_FEED_OF_DEVICE = (
  "each device has an infeed and an outfeed of its own, use them in "
  "jax.shard_map"
)
_SHARDED_LIKE = (
  "make it with jax.ipu.feed(iterator, like=jax.ShapeDtypeStruct(shape, dtype, "
  "sharding=jax.sharding.NamedSharding(mesh, spec)))"
)

effect = internals.make_effect()

infeed_p = Primitive("infeed")
infeed_p.multiple_results = True
outfeed_p = Primitive("outfeed")
# An item of the feed whose number is an argument (_feed.py).
feed_p = Primitive("ipu_feed")
feed_p.multiple_results = True


def token() -> jax.Array:
  """What orders infeeds and outfeeds."""
  return jnp.zeros((), bool)


# --- Types -------------------------------------------------------------------


def _array(aval: Any) -> jax.core.ShapedArray:
  if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
    raise TypeError(
      f"a feed of {aval}: give the bits of keys, jax.random.key_data(key)"
    )
  return jax.core.ShapedArray(tuple(aval.shape), np.dtype(aval.dtype))


def _token_type(aval: Any) -> jax.core.ShapedArray:
  if getattr(aval, "shape", None) != () or aval.dtype != bool:
    raise TypeError(
      f"the token of an infeed or outfeed is {aval}: make it with "
      "lax.create_token() after `import jax.ipu.compat`"
    )
  return jax.core.ShapedArray(aval.shape, aval.dtype)


def _effects() -> set[Any]:
  if effect is None:
    raise NotImplementedError(f"{_NO_FEEDS} with this version of JAX")
  return {effect}


def _infeed_type(token: Any, *, shapes: Any, partitions: Any) -> Any:
  del partitions
  return [*shapes, _token_type(token)], _effects()


def _outfeed_type(token: Any, *xs: Any, partitions: Any) -> Any:
  del partitions
  for x in xs:
    _array(x)
  return _token_type(token), _effects()


def _feed_type(number: Any, *, shapes: Any, may_end: bool) -> Any:
  valid = [jax.core.ShapedArray((), np.dtype(bool))] if may_end else []
  return [*shapes, *valid], _effects()


infeed_p.def_effectful_abstract_eval(_infeed_type)
outfeed_p.def_effectful_abstract_eval(_outfeed_type)
feed_p.def_effectful_abstract_eval(_feed_type)


def _call(primitive: Any, *args: Any, **params: Any) -> Any:
  """Runs a primitive outside jax.jit."""
  return jax.jit(functools.partial(primitive.bind, **params))(*args)


for _p in (infeed_p, outfeed_p, feed_p):
  _p.def_impl(functools.partial(_call, _p))


# --- Transformations ---------------------------------------------------------


def _constant_jvp(primitive: Any) -> Any:
  """What is fed is a constant; what leaves, leaves without its tangent."""

  def rule(primals: Sequence[Any], tangents: Any, **params: Any) -> Any:
    del tangents
    out = primitive.bind(*primals, **params)
    if not primitive.multiple_results:
      return out, _zero(out)
    return out, [_zero(o) for o in out]

  return rule


def _zero(primal: Any) -> Any:
  return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _no_batching(primitive: Any) -> Any:
  def rule(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(
      f"jax.vmap of {primitive.name}: an item of a feed is one, and cannot be "
      "another one for each element of a batch. Feed whole batches, and map "
      "over them in the program: jax.vmap(f)(batch)"
    )

  return rule


for _p in (infeed_p, outfeed_p, feed_p):
  ad.primitive_jvps[_p] = _constant_jvp(_p)
  # A rule of this kind is also asked if no operand is mapped.
  batching.fancy_primitive_batchers[_p] = _no_batching(_p)


# --- Lowering ----------------------------------------------------------------


def _ir_type(aval: Any) -> Any:
  return ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def _types(avals: Sequence[Any]) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
  return [(np.dtype(a.dtype), tuple(a.shape)) for a in avals]


def _platform(ctx: Any, advice: str) -> str:
  """The platform of a program that uses feeds, which the partitioner does not
  split."""
  count = getattr(ctx.module_context.axis_context, "num_devices", None) or 1
  if count > 1:
    raise NotImplementedError(
      f"an item for {count} devices, of a feed that has no shardings: {advice}"
    )
  platforms = tuple(ctx.module_context.platforms)
  if platforms not in (("ipu",), ("cpu",)):
    raise NotImplementedError(
      f"{_NO_FEEDS} in a program for {' and '.join(platforms)}: they are for "
      "the IPU, and for the CPU alone"
    )
  return platforms[0]


def _devices(ctx: Any) -> Sequence[jax.Device]:
  """The devices that a program is lowered for."""
  found = getattr(ctx.module_context.axis_context, "device_assignment", None)
  return found or jax.local_devices(backend="cpu")[:1]


def _on_cpu(
  ctx: Any, callback: Any, operands: Any, avals_in: Any, avals_out: Any
) -> Any:
  results, _, _ = mlir.emit_python_callback(
    ctx,
    callback,
    None,
    list(operands),
    list(avals_in),
    list(avals_out),
    has_side_effect=True,
    returns_token=False,
  )
  return results


def _the_device(ctx: Any) -> jax.Device:
  devices = _devices(ctx)
  if len(devices) > 1:
    raise NotImplementedError(
      f"lax.infeed and lax.outfeed over {len(devices)} CPU devices: run the "
      "program on one, or on IPUs"
    )
  return devices[0]


def _lower_infeed(ctx: Any, token: Any, *, shapes: Any, partitions: Any) -> Any:
  del partitions  # of one device
  if _platform(ctx, _FEED_OF_DEVICE) == "ipu":
    operation = stablehlo.InfeedOp(
      [*map(_ir_type, shapes), stablehlo.TokenType.get()],
      stablehlo.create_token(),
      infeed_config="",
    )
    return [*list(operation.results)[:-1], token]
  device, types = _the_device(ctx), _types(shapes)

  def callback(*_: Any) -> tuple[Any, ...]:
    return (*feed_of(device, False).serve(types)[0], np.False_)

  return _on_cpu(ctx, callback, [token], ctx.avals_in, ctx.avals_out)


def _lower_outfeed(ctx: Any, token: Any, *xs: Any, partitions: Any) -> Any:
  del partitions
  if _platform(ctx, _FEED_OF_DEVICE) == "ipu":
    stablehlo.OutfeedOp(xs, stablehlo.create_token(), outfeed_config="")
    return [token]
  device = _the_device(ctx)

  def callback(token: Any, *arrays: Any) -> tuple[Any, ...]:
    feed_of(device, True).accept([np.asarray(a) for a in arrays])
    return (np.False_,)

  return _on_cpu(ctx, callback, [token, *xs], ctx.avals_in, ctx.avals_out)


def _lower_feed(ctx: Any, number: Any, *, shapes: Any, may_end: bool) -> Any:
  if _platform(ctx, _SHARDED_LIKE) == "ipu":
    operation = internals.emit_call(
      "ipu_feed", True, None, {}, ctx, number, may_end=np.uint64(may_end)
    )
    assert operation is not None  # a required feature, which raises instead
    return list(operation.results)
  types = _types(shapes)

  def callback(number: Any) -> tuple[Any, ...]:
    from jaxlib.ipu import feeds

    feed = feeds.Feed(int(number), "")
    arrays, valid = feed.serve(types, may_end)
    return (*arrays, np.bool_(valid)) if may_end else tuple(arrays)

  return _on_cpu(ctx, callback, [number], ctx.avals_in, ctx.avals_out)


mlir.register_lowering(infeed_p, _lower_infeed)
mlir.register_lowering(outfeed_p, _lower_outfeed)
mlir.register_lowering(feed_p, _lower_feed)


# --- The host's side ---------------------------------------------------------


def prepare() -> Any:
  """The module of queues, ready for use."""
  from jaxlib.ipu import feeds, plugin

  plugin.prepare_feeds()
  return feeds


@functools.cache
def _made(platform: str, device: int, out: bool) -> Any:
  kind = "outfeed" if out else "infeed"
  return prepare().Feed.make(f"the {kind} of {platform} device {device}")


def feed_of(device: jax.Device, out: bool) -> Any:
  """The infeed or the outfeed of a device."""
  if device.platform == "ipu":
    here = jax.process_index(backend="ipu")
    if device.process_index != here:
      raise ValueError(
        f"{device} is fed by process {device.process_index}, this is process "
        f"{here}: transfer to and from {jax.local_devices(backend='ipu')}"
      )
    return prepare().of_device(device.id, str(device), out)
  if device.platform != "cpu":
    raise NotImplementedError(f"{_NO_FEEDS} on {device}")
  return _made(device.platform, device.id, out)


# --- As they were in jax.lax -------------------------------------------------


def create_token(_: Any = None) -> jax.Array:
  """A token for `infeed` and `outfeed`."""
  return token()


def after_all(*operands: Any) -> Any:
  """A token for what follows all of some tokens."""
  if any(isinstance(o, jax.Array) for o in operands):
    return jax.lax.optimization_barrier(operands)[0]
  return _after_all(*operands)


_after_all = jax.lax.after_all


def infeed(token: Any, shape: Any = None, partitions: Any = None) -> Any:
  """Takes the next item of the device's infeed.

  Args:
    token: orders infeeds and outfeeds.
    shape: a tree of `ShapedArray`s, the types of the item's arrays.
    partitions: None, or a tuple of None for each array.

  Returns:
    The arrays as such a tree, and a token for what follows.
  """
  shapes, tree = jax.tree.flatten(shape)
  for each in shapes:
    if not isinstance(each, jax.core.ShapedArray | jax.ShapeDtypeStruct):
      raise TypeError(
        "shape argument to infeed must be a tree of ShapedArray values, got "
        f"{each}"
      )
  _check_partitions("infeed", partitions)
  *xs, token = infeed_p.bind(
    token, shapes=tuple(map(_array, shapes)), partitions=partitions
  )
  return jax.tree.unflatten(tree, xs), token


def outfeed(token: Any, xs: Any, partitions: Any = None) -> Any:
  """Adds the arrays of a tree to the device's outfeed as one item.

  Args:
    token: orders infeeds and outfeeds.
    xs: a tree of arrays.
    partitions: None, or a tuple of None for each array.

  Returns:
    A token for what follows.
  """
  _check_partitions("outfeed", partitions)
  return outfeed_p.bind(token, *jax.tree.leaves(xs), partitions=partitions)


def _check_partitions(name: str, partitions: Any) -> None:
  if partitions is None:
    return
  # A PartitionSpec is a tuple, too, in some versions.
  if type(partitions) is not tuple:
    raise ValueError(
      f"'partitions' argument to {name} should be a tuple, got {partitions}"
    )
  if any(p is not None for p in partitions):
    raise NotImplementedError(
      f"{name} of partitions {partitions}: each device has a feed of its own, "
      "give it its part with device.transfer_to_infeed"
    )


def array_type(x: Any) -> jax.core.ShapedArray:
  """The type that JAX gives an array of an item, or a type of one."""
  if not hasattr(x, "dtype"):
    x = np.asarray(x)
  dtype = jax.dtypes.canonicalize_dtype(x.dtype)
  return _array(jax.ShapeDtypeStruct(x.shape, dtype))


def host_array(x: Any) -> np.ndarray[Any, Any]:
  """An array of an item, of the type that JAX gives it."""
  array = np.asarray(x)
  return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def transfer_to_infeed(device: jax.Device, value: Any) -> None:
  """`device.transfer_to_infeed(value)`: adds an item, a tree of arrays, to the
  device's infeed. Waits while that is full.

  Raises:
    ValueError: the programs that have been compiled for the device expect items
      of other types.
  """
  feed_of(device, False).push([host_array(x) for x in jax.tree.leaves(value)])


def transfer_from_outfeed(device: jax.Device, shape: Any) -> Any:
  """`device.transfer_from_outfeed(shape)`: takes an item from the device's
  outfeed. Waits while that is empty.

  Args:
    shape: a tree of types of arrays, such as `jax.ShapeDtypeStruct`s.

  Raises:
    ValueError: the next item has other types.
  """
  types, tree = jax.tree.flatten(shape)
  arrays = feed_of(device, True).pop(_types(types))
  return jax.tree.unflatten(tree, arrays)
