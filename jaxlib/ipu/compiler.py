"""The compiler as PJRT calls it: reads the compile options, runs the phases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxlib.ipu import flags, internals, progress
from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.options import active
from jaxlib.ipu.partition.options import Sharding
from jaxlib.ipu.pipeline import Options, Phase, compile_module, no_collection

_PHASES = [phase.value for phase in Phase]

# Gets what is to be compiled, and the options (artifacts.py).
observer: Callable[[bytes | memoryview, bytes], None] | None = None


def compile_program(
  code: bytes | memoryview, compile_options: bytes
) -> Sequence[bytes | memoryview]:
  """Compiles a module to a program's bytes, in pieces; called by the plugin.

  Args:
    code: a StableHLO portable artifact.
    compile_options: a serialised `CompileOptionsProto`, including the user's
      `jax.jit(..., compiler_options={"ipu_...": ...})`.
  """
  if observer is not None:
    observer(code, compile_options)
  options = read_options(compile_options)
  with (
    no_collection,
    progress.shown(_PHASES, active().progress_bar) as on_phase,
  ):
    if on_phase is not None:
      options = replace(options, on_phase=on_phase)
    return _pieces(code, options)


def _pieces(
  code: bytes | memoryview, options: Options
) -> Sequence[bytes | memoryview]:
  """A compiled program. If failures are to be dumped, it is compiled again for
  the dump."""
  if options.dump is None or active().dump_when == "always":
    return compile_module(code, options).pieces
  try:
    return compile_module(code, replace(options, dump=None)).pieces
  except Exception:  # whatever it is: it is dumped, and raised
    if active().dump_when == "error":
      compile_module(code, options)
    raise


def read_options(compile_options: bytes) -> Options:
  """The options of a compilation: the client's flags, then the given ones.

  Raises:
    CompileError: an unknown option (XLA's are ignored), or an invalid value.
  """
  settings = active()
  given = _compiler_options(compile_options)
  options = Options(
    target=settings.target,
    sharding=_sharding(compile_options),
    allow_out_of_memory=settings.allow_out_of_memory,
    dump=_path(settings.dump_directory),
    report=Path(settings.report_directory) if settings.report else None,
    verify=settings.verify,
    given={k: v for k, v in given.items() if k.startswith("ipu_")},
  )
  for name, value in given.items():
    if name.startswith("xla_"):
      continue  # for XLA's own compilers
    read = _COMPILER_OPTIONS.get(name)
    if read is None:
      raise invalid_argument(
        f"No such compile option: {name!r}; "
        f"{flags.nearest(name, _COMPILER_OPTIONS)}"
      )
    try:
      options = replace(options, **read(value, options))
    except ValueError as e:
      raise invalid_argument(f"compiler option {name}={value!r}: {e}") from e
  return options


@functools.lru_cache(maxsize=64)
def _compiler_options(compile_options: bytes) -> dict[str, Any]:
  return internals.compiler_options(compile_options) or {}


@functools.lru_cache(maxsize=64)
def _sharding(compile_options: bytes) -> Sharding | None:
  found = internals.sharding_options(compile_options)
  return None if found is None else Sharding(**found)


def _read_tiles(value: Any, options: Options) -> dict[str, Any]:
  number = str(value)
  target = options.target
  if not number.isdecimal() or not 1 <= int(number) <= target.num_tiles:
    raise ValueError(
      f"expected an integer from 1 to {target.num_tiles}, the tiles of this IPU"
    )
  return {"target": replace(target, num_tiles=int(number))}


def _read_share(value: Any, options: Options) -> dict[str, Any]:
  if not isinstance(value, int | float) or isinstance(value, bool):
    value = -1
  if not 0 <= value <= 1:
    raise ValueError("expected a number from 0 to 1")
  target = replace(options.target, available_memory_proportion=float(value))
  return {"target": target}


def _read_bytes(value: Any) -> int:
  if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
    return value
  raise ValueError("expected an integer >= 0, in bytes")


def _read_folder(value: Any) -> Path:
  try:
    return Path(flags.FOLDER.parse(value))
  except (TypeError, ValueError) as e:
    raise ValueError("expected a folder's name") from e


def _path(folder: str | None) -> Path | None:
  return None if folder is None else Path(folder)


def _read_bool(value: Any) -> bool:
  if isinstance(value, bool):
    return value
  raise ValueError("expected True or False")


# jax.jit(f, compiler_options={name: value})
_COMPILER_OPTIONS: dict[str, Any] = {
  "ipu_num_tiles": _read_tiles,
  "ipu_available_memory_proportion": _read_share,
  "ipu_allow_out_of_memory": lambda value, options: {
    "allow_out_of_memory": _read_bool(value)
  },
  "ipu_code_budget": lambda value, options: {"code_budget": _read_bytes(value)},
  "ipu_verify": lambda value, options: {"verify": _read_bool(value)},
  "ipu_dump_to": lambda value, options: {"dump": _read_folder(value)},
  "ipu_report_to": lambda value, options: {"report": _read_folder(value)},
}
