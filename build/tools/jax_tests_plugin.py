"""A pytest plugin: expected failures of JAX's own tests, and their outcomes.

Loaded by jax_tests.py, also in the workers of pytest-xdist. It is configured
through the environment: EXPECTED names a JSON file of {pattern: reason},
RESULTS a file that gets one JSON line per test, and DUT is the platform
reported to the tests.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import sys
from typing import Any

import pytest

EXPECTED = "IPU_JAX_TESTS_EXPECTED"
RESULTS = "IPU_JAX_TESTS_RESULTS"
DUT = "IPU_JAX_TESTS_DUT"


def short_name(nodeid: str) -> str:
  """A test's name, starting with the name of its file."""
  return nodeid.rpartition("tests/")[2]


def pytest_configure() -> None:
  """Sets the platform reported to the tests, and adds the IPU's flags.

  JAX's tests read --jax_test_dut from the command line, which workers do not
  have, and no environment variable replaces it. They fail if flags are added
  while they run, so this is done here.
  """
  importlib.import_module("jax.ipu")
  sys.argv.append(f"--jax_test_dut={os.environ[DUT]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Marks expected failures as strict, so that an unexpected pass fails."""
  with open(os.environ[EXPECTED], encoding="utf-8") as file:
    expected: dict[str, str] = json.load(file)
  for item in items:
    name = short_name(item.nodeid)
    for pattern, reason in expected.items():
      if fnmatch.fnmatchcase(name, pattern):
        item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _write(row: dict[str, Any]) -> None:
  with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
    file.write(json.dumps(row) + "\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
  """A file that cannot be imported counts as a failed test."""
  if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
    name = short_name(report.nodeid)
    reason = report.longreprtext[-4000:]
    _write({"test": name, "outcome": "failed", "reason": reason})


def _outcome(report: pytest.TestReport) -> str:
  if hasattr(report, "wasxfail") and report.skipped:
    return "expected"
  return report.outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
  """Records how a test ended, in the process that controls the run."""
  if "PYTEST_XDIST_WORKER" in os.environ:
    return
  # The phases before and after the test only count if they failed.
  if report.when != "call" and report.passed:
    return
  row: dict[str, Any] = {
    "test": short_name(report.nodeid),
    "outcome": _outcome(report),
    "seconds": round(report.duration, 2),
  }
  if report.failed or report.skipped:
    row["reason"] = report.longreprtext[-4000:]
  _write(row)
