"""JAX additions for IPUs: options of `jax.config`, and names of earlier JAX.

This project's jax wheel imports this with `import jax`, so it is cheap: the
compiler and the shared library are loaded on the first use of a device. With
only the plugin installed, `import jax.ipu` does the same.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterable
from typing import Any

import jax

_OPTIONS = {
  "jax_ipu_use_model": (bool, "Run on the IPU model instead of hardware."),
  "jax_ipu_model_num_tiles": (int, "Tiles of a modelled IPU."),
  "jax_ipu_device_count": (int, "IPUs to open."),
  "jax_ipu_visible_devices": (str, "Hardware ids of the IPUs to open."),
  "jax_ipu_model_version": (str, "The machine to model."),
}
# Options that `jax.config` has.
_defined: list[Any] = []
# Settings of the newest client.
_settings: Any = None


def chosen_options() -> dict[str, object]:
  """The options of `jax.config` that have been set, by name."""
  return {o.name: o.chosen for o in _defined if o.chosen is not None}


def client_was_made(settings: Any) -> None:
  """Makes later changes of options that differ from `settings` errors."""
  global _settings
  _settings = settings


def _shown(name: str) -> object:
  """The value that an unset option shows."""
  if name.upper() not in os.environ:
    return None
  from jaxlib.ipu import options

  return options.from_environment(name)


def _check(name: str, value: object) -> None:
  """Refuses values that are invalid or set too late."""
  from jaxlib.ipu import internals, options

  late = options.late_changes(_settings, {}, {name: value})
  if late and internals.devices_are_known():
    raise RuntimeError(late[0])


def _restore_config_module() -> None:
  """Supports `from jax.config import config`; `jax.config` is unchanged."""
  module = types.ModuleType("jax.config", "Where jax.config once was.")
  module.config = jax.config  # type: ignore[attr-defined]
  sys.modules.setdefault("jax.config", module)


# The platforms with `array.device()`; None: all, see `jax.ipu.compat`.
callable_platforms: tuple[str, ...] | None = ("ipu",)


def _call_device(device: Any) -> Any:
  """Supports `array.device()` for arrays on an IPU, next to `array.device`.

  Other platforms keep JAX's own behaviour.
  """
  if callable_platforms and device.platform not in callable_platforms:
    raise TypeError(f"{type(device).__name__!r} object is not callable")
  return device


def feed(iterator: Iterable[Any], like: Any = None) -> Any:
  """Hands the items of an iterator to a program, which takes them in a loop.

    def step(params, _):
      images, labels = feed.next()
      ...
    params, losses = jax.jit(
      lambda params, feed: jax.lax.scan(step, params, length=100)
    )(params, jax.ipu.feed(batches))

  A thread reads the iterator ahead of the program, by up to
  `JAX_IPU_FEED_DEPTH` items. On an IPU a step is then a stream from the host
  into the tiles' memory, without Python. On the CPU the same program gets the
  same items.

  Args:
    iterator: of trees of arrays, all of the same types.
    like: such a tree, or one of `jax.ShapeDtypeStruct`s; the first item by
      default, which is then read at once. A `NamedSharding` of these splits
      the items: each device gets its part. All arrays have to be on one mesh;
      those without a sharding go to all of it. The iterator of each process
      gives whole items.

  Returns:
    A tree to be passed to jitted functions, in which
    - `feed.next()` is the next item. After the last one that is an error, which
      names the iterator and the number of its items.
    - `feed.next_or_end()` is the next item and True, or zeros and False: the
      condition of a `lax.while_loop`.
    In `jax.shard_map` these are the device's part of an item; the feed is
    passed with `in_specs` of all the mesh's axes, in order.
    An exception of the iterator is an error of the program that asks for the
    item. `jax.grad` takes items as constants, `jax.vmap` refuses them.
  """
  from jax.ipu import _feed

  return _feed.feed(iterator, like)


def _extend_jax() -> None:
  try:
    from jaxlib.ipu import internals
  except ModuleNotFoundError as error:
    if error.name != "jaxlib.ipu":
      raise
    return  # jax.devices("ipu") says what is missing
  for name, (kind, help) in _OPTIONS.items():
    option = internals.Option(name, _shown, _check)
    if defined := internals.define_option(option, kind=kind, help=help):
      _defined.append(defined)
  internals.make_devices_callable(_call_device)
  _restore_config_module()


_extend_jax()
