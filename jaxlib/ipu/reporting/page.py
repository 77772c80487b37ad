"""The report as one HTML file that needs no other one.

Its script and style are in `page_assets`, in the order of `_SCRIPTS`. The
libraries are in `vendor`, where the build puts them (build/tools/npm.py).
"""

from __future__ import annotations

import base64
import functools
import html as html_lib
import re
from pathlib import Path

from jaxlib.ipu.reporting.data import ReportData

_ASSETS = Path(__file__).with_name("page_assets")
VENDOR = Path(__file__).with_name("vendor")
LIBRARIES = ("echarts.min.js", "tabulator.min.js")
STYLES = ("tabulator.min.css",)
_SCRIPTS = (
  "data",
  "format",
  "charts",
  "summary",
  "runs",
  "timeline",
  "step",
  "memory",
  "source",
  "tables",
  "compare",
  "main",
)


class LibrariesMissing(RuntimeError):
  """The page's JavaScript libraries are not installed.

  They are part of the wheels. In a source tree `python3 build/build.py
  --page_libraries` fetches them.
  """


def html(report: ReportData, other: ReportData | None = None) -> str:
  """The page of a report, and of what differs from an `other`, earlier one.

  Raises:
    LibrariesMissing: this installation has no libraries for pages.
  """
  fill = {
    "title": html_lib.escape(f"{report.name} – IPU report"),
    "style": _style(),
    "libraries": _libraries(),
    "data": base64.b64encode(report.compressed()).decode(),
    "other": base64.b64encode(other.compressed()).decode() if other else "",
    "script": _script(),
  }
  template = (_ASSETS / "template.html").read_text("utf-8")
  return re.sub(r"\{\{(\w+)\}\}", lambda m: fill[m[1]], template)


@functools.cache
def _libraries() -> str:
  return _inside_script("\n".join(_vendored(name) for name in LIBRARIES))


@functools.cache
def _style() -> str:
  own = (_ASSETS / "style.css").read_text("utf-8")
  return "\n".join([*map(_vendored, STYLES), own])


@functools.cache
def _script() -> str:
  texts = [(_ASSETS / f"{name}.js").read_text("utf-8") for name in _SCRIPTS]
  return _inside_script('"use strict";\n' + "\n".join(texts))


def _vendored(name: str) -> str:
  """A library, without the comment that names a file with its source map."""
  try:
    text = (VENDOR / name).read_text("utf-8")
  except OSError as error:
    raise LibrariesMissing(
      f"no page was written, only its data, because {VENDOR / name} is "
      "missing: install the wheels, or run `python3 build/build.py "
      "--page_libraries` in the source tree"
    ) from error
  return re.sub(r"(?m)^(//|/\*)# sourceMappingURL=.*$", "", text)


def _inside_script(text: str) -> str:
  """Text that cannot end the element that contains it."""
  return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
