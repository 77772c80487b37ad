"""Reports and comparisons as documents: text, pages, files."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from pathlib import Path

from jaxlib.ipu.reporting import comparison, notebook, page, terminal
from jaxlib.ipu.reporting.columns import FormatError, decode
from jaxlib.ipu.reporting.data import FORMAT, VERSION, ReportData


class Report(ReportData):
  """A report (see `ReportData`) that can be shown and written."""

  def to_html(self, other: ReportData | None = None) -> str:
    """The report as a page that needs no other file.

    Args:
      other: a report to compare this one with, on the same page.
    """
    return page.html(self, other)

  def save(self, path: str | Path) -> None:
    """Writes the report: a page if the name ends with .html, JSON if with
    .json, gzipped JSON if with .json.gz.

    Raises:
      ValueError: another ending.
    """
    name = str(path)
    if name.endswith(".html"):
      Path(path).write_text(self.to_html(), "utf-8")
    elif name.endswith(".json"):
      Path(path).write_text(json.dumps(self.to_json(), allow_nan=False))
    elif name.endswith(".json.gz"):
      Path(path).write_bytes(self.compressed())
    else:
      raise ValueError(f"{name!r}: expected a name in .html, .json or .json.gz")

  def __str__(self) -> str:
    return terminal.text(self)

  def _repr_html_(self) -> str:
    return notebook.html(self)


class Comparison(comparison.Changes):
  """What differs between two reports (see `Changes`), which can be shown."""

  def to_html(self) -> str:
    """The page of the report `after`, with the comparison."""
    return page.html(self.after, self.before)

  def __str__(self) -> str:
    return terminal.comparison_text(self)


def load(path: str | Path) -> Report:
  """Reads a report.

  Args:
    path: a file that `Report.save` wrote as JSON, gzipped or not, or the
      folder of a program that autoReport.directory or `ipu_report_to` made.

  Raises:
    OSError: the file cannot be read.
    FormatError: it is not a report, or one of a later major version.
  """
  file = Path(path)
  if file.is_dir():
    file = file / "report.json.gz"
  raw = file.read_bytes()
  try:
    if raw[:2] == b"\x1f\x8b":
      raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read()
    tree = json.loads(raw)
  except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
    raise FormatError(f"{file} is not a report: {error}") from error
  if not isinstance(tree, dict) or tree.get("format") != FORMAT:
    raise FormatError(f"{file} is not a report: its format is not {FORMAT!r}")
  version = tree.get("version")
  if not isinstance(version, list) or version[:1] > [VERSION[0]]:
    raise FormatError(
      f"{file} is a report of version {version}, this reader knows "
      f"{VERSION[0]}.{VERSION[1]}: read it with a newer jaxlib"
    )
  strings = tree.pop("strings", [])
  try:
    return Report(decode(tree, strings))
  except (ValueError, LookupError, TypeError) as error:
    raise FormatError(f"{file} is a damaged report: {error}") from error
