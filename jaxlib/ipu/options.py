"""Every flag of the IPU backend, declared once.

Flags come from `jax.config`, from the environment, from `TF_POPLAR_FLAGS` and
from JSON in the environment, in this order of precedence; they are read when
a client is created. A bad value is an error that names the flag, the value
and what is allowed. `markdown()` makes the table of the documents.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxlib.ipu import target as target_lib

logger = logging.getLogger("jaxlib.ipu")


class OptionError(ValueError):
  """A flag with a value that is not allowed.

  Example: `JAX_IPU_MODEL_NUM_TILES=many` gives "JAX_IPU_MODEL_NUM_TILES is
  'many': allowed is a whole number from 1". Set the flag to such a number, or
  unset it.
  """

  def __init__(self, flag: str, value: object, allowed: str) -> None:
    super().__init__(f"{flag} is {value!r}: allowed is {allowed}")


@dataclasses.dataclass(frozen=True)
class Kind:
  """What a flag's text may be.

  Attributes:
    allowed: in words, for errors and documents.
    parse: from text; raises ValueError or KeyError for what is not allowed.
  """

  allowed: str
  parse: Callable[[str], Any]


_TRUTH = {
  **dict.fromkeys(("true", "1", "yes", "y", "t", "on"), True),
  **dict.fromkeys(("false", "0", "no", "n", "f", "off"), False),
}
_POPLAR_LEVELS = {
  "TRACE": logging.DEBUG,
  "DEBUG": logging.DEBUG,
  "INFO": logging.INFO,
  "WARN": logging.WARNING,
  "ERR": logging.ERROR,
  "CRITICAL": logging.CRITICAL,
  "OFF": logging.CRITICAL + 1,
}


def _number(text: str, least: int) -> int:
  value = int(text)
  if value < least:
    raise ValueError(value)
  return value


def _device_list(text: str) -> tuple[int, ...] | None:
  if text.strip() == "all":
    return None
  ids = tuple(_number(part, 0) for part in text.split(","))
  if len(set(ids)) != len(ids):
    raise ValueError("an IPU is named twice")
  return ids


def _text(text: str) -> str:
  if not text:
    raise ValueError("empty")
  return text


BOOL = Kind("true or false", lambda text: _TRUTH[text.strip().lower()])
POSITIVE = Kind("a whole number from 1", lambda text: _number(text, 1))
NATURAL = Kind("a whole number from 0", lambda text: _number(text, 0))
DEVICES = Kind(
  "`all`, or numbers from 0 with commas between them, each once", _device_list
)
VERSION = Kind(
  f"{', '.join(target_lib.TARGETS)}, or a .toml file that describes a machine",
  _text,
)
FOLDER = Kind("a folder", _text)
POPLAR_LEVEL = Kind(
  ", ".join(_POPLAR_LEVELS), lambda text: _POPLAR_LEVELS[text.strip().upper()]
)


@dataclasses.dataclass(frozen=True)
class Flag:
  """One flag.

  Attributes:
    name: as the user writes it.
    field: the field of `Settings` that it sets; "" for one that is checked
      but that others act upon.
    kind: what is allowed.
    meaning: for the documents.
    default: for the documents.
  """

  name: str
  field: str
  kind: Kind
  meaning: str
  default: str = ""

  def parse(self, value: object, shown: str = "") -> Any:
    """`value` in this flag's type; `shown` is how errors call the flag."""
    try:
      return self.kind.parse(str(value))
    except (ValueError, KeyError) as error:
      raise OptionError(shown or self.name, value, self.kind.allowed) from error


# Each also exists in lower case as an option of jax.config.
JAX_FLAGS = (
  Flag(
    "JAX_IPU_USE_MODEL",
    "use_model",
    BOOL,
    "run on the IPU model instead of hardware",
    "the model, because no hardware is found",
  ),
  Flag(
    "JAX_IPU_MODEL_NUM_TILES",
    "num_tiles",
    POSITIVE,
    "tiles of a modelled IPU",
    "all that the machine has",
  ),
  Flag("JAX_IPU_DEVICE_COUNT", "device_count", POSITIVE, "IPUs to open", "1"),
  Flag(
    "JAX_IPU_VISIBLE_DEVICES",
    "visible_devices",
    DEVICES,
    "hardware ids of the IPUs that may be opened, in the order of JAX's ids",
    "`all`",
  ),
)

