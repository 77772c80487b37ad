"""The backend's client, and the lists of platforms in JAX's code."""

from __future__ import annotations

import functools
from typing import Any

from jaxlib.ipu.internals.feature import PLATFORM, uses


@uses(
  "jax._src.lib.xla_client.pjrt_plugin_loaded",
  "jax._src.lib.xla_client.load_pjrt_plugin_dynamically",
  "jax._src.xla_bridge.make_pjrt_c_api_client",
  lost=None,
)
def make_client(
  is_loaded: Any,
  load: Any,
  make: Any,
  library: str,
  client_options: dict[str, Any],
) -> Any:
  """A client of the PJRT plugin in `library`, which is loaded once.

  JAX's public `register_backend_factory` takes a function that makes a client,
  and there is no public way to make one. (`register_plugin`, which is internal
  as well, would load the library at once, whether an IPU is used or not.)
  """
  if not is_loaded(PLATFORM):
    register_profiler(load(PLATFORM, library))
  return make(PLATFORM, client_options)


@uses(
  "jax._src.distributed.global_state",
  lost="jax.distributed with more than one process is refused",
)
def distributed_group(state: Any) -> dict[str, Any]:
  """The processes of `jax.distributed`: the fields of `processes.Group`."""
  return {
    "store": state.client,
    "process": state.process_id,
    "count": state.num_processes,
    "coordinator": state.coordinator_address,
  }


@uses(
  "jaxlib._profiler.register_plugin_profiler",
  lost="jax.profiler.trace shows the host alone",
)
def register_profiler(register: Any, c_api: Any) -> None:
  """Lets JAX's profiler ask the plugin what its devices did."""
  register(c_api)


@uses(
  "jax.profiler.ProfileData.from_serialized_xspace",
  lost="PVTI_OPTIONS writes no events",
)
def read_profile(read: Any, space: bytes) -> Any:
  """The planes of a serialised trace, with lines and events."""
  return read(space).planes


@uses(
  "jax._src.interpreters.mlir._platforms_with_donation",
  lost="donated arguments are not reused for results",
)
def allow_donation(platforms: list[str]) -> None:
  """Enables donation; JAX only warns on platforms that are not in a list."""
  if PLATFORM not in platforms:
    platforms.append(PLATFORM)


class _LooksLikeCpu:
  platform = "cpu"
  supports_executable_serialization = True


@uses(
  "jax._src.compilation_cache",
  "jax._src.compilation_cache.is_cache_used",
  "jax.config",
  lost="its programs are not kept in JAX's persistent compilation cache",
)
def allow_compilation_cache(
  module: Any, is_cache_used: Any, config: Any
) -> None:
  """Enables the compilation cache, which is limited to a list of platforms.

  The check, made once, gives the IPU the answer for the CPU, unless there is
  neither a cache nor a folder for one: JAX would hash the whole module for
  nothing.
  """
  if hasattr(is_cache_used, "__wrapped__"):
    return

  @functools.wraps(is_cache_used)
  def is_used(backend: Any) -> bool:
    if backend.platform != PLATFORM:
      return is_cache_used(backend)
    folder = config.jax_compilation_cache_dir
    if not folder and getattr(module, "_cache", None) is None:
      return False
    return is_cache_used(_LooksLikeCpu())

  module.is_cache_used = is_used
