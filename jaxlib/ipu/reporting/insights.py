"""What to look at in a report, in sentences.

Each insight is a dict: `kind`; `text`, a sentence with its figure; `figure`,
the part of the program's cycles, or of a tile's SRAM, that it is about; and
`target`, the place that shows it: {"section": of the page, "step" or "tile" or
"line": which}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxlib.ipu.reporting.data import ReportData
from jaxlib.ipu.reporting.text import file_name, percent, size

Insight = dict[str, Any]

# What is worth a sentence: parts of a program's cycles or of a tile's SRAM.
# Each is a guess of what a reader cares for.
_COSTLY_LINE = 0.1
_FEW_TILES_CYCLES, _FEW_TILES = 0.01, 1 / 8
_SERIAL = 0.1
_IDLE = 0.5
_GUESSED = 0.1
_EXCHANGE_CODE = 0.5
_LAYOUTS = 0.02
_UNDONATED = 0.02
_SYNC = 0.25
_LINKS = 0.1


def find(report: ReportData) -> list[Insight]:
  """All insights, those about what does not fit first, then by figure."""
  found = [insight for rule in _RULES for insight in rule(report)]
  urgent = {"fit": 0, "help": 1}
  return sorted(found, key=lambda x: (urgent.get(x["kind"], 2), -x["figure"]))


def _insight(
  kind: str, text: str, figure: float, section: str, **where: Any
) -> Insight:
  target = {"section": section, **where}
  return {"kind": kind, "text": text, "figure": figure, "target": target}


def _does_not_fit(report: ReportData) -> Iterator[Insight]:
  if report.fits:
    return
  memory, limit = report.data["memory"], report.target["bytes_per_tile"]
  tile, needed = memory["peak_tile"], memory["peak_tile_bytes_with_gaps"]
  live = report.live(tile)
  largest = ", ".join(
    f"{report.tensors['name'][entry]} ({size(held)})"
    for held, entry in live[:3]
  )
  code = report.cost["ipu executable tile bytes"]
  figure = needed / limit
  if needed <= limit:
    tile = int(report.tiles["refused"].argmax())
    room = report.target["executable_bytes"]
    figure = code / room
    text = (
      f"The program does not fit: the code of tile {tile} takes {size(code)}, "
      f"and {size(room)} of its SRAM can hold code."
    )
  else:
    text = (
      f"The program does not fit: tile {tile} needs {size(needed)} of SRAM, "
      f"{size(needed - limit)} more than it has. The largest on it at that "
      f"moment: {largest}."
    )
  yield _insight("fit", text, figure, "memory", tile=tile)
  for line in report.data["program"].get("advice", ()):
    text = f"What would help: {line}."
    yield _insight("help", text, 0.0, "memory", tile=tile)


def _undonated(report: ReportData) -> Iterator[Insight]:
  """Arguments for which there is a result of the same type."""
  tensors, categories = report.tensors, report.data["categories"]
  first = categories.index("arguments")
  names = np.array(categories[first:], object)[tensors["category"]]
  results: dict[str, int] = {}
  for kind in tensors["type"][names == "results"]:
    results[kind] = results.get(kind, 0) + 1
  for kind in tensors["type"][names == "donated arguments"]:
    results[kind] = results.get(kind, 0) - 1
  tile = report.data["memory"]["peak_tile"]
  saved, some = 0, []
  for entry in np.flatnonzero(names == "arguments"):
    kind = tensors["type"][entry]
    if results.get(kind, 0) > 0:
      results[kind] -= 1
      some.append(entry)
      saved += int(report.data["shares"][tensors["share"][entry], tile])
  limit = report.target["bytes_per_tile"]
  if saved < _UNDONATED * limit:
    return
  first_name = str(tensors["name"][some[0]])
  more = f" and {len(some) - 1} more" if len(some) > 1 else ""
  yield _insight(
    "donation",
    f"{first_name}{more} could be donated: each has a result of its type, and "
    f"beside it takes {size(saved)} of the fullest tile "
    "(jax.jit's donate_argnums).",
    saved / limit,
    "memory",
    tile=tile,
  )


def _costliest_line(report: ReportData) -> Iterator[Insight]:
  total = report.cost["ipu cycles"]
  for line in report.lines[:1]:
    if line.file and line.cycles >= _COSTLY_LINE * total > 0:
      name = file_name(line.file)
      code = f": {line.text}" if line.text else ""
      yield _insight(
        "line",
        f"Line {name}:{line.line} takes {percent(line.cycles / total)} of all "
        f"cycles{code}",
        line.cycles / total,
        "source",
        file=line.file,
        line=line.line,
      )


def _links(report: ReportData) -> Iterator[Insight]:
  steps, total = report.steps, report.cost["ipu cycles"]
  cycles = steps["link"] * steps["times"]
  share = float(cycles.sum()) / total if total else 0.0
  if share < _LINKS:
    return
  longest = int(cycles.argmax())
  yield _insight(
    "links",
    f"The links between IPUs take {percent(share)} of all cycles. The longest "
    f"collective is {_step(report, longest)}: {cycles[longest]:,.0f} cycles. "
    "More work between collectives, and narrower types, need them less.",
    share,
    "timeline",
    step=longest,
  )


def _few_tiles(report: ReportData) -> Iterator[Insight]:
  """The longest step on few tiles, and all of them together."""
  steps, total = report.steps, report.cost["ipu cycles"]
  tiles = report.target["num_tiles"]
  cycles = steps["compute"] * steps["times"]
  few = (steps["kind"] == "compute") & (steps["tiles"] < _FEW_TILES * tiles)
  if not total or not few.any():
    return
  longest = int(np.where(few, cycles, -1).argmax())
  if cycles[longest] >= _FEW_TILES_CYCLES * total:
    yield _insight(
      "few tiles",
      f"The longest step on few tiles is {_step(report, longest)}: "
      f"{cycles[longest]:,.0f} cycles, {percent(cycles[longest] / total)} of "
      f"all, on {_tiles(steps['tiles'][longest], tiles)}.",
      cycles[longest] / total,
      "timeline",
      step=longest,
    )
  summed = float(cycles[few].sum())
  if few.sum() > 1 and summed >= _SERIAL * total:
    yield _insight(
      "serial",
      f"{few.sum():,} steps run on less than an eighth of the tiles, one after "
      f"the other: {percent(summed / total)} of all cycles. Operations on "
      "stacked arrays would share their supersteps.",
      summed / total,
      "timeline",
      step=longest,
    )


def _tiles(some: int, all_of_them: int) -> str:
  return f"{some:,} of {all_of_them:,} tiles"


def _step(report: ReportData, step: int) -> str:
  """A step in words: `Map of models.py:122 (pow)`."""
  steps = report.steps
  location = int(steps["location"][step])
  name = str(report.locations["name"][location]).rpartition("/")[2]
  place = report.place(location)
  what = str(steps["codelet"][step]) or str(steps["kind"][step])
  return (
    what + (f" of {place}" if place else "") + (f" ({name})" if name else "")
  )


def _idle(report: ReportData) -> Iterator[Insight]:
  computing = report.cost["ipu compute cycles"]
  busy = float(report.tiles["busy"].mean())
  share = busy / computing if computing else 1.0
  if share < _IDLE:
    total = report.cost["ipu cycles"]
    yield _insight(
      "idle",
      f"Tiles are busy {percent(share)} of the time in which the slowest tile "
      "of each superstep computes: the others wait for it.",
      (computing - busy) / total,
      "balance",
    )


def _synchronisation(report: ReportData) -> Iterator[Insight]:
  total, sync = report.cost["ipu cycles"], report.cost["ipu sync cycles"]
  if total and sync >= _SYNC * total:
    count = report.cost["ipu supersteps"]
    yield _insight(
      "sync",
      f"Synchronisations take {percent(sync / total)} of all cycles: "
      f"{count:,.0f} supersteps of {total / max(count, 1):,.0f} cycles on "
      "average. Fewer, larger operations have fewer of them.",
      sync / total,
      "timeline",
    )


def _exchange_code(report: ReportData) -> Iterator[Insight]:
  code, exchange = (
    report.cost[f"ipu {kind}code bytes"] for kind in ("", "exchange ")
  )
  if not code or exchange < _EXCHANGE_CODE * code:
    return
  limit = report.target["bytes_per_tile"] * report.target["num_tiles"]
  yield _insight(
    "exchange code",
    f"Exchange code is {percent(exchange / code)} of all code, "
    f"{size(exchange)} over all tiles: it grows with the number of messages, "
    "so larger or fewer exchanges, or a loop, shrink it.",
    exchange / limit,
    "memory",
  )


def _layouts(report: ReportData) -> Iterator[Insight]:
  total = report.cost["ipu cycles"]
  moved = report.cost["ipu argument layout cycles"]
  if total and moved >= _LAYOUTS * total:
    yield _insight(
      "layouts",
      f"Arguments in their default layout take {moved:,.0f} cycles to move to "
      "the one that this program has chosen. An array that the program has "
      "returned is in place; one that is made anew for each call pays again.",
      moved / total,
      "summary",
    )


def _guessed(report: ReportData) -> Iterator[Insight]:
  total, guessed = (
    report.cost[f"ipu cycles{kind}"] for kind in ("", " guessed")
  )
  if total and guessed >= _GUESSED * total:
    steps = report.steps
    step = int((steps["guessed"] * steps["times"]).argmax())
    yield _insight(
      "guessed",
      f"{percent(guessed / total)} of the cycles rest on guesses, most of "
      f"them in {_step(report, step)}: they may differ on hardware.",
      guessed / total,
      "timeline",
      step=step,
    )


def _counted_once(report: ReportData) -> Iterator[Insight]:
  loops = report.cost["ipu loops counted once"]
  if loops:
    step = int((report.steps["trips"] < 0).argmax())
    timeline = {"section": "timeline", "step": step}
    where = {"section": "runs"} if report.runs else timeline
    count = f"{loops:,.0f} loop" + ("s run" if loops > 1 else " runs")
    yield _insight(
      "trips",
      f"Data decide how often {count}: all figures contain one iteration of "
      f"{'each' if loops > 1 else 'it'}. {_last_run(report)}",
      0.0,
      **where,
    )


def _last_run(report: ReportData) -> str:
  """What the last run took, or how to find out."""
  if not report.runs:
    return "device.ipu_last_run() has the cycles of a run."
  last = report.runs[-1]
  trips = ", ".join(f"{loop['iterations']:,}" for loop in last["trips"])
  return (
    f"The last run took {last['cycles']:,.0f} cycles"
    + (f", with {trips} iterations" if trips else "")
    + "."
  )


_RULES: tuple[Callable[[ReportData], Iterator[Insight]], ...] = (
  _does_not_fit,
  _undonated,
  _costliest_line,
  _few_tiles,
  _links,
  _idle,
  _synchronisation,
  _exchange_code,
  _layouts,
  _guessed,
  _counted_once,
)
