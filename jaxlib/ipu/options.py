"""Reads the settings from flags.

Flags come from `jax.config`, from the environment, from `TF_POPLAR_FLAGS` and
from JSON in the environment, in this order of precedence; they are read when a
client is created. Invalid values raise an error that names the flag, the value
and what is expected; unknown flags log a warning that names the nearest one.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from jaxlib.ipu import flags
from jaxlib.ipu import target as target_lib
from jaxlib.ipu.flags import Flag, OptionError

logger = logging.getLogger("jaxlib.ipu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The values of all flags.

  Attributes:
    use_model: None if not set.
    num_tiles: None for all tiles of the machine.
    device_count: None for all that are visible, or one.
    visible_devices: hardware ids; None for all.
    version: see `target.resolve`.
    log_level: of Python's logging; None if not set.
    progress_bar: whether compilations show one; None: on a terminal.
    report, report_directory: whether and where to write reports.
    trace, trace_directory: whether and where to write a trace.
    dump_directory: where to write the result of each phase as text; None:
      nowhere.
    dump_when: "always", or on an "error" alone, or "off".
    allow_out_of_memory: whether a tile's SRAM may be exceeded.
    available_memory_proportion: see `target.Target`; None for the machine's.
    verify: whether the compiler checks itself after every phase.
    logged_tile: the tile whose cycles are logged, -1 for none.
    feed_depth: items that a feed holds.
    feed_timeout: seconds after which waiting for a feed fails; 0: never.
    collective_timeout: the same for another process.
  """

  use_model: bool | None = None
  num_tiles: int | None = None
  device_count: int | None = None
  visible_devices: tuple[int, ...] | None = None
  version: str = target_lib.DEFAULT
  log_level: int | None = None
  progress_bar: bool | None = None
  report: bool = False
  report_directory: str = "."
  trace: bool = False
  trace_directory: str = "."
  dump_directory: str | None = None
  dump_when: str = "always"
  allow_out_of_memory: bool = False
  available_memory_proportion: float | None = None
  verify: bool = False
  logged_tile: int = -1
  feed_depth: int = 64
  feed_timeout: float = 0.0
  collective_timeout: float = 60.0

  @property
  def target(self) -> target_lib.Target:
    """The machine to compile for."""
    machine = target_lib.resolve(self.version, self.num_tiles)
    share = self.available_memory_proportion
    if share is None:
      return machine
    return dataclasses.replace(machine, available_memory_proportion=share)

  @property
  def hardware_ids(self) -> tuple[int, ...]:
    """Hardware ids of the IPUs to open, in the order of JAX's device ids."""
    if self.visible_devices is None:
      return tuple(range(self.device_count or 1))
    return self.visible_devices[: self.device_count]


@dataclasses.dataclass
class _Found:
  """Values found in flags.

  Attributes:
    fields: values of `Settings`.
    sources: the flag that each field came from.
    warnings: about unknown flags.
  """

  fields: dict[str, Any] = dataclasses.field(default_factory=dict)
  sources: dict[str, str] = dataclasses.field(default_factory=dict)
  warnings: list[str] = dataclasses.field(default_factory=list)

  def add(self, field: str, value: Any, source: str) -> None:
    """Sets a field; later flags win. Flags without a field are only checked."""
    if field:
      self.fields[field] = value
      self.sources[field] = source


def _read_poplar_flags(text: str, found: _Found) -> None:
  variable = "TF_POPLAR_FLAGS"
  known = {flag.name: flag for flag in flags.POPLAR_FLAGS}
  try:
    words = shlex.split(text)
  except ValueError as error:
    expected = f"flags with spaces between them, quoted as in a shell ({error})"
    raise OptionError(variable, text, expected) from error
  for word in words:
    name, equals, value = word.partition("=")
    # --no-x and --nox turn a switch off, as in TensorFlow's flags.
    switch = name.replace("--no-", "--").replace("--no", "--", 1)
    if name in known:
      flag = known[name]
      is_switch = flag.kind in (flags.BOOL, flags.BAR)
      value = value if equals or not is_switch else "true"
      parsed = flag.parse(value, f"{variable} {name}")
      found.add(flag.field, parsed, f"{variable} {name}")
    elif (
      switch in known
      and known[switch].kind in (flags.BOOL, flags.BAR)
      and not equals
    ):
      found.add(known[switch].field, False, f"{variable} {name}")
    else:
      found.warnings.append(f"{variable}: {flags.unknown(name, known)}")


def _read_json(
  variable: str, text: str, known_flags: tuple[Flag, ...], found: _Found
) -> None:
  expected = "a JSON object"
  try:
    values = json.loads(text)
  except ValueError as error:  # no JSON, or an integer of too many digits
    raise OptionError(variable, text, f"{expected} ({error})") from error
  except RecursionError as error:
    allowed = f"{expected} that is not nested so deeply"
    raise OptionError(variable, text, allowed) from error
  if not isinstance(values, dict):
    raise OptionError(variable, text, expected)
  known = {flag.name: flag for flag in known_flags}
  for name, value in values.items():
    if name in known:
      shown = f"{variable} {name}"
      if not isinstance(value, str | int | float):
        raise OptionError(shown, value, known[name].kind.allowed)
      found.add(known[name].field, known[name].parse(value, shown), shown)
    else:
      found.warnings.append(f"{variable}: {flags.unknown(name, known)}")


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
  """Refuses inconsistent values, naming the flag they came from."""

  def error(field: str, value: object, allowed: str) -> OptionError:
    return OptionError(sources.get(field, field), value, allowed)

  try:
    machine = target_lib.resolve(settings.version)
  except ValueError as e:
    raise error(
      "version", settings.version, f"{flags.VERSION.allowed} ({e})"
    ) from e
  try:
    target_lib.resolve(settings.version, settings.num_tiles)
  except ValueError as e:
    allowed = f"an integer from 1 to {machine.num_tiles} ({e})"
    raise error("num_tiles", settings.num_tiles, allowed) from e
  visible = settings.visible_devices
  count = settings.device_count
  if visible is not None and count is not None and count > len(visible):
    allowed = f"at most the {len(visible)} of JAX_IPU_VISIBLE_DEVICES"
    raise error("device_count", count, allowed)
  tiles = settings.target.num_tiles
  if settings.logged_tile >= tiles:
    raise error("logged_tile", settings.logged_tile, f"-1 to {tiles - 1}")
  if settings.use_model is False:
    allowed = (
      "true, or nothing: no IPU hardware is found, and this build of the "
      "backend has only the IPU model"
    )
    raise error("use_model", "false", allowed)


