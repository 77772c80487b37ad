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
from jaxlib.ipu.location import location_text
from jaxlib.ipu.reporting.folder import unwritable
from jaxlib.ipu.sram import contents, overflow
from jaxlib.ipu.tile import text as tile_text
from jaxlib.ipu.tile_passes import assembled, coalesce


def after(phase: Any, state: Any, options: Any) -> None:
  """Checks and dumps the state after a phase, if the options ask for it.

  Args:
    phase, state, options: `compilation`'s Phase, State and Options.
  """
  if options.verify:
    _verify(phase, state)
  if options.dump is not None:
    text = _text(phase, state)
    if text:
      folder = state.folder(options.dump)
      _write(folder / f"{_numbered(phase)}.txt", text)


def after_pass(phase: Any, name: str, state: Any, options: Any) -> None:
  """Checks and dumps the tile program after a pass over it, if the options ask
  for it.

  Args:
    phase: the phase that the pass belongs to.
    name: of the pass, after its number in the phase.
    state, options: `compilation`'s State and Options.
  """
  if options.verify:
    for check in (tile_verify, assembled, coalesce):
      check.verify(state.tiles)
  if options.dump is not None:
    folder = state.folder(options.dump)
    text = tile_text.program_text(state.tiles)
    _write(folder / f"{_numbered(phase)}_{name}.txt", text)


def _numbered(phase: Any) -> str:
  # What precedes parsing, and what few programs need, has its number.
  index = max([*phase.__class__].index(phase) - 1, 0)
  return f"{index}_{phase.value}"


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
    verify.verify(state.program, b"".join(state.builder.constants))


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
    return f"{overflow.report(*plan)}\n{contents.addresses(*plan)}\n"
  if phase.value == "emit":
    assert state.program is not None
    places = [location_text(place) for place in state.program.locations]
    figures = {v.name: v.value for v in state.program.cost_analysis}
    return tile_text.explained_text(
      state.tiles,
      state.program.name,
      state.program.num_partitions,
      places,
      figures,
    )
  return ""
