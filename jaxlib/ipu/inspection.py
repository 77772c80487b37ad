"""Dumps and checks of the compiler's state after each phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxlib.ipu.check import (
  verify,
  verify_addresses,
  verify_exchanges,
  verify_functions,
)
from jaxlib.ipu.check import verify_graph as verifier
from jaxlib.ipu.check import verify_tile_program as tile_verify
from jaxlib.ipu.ir.printer import module_text
from jaxlib.ipu.program.text import program_text
from jaxlib.ipu.reporting.folder import unwritable
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
      folder = state.folder(options.dump)
      _write(folder / f"{index}_{phase.value}.txt", text)


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
    folder = state.folder(options.dump)
    text = tile_text.program_text(state.tiles)
    _write(folder / f"4_lower_{name}.txt", text)


def _write(path: Path, text: str) -> None:
  try:
    path.write_text(text)
  except OSError as e:
    raise unwritable(path.parent, e) from e


def _verify(phase: Any, state: Any) -> None:
  if phase.value in ("import", "decompose", "fuse"):
    assert state.module is not None
    verifier.verify(state.module, lowerable=phase.value != "import")
  elif phase.value == "lower":
    verify_exchanges.verify(state.tiles)
  elif phase.value == "allocate":
    verify_addresses.verify(state.builder, state.memory)
    verify_functions.verify(state.tiles, state.memory)
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
