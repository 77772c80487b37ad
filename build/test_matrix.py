#!/usr/bin/env python3
"""Runs the tests on the supported pairs of Python and JAX.

Every pinned release of JAX is tested with one Python on this machine: the
newest one for which it is the newest release, otherwise the newest one for
which it has a wheel. The tests of JAX's internals and of the installation run
on all of them, with the plugin and an unmodified JAX; of these, forks run what
depends on the wheels (`_OF_WHEELS`).

All others run on the newest release that makes a fork, with the fork's wheels;
so do the benchmarks, with a single repetition. Half of the others run on other
releases as well: a quarter of them on each older fork, another one, with the
plugin, on each release that makes no fork. Not among these is what no release
of JAX could break alone (`_ONCE`): pages, tools and examples, libraries
on top of JAX, the parts of the compiler behind its graph, which differs little
from release to release, and those of the engine. --full runs everything on
every pair.

Pairs of one Python share an environment, in which only the wheels change.

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
from concurrent.futures import ThreadPoolExecutor

from tools import command, environment, matrix, pins, upstream
from tools.command import ROOT, BuildError

_REQUIREMENTS = ROOT / "build" / "requirements-test.txt"
_TESTS = ROOT / "tests" / "ipu"
# Tests of how the backend is installed, rather than of what it computes.
_OWN_TESTS = ["test_internals.py", "test_plugin_*.py"]
_OF_WHEELS = "test_plugin_installation.py"
# Tests of what does not depend on the pair, see above.
_ONCE = """
artifacts benchmarks build build_pins build_wheels code_sizes coverage examples
fidelity fitted_prices layers libraries links notebooks performance_page readme
report_page same_programs six_programs soak
addresses allocate codelets container contiguous_destinations cost
engine_indices engine_reductions engine_vs_interp interp interp_indices
interp_traps layout liveness messages product_plans register_programs segments
tile_passes traffic verify verify_exchanges
bitcasts constant_division isa machine_code nan_bits
bands cost_growth dot_plans dot_repeat exchange_cost indexed indexed_plans
jax_tests schedule storage_order tile_code tile_steps verify_addresses
address_plans assembled code_by_line eigenvalues factorise figures graded
in_place inverse_iteration less_work loop_products many_panels outline
pack reflectors rounds sram_overflow tensor_placement thresholds tridiagonal
bisection cnn progress recomputed_maps report_sums scalar_loops
""".split()
# Of the suite, on releases that make no fork, and on older forks.
_OF_PLUGINS, _OF_FORKS = "--part=0/4", "--part=1/4"
# Tests that wait for other processes leave time for a third worker on two
# cores: 9 minutes instead of 13. One that has nothing left to do takes tests
# from the others.
_PYTEST = ["-n", "3", "--dist", "worksteal"]


class Run:
  """Runs that share a folder for environments and wheels.

  Attributes:
    rows: what was run and how it ended, for the summary.
    failed: whether anything failed.
  """

  def __init__(self, folder: pathlib.Path, pytest: list[str], full: bool):
    self._folder = folder
    self._pytest = pytest
    self._full = full
    self.rows: list[tuple[str, ...]] = []
    self.failed = False

  def build(self, python: str, kind: str) -> list[pathlib.Path]:
    """Builds wheels with build.py --wheels=`kind` for a Python."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
    script = str(ROOT / "build" / "build.py")
    command.run(
      [sys.executable, script, "--enable_ipu", f"--python={python}"]
      + [
        f"--wheels={kind}",
        f"--output_path={folder}",
        f"--venv={self._environment(python)}",
      ],
      hint="The build must work before it can be tested.",
    )
    return sorted(folder.glob("*.whl"))

  def _environment(self, python: str) -> pathlib.Path:
    """The folder of a Python's environment, created when it is needed."""
    folder = self._folder / ("venv" + python.replace(os.sep, "-"))
    if not folder.exists():
      hint = f"{python} could not create an environment."
      command.run([python, "-m", "venv", folder], hint=hint)
    return folder

  def install(
    self, python: str, wheels: Sequence[pathlib.Path]
  ) -> pathlib.Path:
    """Puts wheels, and what tests need, into the environment of a Python.

    Returns:
      The environment's Python.
    """
    venv = environment.Environment(self._environment(python))
    venv.install(wheels, _REQUIREMENTS)
    return venv.python

  def test(
    self,
    pair: matrix.Pair,
    wheels: Sequence[pathlib.Path],
    kind: str,
    newest: bool = False,
  ) -> None:
    """Puts wheels into the environment of a pair's Python and runs the tests.

    Args:
      pair: a Python and a release of JAX.
      wheels: what to install.
      kind: `fork` or `plugin`.
      newest: whether what runs once runs here, the benchmarks included.
    """
    assert pair.python is not None
    name = f"Python 3.{matrix.minor(pair.tag)}, JAX {pair.release}, {kind}"
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    python = str(self.install(pair.python, wheels))
    results = [f"environment {_since(started)}"]
    for tests in self._runs(pair, kind, newest):
      words = [python, "-m", "pytest", "-q", *tests, *self._pytest]
      results.append(
        self._follow(words, r"=* ?(\d+ (?:passed|failed).*?) ?=*$")
      )
    if newest or self._full:
      # It is about the IPU's side: XLA:CPU takes longer to compile.
      words = [python, "-m", "benchmarks", "--repeat=1", "--baseline=ipu"]
      results.append("benchmarks " + self._follow(words, r"(.* FAILED: .*)"))
    self.rows.append((name, *results))

  def _runs(
    self, pair: matrix.Pair, kind: str, newest: bool
  ) -> list[list[str]]:
    """The arguments of each run of pytest."""
    if self._full:
      return [[str(_TESTS)]]
    own = sorted(path for name in _OWN_TESTS for path in _TESTS.glob(name))
    if kind == "plugin" and pair.forked:
      return [[*map(str, own)]]
    others = [
      f"--ignore={path}"
      for path in own
      if kind == "plugin" or path.name != _OF_WHEELS
    ]
    if newest:
      return [[str(_TESTS), *others]]
    others += [f"--ignore={_TESTS / f'test_{name}.py'}" for name in _ONCE]
    if kind == "fork":
      return [[str(_TESTS), *others, _OF_FORKS]]
    return [[*map(str, own)], [str(_TESTS), *others, _OF_PLUGINS]]

  def _follow(self, words: Sequence[str], last: str) -> str:
    """Runs a program; returns how it ended: its last line that matches, and how
    long it took."""
    variables = {**os.environ, "JAX_IPU_USE_MODEL": "true"}
    for name in ("JAX_PLATFORMS", "PYTHONPATH", "PYTHONHOME"):
      variables.pop(name, None)
    found = ""
    started = time.monotonic()
    with subprocess.Popen(
      words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      text=True, cwd=ROOT, env=variables,
    ) as process:  # fmt: skip
      assert process.stdout is not None
      for line in process.stdout:
        print(line, end="", flush=True)
        if match := re.match(last, line.rstrip()):
          found = match[1]
    if process.returncode:
      self.failed = True
      return found or f"failed after {_since(started)}"
    return found or _since(started)


