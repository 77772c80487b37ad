"""A report of a compiled program, in memory and in a file.

The format `jax-ipu-report`, version 1. All of it is one JSON object; columns
are encoded as in `columns.py`. Readers refuse a higher major version and ignore
names that they do not know; a minor version only adds names.

- `producer`, `program`, `target`: who made it, of what, for which machine. If
  the program is for several `devices`, each runs it, on its part of the data:
  all figures are those of one.
- `cost`, `memory`: `compiled.cost_analysis()`; sums of the SRAM plan in bytes.
- `locations`: StableHLO operation, JAX's name, file and line of the user, line
  of the package between. Other tables refer to them by number.
- `sources`: by file, the lines that are shown.
- `steps`: an entry for each step, in program order. `times` is how often a run
  goes through it; `compute`, `exchange`, `link`, `sync`, `host` are cycles of
  one pass (together its cycles), `derived` and `guessed` parts of them by
  certainty; `bytes` exchanged, `flops`; `tiles` taking part, and the `slowest`;
  `time` in the liveness analysis; `parent`, `depth`; `trips` of loops (-1: data
  decide).
- `origins`: locations that a step comes from, with weights that add up to 1.
- `rows`: distinct figures by tile, `busy` cycles, bytes `received` and `sent`;
  a step's `busy_row` and so on are their numbers, or -1.
- `tensors`: what takes SRAM, in `lives` of closed intervals of time, with the
  bytes by tile of row `share` of `shares`; `category` counts the last names of
  `categories`.
- `tiles`: `memory` [category, tile] in bytes at the tile's fullest `moment`;
  `refused` code that the executable region cannot hold; `gaps`; `busy`,
  `received`, `sent` over a run.
- `liveness`: bytes on the fullest tile by category, and on all tiles, at each
  `time`.
- `addresses`: of all tensors, by groups of tiles.
- `choices`: what the planner considered. `insights`: sentences.
- `runs`: finished runs, by device, the last one last: the `device`'s id,
  `cycles` and `seconds` of the machine, `exchange_bytes` or null,
  `wall_seconds` that simulating it took or null, `trips` of loops whose number
  data decide, by `line` with its `iterations`: over the whole run, or of a
  trace's outermost loops.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.reporting.columns import encode

Array = npt.NDArray[Any]

FORMAT = "jax-ipu-report"
VERSION = (1, 0)

Table = Mapping[str, Array]


class Line(NamedTuple):
  """What a line of the user's code costs in a run.

  Attributes:
    file, line: of the user.
    text: the line, if the report has it.
    cycles: all cycles; `compute`, `exchange`, `link`, `sync` and `host` are its
      parts.
    bytes: exchanged.
    steps: number of steps that come from it, in whole or in part.
  """

  file: str
  line: int
  text: str
  cycles: float
  compute: float
  exchange: float
  link: float
  sync: float
  host: float
  bytes: float
  steps: int


# Of gzip: the best takes three times as long for 3 % less.
_LEVEL = 6

_PARTS = ("compute", "exchange", "link", "sync", "host")


@dataclasses.dataclass(eq=False)
class ReportData:
  """A report's figures; `data` is laid out as in the module's docstring, with
  NumPy arrays for columns."""

  data: dict[str, Any]

  @property
  def name(self) -> str:
    """The program's name."""
    return self.data["program"]["name"]

  @property
  def fits(self) -> bool:
    """Whether the program fits the machine's SRAM."""
    return self.data["program"]["fits"]

  @property
  def cost(self) -> dict[str, float]:
    """As `compiled.cost_analysis()`."""
    return self.data["cost"]

  @property
  def target(self) -> dict[str, Any]:
    """Figures of the machine."""
    return self.data["target"]

  @property
  def steps(self) -> Table:
    """Columns with an entry for each step."""
    return self.data["steps"]

  @property
  def tensors(self) -> Table:
    """Columns with an entry for each tensor and buffer."""
    return self.data["tensors"]

  @property
  def tiles(self) -> Table:
    """Columns whose last axis is the tile."""
    return self.data["tiles"]

  @property
  def locations(self) -> Table:
    """Columns with an entry for each location."""
    return self.data["locations"]

  @property
  def insights(self) -> list[dict[str, Any]]:
    """Sentences about what to look at, the most expensive first."""
    return self.data["insights"]

  @property
  def runs(self) -> list[dict[str, Any]]:
    """What finished runs took, by device, the last one last."""
    return self.data["runs"]

  @property
  def choices(self) -> list[dict[str, Any]]:
    """What the planner considered for each product."""
    return self.data["choices"]

  @functools.cached_property
  def cycles(self) -> Array:
    """Cycles of each step over a run, without the steps in it."""
    steps = self.steps
    total = sum(steps[part] for part in _PARTS)
    return np.asarray(total * steps["times"])

  @functools.cached_property
  def lines(self) -> list[Line]:
    """All lines with a cost, the most expensive first. Steps without a line in
    the user's code are under the file ""."""
    steps, origins = self.steps, self.data["origins"]
    count = len(steps["times"])
    owner = np.repeat(np.arange(count), np.diff(origins["offsets"]))
    # Shares of steps, not their weights, which f32 rounds.
    weight = origins["weight"].astype(np.float64)
    total = np.bincount(owner, weight, minlength=count)
    share = weight / total[owner]
    places = [
      (str(file), int(line))
      for file, line in zip(
        self.locations["file"], self.locations["line"], strict=True
      )
    ]
    numbers = {place: i for i, place in enumerate(dict.fromkeys(places))}
    of = np.array([numbers[p] for p in places], np.int64)[origins["location"]]

    def add(column: Array) -> Array:
      values = (column * steps["times"])[owner] * share
      return np.bincount(of, values, minlength=len(numbers))

    parts = [add(steps[part]) for part in _PARTS]
    moved = add(steps["bytes"])
    pairs = np.unique(np.stack([of, owner]), axis=1)[0]
    from_it = np.bincount(pairs, minlength=len(numbers))
    lines = []
    for (file, number), i in numbers.items():
      if from_it[i]:
        cycles = {n: float(p[i]) for n, p in zip(_PARTS, parts, strict=True)}
        lines.append(
          Line(
            file=file,
            line=number,
            text=self.source(file, number),
            cycles=sum(cycles.values()),
            **cycles,
            bytes=float(moved[i]),
            steps=int(from_it[i]),
          )
        )
    return sorted(lines, key=lambda line: -line.cycles)

  def source(self, file: str, line: int) -> str:
    """A line of the user's code, without indentation; "" if unknown."""
    found = self.data["sources"].get(file)
    if not found:
      return ""
    at = int(np.searchsorted(found["line"], line))
    known = at < len(found["line"]) and found["line"][at] == line
    return str(found["text"][at]).strip() if known else ""

  def place(self, location: int) -> str:
    """A location as `file:line`, with the file's name alone; "" if unknown."""
    file = str(self.locations["file"][location])
    if not file:
      return ""
    return f"{Path(file).name}:{self.locations['line'][location]}"

  def live(self, tile: int, time: int | None = None) -> list[tuple[int, int]]:
    """What is on a tile at a time of the liveness analysis, by default the
    tile's fullest: pairs of bytes and an entry of `tensors`, largest first."""
    if time is None:
      time = int(self.tiles["moment"][tile])
    lives, tensors = self.data["lives"], self.tensors
    sizes = np.diff(lives["offsets"])
    owner = np.repeat(np.arange(len(sizes)), sizes)
    entries = np.unique(
      owner[(lives["begin"] <= time) & (time <= lives["end"])]
    )
    held = self.data["shares"][tensors["share"][entries], tile]
    found = [(int(b), int(e)) for b, e in zip(held, entries) if b]
    return sorted(found, reverse=True)

  def to_json(self) -> dict[str, Any]:
    """The report as plain JSON objects."""
    strings: dict[str, int] = {}
    tree = encode(self.data, strings)
    return {**tree, "strings": [*strings]}

  def compressed(self) -> bytes:
    """The report as gzipped JSON; the same bytes for the same report."""
    text = json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), _LEVEL, mtime=0)

  def __repr__(self) -> str:
    return f"<Report of {self.name}: {self.cost['ipu cycles']:,.0f} cycles>"
