"""Registers the IPU as a backend of JAX, without changes to JAX.

JAX calls `initialize` when it first looks for devices. The CPU stays the
default; `JAX_PLATFORMS=ipu`, `JAX_PLATFORM_NAME=ipu`, `jax.devices("ipu")` and
`jax.jit(f, backend="ipu")` select the IPU.
"""

from __future__ import annotations

import os
from typing import Any

PLATFORM = "ipu"

# The CPU has priority 0, and the highest priority becomes the default.
_PRIORITY = -1


def initialize() -> None:
  """Registers the backend. Cheap: the library is loaded with the client."""
  from jax.extend import backend

  # With fail_quietly a backend that cannot start does not affect the others,
  # and jax.devices("ipu") shows its error.
  backend.register_backend_factory(
    PLATFORM, _make_client, priority=_PRIORITY, fail_quietly=True
  )


def _make_client() -> Any:
  """Creates the client from the current flags."""
  import jax.ipu
  import jaxlib.version

  try:
    from jaxlib.ipu import clients, internals, options, plugin, trace_file
  except ModuleNotFoundError as error:
    if error.name != "jaxlib.ipu":
      raise
    raise RuntimeError(
      f"the installed jaxlib {jaxlib.version.__version__} has no IPU backend: "
      "install the jaxlib that was built with this jax (`pip install "
      "dist/*.whl`), or the jax-ipu-plugin beside an unmodified jax and jaxlib"
    ) from error

  from jax_plugins.ipu import (
    callbacks,
    late_rules,
    lowerings,
    point_to_point,
  )

  chosen = jax.ipu.chosen_options()
  try:
    settings = options.read(config=chosen)
  except ValueError as error:
    # JAX keeps this error for the IPU, whatever is set later.
    raise ValueError(
      f"{error}. JAX looks for devices once: correct it in a new process"
    ) from error
  clients.set_up_logging(settings)
  plugin.check_installation(jaxlib.version.__version__)
  library = plugin.load()
  internals.list_device_attributes((*plugin.DEVICE_ATTRIBUTES, "ipu_last_run"))
  internals.allow_donation()
  internals.allow_compilation_cache()
  internals.wrap_program_text(plugin.whole_programs)
  internals.add_last_run(plugin.last_run)
  internals.watch_transfer_guard(plugin.guard_transfers)
  internals.hide_frames(os.path.dirname(__file__))
  internals.translate_compile_errors(plugin.interrupt)
  lowerings.register()
  callbacks.register()
  late_rules.register()
  point_to_point.register()
  client_options = clients.client_options(settings, chosen)
  client_options |= clients.join_processes(library, settings, client_options)
  client = internals.make_client(str(plugin.LIBRARY), client_options)
  if settings.trace:
    trace_file.start(library, settings.trace_directory)
  jax.ipu.client_was_made(settings)
  clients.announce(settings)
  return client
