"""Programs of eight devices, where both platforms have as many:

  JAX_IPU_DEVICE_COUNT=8 JAX_NUM_CPU_DEVICES=8 python -m benchmarks \
    --filter sharded
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jax
from benchmarks import models
from benchmarks.workload import Case, Workload, blocking
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

_DEVICES = 8
_LIMIT = 0.6

Axes = dict[str, int]


def _mesh(device: jax.Device, axes: Axes) -> Mesh:
  devices = np.array(jax.devices(device.platform)[:_DEVICES])
  return Mesh(devices.reshape(tuple(axes.values())), tuple(axes))


def _put(mesh: Mesh, values: Any, specs: Any) -> Any:
  return jax.tree.map(
    lambda value, spec: jax.device_put(value, NamedSharding(mesh, spec)),
    values,
    specs,
  )


def _call(
  name: str,
  function: Callable[..., Any],
  axes: Axes,
  make_args: Callable[[], Sequence[Any]],
  specs: Sequence[P],
  jit: Callable[[Mesh, Callable[..., Any]], Callable[..., Any]] = (
    lambda mesh, f: jax.jit(f)
  ),
) -> Workload:
  """Times a function of sharded arrays."""

  def make(device: jax.Device) -> Case:
    mesh = _mesh(device, axes)
    args = _put(mesh, tuple(make_args()), tuple(specs))
    compiled = jit(mesh, function)
    return blocking(lambda: compiled(*args))

  return Workload(family="sharded", name=name, make=make, limit=_LIMIT)


def _manual(mesh: Mesh, f: Callable[..., Any]) -> Callable[..., Any]:
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x")))


def _jit_to(mesh: Mesh, spec: P) -> Callable[[Any], Any]:
  return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, spec))


def _to(mesh: Mesh, spec: P) -> Callable[[Any], Any]:
  return lambda x: jax.device_put(x, NamedSharding(mesh, spec))


def _training(
  name: str,
  step: Callable[..., Any],
  axes: Axes,
  make_state: Callable[[], Any],
  make_batch: Callable[[], Sequence[Any]],
  spec: Callable[[np.ndarray], P],
) -> Workload:
  """Times state, loss = step(state, *batch) with donated state; `spec` splits
  each array of the state, the batch is split along its first dimension."""

  def make(device: jax.Device) -> Case:
    mesh = _mesh(device, axes)
    first = next(iter(axes))
    compiled = jax.jit(step, donate_argnums=0)
    batch = tuple(make_batch())
    batch = _put(mesh, batch, tuple(P(first) for _ in batch))

    def put() -> Any:
      state = jax.tree.map(np.asarray, make_state())
      return _put(mesh, state, jax.tree.map(spec, state))

    state = put()

    def call() -> Any:
      nonlocal state
      state, loss = compiled(state, *batch)
      return state, loss

    def result() -> list[Any]:
      fresh, losses = put(), []
      for _ in range(3):
        fresh, loss = compiled(fresh, *batch)
        losses.append(loss)
      return losses

    return blocking(call, result)

  return Workload(
    family="sharded", name=name, make=make, limit=_LIMIT, tolerance=1e-3
  )


def _columns(a: np.ndarray) -> P:
  """The last dimension over "model", if it can be split."""
  if a.ndim and a.shape[-1] % 4 == 0:
    return P(*(None,) * (a.ndim - 1), "model")
  return P()


def _ones(*shape: int) -> list[np.ndarray]:
  return [np.ones(shape, np.float32)]


_RING = {"x": _DEVICES}
_ALL = [
  _call("nothing", lambda x: x, _RING, lambda: _ones(8), [P("x")]),
  _call("x + 1", lambda x: x + 1, _RING, lambda: _ones(1024), [P("x")]),
  *(
    _call(
      f"all-reduce of {name}",
      lambda x: lax.pcast(lax.psum(x, "x"), "x", to="varying"),
      _RING,
      lambda size=size: _ones(size // 4 * _DEVICES),
      [P("x")],
      _manual,
    )
    for name, size in (("1 KB", 1 << 10), ("4 MB", 1 << 22))
  ),
  *(
    _call(
      f"resharding by {name}",
      lambda x: x,
      {"x": 4, "y": 2},
      lambda: _ones(1024, 1024),
      [P("x", "y")],
      lambda mesh, _, to=to: to(mesh, P("y", "x")),
    )
    # JAX's device_put goes by the host, on every platform.
    for name, to in (("jit", _jit_to), ("device_put", _to))
  ),
  _training(
    "MNIST MLP with momentum, batch 128",
    models.momentum_step,
    {"data": _DEVICES},
    lambda: models.momentum_state(models.MNIST),
    lambda: models.digits(128),
    lambda a: P(),
  ),
  _training(
    "transformer with AdamW on 2x4",
    models.transformer_step,
    {"data": 2, "model": 4},
    models.transformer_state,
    lambda: (models.tokens(),),
    _columns,
  ),
]

WORKLOADS = (
  _ALL if os.environ.get("JAX_IPU_DEVICE_COUNT") == str(_DEVICES) else []
)
