"""What the flags say.

Flags come from `jax.config`, from the environment, from `TF_POPLAR_FLAGS` and
from JSON in the environment, in this order of precedence; they are read when
a client is created. A bad value is an error that names the flag, the value
and what is allowed.
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
  """What the flags say, all together.

  Attributes:
    use_model: None when nobody said anything.
    num_tiles: None for all tiles of the machine.
    device_count: None for all that are visible, or one.
    visible_devices: hardware ids; None for all.
    version: see `target.resolve`.
    log_level: of Python's logging; None when nobody said anything.
    report, report_directory: whether and where to write reports.
    allow_out_of_memory: whether a tile's SRAM may be exceeded.
    verify: whether the compiler checks itself after every phase.
    logged_tile: the tile whose cycles are logged, -1 for none.
  """

  use_model: bool | None = None
  num_tiles: int | None = None
  device_count: int | None = None
  visible_devices: tuple[int, ...] | None = None
  version: str = target_lib.DEFAULT
  log_level: int | None = None
  report: bool = False
  report_directory: str = "."
  allow_out_of_memory: bool = False
  verify: bool = False
  logged_tile: int = -1

  @property
  def target(self) -> target_lib.Target:
    """The machine to plan for."""
    return target_lib.resolve(self.version, self.num_tiles)

  @property
  def hardware_ids(self) -> tuple[int, ...]:
    """Of the IPUs to open, in the order of JAX's device ids."""
    if self.visible_devices is None:
      return tuple(range(self.device_count or 1))
    return self.visible_devices[: self.device_count]


def _read_poplar_flags(text: str) -> dict[str, Any]:
  known = {flag.name: flag for flag in flags.POPLAR_FLAGS}
  fields = {}
  try:
    words = shlex.split(text)
  except ValueError as error:
    allowed = f"flags with spaces between them, quoted as in a shell ({error})"
    raise OptionError("TF_POPLAR_FLAGS", text, allowed) from error
  for word in words:
    name, equals, value = word.partition("=")
    # --no-x and --nox turn a switch off, as TensorFlow's flags did.
    switch = name.replace("--no-", "--").replace("--no", "--", 1)
    if name in known:
      flag = known[name]
      shown = f"{name} in TF_POPLAR_FLAGS"
      value = value if equals or flag.kind is not flags.BOOL else "true"
      fields[flag.field] = flag.parse(value, shown)
    elif switch in known and known[switch].kind is flags.BOOL and not equals:
      fields[known[switch].field] = False
    else:
      logger.warning("TF_POPLAR_FLAGS: %s has no meaning here", name)
  return fields


def _read_json(
  variable: str, text: str, known_flags: tuple[Flag, ...]
) -> dict[str, Any]:
  allowed = "a JSON object"
  try:
    values = json.loads(text)
  except json.JSONDecodeError as error:
    raise OptionError(variable, text, f"{allowed} ({error})") from error
  if not isinstance(values, dict):
    raise OptionError(variable, text, allowed)
  known = {flag.name: flag for flag in known_flags}
  fields = {}
  for name, value in values.items():
    if name in known:
      fields[known[name].field] = known[name].parse(
        value, f"{name} in {variable}"
      )
    else:
      logger.warning("%s: %s has no meaning here", variable, name)
  return fields


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
  """Refuses values that are wrong together, naming the flag they came from."""

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
    allowed = f"a whole number from 1 to {machine.num_tiles} ({e})"
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


def read(
  environ: Mapping[str, str] | None = None,
  config: Mapping[str, object] | None = None,
) -> Settings:
  """What the flags say now.

  Args:
    environ: instead of `os.environ`.
    config: options of `jax.config` that the user set, by lower-case name;
      they come before the environment.

  Raises:
    OptionError: names the flag, its value and what is allowed.
  """
  environ = os.environ if environ is None else environ
  config = config or {}
  fields: dict[str, Any] = {}
  sources: dict[str, str] = {}

  def add(new: Mapping[str, Any], source: str) -> None:
    fields.update(new)
    sources.update(dict.fromkeys(new, source))

  # An empty variable counts as one that is not set.
  if text := environ.get("TF_POPLAR_FLAGS"):
    add(_read_poplar_flags(text), "TF_POPLAR_FLAGS")
  for variable, known in (
    ("POPLAR_ENGINE_OPTIONS", flags.ENGINE_OPTIONS),
    ("PVTI_OPTIONS", flags.PVTI_OPTIONS),
  ):
    if text := environ.get(variable):
      add(_read_json(variable, text, known), variable)
  for flag in flags.JAX_FLAGS + flags.ENVIRONMENT_FLAGS:
    if text := environ.get(flag.name):
      value = flag.parse(text)
      if flag.field:
        add({flag.field: value}, flag.name)
  for flag in flags.JAX_FLAGS:
    value = config.get(flag.name.lower())
    if value is not None:
      shown = f"jax.config.{flag.name.lower()}"
      add({flag.field: flag.parse(value, shown)}, shown)

  settings = Settings(**fields)
  _check(settings, sources)
  return settings


_active: contextvars.ContextVar[Settings] = contextvars.ContextVar("settings")


def active() -> Settings:
  """The settings of the client that is compiling; outside, the flags' now."""
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