def _since(started: float) -> str:
  return command.duration(time.monotonic() - started)


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
    "pytest", nargs="*", default=_PYTEST, help="options of pytest, after --"
  )
  return parser.parse_args(argv)


def _run_all(run: Run, pairs: Sequence[matrix.Pair]) -> None:
  """Builds the wheels of all pairs and tests them."""
  plugin = run.build(sys.executable, "plugin")
  found = [pair for pair in pairs if pair.python]
  forked = [pair for pair in found if pair.forked]
  tests = []
  first: dict[str, list[pathlib.Path]] = {}  # wheels by Python
  for pair in found:
    assert pair.python is not None
    kinds = {}
    if pair.forked:
      kinds["fork"] = run.build(pair.python, "jaxlib,jax")
    kinds["plugin"] = plugin + [
      upstream.wheel(pins.pin(p, pair.release, pair.tag), pair.python)
      for p in pins.PROJECTS
    ]
    tests += [(pair, wheels, kind) for kind, wheels in kinds.items()]
    first.setdefault(pair.python, next(iter(kinds.values())))
  # pip keeps less than one core busy.
  with ThreadPoolExecutor() as pool:
    [*pool.map(run.install, first.keys(), first.values())]
  for pair, wheels, kind in tests:
    newest = kind == "fork" and pair is forked[-1]
    run.test(pair, wheels, kind, newest)


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
    try:
      _run_all(run, pairs)
    finally:
      print("\n=== pairs")
      for name, *results in run.rows:
        print(f"{name}: {', '.join(results)}", flush=True)
  if options.record and not run.failed:
    matrix.record([pair for pair in pairs if pair.python])
  return 1 if run.failed else 0


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"test_matrix.py: error: {error}")
