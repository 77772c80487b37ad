"""Makes the IPU a backend of JAX, without a change to JAX.

JAX calls `initialize` when it first looks for devices. The CPU stays the
default; `JAX_PLATFORMS=ipu`, `JAX_PLATFORM_NAME=ipu`, `jax.devices("ipu")` and
`jax.jit(f, backend="ipu")` choose the IPU.
"""

from __future__ import annotations

from typing import Any

from jax_plugins.ipu import callbacks, late_rules, lowerings

PLATFORM = "ipu"

# The CPU has 0, and the highest priority becomes the default.
_PRIORITY = -1


def initialize() -> None:
  """Registers the backend. Cheap: the library is loaded with the client."""
  from jax._src import xla_bridge

  # With fail_quietly a backend that cannot start leaves the others alone, and
  # its error is shown to whoever asks for it: jax.devices("ipu").
  xla_bridge.register_backend_factory(
    PLATFORM, _make_client, priority=_PRIORITY, fail_quietly=True
  )
  _join_platform_lists()
  lowerings.register()
  callbacks.register()
  late_rules.register(PLATFORM)


def _make_client() -> Any:
  """Creates the client from the flags as they are now."""
  import jax
  import jax.ipu
  import jaxlib.version
  from jax._src import xla_bridge
  from jax._src.lib import xla_client

  try:
    from jaxlib.ipu import options, plugin
  except ModuleNotFoundError as error:
    if error.name != "jaxlib.ipu":
      raise
    raise RuntimeError(
      f"the installed jaxlib {jaxlib.version.__version__} has no IPU backend: "
      "install the jaxlib that was built with this jax (`pip install "
      "dist/*.whl`), or the jax-ipu-plugin beside an unmodified jax and jaxlib"
    ) from error

  plugin.check_installation(jaxlib.version.__version__)
  settings = options.read(config=jax.ipu.chosen_options())
  plugin.set_up_logging(settings)
  plugin.load()
  if not xla_client.pjrt_plugin_loaded(PLATFORM):
    xla_client.load_pjrt_plugin_dynamically(PLATFORM, str(plugin.LIBRARY))
  _show_whole_programs()
  client = xla_bridge.make_pjrt_c_api_client(
    PLATFORM, plugin.client_options(settings)
  )
  plugin.announce(settings)
  return client


def _join_platform_lists() -> None:
  """Enters the IPU where JAX has lists of platforms in its code."""
  from jax._src import compilation_cache
  from jax._src.interpreters import mlir

  # Donated arguments: without it JAX warns and donates nothing.
  if PLATFORM not in mlir._platforms_with_donation:
    mlir._platforms_with_donation.append(PLATFORM)

  # The persistent compilation cache asks for the platform's name once, and
  # remembers. For us it gets the answer it gives for the CPU.
  is_cache_used = compilation_cache.is_cache_used
  if not hasattr(is_cache_used, "includes_ipu"):

    def is_used(backend: Any) -> bool:
      return is_cache_used(
        _LooksLikeCpu() if backend.platform == PLATFORM else backend
      )

    is_used.includes_ipu = True  # type: ignore[attr-defined]
    compilation_cache.is_cache_used = is_used


class _LooksLikeCpu:
  platform = "cpu"
  supports_executable_serialization = True


def _show_whole_programs() -> None:
  """Lets `as_text` show the optimised module; see plugin.whole_programs."""
  from jax._src.lib import _jax
  from jaxlib.ipu import plugin

  for name in ("hlo_modules", "get_hlo_text"):
    method = getattr(_jax.LoadedExecutable, name)
    if not hasattr(method, "__wrapped__"):
      setattr(_jax.LoadedExecutable, name, plugin.whole_programs(method))
