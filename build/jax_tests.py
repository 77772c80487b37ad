#!/usr/bin/env python3
"""Runs JAX's own tests on the IPU.

CHECKOUT is a copy of JAX's sources at the tag of the JAX installed in PYTHON,
which also needs JAX on IPU and build/requirements-jax-tests.txt:

python3 build/jax_tests.py CHECKOUT
python3 build/jax_tests.py CHECKOUT lax_test.py 'linalg*' -k cholesky
python3 build/jax_tests.py CHECKOUT pjit_test.py pmap_test.py --devices 8

Each file runs under pytest-xdist: a test that crashes or times out costs its
worker, not the run. Tests that fail or are skipped are repeated on the CPU:
those that pass there count as failures. Expected failures are listed, with
reasons, in third_party/jax/expected_failures.toml; an unexpected pass fails the
run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from tools import command, jax_tests_plugin
from tools.command import ROOT, BuildError

_EXPECTED = ROOT / "third_party" / "jax" / "expected_failures.toml"
_RECORD = ROOT / "tests" / "ipu" / "data"
_COUNTS = ("passed", "of")
_LOST = ("failed", "skipped", "expected")

# The plugin's record of each test, by name.
Rows = dict[str, dict[str, Any]]
# The number of passed tests per file, of those that pass on the CPU.
Counts = dict[str, dict[str, int]]


def _jax_version(python: str) -> str:
  script = (
    "import jax, jax_plugins.ipu, pytest_timeout, xdist; print(jax.__version__)"
  )
  hint = (
    "It needs the wheels of JAX on IPU and"
    " `pip install -r build/requirements-jax-tests.txt`."
  )
  return command.run([python, "-c", script], hint=hint, quiet=True).strip()


class Expectations:
  """The entries of third_party/jax/expected_failures.toml for one JAX.

  Attributes:
    failures: by pattern, why tests fail.
  """

  def __init__(self, release: str):
    number = tuple(map(int, re.findall(r"\d+", release)[:2]))
    data = tomllib.loads(_EXPECTED.read_text(encoding="utf-8"))
    self._not_run: dict[str, str] = data["not_run"]
    self.failures: dict[str, str] = {}
    for group in data["failures"]:
      since = tuple(map(int, group.get("since", "0.10").split(".")))
      until = tuple(map(int, group.get("until", "999.0").split(".")))
      if since <= number < until:
        self.failures |= dict.fromkeys(group["tests"], group["reason"])

  def why_not(self, file: str) -> str | None:
    """Why a file is not run, if it is not."""
    for pattern, reason in self._not_run.items():
      if fnmatch.fnmatchcase(file, pattern):
        return reason
    return None


class Run:
  """Runs test files of one checkout with one Python."""

  def __init__(self, options: argparse.Namespace, expected: Expectations):
    self._options = options
    self._expected = expected

  def file(self, name: str, platform: str, only: Sequence[str] = ()) -> Rows:
    """Runs a test file, or some of its tests; returns the outcomes by name."""
    options = self._options
    with tempfile.TemporaryDirectory(prefix="jax-ipu-tests-") as folder:
      results = pathlib.Path(folder) / "results"
      results.touch()
      chosen = pathlib.Path(folder) / "chosen"
      chosen.write_text("\n".join(f"tests/{test}" for test in only or [name]))
      expected = pathlib.Path(folder) / "expected.json"
      known = self._expected.failures if platform == "ipu" else {}
      expected.write_text(json.dumps(known))
      environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "build"),
        "JAX_PLATFORMS": "ipu,cpu" if platform == "ipu" else "cpu",
        "JAX_IPU_USE_MODEL": "true",
        "JAX_IPU_DEVICE_COUNT": str(options.devices),
        "JAX_NUM_CPU_DEVICES": str(options.devices),
        "JAX_ENABLE_X64": str(options.x64),
        "JAX_NUM_GENERATED_CASES": str(options.cases),
        jax_tests_plugin.EXPECTED: str(expected),
        jax_tests_plugin.RESULTS: str(results),
        # Without this, JAX's tests omit those they reserve for the CPU by name.
        jax_tests_plugin.DUT: options.dut,
      }
      words = [options.python, "-m", "pytest", "-q", "--tb=short"]
      words += ["-p", "tools.jax_tests_plugin", "-p", "no:cacheprovider"]
      words += ["-n", str(options.jobs), "--max-worker-restart=1000"]
      words += [f"--timeout={options.timeout}", "--timeout-method=thread"]
      words += ["-k", options.k] if options.k else []
      words += [f"@{chosen}"]
      log = options.logs / f"{name}.{platform}.log"
      with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run(
          words,
          cwd=options.checkout,
          env=environment,
          stdout=file,
          stderr=subprocess.STDOUT,
        )
      # 0: all passed, 1: some failed, 5: no tests were collected.
      if done.returncode not in (0, 1, 5):
        raise BuildError(
          f"{name}: pytest ended with {done.returncode}, see {log}"
        )
      rows = [json.loads(line) for line in results.read_text().splitlines()]
    outcomes: Rows = {}
    for row in rows:
      known = outcomes.setdefault(row["test"], row)
      if row["outcome"] == "failed":
        known.update(row)
    return outcomes


def _files(
  checkout: pathlib.Path, patterns: Sequence[str], expected: Expectations
) -> Iterator[str]:
  folder = checkout / "tests"
  names = sorted(str(p.relative_to(folder)) for p in folder.glob("*_test.py"))
  if not names:
    raise BuildError(
      f"no tests in {folder}: {checkout} is not a checkout of JAX"
    )
  for pattern in patterns:
    if not fnmatch.filter(names, pattern):
      raise BuildError(f"no file of {folder} matches {pattern}")
  for name in names:
    if patterns:
      chosen = any(fnmatch.fnmatchcase(name, p) for p in patterns)
    else:
      chosen = expected.why_not(name) is None
    if chosen:
      yield name


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("checkout", type=pathlib.Path, help="folder with JAX's sources")
  add("files", nargs="*", help="file name patterns (default: all)")
  add("--python", default=sys.executable, help="the Python to run them with")
  add("--jobs", type=int, default=os.cpu_count(), help="processes")
  add(
    "--timeout", type=int, default=300, help="time limit of a test in seconds"
  )
  add("--dut", default="cpu", help="the platform reported to the tests")
  add("--devices", type=int, default=1, help="IPUs, and CPUs to compare with")
  add("--x64", type=int, choices=(0, 1), default=0, help="jax_enable_x64")
  add(
    "--cases", type=int, default=10, help="cases per test with generated cases"
  )
  add("-k", help="selects tests, as in pytest")
  add(
    "--logs",
    type=pathlib.Path,
    default=command.CACHE / "jax_tests" / "logs",
    help="folder for the output of pytest and failures.json",
  )
  add(
    "--record",
    action="store_true",
    help="save the counts for the documentation",
  )
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the files.

  Returns 1 if a test failed unexpectedly, or if a file did not run to
  completion, in which case its tests are not counted.
  """
  options = _parse(argv)
  if options.record and options.devices != 1:
    raise BuildError("the documentation has the counts of one device")
  options.logs.mkdir(parents=True, exist_ok=True)
  release = _jax_version(options.python)
  expected = Expectations(release)
  run = Run(options, expected)
  table: Counts = {}
  failures: Rows = {}
  broken: list[BuildError] = []
  for name in _files(options.checkout, options.files, expected):
    started = time.monotonic()
    try:
      outcomes = run.file(name, "ipu")
      lost = [t for t, r in outcomes.items() if r["outcome"] in _LOST]
      on_cpu = run.file(name, "cpu", lost) if lost else {}
    except BuildError as error:
      broken.append(error)
      print(error, flush=True)
      continue
    expected_to = [t for t in lost if outcomes[t]["outcome"] == "expected"]
    wrong = [t for t in lost if t not in expected_to and _passes(on_cpu, t)]
    failures |= {test: outcomes[test] for test in wrong}
    passed = sum(row["outcome"] == "passed" for row in outcomes.values())
    of = passed + sum(_passes(on_cpu, test) for test in lost)
    if of:
      table[name] = {"passed": passed, "of": of}
    seconds = time.monotonic() - started
    print(
      f"{name}: {passed} of {of} passed, {len(wrong)} failed,"
      f" {len(expected_to)} as expected; {seconds:.0f} s",
      flush=True,
    )
    (options.logs / "failures.json").write_text(json.dumps(failures, indent=1))
    if options.record and not options.k:
      _record(release, options.cases, table)
  passed, of = (sum(row[key] for row in table.values()) for key in _COUNTS)
  print(f"{passed} of {of} passed: {100 * passed / max(of, 1):.2f} %")
  for test in failures:
    print(f"FAILED {test}")
  for reason in broken:
    print(f"NOT RUN {reason}")
  return 1 if failures or broken else 0


def _record(release: str, cases: int, table: Counts) -> None:
  """Merges counts into those of earlier runs with the same number of cases."""
  path = _RECORD / f"jax_tests_{release.partition('+')[0]}.json"
  known = json.loads(path.read_text()) if path.exists() else {}
  files = known["files"] if known.get("cases") == cases else {}
  record = {"cases": cases, "files": dict(sorted((files | table).items()))}
  path.write_text(json.dumps(record, indent=1) + "\n")


def _passes(outcomes: Rows, test: str) -> bool:
  return outcomes.get(test, {}).get("outcome") == "passed"


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"jax_tests.py: error: {error}")
