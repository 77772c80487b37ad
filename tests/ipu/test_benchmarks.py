"""The command line of the benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def run(from_repository) -> types.ModuleType:
  return from_repository("benchmarks.run")


@pytest.mark.parametrize(
  ("arguments", "answer"),
  [
    (["--repeat", "0"], "expected at least 1"),
    (["--filter", "["], "invalid regular expression"),
    (["--json", "/no/such/folder/results.json"], "does not exist"),
  ],
)
def test_invalid_arguments(run, capsys, arguments, answer):
  with pytest.raises(SystemExit) as caught:
    run.parse(arguments)
  assert caught.value.code == 2
  assert answer in capsys.readouterr().err


def test_filter(run, capsys):
  assert run.main(["--list", "--filter", "^loops/"]) == 0
  names = capsys.readouterr().out.splitlines()
  assert names
  assert all(name.startswith("loops/") for name in names)
  with pytest.raises(SystemExit, match="see --list"):
    run.main(["--list", "--filter", "no such workload"])


@pytest.mark.parametrize(
  "wrong", [1.0, 1.0 + 2j, 2.0 + 1j], ids=["real alone", "imaginary", "real"]
)
def test_all_of_a_complex_number_is_compared(from_repository, wrong):
  measure = from_repository("benchmarks.measure")
  workload = types.SimpleNamespace(tolerance=1e-5)
  right = np.array([1.0 + 1j], np.complex64)
  measure.compare(workload, right, right)
  with pytest.raises(measure.WrongResultError, match="1 of 1 values"):
    measure.compare(workload, np.array([wrong], np.complex64), right)


def test_growth_compiles_each_program(run, capsys):
  from benchmarks import growth

  for name, program in growth.PROGRAMS.items():
    assert program.sizes == tuple(sorted(program.sizes)), name
    growth.child(name, 24, "cpu")
    assert '"seconds"' in capsys.readouterr().out


def test_superlinear_growth_is_reported(run):
  from benchmarks import growth

  rows = [
    {"program": name, "size": size, "seconds": seconds, "bytes": 0}
    for name, power in (("linear", 1), ("quadratic", 2))
    for size, seconds in ((n, n**power) for n in (10, 100, 1000))
  ]
  assert growth.over_limit(rows) == ["quadratic"]
  assert "quadratic" in growth.table(rows)


def test_reports_that_take_too_long_are_listed(run):
  from benchmarks import report_costs

  figures = {
    "fits": True, "data_bytes": 1, "page_bytes": 1, "browser_seconds": 9.0,
    "page_seconds": 0.05, "marks": 9_999, "requests": 0, "errors": 0,
  }  # fmt: skip
  rows = [
    {**figures, "program": "small", "steps": 372, "data_seconds": 0.14},
    {**figures, "program": "large", "steps": 5_025, "data_seconds": 1.49},
  ]
  assert report_costs.over_limit(rows) == []
  slow = {"data_seconds": 0.16, "page_seconds": 0.2, "marks": 10_001}
  rows[0] |= slow | {"requests": 1, "errors": 1}
  rows[1]["data_seconds"] = 1.51
  found = [fault.split(",")[0] for fault in report_costs.over_limit(rows)]
  assert found == [
    "small: data_seconds 0.16", "small: page_seconds 0.2", "small: marks 1e+04",
    "small: requests 1", "small: errors 1", "large: data_seconds 1.51",
  ]  # fmt: skip
  assert "5,025" in report_costs.table(rows)


def test_one_core_is_measured_by_processor_time():
  """Threads that are there already are pinned, too."""
  program = """
import threading, time, os
from pathlib import Path
threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
from benchmarks import clock
clock.use_cores(1)
tasks = list(Path("/proc/self/task").iterdir())
cores = {len(os.sched_getaffinity(int(t.name))) for t in tasks}
before = clock.seconds()
time.sleep(0.2)
print(len(tasks) > 1, cores, clock.seconds() - before < 0.1)
"""
  words = [sys.executable, "-c", program]
  root = Path(__file__).parents[2]
  done = subprocess.run(
    words, capture_output=True, text=True, check=True, cwd=root
  )
  assert done.stdout.split("\n")[0] == "True {1} True"


def test_more_cores_than_there_are(run):
  count = len(os.sched_getaffinity(0)) + 1
  with pytest.raises(SystemExit, match=f"--cores {count}: expected 1 to"):
    run.main(["--cores", str(count), "--filter", "dispatch/add, block"])
