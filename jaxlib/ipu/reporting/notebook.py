"""A report in a notebook: a few tables, without scripts. The whole page, of
1.7 MB in each saved output, is `Report.to_html()`."""

from __future__ import annotations

import html as html_lib

from jaxlib.ipu.reporting.data import ReportData
from jaxlib.ipu.reporting.text import file_name, percent, seconds, size

_LINES = 8
_CELL = "text-align:{};padding:2px 10px;white-space:pre"


def html(report: ReportData) -> str:
  """A summary as HTML, of a few KB."""
  cost = report.cost
  total = cost["ipu cycles"] or 1.0
  held = report.data["memory"]["peak_tile_bytes"]
  limit = report.target["bytes_per_tile"]
  fits = "" if report.fits else " <b>It does not fit.</b>"
  head = (
    f"<b>{_escaped(report.name)}</b>: {cost['ipu cycles']:,.0f} modelled "
    f"cycles, {seconds(cost['ipu seconds'])}; fullest tile {size(held)} of "
    f"{size(limit)}.{fits}"
  )
  rows = [
    _row(
      f"{line.cycles:,.0f}",
      percent(line.cycles / total),
      _bar(line.cycles / total),
      _escaped(f"{file_name(line.file)}:{line.line}" if line.file else ""),
      f"<code>{_escaped(line.text)}</code>",
    )
    for line in report.lines[:_LINES]
  ]
  items = "".join(f"<li>{_escaped(i['text'])}</li>" for i in report.insights)
  return (
    f"<div><p>{head}</p><ul>{items}</ul><table>"
    + _row("cycles", "", "", "line", "")
    + "".join(rows)
    + "</table><p><small>report.save('report.html') writes the whole page."
    "</small></p></div>"
  )


def _escaped(text: str) -> str:
  return html_lib.escape(text)


def _row(*cells: str) -> str:
  ways = ("right", "right", "left", "left", "left")
  return (
    "<tr>"
    + "".join(
      f'<td style="{_CELL.format(way)}">{cell}</td>'
      for way, cell in zip(ways, cells, strict=True)
    )
    + "</tr>"
  )


def _bar(part: float) -> str:
  style = (
    f"display:inline-block;height:9px;width:{140 * part:.0f}px;"
    "background:#3b6fd8;border-radius:3px"
  )
  return f'<span style="{style}"></span>'
