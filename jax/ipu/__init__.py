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

_OPTIONS = {
  "jax_ipu_use_model": (bool, "Run on the IPU model instead of hardware."),
  "jax_ipu_model_num_tiles": (int, "Tiles of a modelled IPU."),
  "jax_ipu_device_count": (int, "IPUs to open."),
  "jax_ipu_visible_devices": (str, "Hardware ids of the IPUs to open."),
}
# What reads each option that could be defined.
_readers: dict[str, Callable[[], Any]] = {}


def chosen_options() -> dict[str, object]:
  """The options of `jax.config` that have been set, by name."""
  values = {name: read() for name, read in _readers.items()}
  return {name: value for name, value in values.items() if value is not None}


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


def _extend_jax() -> None:
  try:
    from jaxlib.ipu import internals
  except ModuleNotFoundError as error:
    if error.name != "jaxlib.ipu":
      raise
    return  # jax.devices("ipu") says what is missing
  for name, (kind, help) in _OPTIONS.items():
    if reader := internals.define_option(name, kind, help):
      _readers[name] = reader
  internals.make_devices_callable(_call_device)
  _restore_config_module()


_extend_jax()
