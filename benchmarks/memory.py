"""Peak memory of a process that runs a workload, per platform.

Each workload and platform has its own process, because a peak cannot be reset.
The process imports JAX, sets up the workload, runs it ten times, and prints its
peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import align

LIMIT = 1.3
IDLE = "idle"
_RUNS = 10


def peak_rss() -> int:
  """The peak in bytes.

  Reads VmHWM, because a child process inherits the maximum of getrusage.
  """
  for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith("VmHWM:"):
      return int(line.split()[1]) * 1024
  raise OSError("/proc/self/status has no VmHWM: peak memory needs Linux")


def child(name: str, platform: str) -> None:
  """Runs the workload `name` on `platform` and prints the peak in bytes."""
  import jax
  from benchmarks import workloads

  device = jax.devices(platform)[0]
  if name != IDLE:
    case = workloads.find(name).make(device)
    jax.device_get(case.result())
    case.sample(_RUNS)
  print(json.dumps(peak_rss()))


def run(name: str, platform: str) -> int:
  """The peak in bytes of a new process."""
  return answer(["--memory-child", name, platform], platform)


def answer(arguments: Sequence[str], platform: str, **environment: str) -> Any:
  """The JSON output of a new benchmark process; one for the CPU loads no other
  plugin.
  """
  platforms = "cpu" if platform == "cpu" else f"{platform},cpu"
  root = str(Path(__file__).parents[1])
  path = os.environ.get("PYTHONPATH")
  done = subprocess.run(
    [sys.executable, "-m", "benchmarks", *arguments],
    env={
      **os.environ,
      **environment,
      "JAX_PLATFORMS": platforms,
      "PYTHONPATH": f"{path}{os.pathsep}{root}" if path else root,
    },
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr}")
  return json.loads(done.stdout.splitlines()[-1])


def compare(
  names: Sequence[str], platform: str, baseline: str
) -> list[dict[str, Any]]:
  """The peaks on both platforms for each named workload, and for none."""
  rows = []
  for name in (IDLE, *names):
    ours, theirs = run(name, platform), run(name, baseline)
    rows.append(
      {
        "workload": name,
        "bytes": ours,
        "baseline_bytes": theirs,
        "ratio": ours / theirs,
      }
    )
  return rows


def table(rows: Sequence[dict[str, Any]], names: tuple[str, str]) -> str:
  lines = [("peak memory", *(f"{n}, MiB" for n in names), "ratio", "")]
  for row in rows:
    lines.append(
      (
        row["workload"],
        f"{row['bytes'] / 2**20:.0f}",
        f"{row['baseline_bytes'] / 2**20:.0f}",
        f"{row['ratio']:.2f}",
        "!" if row["ratio"] > LIMIT else "",
      )
    )
  return align(lines, left=1)
