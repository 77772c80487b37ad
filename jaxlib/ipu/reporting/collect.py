"""Makes the report of a program that has just been compiled.

Everything is taken from the compiler's state after storage was assigned, so
programs that do not fit have a report, too.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import linecache
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxlib.version
from jaxlib.ipu.emit import emit
from jaxlib.ipu.ir.graph import Module, Origin
from jaxlib.ipu.location import resolve
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.reporting import choices, insights, memory, steps
from jaxlib.ipu.reporting.data import FORMAT, VERSION
from jaxlib.ipu.reporting.document import Report
from jaxlib.ipu.sram import memory as plans
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile import totals
from jaxlib.ipu.tile.program import TileProgram

# Lines of source shown before and after one that has a cost.
_AROUND = 3
# How a file of an installed package is followed by the user's file
# (`jaxlib.ipu.location`).
_CALLED = ", called from "


def collect(
  state: Any, target: Target, options: dict[str, Any], with_sources: bool = True
) -> Report:
  """The report of a compilation.

  Args:
    state: `compilation.State` after its memory was planned.
    target: the machine.
    options: the options of the compilation, by name, for the report's reader.
    with_sources: whether to include the lines of the user's files that have a
      cost, and those around them.
  """
  builder: Builder = state.builder
  tiles: TileProgram = state.tiles
  module: Module = state.module
  plan: plans.MemoryPlan = state.memory
  every = steps.placed(target, builder.steps, builder.tensors)
  table, rows = steps.table(target, every, builder.tensors)
  table["location"] = np.array([p.step.location for p in every], np.int64)
  places = _Locations(builder)
  origins = _origins(every, places)
  locations = places.columns()
  held = memory.tensors(builder, module, plan)
  by_tile = memory.by_tile(target, plan, held) | _over_run(table, rows)
  code = plan.code.total
  data: dict[str, Any] = {
    "format": FORMAT,
    "version": list(VERSION),
    "producer": _producer(),
    "program": {
      "name": module.name,
      "options": options,
      "fits": plans.fits(target, plan),
      "devices": module.num_partitions,
      "arguments": len(tiles.arguments),
      "results": len(tiles.results),
      "donated": sorted(module.donated),
    },
    "target": _machine(target),
    "cost": emit.analysis(builder, tiles, module, plan),
    "memory": {
      "argument_bytes": plan.argument_bytes,
      "result_bytes": plan.result_bytes,
      "alias_bytes": plan.alias_bytes,
      "temporary_bytes": plan.temporary_bytes,
      "code_bytes": plan.code_bytes,
      "peak_tile": plan.peak_tile,
      "peak_tile_bytes": plan.peak_tile_bytes,
      "peak_tile_bytes_with_gaps": plan.bytes_with_gaps,
    },
    "categories": list(memory.CATEGORIES),
    "locations": locations,
    "sources": _sources(locations) if with_sources else {},
    "steps": table,
    "origins": origins,
    "rows": rows,
    "tensors": held.columns,
    "lives": memory.intervals(held, len(held.share)),
    "shares": held.shares,
    "tiles": by_tile,
    "liveness": memory.over_time(held, code, plan.peak_tile),
    "addresses": memory.addresses(plan, held.columns["number"]),
    "choices": choices.products(target, builder.used.planned),
    "runs": [],
  }
  if not data["program"]["fits"]:
    from jaxlib.ipu.sram import advice  # few programs need its imports

    data["program"]["advice"] = advice.advice(builder, module, plan)
  report = Report(data)
  data["insights"] = insights.find(report)
  return report


def _producer() -> dict[str, str]:
  now = datetime.datetime.now(datetime.UTC)
  return {
    "jaxlib": jaxlib.version.__version__,
    "time": now.isoformat(timespec="seconds"),
    "host": platform.platform(),
  }


def _machine(target: Target) -> dict[str, Any]:
  """The machine's figures that are numbers or text, by name."""
  return {
    f.name: value
    for f in dataclasses.fields(target)
    if isinstance(value := getattr(target, f.name), int | float | str)
  }


class _Locations:
  """The locations of steps and tensors, by number: those of the program, then
  those of fused operations."""

  def __init__(self, builder: Builder) -> None:
    self._numbers = dict(builder.locations)
    self._known: dict[tuple[int, str], int] = {}

  def number(self, origin: Origin) -> int:
    """The number of the place that an operation comes from."""
    key = id(origin.location), origin.op
    if key not in self._known:
      found = resolve(origin.location, origin.op)
      place = (found.operation, found.name, found.file, found.line)
      self._known[key] = self._numbers.setdefault(place, len(self._numbers))
    return self._known[key]

  def columns(self) -> dict[str, np.ndarray]:
    """The StableHLO operation, JAX's name, the user's file and line, and the
    line of an installed package between."""
    rows = []
    for operation, name, file, line in self._numbers:
      package, called, user = file.rpartition(_CALLED)
      rows.append((operation, name, user if called else file, line, package))
    operations, names, files, lines, packages = zip(*rows, strict=True)
    return {
      "operation": np.array(operations, object),
      "name": np.array(names, object),
      "file": np.array(files, object),
      "line": np.array(lines, np.int64),
      "package": np.array(packages, object),
    }


def _origins(
  every: Sequence[steps.Placed], places: _Locations
) -> dict[str, np.ndarray]:
  """The locations that each step comes from, with weights that add up to 1."""
  offsets, numbers, weights = [0], [], []
  for step, *_ in every:
    shares: dict[int, float] = {}
    for origin in step.origins:
      number = places.number(origin)
      shares[number] = shares.get(number, 0.0) + origin.weight
    total = sum(shares.values())
    if not total:
      shares, total = {step.location: 1.0}, 1.0
    numbers += shares
    weights += [weight / total for weight in shares.values()]
    offsets.append(len(numbers))
  return {
    "offsets": np.array(offsets, np.int64),
    "location": np.array(numbers, np.int64),
    "weight": np.array(weights, np.float32),
  }


def _sources(locations: dict[str, np.ndarray]) -> dict[str, Any]:
  """The user's lines with a cost and those around them, by file."""
  wanted: dict[str, set[int]] = {}
  for file, line in zip(locations["file"], locations["line"], strict=True):
    if file and line:
      near = range(max(line - _AROUND, 1), line + _AROUND + 1)
      wanted.setdefault(file, set()).update(near)
  out: dict[str, Any] = {}
  for file, numbers in wanted.items():
    text = linecache.getlines(file)
    kept = sorted(n for n in numbers if n <= len(text))
    if kept:
      out[file] = {
        "sha256": hashlib.sha256("".join(text).encode()).hexdigest(),
        "file": str(Path(file).name),
        "line": np.array(kept, np.int64),
        "text": np.array([text[n - 1].rstrip("\n") for n in kept], object),
      }
  return out


def _over_run(
  table: dict[str, np.ndarray], rows: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Cycles that each tile computes, and bytes that it receives and sends, over
  a whole run."""
  out = {}
  for name, figures in rows.items():
    number = table[f"{name}_row"]
    known = number >= 0
    times = np.bincount(
      number[known], table["times"][known], minlength=len(figures)
    )
    # f64: a loop's trips times its cycles exceed what an f32 counts exactly.
    out[name] = times @ figures.astype(np.float64)
  return {name: np.minimum(x, totals.MOST) for name, x in out.items()}
