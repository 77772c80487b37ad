"""A pytest plugin: expected failures of JAX's own tests, and who passed.

Loaded by jax_tests.py, also in the workers of pytest-xdist. Reads what it has
to know from the environment: EXPECTED names a JSON file of {pattern: reason},
RESULTS a file that gets one JSON line for each test, DUT is the platform that
tests are to believe to be on.
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
  """A test's name, from the name of its file on."""
  return nodeid.rpartition("tests/")[2]


def pytest_configure() -> None:
  """JAX's tests read its flags from the command line, which workers have
  none of; no variable stands for this one. They fail where flags are added
  while they run, so the IPU's are added here."""
  importlib.import_module("jax.ipu")
  sys.argv.append(f"--jax_test_dut={os.environ[DUT]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Marks what is expected to fail; it fails if it passes."""
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
  """A file that cannot be imported is a test that fails."""
  if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
    name = short_name(report.nodeid)
    reason = report.longreprtext[-4000:]
    _write({"test": name, "outcome": "failed", "reason": reason})


def _outcome(report: pytest.TestReport) -> str:
  if hasattr(report, "wasxfail") and report.skipped:
    return "expected"
  return report.outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
  """Writes down how a test ended, in the process that controls the run."""
  if "PYTEST_XDIST_WORKER" in os.environ:
    return
  # A phase before or after the test itself counts only if it went wrong.
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
