"""Every flag of the IPU backend, declared once.

`options.py` reads them; `markdown()` generates the table of the documents.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from jaxlib.ipu import target as target_lib

# Characters of an invalid value in an error: a guess of what helps.
_MOST_SHOWN = 300


class OptionError(ValueError):
  """A flag with an invalid value.

  Example: `JAX_IPU_MODEL_NUM_TILES=many` gives "invalid
  JAX_IPU_MODEL_NUM_TILES='many': expected an integer >= 1". Set the flag to
  such a number, or unset it.
  """

  def __init__(self, flag: str, value: object, expected: str) -> None:
    shown = repr(value)
    if len(shown) > _MOST_SHOWN:
      shown = f"{shown[:_MOST_SHOWN]}..."
    super().__init__(f"invalid {flag}={shown}: expected {expected}")


@dataclasses.dataclass(frozen=True)
class Kind:
  """The allowed values of a flag.

  Attributes:
    allowed: in words, for errors and documents.
    parse: from text; raises ValueError or KeyError for invalid values.
  """

  allowed: str
  parse: Callable[[str], Any]


_TRUTH = {
  **dict.fromkeys(("true", "1", "yes", "y", "t", "on"), True),
  **dict.fromkeys(("false", "0", "no", "n", "f", "off"), False),
}
_POPLAR_LEVELS = {
  "TRACE": 5,  # progress.TRACE
  "DEBUG": logging.DEBUG,
  "INFO": logging.INFO,
  "WARN": logging.WARNING,
  "ERR": logging.ERROR,
  "CRITICAL": logging.CRITICAL,
  "OFF": logging.CRITICAL + 1,
}


# A limit: the library's integers have 32 bits.
_LARGEST = 2**31 - 1
# A limit, of the library too (runtime/program/validate_tensors.cc).
_MOST_DEVICES = 1024


def _number(text: str, least: int, most: int = _LARGEST) -> int:
  value = int(text)
  if not least <= value <= most:
    raise ValueError(value)
  return value


def _share(text: str) -> float:
  value = float(text)
  if not 0 <= value <= 1:  # nor NaN
    raise ValueError(value)
  return value


def _seconds(text: str) -> float:
  value = float(text)
  if not 0 <= value < math.inf:  # nor NaN
    raise ValueError(value)
  return value


def _device_list(text: str) -> tuple[int, ...] | None:
  if text.strip() == "all":
    return None
  ids = tuple(_number(part, 0) for part in text.split(","))
  if len(set(ids)) != len(ids):
    raise ValueError("an IPU is named twice")
  if len(ids) > _MOST_DEVICES:
    raise ValueError("too many")
  return ids


def _machine(text: str) -> str:
  version = target_lib.version_of(_text(text))
  if version not in target_lib.TARGETS and not text.endswith(".toml"):
    raise ValueError("unknown")
  return version


def _text(text: str) -> str:
  if not text or b"\0" in os.fsencode(text):  # which refuses lone surrogates
    raise ValueError("no name of a file")
  return text


BOOL = Kind("true or false", lambda text: _TRUTH[text.strip().lower()])
POSITIVE = Kind("an integer >= 1", lambda text: _number(text, 1))
# Each device has a queue with a thread of its own.
DEVICE_COUNT = Kind(
  f"an integer from 1 to {_MOST_DEVICES:,}",
  lambda text: _number(text, 1, _MOST_DEVICES),
)
SECONDS = Kind("a number of seconds, 0 for no limit", _seconds)
NATURAL = Kind("an integer >= 0", lambda text: _number(text, 0))
TILE = Kind("a tile's number, or -1 for none", lambda text: _number(text, -1))
DEVICES = Kind(
  f"`all`, or up to {_MOST_DEVICES:,} distinct integers >= 0, separated by "
  "commas",
  _device_list,
)
VERSION = Kind(
  f"{target_lib.names()}, or a .toml file that describes a machine",
  _machine,
)
BAR = Kind(
  "true, false or auto",
  lambda text: None if text.strip().lower() == "auto" else BOOL.parse(text),
)
FOLDER = Kind("a folder", _text)
DUMP_WHEN = Kind(
  "always, error or off",
  lambda text: {w: w for w in ("always", "error", "off")}[text.strip().lower()],
)
SHARE = Kind("a number from 0 to 1", _share)
POPLAR_LEVEL = Kind(
  ", ".join(_POPLAR_LEVELS), lambda text: _POPLAR_LEVELS[text.strip().upper()]
)


@dataclasses.dataclass(frozen=True)
class Flag:
  """One flag.

  Attributes:
    name: as written by the user.
    field: the field of `Settings` that it sets; "" for one that is only
      checked here.
    kind: its allowed values.
    meaning: for the documents.
    default: for the documents.
  """

  name: str
  field: str
  kind: Kind
  meaning: str
  default: str = ""

  def parse(self, value: object, shown: str = "") -> Any:
    """Parses `value`; `shown` is the flag's name in errors."""
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
    "all of the machine's",
  ),
  Flag(
    "JAX_IPU_DEVICE_COUNT", "device_count", DEVICE_COUNT, "IPUs to open", "1"
  ),
  Flag(
    "JAX_IPU_VISIBLE_DEVICES",
    "visible_devices",
    DEVICES,
    "hardware ids of the IPUs to use, in the order of JAX's device ids",
    "`all`",
  ),
  Flag(
    "JAX_IPU_MODEL_VERSION",
    "version",
    VERSION,
    "the machine to model",
    target_lib.DEFAULT,
  ),
)

