"""A pytest plugin that keeps what the IPU compiler was given by failing tests.

    python -m pytest -p ipu_artifacts --ipu-artifact-dir=DIR ...

A test that fails, or that ends its worker of pytest-xdist, leaves a folder in
DIR: for each program that it compiled the module, the options and flags, and
the result of each compiler phase; and the report of the failure. Tests that
pass leave nothing. `python -m jaxlib.ipu replay DIR/TEST` compiles and runs
these programs again.

A program that an earlier test of the process has compiled is not compiled
again, and belongs to that test.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_LONGEST = 150  # characters of a folder's name
_FAILED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.getgroup("ipu").addoption(
    "--ipu-artifact-dir",
    metavar="DIR",
    help="keep programs and compiler phases of failing tests here",
  )


def _folder(config: pytest.Config, nodeid: str) -> Path | None:
  root = config.getoption("--ipu-artifact-dir")
  if root is None:
    return None
  name = re.sub(r"[^\w.=-]+", "_", nodeid.rpartition("/")[2])
  return Path(root).absolute() / name[:_LONGEST].strip("_.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
  item: pytest.Item,
) -> Generator[None, object, object]:
  """Keeps what a test compiles until it has passed."""
  folder = _folder(item.config, item.nodeid)
  if folder is None:
    return (yield)
  from jaxlib.ipu import artifacts

  shutil.rmtree(folder, ignore_errors=True)
  with artifacts.recording(folder):
    result = yield
  failure = item.stash.get(_FAILED, None)
  if failure is None:
    shutil.rmtree(folder, ignore_errors=True)
  elif folder.exists():
    (folder / "failure.txt").write_text(failure)
    artifacts.write_phases(folder)
  return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
  item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
  report = yield
  if report.failed:
    before = item.stash.get(_FAILED, "")
    item.stash[_FAILED] = before + report.longreprtext + "\n"
  return report


class _Controller:
  """What the process that controls workers does: it alone learns that one has
  ended within a test."""

  def __init__(self, config: pytest.Config) -> None:
    self._config = config

  def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
    folder = _folder(self._config, crashitem)
    if folder is None or not folder.exists():
      return
    (folder / "failure.txt").write_text(report.longreprtext + "\n")
    # The compiler may be what crashed.
    command = [sys.executable, "-m", "jaxlib.ipu", "replay", "--phases"]
    subprocess.run([*command, str(folder)], capture_output=True)


def pytest_configure(config: pytest.Config) -> None:
  if config.pluginmanager.hasplugin("xdist"):
    config.pluginmanager.register(_Controller(config), "ipu_artifacts_crashes")