def _find(environ: Mapping[str, str], config: Mapping[str, object]) -> _Found:
  found = _Found()
  # An empty variable counts as unset.
  if text := environ.get("TF_POPLAR_FLAGS"):
    _read_poplar_flags(text, found)
  for variable, known in (
    ("POPLAR_ENGINE_OPTIONS", flags.ENGINE_OPTIONS),
    ("PVTI_OPTIONS", flags.PVTI_OPTIONS),
  ):
    if text := environ.get(variable):
      if known is flags.PVTI_OPTIONS:  # to set it means to enable tracing
        found.add("trace", True, variable)
      _read_json(variable, text, known, found)
  of_environment = flags.JAX_FLAGS + flags.ENVIRONMENT_FLAGS
  for flag in of_environment:
    if text := environ.get(flag.name):
      found.add(flag.field, flag.parse(text), flag.name)
  for flag in flags.JAX_FLAGS:
    value = config.get(flag.name.lower())
    if value is not None:
      shown = f"jax.config.{flag.name.lower()}"
      found.add(flag.field, flag.parse(value, shown), shown)
  ours = [f.name for f in of_environment if f.name.startswith(_PREFIX)]
  found.warnings += [
    flags.unknown(name, ours)
    for name in environ
    if name.startswith(_PREFIX) and name not in ours
  ]
  return found


_PREFIX = "JAX_IPU_"


def read(
  environ: Mapping[str, str] | None = None,
  config: Mapping[str, object] | None = None,
) -> Settings:
  """Reads the current flags; warns of unknown ones.

  Args:
    environ: replaces `os.environ`.
    config: options of `jax.config` that the user set, by lower-case name;
      they take precedence over the environment.

  Raises:
    OptionError: names the flag, its value and what is expected.
  """
  found = _find(os.environ if environ is None else environ, config or {})
  for warning in found.warnings:
    logger.warning("%s", warning)
  settings = Settings(**found.fields)
  _check(settings, found.sources)
  return settings


def late_changes(
  settings: Settings | None,
  environ: Mapping[str, str] | None = None,
  config: Mapping[str, object] | None = None,
) -> list[str]:
  """Changes of flags after a client was created, which have no effect on it.

  Args:
    settings: of the client; None: there is none yet.
    environ, config: see `read`.

  Returns:
    For each changed flag a sentence that names it and both values.

  Raises:
    OptionError: an invalid value.
  """
  found = _find(os.environ if environ is None else environ, config or {})
  if settings is None:
    return []
  return [
    f"{found.sources[field]}={value!r} comes too late, the IPU client was "
    f"made {'without it' if made is None else f'with {made!r}'}: set it before "
    "the first use of a device"
    for field, value in found.fields.items()
    if value != (made := getattr(settings, field))
  ]


def _texts() -> list[str | None]:
  return [os.environ.get(name) for name in _VARIABLES]


_VARIABLES = (
  *(flag.name for flag in flags.JAX_FLAGS + flags.ENVIRONMENT_FLAGS),
  "TF_POPLAR_FLAGS",
  "POPLAR_ENGINE_OPTIONS",
  "PVTI_OPTIONS",
)


class Watch:
  """Warns of variables that change after a client was created.

  Args:
    settings: of the client.
    config: the options of `jax.config` that it was made with.
  """

  def __init__(
    self, settings: Settings, config: Mapping[str, object] | None = None
  ) -> None:
    self.settings = settings
    self._config = config
    self._seen = _texts()

  def look(self) -> None:
    """Warns, once for each change."""
    now = _texts()
    if now == self._seen:
      return
    self._seen = now
    try:
      late = late_changes(self.settings, config=self._config)
    except OptionError as error:
      late = [f"{error}, and before the first use of a device"]
    for message in late:
      logger.warning("%s", message)


def from_environment(
  name: str, environ: Mapping[str, str] | None = None
) -> Any | None:
  """The value that an unset option of `jax.config` shows for its variable.

  Args:
    name: `jax_ipu_model_num_tiles` and so on.
    environ: replaces `os.environ`.

  Returns:
    A bool or an integer; the text of a list, and of an invalid value, which
    raises an error when the client is created; None if the variable is not set.
  """
  environ = os.environ if environ is None else environ
  (flag,) = (f for f in flags.JAX_FLAGS if f.name.lower() == name)
  text = environ.get(flag.name)
  if not text:
    return None
  try:
    value = flag.parse(text)
  except OptionError:
    return text
  return value if isinstance(value, int) else text


_active: contextvars.ContextVar[Settings] = contextvars.ContextVar("settings")


def active() -> Settings:
  """The settings of the client that is compiling; else those of the flags."""
  settings = _active.get(None)
  return read() if settings is None else settings


@contextlib.contextmanager
def use(settings: Settings) -> Iterator[None]:
  """Makes `settings` the active ones of this thread."""
  token = _active.set(settings)
  try:
    yield
  finally:
    _active.reset(token)
