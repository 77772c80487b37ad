"""`jax.pmap` of `jax.pmap`, which earlier JAX had, for `jax.ipu.compat`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import jax
from jax.sharding import Mesh, PartitionSpec

_pmap = jax.pmap

# What is mapped over several axes, by what `pmap` has returned: the function,
# and the names of the axes, the outer one first.
_mapped: weakref.WeakKeyDictionary[Any, tuple[Any, tuple[Any, ...]]] = (
  weakref.WeakKeyDictionary()
)


def _nested(
  fun: Callable[..., Any],
  names: tuple[Any, ...],
  devices: Any,
  backend: str | None,
  donate_argnums: Any,
) -> Callable[..., Any]:
  """Maps over the leading dimensions of all arguments, one for each axis."""
  rank = len(names)
  axes = tuple(
    f"pmap axis {i}" if name is None else name for i, name in enumerate(names)
  )

  def one(*args: Any) -> Any:
    args = jax.tree.map(lambda x: x.reshape(x.shape[rank:]), args)
    return jax.tree.map(
      lambda y: y.reshape((1,) * rank + y.shape),
      jax.tree.map(jax.numpy.asarray, fun(*args)),
    )

  @functools.cache
  def over(*sizes: int) -> Callable[..., Any]:
    chosen = jax.devices(backend) if devices is None else list(devices)
    needed = int(np.prod(sizes))
    if needed > len(chosen):
      raise ValueError(
        f"pmap over axes of {sizes} needs {needed} devices, and there are "
        f"{len(chosen)}"
      )
    mesh = Mesh(np.array(chosen[:needed]).reshape(sizes), axes)
    spec = PartitionSpec(*axes)
    mapped = jax.shard_map(
      one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    return jax.jit(mapped, donate_argnums=donate_argnums)

  @functools.wraps(fun)
  def call(*args: Any) -> Any:
    sizes = {np.shape(x)[:rank] for x in jax.tree.leaves(args)}
    if len(sizes) != 1 or len(next(iter(sizes))) != rank:
      raise ValueError(
        f"pmap over the axes {names} needs arguments with the same {rank} "
        f"leading dimensions, got {sorted(sizes)}"
      )
    return over(*sizes.pop())(*args)

  return call


def pmap(
  fun: Callable[..., Any],
  axis_name: Any = None,
  *,
  devices: Any = None,
  backend: str | None = None,
  donate_argnums: Any = (),
  **kwargs: Any,
) -> Any:
  """`jax.pmap`, whose function may be one that `pmap` has returned.

  Of nested ones all axes are leading dimensions: they take no `in_axes`,
  `out_axes`, static arguments or `axis_size`.
  """
  inner = _mapped.get(fun) if callable(fun) else None
  if inner is None:
    mapped = _pmap(
      fun,
      axis_name,
      devices=devices,
      backend=backend,
      donate_argnums=donate_argnums,
      **kwargs,
    )
    if not kwargs:
      _mapped[mapped] = fun, (axis_name,)
    return mapped
  if kwargs:
    raise NotImplementedError(
      f"pmap of a pmap with {', '.join(kwargs)}: use jax.shard_map"
    )
  base, names = inner
  names = (axis_name, *names)
  mapped = _nested(base, names, devices, backend, donate_argnums)
  _mapped[mapped] = base, names
  return mapped
