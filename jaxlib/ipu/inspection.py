"""Dumps and checks of the compiler's state after each phase."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.ir import importer, verifier
from jaxlib.ipu.ir.printer import module_text
from jaxlib.ipu.lower import (
  assembled,
  overflow,
  verify_addresses,
  verify_exchanges,
)
from jaxlib.ipu.program import verify
from jaxlib.ipu.program.text import program_text

_numbers = itertools.count()


def after(phase: Any, state: Any, options: Any) -> None:
  """Checks and dumps the state after a phase, if the options ask for it.

  Args:
    phase, state, options: `pipeline`'s Phase, State and Options.
  """
  if options.verify:
    _verify(phase, state)
  if options.dump is not None:
    text = _text(phase, state)
    if text:
      if state.number is None:
        state.number = next(_numbers)
      name = importer.module_name(state.stablehlo)
      index = [*phase.__class__].index(phase)
      file = f"{state.number:04}.{_plain(name)}.{index}_{phase.value}.txt"
      _write(options.dump, file, text)


def _plain(name: str) -> str:
  """A module's name as part of a file name."""
  return re.sub(r"[^\w.-]", "_", name)[:100]


def _write(folder: Path, file: str, text: str) -> None:
  try:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
  except OSError as e:
    raise invalid_argument(
      f"cannot write a report to {folder}: {e}; autoReport.directory in "
      "POPLAR_ENGINE_OPTIONS or the compiler option ipu_dump_to names another "
      "folder"
    ) from e


def _verify(phase: Any, state: Any) -> None:
  if phase.value in ("import", "decompose", "fuse"):
    assert state.module is not None
    verifier.verify(state.module, lowerable=phase.value != "import")
  elif phase.value == "lower":
    verify_exchanges.verify(state.builder)
    assembled.verify(state.builder)
  elif phase.value == "allocate":
    verify_addresses.verify(state.builder, state.memory)
  elif phase.value == "emit":
    assert state.program is not None
    verify.verify(state.program)


def _text(phase: Any, state: Any) -> str:
  if phase.value == "parse":
    return str(state.stablehlo.operation.get_asm(enable_debug_info=True))
  if phase.value in ("import", "fuse") or (
    phase.value == "decompose" and state.decomposed
  ):
    assert state.module is not None
    return module_text(state.module)
  if phase.value == "allocate":
    plan = state.builder, state.module, state.memory
    return f"{overflow.report(*plan)}\n{overflow.addresses(*plan)}\n"
  if phase.value == "emit":
    assert state.program is not None
    return program_text(state.program)
  return ""
