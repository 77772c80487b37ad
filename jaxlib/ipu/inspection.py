"""Dumps and checks of the compiler's state after each phase."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxlib.ipu.check import verify, verify_addresses, verify_exchanges
from jaxlib.ipu.check import verify_graph as verifier
from jaxlib.ipu.check import verify_tile_program as tile_verify
from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.ir import importer
from jaxlib.ipu.ir.printer import module_text
from jaxlib.ipu.program.text import program_text
from jaxlib.ipu.sram import overflow
from jaxlib.ipu.tile import text as tile_text
from jaxlib.ipu.tile_passes import assembled


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
      # What precedes parsing, and what few programs need, has its number.
      index = max([*phase.__class__].index(phase) - 1, 0)
      name = _plain(_name(state))
      ending = f"{name}.{index}_{phase.value}.txt"
      state.number = _write(options.dump, state.number, ending, text)


def after_pass(name: str, state: Any, options: Any) -> None:
  """Checks and dumps the tile program after a pass over it, if the options ask
  for it.

  Args:
    name: of the pass, after its number.
    state, options: `pipeline`'s State and Options.
  """
  if options.verify:
    tile_verify.verify(state.tiles)
    assembled.verify(state.tiles)
  if options.dump is not None:
    module = _plain(_name(state))
    written = tile_text.program_text(state.tiles)
    ending = f"{module}.4_lower_{name}.txt"
    state.number = _write(options.dump, state.number, ending, written)


def _name(state: Any) -> str:
  if state.stablehlo is None:
    return state.partitioned.name
  return importer.module_name(state.stablehlo)


def _plain(name: str) -> str:
  """A module's name as part of a file name."""
  return re.sub(r"[^\w.-]", "_", name)[:100]


def _write(folder: Path, number: int | None, ending: str, text: str) -> int:
  """Writes a new file, and returns the program's number in the folder: the
  next one, if it has none.

  Programs of all processes that use a folder have different numbers. What
  exists is neither overwritten nor opened, as it may be a link or a pipe.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
      if number is None:
        found = (re.match(r"\d+(?=\.)", name) for name in os.listdir(folder))
        number = 1 + max((int(m[0]) for m in found if m), default=-1)
      with (folder / f"{number:04}.{ending}").open("x") as file:
        file.write(text)
  except OSError as e:
    raise invalid_argument(
      f"cannot write a report to {folder}: {e}; autoReport.directory in "
      "POPLAR_ENGINE_OPTIONS or the compiler option ipu_dump_to names another "
      "folder"
    ) from e
  return number


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
  """Holds a folder against other processes and threads that write reports."""
  handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
  finally:
    os.close(handle)


def _verify(phase: Any, state: Any) -> None:
  if phase.value in ("import", "decompose", "fuse"):
    assert state.module is not None
    verifier.verify(state.module, lowerable=phase.value != "import")
  elif phase.value == "lower":
    verify_exchanges.verify(state.tiles)
  elif phase.value == "allocate":
    verify_addresses.verify(state.builder, state.memory)
  elif phase.value == "emit":
    assert state.program is not None
    verify.verify(state.program)


def _text(phase: Any, state: Any) -> str:
  if phase.value == "partition" and state.partitioned is not None:
    return str(state.partitioned.given())
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
