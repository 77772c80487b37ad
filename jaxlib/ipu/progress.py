"""What a compilation tells while it runs: a progress bar on a terminal, and log
messages about its phases."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger("jaxlib.ipu")

# Below DEBUG: what was decided, and every run (POPLAR_LOG_LEVEL=TRACE).
TRACE = 5
logging.addLevelName(TRACE, "TRACE")

# After which a bar appears, and how often it moves.
_PATIENCE_SECONDS = 1.0
_PERIOD_SECONDS = 0.2
_WIDTH = 24

# Called before each phase with its name and the state so far.
OnPhase = Callable[[str, Any], None]


class _Bar:
  """A line on stderr, drawn by a thread of its own."""

  def __init__(self, phases: list[str]) -> None:
    self._phases = phases
    self._name = "a program"
    self._phase = ""
    self._shown = False
    self._ended = threading.Event()
    self._begin = time.monotonic()
    self._thread = threading.Thread(
      target=self._run, name="progress of the IPU compiler", daemon=True
    )
    self._thread.start()

  def enter(self, phase: str, name: str) -> None:
    self._phase, self._name = phase, name

  def end(self) -> None:
    self._ended.set()
    self._thread.join()
    if self._shown:
      self._write("\r\x1b[K")

  def _run(self) -> None:
    wait = _PATIENCE_SECONDS
    while not self._ended.wait(wait):
      wait, self._shown = _PERIOD_SECONDS, True
      self._write(f"\r{self._line()}\x1b[K")

  def _line(self) -> str:
    done = 0
    if self._phase:
      done = _WIDTH * self._phases.index(self._phase) // len(self._phases)
    bar = "█" * done + "░" * (_WIDTH - done)
    seconds = time.monotonic() - self._begin
    return f"compiling {self._name} for IPU {bar} {self._phase} {seconds:.0f} s"

  def _write(self, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr is closed
      sys.stderr.write(text)
      sys.stderr.flush()


@contextlib.contextmanager
def shown(phases: list[str], bar: bool | None) -> Iterator[OnPhase | None]:
  """Tells of a compilation.

  Args:
    phases: the names of all phases, in order.
    bar: whether to show a progress bar if the compilation takes longer than a
      second; None: if stderr is a terminal.

  Yields:
    What to call before each phase; None if nobody wants to know.
  """
  if bar is None:
    bar = sys.stderr is not None and sys.stderr.isatty()
  logs = logger.isEnabledFor(logging.DEBUG)
  if not (bar or logs):
    yield None
    return
  drawn = _Bar(phases) if bar else None
  times: list[tuple[str, float]] = []
  states: list[Any] = []

  def enter(phase: str, state: Any) -> None:
    times.append((phase, time.perf_counter()))
    states[:] = [state]
    if drawn:
      drawn.enter(phase, state.known_name or "a program")

  try:
    yield enter
  finally:
    end = time.perf_counter()
    if drawn:
      drawn.end()
    if logs and times:
      _log(states[0], times, end)


def _log(state: Any, times: list[tuple[str, float]], end: float) -> None:
  ends = [at for _, at in times[1:]] + [end]
  took = ", ".join(
    f"{phase} {(until - at) * 1e3:.1f} ms"
    for (phase, at), until in zip(times, ends)
  )
  name = state.known_name or "a program"
  if state.program is None:
    logger.debug("%s was not compiled; %s", name, took)
    return
  costs = {v.name: v.value for v in state.program.cost_analysis}
  logger.debug(
    "compiled %s: %s steps, %s cycles, %s bytes on the fullest tile; %s",
    name,
    f"{len(state.program.steps):,}",
    f"{costs['ipu cycles']:,.0f}",
    f"{state.program.memory.peak_tile_bytes:,}",
    took,
  )
  if logger.isEnabledFor(TRACE):
    logger.log(TRACE, "%s: %s", name, _decisions(state))


def _decisions(state: Any) -> str:
  """What the lowering was allowed, and the split of each product."""
  choices, used = state.builder.choices, state.builder.used
  said = [
    f"{field}={getattr(choices, field)}"
    for field in ("hoists", "keeps", "boxes", "layouts", "wide", "products")
  ]
  for planned in used.planned:
    at = state.program.locations[planned.location]
    parts = "x".join(map(str, planned.parts)) or "as its operands are"
    said.append(
      f"product of {at.file}:{at.line} split {parts}, {planned.cycles:,.0f} "
      "cycles"
    )
  if used.layouts:
    said.append(f"arguments {sorted(used.layouts)} laid out for their readers")
  return "; ".join(said)
