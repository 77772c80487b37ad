"""Which pairs of Python and JAX are supported, and which are tested."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

from tools import pins
from tools.command import ROOT

# Release -> minor version of the Python that it was last tested with.
TESTED = ROOT / "third_party" / "jax" / "tested.json"


@dataclasses.dataclass(frozen=True)
class Pair:
  """A release of JAX and a Python, whose path is None if it is not
  installed."""

  tag: str
  python: str | None
  release: str
  forked: bool


def minor(tag: str) -> int:
  """13 for `cp313`."""
  return int(tag.removeprefix("cp3"))


def find_pythons(tags: Iterable[str]) -> dict[str, str]:
  """The Pythons of this machine by tag, with those on `PATH` before pyenv's."""
  found = {}
  pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home()))
  for tag in tags:
    name = f"python3.{minor(tag)}"
    folders = [pyenv / "versions", pyenv / ".pyenv" / "versions"]
    candidates = [sys.executable, shutil.which(name), f"/usr/bin/{name}"]
    for folder in folders:
      paths = folder.glob(f"3.{minor(tag)}.*/bin/python")
      candidates += map(str, sorted(paths, reverse=True))
    for path in filter(None, candidates):
      code = "import sys, ensurepip; print(sys.version_info[1], sys.abiflags)"
      try:
        done = subprocess.run(
          [path, "-c", code], capture_output=True, text=True
        )
      except OSError:
        continue
      if done.stdout.split() == [str(minor(tag))]:
        found[tag] = path
        break
  return found


def choose(rows: Sequence[pins.Pin], found: dict[str, str]) -> list[Pair]:
  """The pairs to test, the oldest release first.

  Args:
    rows: the pins, the newest release first.
    found: the Pythons of this machine by tag.
  """
  wheels = [row for row in rows if row.project == "jaxlib"]
  newest: dict[str, str] = {}
  for row in wheels:
    newest.setdefault(row.python, row.version)
  pairs = []
  for release in dict.fromkeys(row.version for row in reversed(wheels)):
    able = [row.python for row in wheels if row.version == release]
    own = [tag for tag in able if newest[tag] == release]
    # Prefer a Python for which this release is built, then an installed one.
    tag = max(able, key=lambda tag: (tag in found, tag in own, minor(tag)))
    forked = newest[tag] == release
    pairs.append(Pair(tag, found.get(tag), release, forked))
  return pairs


def record(tested: Sequence[Pair]) -> None:
  """Records the pairs that passed, for the tables in the documentation."""
  rows = {pair.release: minor(pair.tag) for pair in tested}
  TESTED.write_text(json.dumps(rows) + "\n")


def markdown(rows: Sequence[pins.Pin]) -> str:
  """The table of supported pairs.

  Args:
    rows: the pins, the newest release first.
  """
  tested = json.loads(TESTED.read_text())
  wheels = [row for row in rows if row.project == "jaxlib"]
  lines = ["| JAX | Python | tested with |", "|---|---|---|"]
  for release in dict.fromkeys(row.version for row in reversed(wheels)):
    able = sorted(minor(row.python) for row in wheels if row.version == release)
    pythons = f"3.{able[0]} to 3.{able[-1]}"
    last = f"Python 3.{tested[release]}" if release in tested else "nothing yet"
    lines.append(f"| {release} | {pythons} | {last} |")
  return "\n".join(lines) + "\n"