ENVIRONMENT_FLAGS = (
  Flag(
    "JAX_IPU_VERIFY",
    "verify",
    BOOL,
    "check the output of each compiler phase",
    "false",
  ),
  Flag(
    "JAX_IPU_FEED_DEPTH",
    "feed_depth",
    POSITIVE,
    "items that an infeed, an outfeed or a `jax.ipu.feed` holds",
    "64",
  ),
  Flag(
    "JAX_IPU_FEED_TIMEOUT",
    "feed_timeout",
    SECONDS,
    "how long a program, or a transfer, waits for a feed before it fails",
    "0",
  ),
  Flag(
    "JAX_IPU_COLLECTIVE_TIMEOUT",
    "collective_timeout",
    SECONDS,
    "how long a program, or the start of the backend, waits for another "
    "process of `jax.distributed` before it fails",
    "60",
  ),
  Flag(
    "JAX_IPU_DUMP_TO",
    "dump_directory",
    FOLDER,
    "a folder for the result of each compiler phase as text",
    "none",
  ),
  Flag(
    "JAX_IPU_DUMP_WHEN",
    "dump_when",
    DUMP_WHEN,
    "which programs' phases are written there: all, those that do not compile "
    "(they are then compiled twice), or none",
    "always",
  ),
  Flag(
    "POPLAR_LOG_LEVEL",
    "log_level",
    POPLAR_LEVEL,
    "lowest level of the backend's log messages on stderr: DEBUG tells of "
    "each compilation, TRACE of decisions and runs, too",
    "WARN",
  ),
  Flag(
    "TF_CPP_MIN_LOG_LEVEL",
    "",
    NATURAL,
    "lowest level of jaxlib's own messages: 0 all, 1 warnings, 2 errors",
    "1",
  ),
)

POPLAR_FLAGS = (
  Flag(
    "--use_ipu_model",
    "use_model",
    BOOL,
    "as `JAX_IPU_USE_MODEL`, which takes precedence",
  ),
  Flag(
    "--ipu_model_tiles",
    "num_tiles",
    POSITIVE,
    "as `JAX_IPU_MODEL_NUM_TILES`, which takes precedence",
  ),
  Flag(
    "--show_progress_bar",
    "progress_bar",
    BAR,
    "a progress bar for compilations of more than a second; auto: if stderr is "
    "a terminal",
    "auto",
  ),
  Flag(
    "--log_cycle_count",
    "logged_tile",
    TILE,
    "log the cycles of every run to stderr; since tiles wait for each other, "
    "any tile stands for all",
    "-1",
  ),
)

ENGINE_OPTIONS = (
  Flag(
    "autoReport.all",
    "report",
    BOOL,
    "write a report of every program: a page and its data",
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
    "let programs and arrays exceed a tile's SRAM, and warn by how much",
    "false",
  ),
  Flag(
    "availableMemoryProportion",
    "available_memory_proportion",
    SHARE,
    "share of a tile's SRAM that a product or convolution may take before it "
    "is split into serial steps (poplin's option)",
    "0.6",
  ),
)

PVTI_OPTIONS = (
  Flag(
    "enable",
    "trace",
    BOOL,
    "write a trace of everything that runs on IPUs when Python exits, for "
    "Perfetto",
    "false; true if the variable is set",
  ),
  Flag(
    "directory",
    "trace_directory",
    FOLDER,
    "where the trace `ipu_trace_PID.json.gz` goes",
    "the working directory",
  ),
)


def nearest(name: str, known: Iterable[str]) -> str:
  """The hint for an unknown name: the nearest known one, or all."""
  names = list(known)
  near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
  if near:
    return f"did you mean {near[0]}?"
  return f"known: {', '.join(names)}" if names else "none is known"


def unknown(name: str, known: Iterable[str]) -> str:
  """The warning about an unknown option."""
  return f"unknown option {name}, ignored; {nearest(name, known)}"


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
