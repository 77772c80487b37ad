"""Checks the sums of the reports of benchmarks' workloads, all by default.

python tests/ipu/report_sums.py [REGEX]
"""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":
  sys.path.insert(0, str(Path(__file__).parents[2]))

from report_kit import check_sums

import jax
from jaxlib.ipu import compiler, report
from jaxlib.ipu.reporting import page


@contextmanager
def reported(folder: Path) -> Iterator[None]:
  """Writes the report of each program that is compiled, without its page."""
  read = compiler.read_options

  def with_report(given: bytes) -> Any:
    return dataclasses.replace(read(given), report=folder, verify=False)

  with (
    mock.patch.object(compiler, "read_options", with_report),
    mock.patch.object(page, "html", lambda *_: ""),
  ):
    yield


def check(workload: Any, device: jax.Device) -> int:
  """Checks the sums of all programs that a workload runs; their number."""
  with tempfile.TemporaryDirectory() as made:
    with reported(Path(made)):
      jax.block_until_ready(workload.make(device).result())
    found = [report.load(folder) for folder in Path(made).iterdir()]
  for one in found:
    check_sums(one)
  return len(found)


def main(pattern: str = "") -> None:
  from benchmarks import workloads

  device = jax.devices("ipu")[0]
  for workload in workloads.all_workloads():
    if re.search(pattern, workload.full_name):
      print(workload.full_name, end=": ", flush=True)
      print(check(workload, device), "programs", flush=True)
      jax.clear_caches()


if __name__ == "__main__":
  main(*sys.argv[1:])
