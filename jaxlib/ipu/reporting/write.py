"""Writes the report of a program while it is compiled."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jaxlib.ipu.reporting import collect, folder, page
from jaxlib.ipu.reporting.document import Report

logger = logging.getLogger("jaxlib.ipu")


def write(state: Any, options: Any) -> Path:
  """Writes `report.json.gz` and `report.html` to a new folder of the program.

  Args:
    state, options: `compilation`'s State and Options.

  Returns:
    The page, or the data if the page's libraries are not installed.

  Raises:
    CompileError: the folder cannot be written to.
  """
  report = collect.collect(state, options.target, options.given)
  made = state.folder(options.report)
  try:
    return _write(report, made)
  except OSError as error:
    raise folder.unwritable(made, error) from error


def _write(report: Report, made: Path) -> Path:
  path = made / "report.json.gz"
  report.save(path)
  try:
    path_of_page = made / "report.html"
    path_of_page.write_text(report.to_html(), "utf-8")
    path = path_of_page
  except page.LibrariesMissing as error:
    logger.warning("%s", error)
  logger.info("report of %s: %s", report.name, path)
  return path
