"""What build/jax_tests.py counts of JAX's own tests."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]
# Each test's outcome on the IPU, and on the CPU.
OUTCOMES = {
  "a_test.py::passes": ("passed", None),
  "a_test.py::fails": ("failed", "passed"),
  "a_test.py::fails_everywhere": ("failed", "failed"),
  "a_test.py::is_skipped": ("skipped", "passed"),
  "a_test.py::is_skipped_everywhere": ("skipped", "skipped"),
  "a_test.py::is_expected": ("expected", "passed"),
}


@pytest.fixture
def jax_tests(monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "build"))
  module = importlib.import_module("jax_tests")
  monkeypatch.setattr(module, "_jax_version", lambda python: "1.2")
  return module


def test_what_passes_on_the_cpu_alone_is_a_failure(
  jax_tests, monkeypatch, tmp_path, capsys
):
  repeated = []

  def run_file(self, name, platform, only=()):
    if platform == "ipu":
      return {t: {"outcome": here} for t, (here, _) in OUTCOMES.items()}
    repeated.extend(only)
    return {t: {"outcome": OUTCOMES[t][1]} for t in only}

  monkeypatch.setattr(jax_tests.Run, "file", run_file)
  (tmp_path / "tests").mkdir()
  (tmp_path / "tests" / "a_test.py").touch()
  assert jax_tests.main([str(tmp_path), "--logs", str(tmp_path)]) == 1
  assert repeated == [t for t, (_, cpu) in OUTCOMES.items() if cpu]
  said = capsys.readouterr().out
  assert "1 of 4 passed, 2 failed, 1 as expected" in said
  failed = [line for line in said.splitlines() if line.startswith("FAILED")]
  assert failed == ["FAILED a_test.py::fails", "FAILED a_test.py::is_skipped"]


def test_counts_of_several_devices_are_not_recorded(jax_tests, tmp_path):
  arguments = [str(tmp_path), "--devices", "8", "--record"]
  with pytest.raises(jax_tests.BuildError, match="of one device"):
    jax_tests.main(arguments)
