"""The command line of the IPU backend: reports, and programs of failed tests.

python -m jaxlib.ipu report PATH     a report.json(.gz), a program's folder, or
                                     a folder of programs
python -m jaxlib.ipu compare A B     what differs between two reports
python -m jaxlib.ipu replay DIR      compiles and runs programs that a failing
                                     test left (pytest -p ipu_artifacts)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlib.ipu import replay, report
from jaxlib.ipu.reporting import page, terminal


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs a command line; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m jaxlib.ipu",
    description="Reports of compiled programs, and programs of failed tests.",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  one = commands.add_parser("report", help="show a report")
  one.add_argument(
    "path", type=Path, help="a report.json.gz, or a folder with reports"
  )
  two = commands.add_parser("compare", help="show what differs")
  two.add_argument("before", type=Path)
  two.add_argument("after", type=Path)
  for each in (one, two):
    each.add_argument(
      "--html", type=Path, metavar="FILE", help="write the page instead"
    )
  again = commands.add_parser("replay", help="run a failing test's programs")
  again.add_argument("path", type=Path, help="its folder, or a program's")
  again.add_argument(
    "--phases",
    action="store_true",
    help="write the results of the compiler's phases instead",
  )
  given = parser.parse_args(arguments)
  try:
    if given.command == "report":
      return _report(given.path, given.html)
    if given.command == "replay":
      return _replay(given.path, given.phases)
    found = report.compare(report.load(given.before), report.load(given.after))
    if given.html:
      given.html.write_text(found.to_html(), "utf-8")
    else:
      terminal.show(found)
  except BrokenPipeError:  # the reader of a pipe has seen enough
    sys.stderr.close()
  except (OSError, report.FormatError, page.LibrariesMissing) as error:
    print(f"{parser.prog}: {error}", file=sys.stderr)
    return 1
  return 0


def _report(path: Path, html: Path | None) -> int:
  inner = sorted(path.glob("*/report.json.gz")) if path.is_dir() else []
  if inner and not (path / "report.json.gz").exists():
    if len(inner) > 1:
      return _list(inner)
    path = inner[0]
  found = report.load(path)
  if html:
    html.write_text(found.to_html(), "utf-8")
  else:
    terminal.show(found)
  return 0


def _replay(path: Path, phases: bool) -> int:
  wrong = 0
  for outcome in replay.replay(path, phases):
    print(f"{outcome.program}: {outcome.what}")
    wrong += outcome.wrong
  return 1 if wrong else 0


def _list(paths: Sequence[Path]) -> int:
  """Lists the programs of a folder."""
  rows = []
  for path in paths:
    found = report.load(path)
    rows.append((
      f"{found.cost['ipu cycles']:,.0f} cycles",
      f"{found.data['memory']['peak_tile_bytes']:,} bytes",
      "" if found.fits else "does not fit",
      str(path.parent),
    ))  # fmt: skip
  widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
  for row in rows:
    cells = [c.rjust(n) for c, n in zip(row[:2], widths)]
    print("  ".join([*cells, row[2].ljust(widths[2]), row[3]]))
  return 0


if __name__ == "__main__":
  sys.exit(main())