ENVIRONMENT_FLAGS = (
  Flag(
    "JAX_IPU_MODEL_VERSION",
    "version",
    VERSION,
    "the machine to model",
    target_lib.DEFAULT,
  ),
  Flag(
    "JAX_IPU_VERIFY",
    "verify",
    BOOL,
    "check what each phase of the compiler leaves behind",
    "false",
  ),
  Flag(
    "POPLAR_LOG_LEVEL",
    "log_level",
    POPLAR_LEVEL,
    "what the backend writes to the standard error stream",
    "WARN",
  ),
  Flag(
    "TF_CPP_MIN_LOG_LEVEL",
    "",
    NATURAL,
    "least level of jaxlib's own messages: 0 all, 1 warnings, 2 errors",
    "1",
  ),
)

POPLAR_FLAGS = (
  Flag("--use_ipu_model", "use_model", BOOL, "as `JAX_IPU_USE_MODEL`"),
  Flag(
    "--ipu_model_tiles", "num_tiles", POSITIVE, "as `JAX_IPU_MODEL_NUM_TILES`"
  ),
)

ENGINE_OPTIONS = (
  Flag(
    "autoReport.all",
    "report",
    BOOL,
    "write every program as text: graph, tile mappings, steps, costs",
    "false",
  ),
  Flag(
    "autoReport.directory",
    "report_directory",
    FOLDER,
    "where reports go",
    "the working directory",
  ),
  Flag(
    "debug.allowOutOfMemory",
    "allow_out_of_memory",
    BOOL,
    "let programs exceed a tile's SRAM, to report by how much",
    "false",
  ),
)

# None has a meaning here yet; the variable is read to say so by name.
PVTI_OPTIONS: tuple[Flag, ...] = ()


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
  known = {flag.name: flag for flag in POPLAR_FLAGS}
  fields = {}
  for word in shlex.split(text):
    name, equals, value = word.partition("=")
    # --no-x and --nox turn a switch off, as TensorFlow's flags did.
    switch = name.replace("--no-", "--").replace("--no", "--", 1)
    if name in known:
      flag = known[name]
      shown = f"{name} in TF_POPLAR_FLAGS"
      value = value if equals or flag.kind is not BOOL else "true"
      fields[flag.field] = flag.parse(value, shown)
    elif switch in known and known[switch].kind is BOOL and not equals:
      fields[known[switch].field] = False
    else:
      logger.warning("TF_POPLAR_FLAGS: %s has no meaning here", name)
  return fields


def _read_json(
  variable: str, text: str, flags: tuple[Flag, ...]
) -> dict[str, Any]:
  allowed = "a JSON object"
  try:
    values = json.loads(text)
  except json.JSONDecodeError as error:
    raise OptionError(variable, text, f"{allowed} ({error})") from error
  if not isinstance(values, dict):
    raise OptionError(variable, text, allowed)
  known = {flag.name: flag for flag in flags}
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
    raise error("version", settings.version, f"{VERSION.allowed} ({e})") from e
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
  for variable, flags in (
    ("POPLAR_ENGINE_OPTIONS", ENGINE_OPTIONS),
    ("PVTI_OPTIONS", PVTI_OPTIONS),
  ):
    if text := environ.get(variable):
      add(_read_json(variable, text, flags), variable)
  for flag in JAX_FLAGS + ENVIRONMENT_FLAGS:
    if text := environ.get(flag.name):
      value = flag.parse(text)
      if flag.field:
        add({flag.field: value}, flag.name)
  for flag in JAX_FLAGS:
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


def markdown() -> str:
  """The table of all flags, for the documents."""
  rows = ["| flag | allowed | default | meaning |", "|---|---|---|---|"]
  for prefix, flags in (
    ("", JAX_FLAGS + ENVIRONMENT_FLAGS),
    ("`TF_POPLAR_FLAGS`: ", POPLAR_FLAGS),
    ("`POPLAR_ENGINE_OPTIONS`: ", ENGINE_OPTIONS),
    ("`PVTI_OPTIONS`: ", PVTI_OPTIONS),
  ):
    for flag in flags:
      rows.append(
        f"| {prefix}`{flag.name}` | {flag.kind.allowed} | {flag.default} "
        f"| {flag.meaning} |"
      )
  return "\n".join(rows) + "\n"
