"""What finished runs of a program took, for its report.

The library keeps the last run of each device (`device.ipu_last_run()`), and a
trace of `jax.profiler` has all of them, with the time that simulating took.
Neither says more of a program than its name, so a run of another program of
that name is told by its loops and its cycles.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxlib.ipu import internals, plugin
from jaxlib.ipu.reporting import insights
from jaxlib.ipu.reporting.document import Report

Run = dict[str, Any]

# A limit: a report has this many of each device, the last ones.
MOST = 16

_PLANE = re.compile(r"/device:CUSTOM:IPU:(\d+) ")
_LOOP = re.compile(r"while loop at (.+:\d+), (\d+) iterations")
_NANOSECONDS = 2.0  # that rounding a trace's times may cost


class TraceError(ValueError):
  """A trace that cannot be read, or has no IPU."""


def add(
  report: Report, executable: Any = None, trace: str | os.PathLike | None = None
) -> None:
  """Adds the last runs of a program to its report.

  Args:
    executable: jaxlib's; its devices are asked for their last run.
    trace: a folder or file that `jax.profiler.trace` has written; its runs take
      the place of the last ones.

  Raises:
    TraceError: the trace cannot be read.
  """
  if trace is not None:
    found = list(_traced(Path(trace), report.target["clock_hz"]))
  elif executable is not None:
    found = list(_last(executable))
  else:
    found = []
  by_device: dict[int, list[Run]] = {}
  for name, run in found:
    if _is_of(report, name, run):
      by_device.setdefault(run["device"], []).append(run)
  report.data["runs"] = [r for runs in by_device.values() for r in runs[-MOST:]]
  report.data["insights"] = insights.find(report)


def _last(executable: Any) -> Iterator[tuple[str, Run]]:
  """The last run of each device: the program's name, and what it took."""
  for device in executable.local_devices():
    run = plugin.last_run(device)
    if run:
      yield (
        run.program,
        {
          "device": device.id,
          "cycles": run.cycles,
          "seconds": run.seconds,
          "exchange_bytes": run.exchange_bytes,
          "wall_seconds": None,
          "trips": [
            {"line": line, "iterations": count} for line, count in run.trips
          ],
        },
      )


def _traced(path: Path, clock: float) -> Iterator[tuple[str, Run]]:
  """The runs of a trace, in the order of each device."""
  if path.is_dir():
    files = sorted(path.glob("**/*.xplane.pb"), key=os.path.getmtime)
    if not files:
      raise TraceError(f"{path} has no trace: no .xplane.pb file is in it")
    path = files[-1]
  try:
    planes = internals.read_profile(path.read_bytes())
  except OSError:
    raise
  except Exception as error:
    raise TraceError(f"{path} is not a trace: {error}") from error
  devices = 0
  for plane in planes or ():
    if match := _PLANE.match(plane.name):
      devices += 1
      yield from _of_plane(plane, int(match[1]), clock)
  if not devices:
    raise TraceError(f"no IPU ran anything while {path} was traced")


def _of_plane(
  plane: Any, device: int, clock: float
) -> Iterator[tuple[str, Run]]:
  lines = {line.name.partition(" (")[0]: line for line in plane.lines}
  events = lambda name: list(lines[name].events) if name in lines else []
  loops = [e for e in events("Control flow") if _LOOP.fullmatch(e.name)]
  for ran, simulated in zip(
    events("Programs"), events("Model run"), strict=True
  ):
    seconds = ran.duration_ns * 1e-9
    inside = [
      e for e in loops if ran.start_ns <= e.start_ns and e.end_ns <= ran.end_ns
    ]
    yield (
      ran.name,
      {
        "device": device,
        "cycles": seconds * clock,
        "seconds": seconds,
        "exchange_bytes": None,
        "wall_seconds": simulated.duration_ns * 1e-9,
        "trips": [*_outermost(inside)],
      },
    )


def _outermost(loops: list[Any]) -> Iterator[dict[str, Any]]:
  """Loops that are in no other one: of others a trace has a part."""
  end = -math.inf
  for loop in sorted(loops, key=lambda e: (e.start_ns, -e.end_ns)):
    match = _LOOP.fullmatch(loop.name)
    if loop.start_ns >= end and match:
      end = loop.end_ns
      yield {"line": match[1], "iterations": int(match[2])}


def _is_of(report: Report, name: str, run: Run) -> bool:
  """Whether a run may be one of the report's program."""
  steps = report.steps
  counted = steps["trips"] < 0
  loops = [
    f"{report.locations['file'][at]}:{report.locations['line'][at]}"
    for at in steps["location"][counted]
  ]
  ran = [loop["line"] for loop in run["trips"]]
  traced = run["wall_seconds"] is not None
  if name != report.name or not _is_part(ran, loops):
    return False
  if not traced and len(ran) < len(loops):
    return False
  if counted.any():
    return True
  planned = report.cost["ipu cycles"]
  most = planned + report.cost["ipu argument layout cycles"]
  least = 0.0 if (steps["kind"] == "switch").any() else planned
  error = 1e-6 * most + _NANOSECONDS * 1e-9 * report.target["clock_hz"]
  return bool(least - error <= run["cycles"] <= most + error)


def _is_part(some: list[str], of: list[str]) -> bool:
  """Whether lines are a part of others, in their order. Before a user's line
  there may be that of a package which it has called."""
  rest = iter(of)
  return all(any(x.endswith(y) for y in rest) for x in some)
