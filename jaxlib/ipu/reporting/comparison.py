"""What differs between two reports."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

from jaxlib.ipu.reporting.data import ReportData
from jaxlib.ipu.reporting.text import file_name


class Change(NamedTuple):
  """A figure in both reports.

  Attributes:
    what: a line, an operation, a kind of memory.
    before, after: cycles or bytes; 0 where there is none.
  """

  what: str
  before: float
  after: float

  @property
  def by(self) -> float:
    """The difference."""
    return self.after - self.before


@dataclasses.dataclass(frozen=True, eq=False)
class Changes:
  """Report `after` against report `before`. Changes are sorted by size, and
  leave out what is the same."""

  before: ReportData
  after: ReportData

  @functools.cached_property
  def figures(self) -> list[Change]:
    """All figures of the cost analysis that are in both, changed or not."""
    old, new = self.before.cost, self.after.cost
    return [Change(key, old[key], new[key]) for key in old if key in new]

  @functools.cached_property
  def lines(self) -> list[Change]:
    """Cycles by line of code. A line is the same if its file's name and its
    text are: line numbers shift."""
    return self._changes(_lines)

  @functools.cached_property
  def operations(self) -> list[Change]:
    """Cycles by kind of step and the last part of JAX's name."""
    return self._changes(_operations)

  @functools.cached_property
  def memory(self) -> list[Change]:
    """Bytes by category on the fullest tile of each."""
    return self._changes(_memory)

  def _changes(
    self, figures: Callable[[ReportData], dict[str, float]]
  ) -> list[Change]:
    old, new = figures(self.before), figures(self.after)
    found = [
      Change(key, old.get(key, 0.0), new.get(key, 0.0))
      for key in dict.fromkeys([*old, *new])
    ]
    changed = [c for c in found if c.before != c.after]
    return sorted(changed, key=lambda c: -abs(c.by))


def _lines(report: ReportData) -> dict[str, float]:
  out: dict[str, float] = {}
  for line in report.lines:
    text = line.text or str(line.line)
    key = f"{file_name(line.file)}: {text}" if line.file else "(no line)"
    out[key] = out.get(key, 0.0) + line.cycles
  return out


def _operations(report: ReportData) -> dict[str, float]:
  out: dict[str, float] = {}
  steps, names = report.steps, report.locations["name"]
  for i, cycles in enumerate(report.cycles.tolist()):
    what = str(steps["codelet"][i] or steps["kind"][i])
    name = str(names[steps["location"][i]]).rpartition("/")[2]
    key = f"{what} {name}".rstrip()
    out[key] = out.get(key, 0.0) + cycles
  return out


def _memory(report: ReportData) -> dict[str, float]:
  tile = report.data["memory"]["peak_tile"]
  held = report.tiles["memory"][:, tile].tolist()
  return dict(zip(report.data["categories"], map(float, held), strict=True))
