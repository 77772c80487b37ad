#!/usr/bin/env python3
"""Runs StableHLO's self-checking programs on the IPU.

CHECKOUT is a copy of StableHLO's sources, of which nothing is kept here. PYTHON
has JAX on IPU installed:

python3 build/stablehlo_tests.py CHECKOUT
python3 build/stablehlo_tests.py CHECKOUT 'testdata/scatter_*' --python PYTHON

The programs, of the interpreter's tests and of those made from JAX's, compare
results with what they expect. Each is compiled twice: as it is, when the
compiler may fold all of it, and with barriers behind its constants. What is not
expected to agree stands in third_party/stablehlo/expected_failures.toml, with
reasons; a program that agrees against that expectation fails the run.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence

from tools.command import ROOT, BuildError

_EXPECTED = ROOT / "third_party" / "stablehlo" / "expected_failures.toml"
_RUNNER = ROOT / "build" / "tools" / "stablehlo_checks.py"
_FOLDERS = ("tests/interpret", "testdata")

Row = dict[str, str]


class _Runner:
  """A process that runs files, and is replaced when it dies or is stuck."""

  def __init__(self, options: argparse.Namespace):
    self._options = options
    self._start()

  def _start(self) -> None:
    environment = {**os.environ, "JAX_IPU_USE_MODEL": "true"}
    self._process = subprocess.Popen(
      [self._options.python, str(_RUNNER)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      env=environment,
      text=True,
    )
    self._lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=self._read, daemon=True).start()

  def _read(self) -> None:
    process, lines = self._process, self._lines
    assert process.stdout is not None
    for line in process.stdout:
      lines.put(line)
    lines.put(None)

  def run(self, file: pathlib.Path) -> Iterator[Row]:
    """The outcomes of the programs of a file."""
    assert self._process.stdin is not None
    self._process.stdin.write(f"{file}\n")
    self._process.stdin.flush()
    started: Row = {"file": str(file), "program": "?"}
    while True:
      try:
        line = self._lines.get(timeout=self._options.timeout)
      except queue.Empty:
        yield {**started, "outcome": "hang", "message": ""}
        break
      if line is None:
        code = str(self._process.wait())
        yield {**started, "outcome": "crash", "message": f"exit code {code}"}
        break
      row = json.loads(line)
      if row["outcome"] == "done":
        return
      if row["outcome"] == "started":
        started = row
      else:
        yield row
    # Programs after it in the file are lost with it.
    self.stop()
    self._start()

  def stop(self) -> None:
    self._process.kill()
    self._process.wait()


class Expectations:
  """What stands in third_party/stablehlo/expected_failures.toml."""

  def __init__(self) -> None:
    data = tomllib.loads(_EXPECTED.read_text(encoding="utf-8"))
    self._reasons = {
      name: group["reason"]
      for group in data["failures"]
      for name in group["programs"]
    }

  def reason(self, name: str) -> str | None:
    """Why a program, FILE:NAME, need not agree."""
    for pattern, reason in self._reasons.items():
      if fnmatch.fnmatchcase(name, pattern):
        return reason
    return None


def _files(checkout: pathlib.Path, patterns: Sequence[str]) -> list[str]:
  folder = checkout / "stablehlo"
  names = sorted(
    str(path.relative_to(folder))
    for part in _FOLDERS
    for path in (folder / part).rglob("*.mlir")
  )
  if not names:
    raise BuildError(f"{folder} has no tests: {checkout} is no checkout")
  chosen = [
    name
    for name in names
    if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)
  ]
  if not chosen:
    raise BuildError(f"no file of {folder} matches {' '.join(patterns)}")
  return chosen


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("checkout", type=pathlib.Path, help="a folder with StableHLO's sources")
  add("files", nargs="*", help="patterns of files; else all")
  add("--python", default=sys.executable, help="the Python to run them with")
  add("--timeout", type=float, default=120, help="seconds for a program")
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the files; returns 1 if one did not do what is expected."""
  options = _parse(argv)
  expected = Expectations()
  folder = options.checkout.resolve() / "stablehlo"
  runner = _Runner(options)
  counts: collections.Counter[str] = collections.Counter()
  wrong = 0
  for file in _files(options.checkout, options.files):
    for row in runner.run(folder / file):
      name = f"{file}:{row['program']}"
      outcome, reason = row["outcome"], expected.reason(name)
      bad = outcome not in ("agree", "not run")
      if bad and reason:
        outcome = f"{outcome}, as expected"
      elif bad or reason and outcome == "agree":
        wrong += 1
        message = row["message"] or f"expected not to: {reason}"
        print(f"{name}: {outcome}: {message}", flush=True)
      counts[outcome] += 1
  runner.stop()
  print(", ".join(f"{n} {o}" for o, n in counts.most_common()))
  return 1 if wrong else 0


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"stablehlo_tests.py: error: {error}")
