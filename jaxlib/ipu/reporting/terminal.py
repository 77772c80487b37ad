"""Reports in a terminal: with rich, where it is installed, or as plain text."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from jaxlib.ipu.reporting.comparison import Change, Changes
from jaxlib.ipu.reporting.data import ReportData
from jaxlib.ipu.reporting.text import change, file_name, percent, seconds, size

_Rows = Sequence[tuple[str, ...]]

_ROWS = 10
_BAR = 16  # characters
_WIDTH = 88


@dataclasses.dataclass(frozen=True)
class _Table:
  """A table; columns whose heading ends with ">" are aligned to the right."""

  title: str
  columns: tuple[str, ...]
  rows: _Rows


@dataclasses.dataclass(frozen=True)
class _Text:
  """A paragraph, under a title if there is one."""

  text: str
  title: str = ""


_Part = _Table | _Text


def text(report: ReportData) -> str:
  """The report as plain text."""
  return _plain(_report(report))


def comparison_text(found: Changes) -> str:
  """A comparison as plain text."""
  return _plain(_comparison(found))


def show(found: ReportData | Changes, file: TextIO | None = None) -> None:
  """Prints a report or a comparison: in colours to a terminal if rich is
  installed, else as plain text."""
  file = sys.stdout if file is None else file
  parts = (
    _report(found) if isinstance(found, ReportData) else _comparison(found)
  )
  wanted = file.isatty() and "NO_COLOR" not in os.environ
  if wanted and importlib.util.find_spec("rich"):
    _rich(parts, file)
  else:
    file.write(_plain(parts))


# --- What is shown ----------------------------------------------------------


def _report(report: ReportData) -> list[_Part]:
  cost, target = report.cost, report.target
  memory = report.data["memory"]
  total = cost["ipu cycles"] or 1.0
  parts = ", ".join(
    f"{kind} {percent(cost[f'ipu {kind} cycles'] / total)}"
    for kind in ("compute", "exchange", "link", "sync", "host")
    if cost[f"ipu {kind} cycles"]
  )
  busy = float(report.tiles["busy"].mean())
  computing = cost["ipu compute cycles"] or 1.0
  limit = target["bytes_per_tile"]
  held = memory[
    "peak_tile_bytes" if report.fits else "peak_tile_bytes_with_gaps"
  ]
  devices = report.data["program"].get("devices", 1)
  each = f"each of {devices:,} " if devices > 1 else ""
  head = [
    f"{report.name} on {each}{target['version']}, "
    f"{target['num_tiles']:,} tiles",
    f"{cost['ipu cycles']:,.0f} cycles, {seconds(cost['ipu seconds'])} "
    f"modelled: {parts}",
    f"{cost['ipu supersteps']:,.0f} supersteps; tiles compute "
    f"{percent(busy / computing)} of the compute cycles on average",
    f"fullest tile: {size(held)} of {size(limit)}"
    + ("" if report.fits else ", DOES NOT FIT"),
  ]
  sentences = [_Text(f"- {i['text']}") for i in report.insights]
  return [
    _Text("\n".join(head)),
    *([_Text("", "What to look at"), *sentences] if sentences else []),
    _lines(report),
    _tiles(report),
    *([_runs(report)] if report.runs else []),
  ]


def _runs(report: ReportData) -> _Table:
  rows = [
    (
      str(run["device"]),
      f"{run['cycles']:,.0f}",
      seconds(run["seconds"]),
      seconds(run["wall_seconds"]) if run["wall_seconds"] is not None else "",
      ", ".join(
        f"{file_name(loop['line'])} × {loop['iterations']:,}"
        for loop in run["trips"]
      ),
    )
    for run in report.runs
  ]
  columns = ("device>", "cycles>", "modelled>", "simulated in>", "loops")
  return _Table("Last runs", columns, rows)


def _lines(report: ReportData) -> _Table:
  total = report.cost["ipu cycles"] or 1.0
  most = report.lines[0].cycles if report.lines else 1.0
  rows = [
    (
      f"{line.cycles:,.0f}",
      percent(line.cycles / total),
      _bar(line.cycles / (most or 1.0)),
      f"{file_name(line.file)}:{line.line}" if line.file else "(no line)",
      line.text,
    )
    for line in report.lines[:_ROWS]
  ]
  return _Table(
    "The most expensive lines", ("cycles>", ">", "", "line", ""), rows
  )


def _tiles(report: ReportData) -> _Table:
  """The fullest tile by category."""
  tile = report.data["memory"]["peak_tile"]
  held = report.tiles["memory"][:, tile]
  limit = report.target["bytes_per_tile"]
  rows = [
    (size(held[i]), percent(held[i] / limit), _bar(held[i] / limit), name)
    for i, name in enumerate(report.data["categories"])
    if held[i]
  ]
  return _Table(
    f"SRAM of tile {tile}, the fullest",
    ("size>", "of it>", "", "kind"),
    rows,
  )


_SHOWN = {
  "ipu cycles": lambda x: f"{x:,.0f}",
  "ipu compute cycles": lambda x: f"{x:,.0f}",
  "ipu exchange cycles": lambda x: f"{x:,.0f}",
  "ipu link cycles": lambda x: f"{x:,.0f}",
  "ipu sync cycles": lambda x: f"{x:,.0f}",
  "ipu host cycles": lambda x: f"{x:,.0f}",
  "ipu supersteps": lambda x: f"{x:,.0f}",
  "ipu peak tile bytes": size,
  "ipu exchange bytes": size,
  "ipu code bytes": size,
}


def _comparison(found: Changes) -> list[_Part]:
  before, after = found.before, found.after
  head = f"{before.name} of {before.data['producer']['time']}"
  head += f" -> {after.name} of {after.data['producer']['time']}"
  rows = [
    (c.what.removeprefix("ipu "), shown(c.before), shown(c.after),
     change(c.before, c.after))
    for c in found.figures
    if (shown := _SHOWN.get(c.what)) and (c.before or c.after)
  ]  # fmt: skip
  columns = ("", "before>", "after>", "change>")
  cycles = _SHOWN["ipu cycles"]
  return [
    _Text(head),
    _Table("Figures", columns, rows),
    _Table("Lines", columns, _changed(found.lines, cycles)),
    _Table("Operations", columns, _changed(found.operations, cycles)),
    _Table("SRAM of the fullest tile", columns, _changed(found.memory, size)),
  ]


def _changed(changes: Sequence[Change], shown: Any) -> _Rows:
  rows: list[tuple[str, ...]] = [
    (c.what, shown(c.before), shown(c.after), change(c.before, c.after))
    for c in changes[:_ROWS]
  ]
  return rows or [("no difference", "", "", "")]


def _bar(part: float) -> str:
  eighths = round(min(max(part, 0.0), 1.0) * _BAR * 8)
  full, rest = divmod(eighths, 8)
  return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


# --- How it is shown --------------------------------------------------------


def _plain(parts: Sequence[_Part]) -> str:
  out = io.StringIO()
  for part in parts:
    if isinstance(part, _Text):
      if part.title:
        out.write(f"\n{part.title}\n")
      for line in part.text.splitlines():
        wrapped = textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
        out.write("\n".join(wrapped) + "\n")
      continue
    out.write(f"\n{part.title}\n")
    table = [tuple(c.rstrip(">") for c in part.columns), *part.rows]
    if not any(table[0]):
      del table[0]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for row in table:
      cells = [
        cell.rjust(n) if c.endswith(">") else cell.ljust(n)
        for cell, n, c in zip(row, widths, part.columns, strict=True)
      ]
      out.write(f"  {'  '.join(cells)}".rstrip() + "\n")
  return out.getvalue()


def _rich(parts: Sequence[_Part], file: TextIO) -> None:
  from rich.console import Console  # optional
  from rich.table import Table
  from rich.text import Text

  console = Console(file=file, highlight=False)
  for part in parts:
    if isinstance(part, _Text):
      if part.title:
        console.print(Text(f"\n{part.title}", style="bold"))
      if part.text:
        console.print(part.text, markup=False)
      continue
    table = Table(
      title=part.title, title_justify="left", title_style="bold", box=None
    )
    for column in part.columns:
      right = column.endswith(">")
      table.add_column(
        column.rstrip(">"), justify="right" if right else "left", no_wrap=True
      )
    for row in _narrowed(part.rows, console.width - 3 * len(part.columns)):
      table.add_row(*(Text(cell) for cell in row))
    console.print()
    console.print(table)


def _narrowed(rows: _Rows, width: int) -> _Rows:
  """The rows with their widest column cut, so that all take `width`."""
  if not rows:
    return rows
  widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
  widest = widths.index(max(widths))
  room = max(width - sum(widths) + widths[widest], 8)
  return [
    tuple(
      f"{cell[: room - 1]}…" if i == widest and len(cell) > room else cell
      for i, cell in enumerate(row)
    )
    for row in rows
  ]
