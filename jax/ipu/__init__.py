"""What JAX gains for IPUs: options of `jax.config`, and names it once had.

Our wheel of jax imports this with `import jax`, so it stays cheap: the
compiler and the shared library are loaded with the first use of a device. With
the plugin alone, `import jax.ipu` does the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import jax
from jax._src import config as _config
from jax._src import util as _util
from jax._src.lib import _jax

_OPTIONS = {
  "jax_ipu_use_model": (bool, "Run on the IPU model instead of hardware."),
  "jax_ipu_model_num_tiles": (int, "Tiles of a modelled IPU."),
  "jax_ipu_device_count": (int, "IPUs to open."),
  "jax_ipu_visible_devices": (str, "Hardware ids of the IPUs to open."),
}


def chosen_options() -> dict[str, object]:
  """The options of `jax.config` that have been set, by name."""
  values = {name: jax.config._read(name) for name in _OPTIONS}
  return {name: value for name, value in values.items() if value is not None}


def _define_options() -> None:
  # None stands for "not set": then the environment counts, as it is when the
  # client is created.
  for name, (kind, help) in _OPTIONS.items():
    if name in jax.config.values:
      continue
    holder: _config.Flag[Any] = _config.Flag(name, None)
    jax.config.add_option(
      name, holder, kind, meta_args=[], meta_kwargs={"help": help}
    )
    setattr(_config.Config, name, property(_read_value(holder)))


def _read_value(holder: _config.Flag[Any]) -> Callable[[Any], Any]:
  return lambda _: holder.value


def _restore_config_module() -> None:
  """`from jax.config import config`, while `jax.config` stays what it is."""
  module = types.ModuleType("jax.config", "Where jax.config once was.")
  module.config = jax.config  # type: ignore[attr-defined]
  sys.modules.setdefault("jax.config", module)


def _call_device(device: Any) -> Any:
  """`array.device()` for arrays on an IPU, where `array.device` is today's.

  Other platforms keep JAX's own behaviour.
  """
  if device.platform != "ipu":
    raise TypeError(f"{type(device).__name__!r} object is not callable")
  return device


def _make_devices_callable() -> None:
  # JAX's caches keep weak references to what can be called, and a device has
  # none to give: jax.jit(lambda x: jax.device_put(x, device)) would fail. As a
  # tree without leaves it is compared as what it is.
  _util._multi_weakref_registry.register_node(
    _jax.Device, lambda device: ((), device), lambda device, _: device
  )
  _jax.Device.__call__ = _call_device


_define_options()
_restore_config_module()
if "__call__" not in vars(_jax.Device):
  _make_devices_callable()
