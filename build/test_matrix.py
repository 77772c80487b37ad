#!/usr/bin/env python3
"""Runs the tests on the supported pairs of Python and JAX.

Every pinned release of JAX is tested with one Python on this machine: the
newest one for which it is the newest release, otherwise the newest one for
which it has a wheel. If a release makes a fork, the full test suite runs with
the fork's wheels, and the tests of JAX's internals and of the installation
with the plugin and an unmodified JAX. Releases in between make no fork: a
third of the suite runs with the plugin besides those tests. The benchmarks
run with a single repetition on the newest fork. --full runs everything on
every pair.

python3 build/test_matrix.py
python3 build/test_matrix.py --full -- -n 2 -k conv
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from tools import command, matrix, pins, upstream
from tools.command import ROOT, BuildError

_REQUIREMENTS = ROOT / "build" / "requirements-test.txt"
# Tests of how the backend is installed, rather than of what it computes.
_OWN_TESTS = ["test_internals.py", "test_plugin_*.py"]
# Of the suite with the plugin, for releases that make no fork.
_SAMPLE = ["--one-in=3"]


class Run:
  """Runs that share a folder for environments, wheels and logs."""

  def __init__(self, folder: pathlib.Path, pytest: list[str], full: bool):
    self._folder = folder
    self._pytest = pytest
    self._full = full
    self.rows: list[tuple[str, ...]] = []
    self.failed = False

  def build(self, python: str, kind: str) -> list[str]:
    """Builds wheels with build.py --wheels=`kind` for a Python."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
    script = str(ROOT / "build" / "build.py")
    command.run(
      [sys.executable, script, "--enable_ipu", f"--python={python}"]
      + [
        f"--wheels={kind}",
        f"--output_path={folder}",
        f"--venv={folder}/venv",
      ],
      hint="The build must work before it can be tested.",
    )
    return [str(path) for path in sorted(folder.glob("*.whl"))]

  def test(
    self,
    pair: matrix.Pair,
    wheels: list[str],
    kind: str,
    sampled: bool,
    timed: bool = False,
  ) -> None:
    """Installs wheels into a new environment and runs the tests there.

    Args:
      pair: a Python and a release of JAX.
      wheels: what to install.
      kind: `fork` or `plugin`.
      sampled: whether a part of the suite runs besides the plugin's own tests.
      timed: whether the benchmarks run, too.
    """
    assert pair.python is not None
    venv = self._folder / f"{pair.tag}-{pair.release}-{kind}"
    name = f"Python 3.{matrix.minor(pair.tag)}, JAX {pair.release}, {kind}"
    print(f"\n=== {name}", flush=True)
    hint = f"The environment of {name} could not be created."
    command.run([pair.python, "-m", "venv", venv], hint=hint)
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    requirements = f"--requirement={_REQUIREMENTS}"
    command.run([*pip, "install", "-q", requirements, *wheels], hint=hint)
    command.run([*pip, "check"], hint=hint, quiet=True)
    started = time.monotonic()
    counts, passed = [], True
    for tests in self._tests(kind, sampled):
      words = [python, "-m", "pytest", "-q", *self._pytest, *tests]
      text, ran = self._follow(words, r"=* ?(\d+ (?:passed|failed).*?) ?=*$")
      counts.append(text or "failed")
      passed &= ran
    seconds = f"{time.monotonic() - started:.0f} s"
    benchmarks = "-"
    if timed or self._full:
      words = [python, "-m", "benchmarks", "--repeat=1"]
      text, ran = self._follow(words, r"(.* FAILED: .*)")
      benchmarks = "pass" if ran else text or "failed"
      passed &= ran
    self.failed |= not passed
    self.rows.append((name, *counts, seconds, benchmarks))

  def _tests(self, kind: str, sampled: bool) -> list[list[str]]:
    """The arguments of each run of pytest."""
    folder = ROOT / "tests" / "ipu"
    whole = [str(folder)]
    if kind == "fork" or self._full:
      return [whole]
    own = [str(path) for name in _OWN_TESTS for path in folder.glob(name)]
    return [sorted(own), whole + _SAMPLE] if sampled else [sorted(own)]

  def _follow(self, words: Sequence[str], last: str) -> tuple[str, bool]:
    """Runs a program; returns the last matching line, and whether it
    succeeded."""
    environment = {**os.environ, "JAX_IPU_USE_MODEL": "true"}
    for name in ("JAX_PLATFORMS", "PYTHONPATH", "PYTHONHOME"):
      environment.pop(name, None)
    found = ""
    with subprocess.Popen(
      words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      text=True, cwd=ROOT, env=environment,
    ) as process:  # fmt: skip
      assert process.stdout is not None
      for line in process.stdout:
        print(line, end="", flush=True)
        if match := re.match(last, line.rstrip()):
          found = match[1]
    return found, process.returncode == 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--full",
    action="store_true",
    help="run the full suites with the fork's wheels and with the plugin",
  )
  parser.add_argument(
    "--record",
    action="store_true",
    help="record what was tested, for the table in the documentation",
  )
  parser.add_argument(
    "--markdown", action="store_true", help="print that table and exit"
  )
  parser.add_argument(
    "--list", action="store_true", help="list the pairs and exit"
  )
  parser.add_argument(
    "pytest", nargs="*", default=["-n", "2"], help="options of pytest, after --"
  )
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the matrix; returns 1 if anything failed."""
  options = _parse(argv)
  rows = pins.read()
  if options.markdown:
    print(matrix.markdown(rows), end="")
    return 0
  found = matrix.find_pythons(pins.supported().pythons)
  pairs = matrix.choose(rows, found)
  for tag in pins.supported().pythons:
    where = found.get(tag, "not on this machine")
    print(f"Python 3.{matrix.minor(tag)}: {where}")
  for pair in pairs:
    state = "tested" if pair.python else "not tested: no such Python here"
    print(f"JAX {pair.release} with Python 3.{matrix.minor(pair.tag)}: {state}")
  if options.list:
    return 0
  with tempfile.TemporaryDirectory(prefix="jax-ipu-matrix-") as folder:
    run = Run(pathlib.Path(folder), options.pytest, options.full)
    plugin = run.build(sys.executable, "plugin")
    forked = [pair for pair in pairs if pair.python and pair.forked]
    for pair in pairs:
      if pair.python is None:
        continue
      stock = [
        str(upstream.wheel(pins.pin(p, pair.release, pair.tag), pair.python))
        for p in pins.PROJECTS
      ]
      if pair.forked:
        fork = run.build(pair.python, "jaxlib,jax")
        newest = pair is forked[-1]
        run.test(pair, fork, "fork", sampled=False, timed=newest)
      run.test(pair, plugin + stock, "plugin", sampled=not pair.forked)
  print("\n=== pairs")
  for name, *results in run.rows:
    print(f"{name}: {', '.join(results)}")
  if options.record and not run.failed:
    matrix.record([pair for pair in pairs if pair.python])
  return 1 if run.failed else 0


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"test_matrix.py: error: {error}")
