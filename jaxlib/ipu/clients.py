"""The clients of this process: what they are made with, and their settings.

A client has the devices of one machine. JAX makes one, tests may make several.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import itertools
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlib.ipu import feeds, internals, options, progress
from jaxlib.ipu.library import LIBRARY
from jaxlib.ipu.target import Target

logger = logging.getLogger("jaxlib.ipu")

# Settings of this process's clients, by the name that the library passes with
# every module to compile.
_machines: dict[str, options.Watch] = {}
_machine_names = (str(i) for i in itertools.count())
_lock = threading.Lock()


@functools.cache
def compiler_fingerprint() -> str:
  """A hash of the compiler's source files, and of the library, which has a
  part of it.

  Programs in JAX's compilation cache must not outlive the compiler that made
  them. Contents are hashed, not times: the same wheel is the same compiler on
  every machine.
  """
  digest = hashlib.blake2b(digest_size=8)
  root = Path(__file__).parent
  for path in (*sorted(root.rglob("*.py")), LIBRARY):
    digest.update(path.relative_to(root).as_posix().encode())
    digest.update(path.read_bytes())
  return digest.hexdigest()


def _version() -> str:
  for name in ("jax-ipu-plugin", "jaxlib"):
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return "(not installed)"


def client_options(
  settings: options.Settings, config: Mapping[str, object] | None = None
) -> dict[str, Any]:
  """The options of the library's client, as PJRT's named values.

  Args:
    settings: from the flags.
    config: the options of `jax.config` among them.
  """
  target = settings.target
  feeds.set_limits(settings.feed_depth, settings.feed_timeout)
  with _lock:
    machine = next(_machine_names)
    _machines[machine] = options.Watch(settings, config)
  # All that a program depends on besides the module and its options.
  platform_version = (
    f"jax-ipu {_version()}, compiler {compiler_fingerprint()}, {target!r}, "
    f"allow_out_of_memory={settings.allow_out_of_memory}"
  )
  return {
    "hardware_ids": list(settings.hardware_ids),
    "num_tiles": target.num_tiles,
    "bytes_per_tile": target.bytes_per_tile,
    "clock_hz": round(target.clock_hz),
    "version": target.version,
    "is_model": True,
    "logs_cycles": settings.logged_tile >= 0
    or (settings.log_level or logging.WARNING) <= progress.TRACE,
    "data_path_bytes": target.data_path_bytes,
    "may_overflow": settings.allow_out_of_memory,
    "warns": (settings.log_level or logging.WARNING) <= logging.WARNING,
    "platform_version": platform_version,
    "compiler_machine": machine,
    **_copies(target, len(settings.hardware_ids)),
  }


@functools.cache
def _copies(target: Target, count: int) -> dict[str, list[int]]:
  """What copies between IPUs take, as client options."""
  if count < 2:
    return {}
  from jaxlib.ipu import topology
  from jaxlib.ipu.plan import links  # not for a single IPU

  try:
    machine = topology.of(target.version, count)
  except ValueError:
    return {}  # no machine has so many
  # All pairs are linked alike: the cost depends on the side and the distance.
  known: dict[tuple[int, int], tuple[int, int]] = {}
  costs = []
  for a, b in itertools.product(range(count), repeat=2):
    way = a % 2, b - a
    if way not in known:
      known[way] = links.copy(target, machine, a, b)
    costs.append(known[way])
  latency, rate = zip(*costs, strict=True)
  return {
    "copy_latency_cycles": list(latency),
    "copy_bytes_per_second": list(rate),
  }


def join_processes(
  library: ctypes.CDLL,
  settings: options.Settings,
  client_options: Mapping[str, Any],
) -> dict[str, Any]:
  """Connects to the other processes of `jax.distributed`, if there are any.

  Args:
    library: `plugin.load()`.
    settings: from the flags.
    client_options: of the client that this process is about to make.

  Returns:
    Further options of the client.

  Raises:
    processes.ProcessError: another process does not answer or does not fit.
  """
  group = internals.distributed_group()
  if group is None or group["count"] == 1:
    return {}
  from jaxlib.ipu import processes, transport  # not for a single process

  counts, connections = processes.join(
    processes.Group(**group),
    len(settings.hardware_ids),
    client_options["platform_version"],
    settings.collective_timeout,
  )
  transport.connect(library, connections, settings.collective_timeout)
  return {"device_counts": counts}


def exist() -> bool:
  """Whether there has been a client."""
  return bool(_machines)


def settings_of(machine: str) -> options.Settings:
  """The settings of a client. Warns of flags that have changed since.

  Args:
    machine: the name that the client was given (`compiler_machine`).
  """
  watch = _machines[machine]
  watch.look()
  return watch.settings


def settings_for(version: str) -> options.Settings:
  """The settings of this process's latest client with machines of a version;
  those of the flags, if there is none."""
  with _lock:
    made = [watch.settings for watch in _machines.values()]
  same = [s for s in made if s.target.version == version]
  return same[-1] if same else options.read()


def set_up_logging(settings: options.Settings) -> None:
  """Shows the backend's messages at the level of `POPLAR_LOG_LEVEL`."""
  if settings.log_level is None:
    return
  logger.setLevel(settings.log_level)
  if not logger.handlers:
    handler = logging.StreamHandler()
    handler.setFormatter(
      logging.Formatter("%(levelname)s %(name)s: %(message)s")
    )
    logger.addHandler(handler)


def announce(settings: options.Settings) -> None:
  """Logs once per client that it runs on the model.

  A warning, unless the user asked for the model.
  """
  target = settings.target
  said = settings.use_model is not None
  logger.log(
    logging.INFO if said else logging.WARNING,
    "no IPU hardware: %s on the IPU model (%s, %s)%s",
    _count(len(settings.hardware_ids), "device"),
    target.version,
    _count(target.num_tiles, "tile"),
    "" if said else "; set JAX_IPU_USE_MODEL=true if this is intended",
  )


def _count(number: int, thing: str) -> str:
  return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
